"""Mutants that leave out or change one family of iptables rules, as values."""

from __future__ import annotations

import re

import msgspec

from kproxy.proxy.backends.iptables import names
from kproxy.proxy.backends.xtables.rules import (
    Accept,
    Conntrack,
    ConntrackStatus,
    DestinationIsLocal,
    DestinationNAT,
    Drop,
    InInterface,
    Jump,
    Mark,
    Masquerade,
    Match,
    OneIn,
    OrMark,
    RecentlySeen,
    Reject,
    RememberSource,
    Return,
    Source,
    SourceIsLocal,
    Table,
    Transport,
    XorMark,
)
from tests.mutants.mutant import Function, Patch, mutant
from tests.mutants.rules import Rules, left_out, with_match, with_target, without

FILTER = Table.FILTER
MARK = Jump(names.MARK_MASQUERADE)
POOLS = "KUBE-SV"
"""Common prefix of the names of both pools' chains, KUBE-SVC- and KUBE-SVL-."""
EXTERNAL, RANGES, ENDPOINT = names.EXTERNAL_PREFIX, names.SOURCE_RANGES_PREFIX, names.ENDPOINT_PREFIX
TO_ALL_ENDPOINTS = Jump("KUBE-SVC-")
OPTIONS_TEST = (
    "tests/unit/proxy/backends/iptables/test_compile.py::test_options_reach_forwarding_and_masquerade"
)

MASQUERADE = (
    mutant(
        "masquerade.external",
        "Traffic to external addresses and node ports keeps its source.",
        *left_out(Rules(chain=EXTERNAL, target=MARK, lacking=(SourceIsLocal,))),
        clauses="masquerade.external-policy-cluster.rewritten",
    ),
    mutant(
        "masquerade.off-cluster",
        "Traffic to cluster IPs that is no pod's keeps its source.",
        *left_out(Rules(chain=POOLS, target=MARK)),
        clauses="masquerade.cluster-ip.outside-rewritten masquerade.cluster-ip.host-rewritten",
    ),
    mutant(
        "masquerade.hairpin",
        "A pod that reaches itself through a Service sees its own address.",
        *left_out(Rules(chain=ENDPOINT, target=MARK)),
        clauses="masquerade.hairpin.rewritten",
    ),
    mutant(
        "masquerade.mark",
        "What is to be masqueraded is not marked.",
        *left_out(Rules(chain=names.MARK_MASQUERADE, target=OrMark)),
        clauses="masquerade.external-policy-cluster.rewritten masquerade.hairpin.rewritten",
    ),
    mutant(
        "masquerade.postrouting",
        "What is marked is not masqueraded.",
        *left_out(Rules(chain=names.POSTROUTING, target=Masquerade)),
        clauses="masquerade.external-policy-cluster.rewritten masquerade.hairpin.rewritten",
    ),
    mutant(
        "masquerade.mark-kept",
        "The mark stays on packets that leave.",
        *left_out(Rules(chain=names.POSTROUTING, target=XorMark)),
        clauses="masquerade.own-mark.cleared",
        needs_kernel=True,
    ),
    mutant(
        "detector.ignored",
        "Pods are not told from others: all traffic to cluster IPs is masqueraded.",
        *without(Rules(chain=POOLS, target=MARK), Source, InInterface),
        clauses="masquerade.cluster-ip.pod-source-preserved",
    ),
    mutant(
        "detector.interface-ignored",
        "The interface of a packet does not tell whether it is a pod's.",
        *without(Rules(chain=POOLS, target=MARK), InInterface),
        clauses="detect-local.bridge-interface detect-local.interface-name-prefix",
    ),
)

REFUSAL = (
    mutant(
        "no-endpoint.cluster-ip",
        "A cluster IP without endpoints is not refused.",
        *left_out(Rules(chain=names.SERVICES, target=Reject, table=FILTER)),
        clauses="endpoints.none.rejected",
    ),
    mutant(
        "no-endpoint.external-address",
        "An external IP or load balancer IP without endpoints is not refused.",
        *left_out(
            Rules(chain=names.EXTERNAL_SERVICES, target=Reject, table=FILTER, lacking=(DestinationIsLocal,))
        ),
        clauses="endpoints.none.rejected",
    ),
    mutant(
        "no-endpoint.node-port",
        "A node port without endpoints is not refused.",
        *left_out(
            Rules(chain=names.EXTERNAL_SERVICES, target=Reject, table=FILTER, having=(DestinationIsLocal,))
        ),
        clauses="endpoints.none.rejected",
    ),
    mutant(
        "no-endpoint.silence",
        "What has no endpoint is met with silence instead of a refusal.",
        *with_target(Rules(chain="KUBE-", target=Reject, table=FILTER), Drop()),
        clauses="endpoints.none.rejected",
    ),
    mutant(
        "no-endpoint.forwarded",
        "Only the node's own packets to a cluster IP without endpoints are refused.",
        *left_out(Rules(chain="FORWARD", target=Jump(names.SERVICES), table=FILTER)),
        clauses="endpoints.none.rejected",
    ),
    mutant(
        "no-endpoint.own-packets",
        "The node's own packets to a cluster IP without endpoints are not refused.",
        *left_out(Rules(chain="OUTPUT", target=Jump(names.SERVICES), table=FILTER)),
        clauses="endpoints.none.rejected",
    ),
    mutant(
        "no-endpoint.forwarded-external",
        "Packets to external addresses of other machines are not refused.",
        *left_out(Rules(chain="FORWARD", target=Jump(names.EXTERNAL_SERVICES), table=FILTER)),
        clauses="endpoints.none.rejected",
    ),
    mutant(
        "no-endpoint.arriving",
        "Packets to the node itself are not refused.",
        *left_out(Rules(chain="INPUT", target=Jump(names.EXTERNAL_SERVICES), table=FILTER)),
        clauses="endpoints.none.rejected",
    ),
    mutant(
        "local-policy.internal-drop",
        "A cluster IP of policy Local without an endpoint here is not dropped.",
        *left_out(Rules(chain=names.SERVICES, target=Drop, table=FILTER)),
        clauses="internal-policy.local.drop-without-local-endpoint",
    ),
    mutant(
        "local-policy.external-drop",
        "External traffic of policy Local without an endpoint here is not dropped.",
        *left_out(Rules(chain=names.EXTERNAL_SERVICES, target=Drop, table=FILTER)),
        clauses="external-policy.local.drop-without-local-endpoint",
    ),
    mutant(
        "local-policy.internal-refusal",
        "A cluster IP of policy Local without an endpoint here is refused instead of dropped.",
        *with_target(Rules(chain=names.SERVICES, target=Drop, table=FILTER), Reject()),
        clauses="internal-policy.local.drop-without-local-endpoint",
    ),
    mutant(
        "local-policy.external-refusal",
        "External traffic of policy Local without an endpoint here is refused instead of dropped.",
        *with_target(Rules(chain=names.EXTERNAL_SERVICES, target=Drop, table=FILTER), Reject()),
        clauses="external-policy.local.drop-without-local-endpoint",
    ),
)

SOURCE_RANGES = (
    mutant(
        "source-ranges.drop",
        "Sources outside the ranges are not dropped.",
        *left_out(Rules(chain=names.PROXY_FIREWALL, target=Drop, table=FILTER)),
        clauses="source-ranges.outside-dropped",
    ),
    mutant(
        "source-ranges.everyone-admitted",
        "Every source counts as inside the ranges.",
        *without(Rules(chain=RANGES, target=Jump), Source),
        clauses="source-ranges.outside-dropped",
    ),
    mutant(
        "source-ranges.nobody-admitted",
        "No source counts as inside the ranges.",
        *left_out(Rules(chain=RANGES, target=Jump)),
        clauses="source-ranges.inside-allowed",
    ),
    mutant(
        "source-ranges.forwarded",
        "Ranges do not bind forwarded packets.",
        *left_out(Rules(chain="FORWARD", target=Jump(names.PROXY_FIREWALL), table=FILTER)),
        clauses="source-ranges.outside-dropped source-ranges.apply-to-pods",
    ),
    mutant(
        "source-ranges.own-packets",
        "Ranges do not bind the node's own packets.",
        *left_out(Rules(chain="OUTPUT", target=Jump(names.PROXY_FIREWALL), table=FILTER)),
        clauses="source-ranges.apply-to-host",
    ),
    mutant(
        "source-ranges.every-port",
        "Ranges bind the whole address, and not the Service's port alone.",
        *without(Rules(chain=names.PROXY_FIREWALL, target=Drop, table=FILTER), Transport),
        clauses="external-address.undefined-port.not-served",
        needs_kernel=True,
    ),
    mutant(
        "source-ranges.refusal-inside",
        "Who is inside the ranges of a Service without endpoints gets silence.",
        *left_out(Rules(chain=names.PROXY_FIREWALL, target=Return, table=FILTER)),
        clauses="endpoints.none.rejected",
    ),
)


def _as_if_one_more(match: Match) -> Match:
    return msgspec.structs.replace(match, count=match.count + 1) if isinstance(match, OneIn) else match


DISPATCH = (
    mutant(
        "dispatch.forwarded",
        "Only the node's own packets are taken to Services.",
        *left_out(Rules(chain="PREROUTING", target=Jump(names.SERVICES))),
        clauses="cluster-ip.reaches-ready-endpoint",
    ),
    mutant(
        "dispatch.cluster-ip-port",
        "Any port of a cluster IP leads to its endpoints.",
        *without(Rules(chain=names.SERVICES, target=Jump(POOLS)), Transport),
        clauses="cluster-ip.undefined-port.not-served",
    ),
    mutant(
        "dispatch.node-port",
        "Node ports are not taken to Services.",
        *left_out(Rules(chain=names.SERVICES, target=Jump(names.NODE_PORTS))),
        clauses="node-port.reaches-ready-endpoint",
    ),
    mutant(
        "dispatch.node-port-anywhere",
        "A node port is one at any address.",
        *without(Rules(chain=names.SERVICES, target=Jump(names.NODE_PORTS)), DestinationIsLocal),
        clauses="node-port.number-on-service-address.not-served",
    ),
    mutant(
        "dispatch.external-ip",
        "External IPs are not taken to Services.",
        *left_out(Rules(chain=names.SERVICES, target=Jump(EXTERNAL), comment=" external IP")),
        clauses="external-ip.reaches-ready-endpoint",
    ),
    mutant(
        "dispatch.load-balancer",
        "Load balancer IPs are not taken to Services.",
        *left_out(Rules(chain=names.SERVICES, target=Jump(EXTERNAL), comment=" loadbalancer IP")),
        clauses="load-balancer.reaches-ready-endpoint",
    ),
    mutant(
        "shortcut.pods",
        "Under external policy Local pods are treated as if outside.",
        *left_out(Rules(chain=EXTERNAL, target=TO_ALL_ENDPOINTS, having=(Source,))),
        clauses="external-policy.local.pods-reach-all-endpoints",
    ),
    mutant(
        "shortcut.host",
        "Under external policy Local the node itself is treated as if outside.",
        *left_out(Rules(chain=EXTERNAL, target=TO_ALL_ENDPOINTS, having=(SourceIsLocal,))),
        clauses="external-policy.local.host-reaches-all-endpoints",
    ),
    mutant(
        "shortcut.host-source-kept",
        "Under external policy Local the node's own packets to other nodes' endpoints keep their source.",
        *left_out(Rules(chain=EXTERNAL, target=MARK, having=(SourceIsLocal,))),
        clauses="external-policy.local.host-reaches-all-endpoints",
    ),
    mutant(
        "balancing.first-always",
        "The first endpoint gets every connection.",
        *without(Rules(chain=POOLS, target=Jump(ENDPOINT)), OneIn),
        clauses="balancing.every-endpoint-chosen",
    ),
    mutant(
        "balancing.last-twice",
        "The last endpoint gets twice what each of the others gets.",
        *with_match(Rules(chain=POOLS, target=Jump(ENDPOINT)), _as_if_one_more),
        clauses="balancing.even",
    ),
)


def _cut_short(suffix: Function) -> Function:
    return lambda text: suffix(re.sub(r"(/[^:]{60})[^:]*", r"\1", text))


def _for_three_hours(match: Match) -> Match:
    return msgspec.structs.replace(match, seconds=10800) if isinstance(match, RecentlySeen) else match


def _for_twice_as_long(match: Match) -> Match:
    return (
        msgspec.structs.replace(match, seconds=2 * match.seconds)
        if isinstance(match, RecentlySeen)
        else match
    )


GUARDS = (
    mutant(
        "affinity.not-asked",
        "Nobody asks which endpoint a client had.",
        *left_out(Rules(chain=POOLS, target=Jump(ENDPOINT), having=(RecentlySeen,))),
        clauses="affinity.client-ip.sticks",
        needs_kernel=True,
    ),
    mutant(
        "affinity.not-remembered",
        "Nobody notes which endpoint a client has.",
        *without(Rules(chain=ENDPOINT, target=DestinationNAT), RememberSource),
        clauses="affinity.client-ip.sticks",
        needs_kernel=True,
    ),
    mutant(
        "affinity.three-hours",
        "Affinity lasts three hours, whatever the Service says.",
        *with_match(Rules(chain=POOLS, target=Jump(ENDPOINT)), _for_three_hours),
        clauses="affinity.timeout.frees-choice affinity.timeout-change.followed",
        needs_kernel=True,
    ),
    mutant(
        "affinity.twice-as-long",
        "Affinity lasts twice as long as the Service says.",
        *with_match(Rules(chain=POOLS, target=Jump(ENDPOINT)), _for_twice_as_long),
        clauses="affinity.timeout.frees-choice affinity.timeout-change.followed",
        needs_kernel=True,
    ),
    mutant(
        "guard.localhost",
        "Loopback addresses can be reached from outside while they can be routed to.",
        *left_out(Rules(chain=names.FIREWALL, target=Drop, table=FILTER)),
        clauses="node-port.localhost.martian-dropped",
        needs_kernel=True,
    ),
    mutant(
        "guard.invalid",
        "Packets that conntrack calls INVALID are forwarded untranslated.",
        *left_out(Rules(chain=names.FORWARD, target=Drop, table=FILTER)),
        clauses="conntrack.invalid-not-leaked",
        needs_kernel=True,
    ),
    mutant(
        "guard.invalid-to-the-node",
        "Packets that conntrack calls INVALID reach the node's own processes untranslated.",
        *left_out(Rules(chain=names.NODE_PORTS, target=Drop, table=FILTER)),
        clauses="conntrack.invalid-not-leaked",
        needs_kernel=True,
    ),
    mutant(
        "guard.health-checks",
        "Health checks are not accepted where nothing is let in by default.",
        *left_out(Rules(chain=names.NODE_PORTS, target=Accept, table=FILTER)),
        clauses="health-check.input-policy-drop.passes",
        needs_kernel=True,
    ),
    mutant(
        "forward.accept",
        "Marked traffic is not accepted where forwarding is dropped by default.",
        *left_out(Rules(chain=names.FORWARD, target=Accept, table=FILTER, having=(Mark,))),
        clauses="node-port.forward-policy-drop.passes",
        needs_kernel=True,
    ),
    mutant(
        "forward.errors",
        "Errors that belong to a served flow are not accepted where forwarding is dropped by default.",
        *with_match(
            Rules(chain=names.FORWARD, target=Accept, table=FILTER, having=(Conntrack,)),
            lambda _: Conntrack((ConntrackStatus.ESTABLISHED,)),
        ),
        clauses="icmp.errors.translated-back node-port.forward-policy-drop.passes",
        needs_kernel=True,
    ),
)

NAMES = (
    mutant(
        "names.run-together",
        "Names of chains are made of what is named, put together so that some look alike.",
        Patch(
            "kproxy.proxy.backends.iptables.names:name_hash",
            lambda suffix: lambda text: suffix(text.replace(":", "-")),
        ),
        clauses="cluster-ip.reaches-ready-endpoint",
    ),
    mutant(
        "names.cut-short",
        "Names of chains are made of the first 60 characters of a Service's name.",
        Patch("kproxy.proxy.backends.iptables.names:name_hash", _cut_short),
        clauses="cluster-ip.reaches-ready-endpoint",
    ),
)

MUTANTS = (*NAMES, *MASQUERADE, *REFUSAL, *SOURCE_RANGES, *DISPATCH, *GUARDS)
