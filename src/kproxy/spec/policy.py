"""Where the answering endpoint may be and which source it sees: traffic policies and masquerading.

Part of the specification: from the kind of Service address, the Service's policies and the sender.
"""

from __future__ import annotations

from dataclasses import dataclass

from kproxy.model import api
from kproxy.spec.clauses import clause
from kproxy.spec.endpoint_choice import EndpointScope
from kproxy.spec.node import NodeFacts
from kproxy.spec.outcome import ClauseId, Failure, SourceIP
from kproxy.spec.sender import Sender, SenderKind
from kproxy.spec.services import Reasons, ServiceAddressKind

LOCAL = "Local"
PRESERVED = frozenset({SourceIP.PRESERVED})
MASQUERADED = frozenset({SourceIP.MASQUERADED})
EITHER_SOURCE = PRESERVED | MASQUERADED

SourceIPs = frozenset[SourceIP]


@dataclass(frozen=True, slots=True)
class PolicyDecision:
    """Outcome of the traffic policies for a sender.

    ``scopes``: where the endpoint may be, any of them; ``sources``: sources it may see, any of them;
    ``also_lawful``: failures that are lawful as well.
    """

    scopes: tuple[EndpointScope, ...]
    sources: SourceIPs
    reasons: Reasons
    also_lawful: frozenset[Failure] = frozenset()


def decide_policy(
    sender: Sender, kind: ServiceAddressKind, service: api.Service, node: NodeFacts
) -> PolicyDecision:
    """Outcome of the traffic policies for a sender at one kind of a Service's addresses."""
    if kind is ServiceAddressKind.CLUSTER_IP:
        return _at_cluster_ip(sender, service, node)
    exempt = service.spec.internal_traffic_policy == LOCAL
    reasons: Reasons = (clause("internal-policy.external-addresses-exempt"),) if exempt else ()
    if service.spec.external_traffic_policy != LOCAL:
        rewritten = clause("masquerade.external-policy-cluster.rewritten")
        return PolicyDecision((EndpointScope.CLUSTER,), MASQUERADED, (*reasons, rewritten))
    promise = _with_external_policy_local(sender)
    if node.masquerade_all and SourceIP.PRESERVED in promise.sources:
        reasons += (clause("masquerade.all.external-local-exempt"),)
    return PolicyDecision(promise.scopes, promise.sources, (*promise.reasons, *reasons), promise.also_lawful)


# --------------------------------------------------------------------------- cluster IP


def _at_cluster_ip(sender: Sender, service: api.Service, node: NodeFacts) -> PolicyDecision:
    """Outcome at a cluster IP: internalTrafficPolicy decides the scope, the sender decides the source."""
    sources, reasons = _cluster_ip_source(sender, node)
    if sender.kind is SenderKind.OUTSIDE:
        reasons = (clause("cluster-ip.from-outside.served"), *reasons)
    if service.spec.external_traffic_policy == LOCAL:
        reasons = (clause("external-policy.cluster-ip-exempt"), *reasons)
    if service.spec.internal_traffic_policy == LOCAL:
        return PolicyDecision(
            (EndpointScope.NODE,), sources, (clause("internal-policy.local.same-node"), *reasons)
        )
    return PolicyDecision((EndpointScope.CLUSTER,), sources, reasons)


def _cluster_ip_source(sender: Sender, node: NodeFacts) -> tuple[SourceIPs, Reasons]:
    if node.masquerade_all:
        return MASQUERADED, (clause("masquerade.all.cluster-ip-rewritten"),)
    if not sender.has_detector:
        return _source_without_detector(sender)
    match sender.kind:
        case SenderKind.POD | SenderKind.OTHER_NODES_POD:
            sources, reason = PRESERVED, clause("masquerade.cluster-ip.pod-source-preserved")
        case SenderKind.HOST:
            sources, reason = _host_source(sender, clause("masquerade.cluster-ip.host-rewritten"))
        case SenderKind.OUTSIDE:
            sources, reason = MASQUERADED, clause("masquerade.cluster-ip.outside-rewritten")
    return sources, (reason, *sender.reasons)


def _source_without_detector(sender: Sender) -> tuple[SourceIPs, Reasons]:
    if sender.kind is SenderKind.HOST:
        return EITHER_SOURCE, (clause("masquerade.cluster-ip.no-detector.host.either"), *sender.reasons)
    return PRESERVED, (clause("masquerade.cluster-ip.no-detector.preserved"), *sender.reasons)


def _host_source(sender: Sender, rewritten: ClauseId) -> tuple[SourceIPs, ClauseId]:
    """The node is no pod, but it may send from an address that its detector takes for one."""
    if sender.looks_like_pod:
        return EITHER_SOURCE, clause("masquerade.host-with-pod-source.either")
    return MASQUERADED, rewritten


# --------------------------------------------------------------------------- node port and external addresses


def _with_external_policy_local(sender: Sender) -> PolicyDecision:
    """From outside: this node's endpoints, source kept.  From inside: as policy Cluster."""
    match sender.kind:
        case SenderKind.OUTSIDE:
            kept = clause("external-policy.local.local-endpoints-source-preserved")
            reasons = (kept, *_pods_as_outside(sender), *sender.reasons)
            return PolicyDecision((EndpointScope.NODE,), PRESERVED, reasons)
        case SenderKind.POD:
            reasons = (clause("external-policy.local.pods-reach-all-endpoints"), *sender.reasons)
            return PolicyDecision((EndpointScope.CLUSTER,), PRESERVED, reasons)
        case SenderKind.HOST:
            all_endpoints = clause("external-policy.local.host-reaches-all-endpoints")
            sources, reason = _host_source(sender, all_endpoints)
            return PolicyDecision(
                (EndpointScope.CLUSTER,), sources, tuple(dict.fromkeys((all_endpoints, reason)))
            )
        case SenderKind.OTHER_NODES_POD:
            reasons = (clause("external-policy.local.other-nodes-pod.either"), *sender.reasons)
            both = (EndpointScope.CLUSTER, EndpointScope.NODE)
            return PolicyDecision(both, PRESERVED, reasons, frozenset({Failure.DROPPED}))


def _pods_as_outside(sender: Sender) -> Reasons:
    if sender.has_detector or not sender.in_pod_range:
        return ()
    return (clause("external-policy.local.no-detector.pods-as-outside"),)
