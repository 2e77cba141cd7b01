"""Where the answering endpoint may be and which source it sees: traffic policies and masquerading.

Part of the specification: from the kind of address asked, the Service's policies and the sender.
"""

from __future__ import annotations

from dataclasses import dataclass

from kproxy import api
from kproxy.spec.choice import Scope
from kproxy.spec.clauses import clause
from kproxy.spec.node import NodeFacts
from kproxy.spec.outcome import ClauseId, Failure, Source
from kproxy.spec.sender import Sender, Who
from kproxy.spec.services import Kind, Reasons

LOCAL = "Local"
PRESERVED = frozenset({Source.PRESERVED})
MASQUERADED = frozenset({Source.MASQUERADED})
EITHER_SOURCE = PRESERVED | MASQUERADED

Sources = frozenset[Source]


@dataclass(frozen=True, slots=True)
class Promise:
    """What a sender may count on.

    ``scopes``: where the endpoint may be, any of them; ``sources``: what it may see, any of them;
    ``broken``: failures that are lawful besides.
    """

    scopes: tuple[Scope, ...]
    sources: Sources
    reasons: Reasons
    broken: frozenset[Failure] = frozenset()


def promise_to(sender: Sender, kind: Kind, service: api.Service, node: NodeFacts) -> Promise:
    """What a sender may count on who asks for one kind of a Service's addresses."""
    if kind is Kind.CLUSTER_IP:
        return _at_cluster_ip(sender, service, node)
    exempt = service.spec.internal_traffic_policy == LOCAL
    reasons: Reasons = (clause("internal-policy.external-addresses-exempt"),) if exempt else ()
    if service.spec.external_traffic_policy != LOCAL:
        rewritten = clause("masquerade.external-policy-cluster.rewritten")
        return Promise((Scope.CLUSTER,), MASQUERADED, (*reasons, rewritten))
    promise = _under_external_local(sender)
    if node.masquerade_all and Source.PRESERVED in promise.sources:
        reasons += (clause("masquerade.all.external-local-exempt"),)
    return Promise(promise.scopes, promise.sources, (*promise.reasons, *reasons), promise.broken)


# --------------------------------------------------------------------------- cluster IP


def _at_cluster_ip(sender: Sender, service: api.Service, node: NodeFacts) -> Promise:
    """Policy internalTrafficPolicy settles where, the sender settles the source."""
    sources, reasons = _cluster_ip_source(sender, node)
    if sender.who is Who.OUTSIDE:
        reasons = (clause("cluster-ip.from-outside.served"), *reasons)
    if service.spec.external_traffic_policy == LOCAL:
        reasons = (clause("external-policy.cluster-ip-exempt"), *reasons)
    if service.spec.internal_traffic_policy == LOCAL:
        return Promise((Scope.NODE,), sources, (clause("internal-policy.local.same-node"), *reasons))
    return Promise((Scope.CLUSTER,), sources, reasons)


def _cluster_ip_source(sender: Sender, node: NodeFacts) -> tuple[Sources, Reasons]:
    if node.masquerade_all:
        return MASQUERADED, (clause("masquerade.all.cluster-ip-rewritten"),)
    if not sender.detector:
        return _source_without_detector(sender)
    match sender.who:
        case Who.POD | Who.OTHER_NODES_POD:
            sources, reason = PRESERVED, clause("masquerade.cluster-ip.pod-source-preserved")
        case Who.HOST:
            sources, reason = _host_source(sender, clause("masquerade.cluster-ip.host-rewritten"))
        case Who.OUTSIDE:
            sources, reason = MASQUERADED, clause("masquerade.cluster-ip.outside-rewritten")
    return sources, (reason, *sender.reasons)


def _source_without_detector(sender: Sender) -> tuple[Sources, Reasons]:
    if sender.who is Who.HOST:
        return EITHER_SOURCE, (clause("masquerade.cluster-ip.no-detector.host.either"), *sender.reasons)
    return PRESERVED, (clause("masquerade.cluster-ip.no-detector.preserved"), *sender.reasons)


def _host_source(sender: Sender, rewritten: ClauseId) -> tuple[Sources, ClauseId]:
    """The node is no pod, but it may send from an address that its detector takes for one."""
    if sender.looks_like_pod:
        return EITHER_SOURCE, clause("masquerade.host-with-pod-source.either")
    return MASQUERADED, rewritten


# --------------------------------------------------------------------------- node port and external addresses


def _under_external_local(sender: Sender) -> Promise:
    """From outside: this node's endpoints, source kept.  From inside: as policy Cluster."""
    match sender.who:
        case Who.OUTSIDE:
            kept = clause("external-policy.local.local-endpoints-source-preserved")
            reasons = (kept, *_pods_as_outside(sender), *sender.reasons)
            return Promise((Scope.NODE,), PRESERVED, reasons)
        case Who.POD:
            reasons = (clause("external-policy.local.pods-reach-all-endpoints"), *sender.reasons)
            return Promise((Scope.CLUSTER,), PRESERVED, reasons)
        case Who.HOST:
            all_endpoints = clause("external-policy.local.host-reaches-all-endpoints")
            sources, reason = _host_source(sender, all_endpoints)
            return Promise((Scope.CLUSTER,), sources, tuple(dict.fromkeys((all_endpoints, reason))))
        case Who.OTHER_NODES_POD:
            reasons = (clause("external-policy.local.other-nodes-pod.either"), *sender.reasons)
            both = (Scope.CLUSTER, Scope.NODE)
            return Promise(both, PRESERVED, reasons, frozenset({Failure.DROPPED}))


def _pods_as_outside(sender: Sender) -> Reasons:
    if sender.detector or not sender.in_pod_range:
        return ()
    return (clause("external-policy.local.no-detector.pods-as-outside"),)
