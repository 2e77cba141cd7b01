"""Cases of the topic masquerade where several features act together, and at extremes.

Only values; the vocabulary is `kproxy.conformance.case`.
"""

from __future__ import annotations

from kproxy.conformance.case import (
    MASQUERADED,
    Apply,
    Case,
    CaseEndpoint,
    Feature,
    Probe,
    Type,
    case,
    delivered_to,
    pod,
    service,
)
from kproxy.conformance.cases.combinations import (
    BOTH_PROTOCOLS,
    EXPOSED,
    EXTERNAL,
    INTERNAL,
    LOCAL,
    OPEN,
    PODS_EVERYWHERE,
    REWRITTEN,
    UDP_SERVED,
    probe_each_address,
)
from kproxy.conformance.cases.common import EVERY_KIND, FROM_BOTH, POD_CLAUSES, SPREAD, UDP_PORT
from kproxy.conformance.cases.profiles import MASQUERADE_ALL

HAIRPIN = "masquerade.hairpin.rewritten"

HERE_AND_THERE = OPEN.replace(
    name="both-local", internal_policy=LOCAL, external_policy=LOCAL, ports=BOTH_PROTOCOLS
)

ITSELF = delivered_to("a1", source=MASQUERADED)

HAIRPINS_OF_EVERY_POLICY = case(
    "masquerade.hairpin-under-both-local-policies",
    "An endpoint that reaches itself is rewritten where policy Local leaves it no other, and where it may have another.",
    Apply(HERE_AND_THERE),
    Probe(sender=pod("a1"), to=HERE_AND_THERE.cluster_ip.at("a"), expect=ITSELF, clauses=(HAIRPIN,)),
    Probe(sender=pod("a1"), to=HERE_AND_THERE.cluster_ip.at("b"), expect=ITSELF, clauses=(HAIRPIN,)),
    *probe_each_address(
        pod("a1"), HERE_AND_THERE, ITSELF | delivered_to("b1"), HAIRPIN, port="a", spread=True
    ),
    *probe_each_address(
        pod("a1"), HERE_AND_THERE, ITSELF | delivered_to("b1"), HAIRPIN, port="b", spread=True
    ),
    clauses=EVERY_KIND
    | SPREAD
    | {
        "cluster-ip.reaches-ready-endpoint",
        "masquerade.cluster-ip.pod-source-preserved",
        UDP_SERVED,
        HAIRPIN,
        PODS_EVERYWHERE,
        "internal-policy.local.same-node",
        "internal-policy.external-addresses-exempt",
        "external-policy.cluster-ip-exempt",
    },
    features=EXPOSED | EXTERNAL | INTERNAL,
    regressions={"R074"},
)

ALONE = OPEN.replace(name="alone", ports=UDP_PORT, endpoints=OPEN.endpoints[:1])

HAIRPIN_DATAGRAMS = case(
    "masquerade.hairpin-of-datagrams",
    "The only endpoint reaches itself with datagrams at every kind of address, as it does where every "
    "client is rewritten.",
    Apply(ALONE),
    Probe(sender=pod("a1"), to=ALONE.cluster_ip, expect=ITSELF, clauses=(HAIRPIN,)),
    *probe_each_address(pod("a1"), ALONE, ITSELF, "masquerade.external-policy-cluster.rewritten"),
    clauses=EVERY_KIND
    | REWRITTEN
    | {
        "cluster-ip.reaches-ready-endpoint",
        "masquerade.cluster-ip.pod-source-preserved",
        UDP_SERVED,
        HAIRPIN,
    },
    features=EXPOSED,
    regressions={"R074"},
)


ALL_REWRITTEN = "masquerade.all.cluster-ip-rewritten"
INTERNAL_LOCAL = OPEN.replace(name="internal-local", internal_policy=LOCAL, ports=BOTH_PROTOCOLS)

ALL_UNDER_INTERNAL_LOCAL = case(
    "masquerade.all-under-internal-policy-local",
    "With masqueradeAll a pod that internal policy Local keeps on its node is rewritten too, connections and datagrams.",
    Apply(INTERNAL_LOCAL),
    *(
        Probe(sender=sender, to=INTERNAL_LOCAL.cluster_ip.at(port), expect=ITSELF, clauses=(ALL_REWRITTEN,))
        for sender in (pod("a1"), pod("a2"))
        for port in ("a", "b")
    ),
    *probe_each_address(pod("a2"), INTERNAL_LOCAL, FROM_BOTH, port="b"),
    clauses=EVERY_KIND
    | REWRITTEN
    | {
        "cluster-ip.reaches-ready-endpoint",
        UDP_SERVED,
        ALL_REWRITTEN,
        "internal-policy.local.same-node",
        "internal-policy.external-addresses-exempt",
    },
    features=EXPOSED | INTERNAL | {Feature.MASQUERADE_ALL},
    profile=MASQUERADE_ALL,
)

NAMELESS = service("nameless", endpoints=(CaseEndpoint(on="a1", listed_node=""),), type=Type.NODE_PORT)

HAIRPIN_WITHOUT_A_NODE_NAME = case(
    "masquerade.hairpin-without-a-node-name",
    "A pod reaches itself by its Service, and sees another source than its own, though its EndpointSlice lists it without a node.",
    Apply(NAMELESS),
    Probe(sender=pod("a1"), to=NAMELESS.cluster_ip, expect=ITSELF),
    Probe(sender=pod("a1"), to=NAMELESS.node_port("a"), expect=ITSELF),
    Probe(sender=pod("a2"), to=NAMELESS.cluster_ip, expect=delivered_to("a1")),
    clauses=POD_CLAUSES
    | {
        HAIRPIN,
        "node-port.reaches-ready-endpoint",
        "node-port.every-node.served",
        "masquerade.external-policy-cluster.rewritten",
        "slices.endpoint.outside-cluster.reached",
    },
    features={Feature.NODE_PORT},
)

CASES: tuple[Case, ...] = (
    HAIRPINS_OF_EVERY_POLICY,
    HAIRPIN_WITHOUT_A_NODE_NAME,
    HAIRPIN_DATAGRAMS,
    ALL_UNDER_INTERNAL_LOCAL,
)
