"""Cases of the topic objects where several features act together, and at extremes.

Only values; the vocabulary is `kproxy.conformance.case`.
"""

from __future__ import annotations

from kproxy.conformance.case import (
    MASQUERADED,
    REJECTED,
    Apply,
    Case,
    CaseEndpoint,
    Feature,
    Port,
    Probe,
    SourceRange,
    Type,
    Vip,
    case,
    client,
    delivered_to,
    pod,
    remote,
    service,
)
from kproxy.conformance.cases.combinations import (
    BOTH_PROTOCOLS,
    EXPOSED,
    EXTERNAL,
    KEPT,
    LOCAL,
    OPEN,
    REFUSED,
    REWRITTEN,
    UDP_SERVED,
    probe_each_address,
)
from kproxy.conformance.cases.common import EVERY_KIND, FROM_B1, FROM_BOTH, POD_CLAUSES, SPREAD

ON_NODES = OPEN.replace(
    name="on-nodes", endpoints=(CaseEndpoint(on="a"), CaseEndpoint(on="b")), ports=BOTH_PROTOCOLS
)
ON_NODES_LOCAL = ON_NODES.replace(name="on-nodes-local", external_policy=LOCAL)
NEAR_OR_FAR = delivered_to("a") | delivered_to("b", source=MASQUERADED)

REACHED, NODES_OWN = (
    "slices.endpoint.host-network.reached",
    "masquerade.endpoint-of-the-node-itself.preserved",
)

HOST_NETWORK_AT_EVERY_ADDRESS = case(
    "objects.host-network-endpoints-at-every-address",
    "Nodes that are endpoints answer at every kind of address, connections and datagrams, under either policy.",
    Apply(ON_NODES, ON_NODES_LOCAL),
    *probe_each_address(client("a"), ON_NODES, NEAR_OR_FAR, REACHED, port="a", spread=True),
    *probe_each_address(remote("a"), ON_NODES, NEAR_OR_FAR, REACHED, port="b", spread=True),
    *probe_each_address(client("b"), ON_NODES_LOCAL, delivered_to("b"), KEPT, port="a"),
    *probe_each_address(remote("b"), ON_NODES_LOCAL, delivered_to("b"), KEPT, port="b"),
    clauses=EVERY_KIND | REWRITTEN | SPREAD | {UDP_SERVED, KEPT, REACHED, NODES_OWN},
    features=EXPOSED | EXTERNAL,
    regressions={"R042"},
)

TWO_FAMILIES = OPEN.replace(
    name="two-families",
    external_ips=0,
    vips=(),
    type=Type.NODE_PORT,
    dual_stack=True,
    slices_of_one_family=True,
)

ENDPOINTS_OF_ONE_FAMILY = case(
    "objects.dual-stack-with-endpoints-of-one-family",
    "A dual-stack Service that has endpoints of one family is served in that one and refused in the other.",
    Apply(TWO_FAMILIES),
    Probe(sender=pod("a2"), to=TWO_FAMILIES.cluster_ip, expect=delivered_to("a1", "b1")),
    Probe(sender=client("a"), to=TWO_FAMILIES.node_port("a"), expect=FROM_BOTH),
    Probe(
        sender=pod("a2"), to=TWO_FAMILIES.cluster_ip.in_other_family(), expect=REJECTED, clauses=(REFUSED,)
    ),
    Probe(
        sender=client("a"),
        to=TWO_FAMILIES.node_port("a").in_other_family(),
        expect=REJECTED,
        clauses=(REFUSED,),
    ),
    clauses=POD_CLAUSES
    | REWRITTEN
    | {
        "node-port.reaches-ready-endpoint",
        REFUSED,
        "node-port.both-families.served",
        "slices.other-family.ignored",
    },
    features={Feature.NODE_PORT, Feature.IPV6},
)

INSIDE, OUTSIDE = "source-ranges.inside-allowed", "source-ranges.outside-dropped"
LONG = "a-service-whose-name-is-as-long-as-the-api-server-lets-it-be-"

LONG_ONE = service(
    LONG + "x1", "a1", type=Type.LOAD_BALANCER, vips=(Vip(),), ports=BOTH_PROTOCOLS, affinity_seconds=10800
)

LONG_TWO = LONG_ONE.replace(
    name=LONG + "x2", endpoints=(CaseEndpoint(on="b1"),), source_ranges=(SourceRange.NODE_NETWORK,)
)

LONG_NAMES = case(
    "objects.long-names-that-differ-at-their-end-in-namespaces-of-long-names",
    "Two Services whose names have 63 characters and differ in the last are distinguished, however names "
    "are shortened.",
    Apply(LONG_ONE, LONG_TWO),
    *(
        probe
        for port in ("a", "b")
        for probe in (
            Probe(sender=pod("a2"), to=LONG_ONE.cluster_ip.at(port), expect=delivered_to("a1")),
            Probe(sender=pod("a2"), to=LONG_TWO.cluster_ip.at(port), expect=delivered_to("b1")),
            Probe(
                sender=client("a"), to=LONG_ONE.vip().at(port), expect=delivered_to("a1", source=MASQUERADED)
            ),
            Probe(sender=client("a"), to=LONG_TWO.vip().at(port), expect=FROM_B1),
        )
    ),
    clauses=POD_CLAUSES
    | REWRITTEN
    | {"load-balancer.reaches-ready-endpoint", UDP_SERVED, INSIDE, "source-ranges.cluster-ip-exempt"},
    features={Feature.LOAD_BALANCER, Feature.SOURCE_RANGES, Feature.SESSION_AFFINITY},
)

WEB = service("web", "b1", ports=(Port(name="a"), Port(name="b", number=81)))
WEB_A, WEB_B = service("web-a", "a1"), service("web-b", "a2", ports=(Port(name="a"),))

NAMES_THAT_LOOK_ALIKE = case(
    "objects.names-that-look-alike",
    "Port `a` of Service `web` and the port of Service `web-a`, which has no name, are not taken for one another.",
    Apply(WEB, WEB_A, WEB_B),
    Probe(sender=pod("a3"), to=WEB.cluster_ip.at("a"), expect=delivered_to("b1")),
    Probe(sender=pod("a3"), to=WEB.cluster_ip.at("b"), expect=delivered_to("b1")),
    Probe(sender=pod("a3"), to=WEB_A.cluster_ip, expect=delivered_to("a1")),
    Probe(sender=pod("a3"), to=WEB_B.cluster_ip.at("a"), expect=delivered_to("a2")),
    clauses=POD_CLAUSES,
)

CASES: tuple[Case, ...] = (
    HOST_NETWORK_AT_EVERY_ADDRESS,
    ENDPOINTS_OF_ONE_FAMILY,
    LONG_NAMES,
    NAMES_THAT_LOOK_ALIKE,
)
