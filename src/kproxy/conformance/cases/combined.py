"""Cases that combine what others try by itself: each kind of address with each policy, state of endpoints and protocol.

Only values; the vocabulary is `kproxy.conformance.case`.  A proxy that gets each part right may still mistake two of them
together: rules are written for each kind of address, family and protocol apart.
"""

from __future__ import annotations

from collections.abc import Iterator

from kproxy.conformance.case import (
    DROPPED,
    MASQUERADED,
    REJECTED,
    Apply,
    Backend,
    Case,
    CaseService,
    Feature,
    Lawful,
    Policy,
    Port,
    Probe,
    SourceRange,
    Target,
    Type,
    Vantage,
    Vip,
    case,
    client,
    delivered_to,
    host,
    pod,
    remote,
    service,
)
from kproxy.model.network import Protocol

LOCAL = Policy.LOCAL
BOTH_PROTOCOLS = (Port(name="a"), Port(name="b", number=53, protocol=Protocol.UDP))
UDP_PORT = (Port(number=53, protocol=Protocol.UDP),)

OPEN = service("open", "a1", "b1", type=Type.LOAD_BALANCER, vips=(Vip(),), external_ips=1)
"""A Service with every kind of address."""
FROM_BOTH = delivered_to("a1", "b1", source=MASQUERADED)

EXPOSED = {Feature.NODE_PORT, Feature.LOAD_BALANCER, Feature.EXTERNAL_IPS}
EXTERNAL, INTERNAL = {Feature.EXTERNAL_TRAFFIC_POLICY}, {Feature.INTERNAL_TRAFFIC_POLICY}

SPREAD = {"balancing.every-endpoint-chosen"}
POD_CLAUSES = {"cluster-ip.reaches-ready-endpoint", "masquerade.cluster-ip.pod-source-preserved"}
OUTSIDE_CLAUSES = {
    "node-port.reaches-ready-endpoint",
    "load-balancer.reaches-ready-endpoint",
    "external-ip.reaches-ready-endpoint",
}
REWRITTEN = {"masquerade.external-policy-cluster.rewritten"}
KEPT = "external-policy.local.local-endpoints-source-preserved"
SILENT = "external-policy.local.drop-without-local-endpoint"
PODS_EVERYWHERE = "external-policy.local.pods-reach-all-endpoints"
HOST_EVERYWHERE = "external-policy.local.host-reaches-all-endpoints"
HAIRPIN = "masquerade.hairpin.rewritten"
UDP_SERVED = "protocol.udp.served"


def external_targets(of: CaseService, node: str, port: str = "") -> tuple[Target, ...]:
    """Its node port on a node, and each of its load balancer and external IPs."""
    found = (
        of.node_port(node),
        *map(of.vip, range(len(of.vips))),
        *map(of.external_ip, range(of.external_ips)),
    )
    return tuple(target.at(port) for target in found)


def probe_each_address(
    sender: Vantage, of: CaseService, expect: Lawful, *clauses: str, port: str = "", spread: bool = False
) -> Iterator[Probe]:
    """The same question at each of these addresses."""
    for to in external_targets(of, sender.node, port):
        yield Probe(sender=sender, to=to, expect=expect, spread=spread, clauses=clauses)


# ------------------------------------------------------------------- policies, at every kind of address

LOCAL_UDP = OPEN.replace(name="local", ports=UDP_PORT, external_policy=LOCAL)
AWAY_UDP = LOCAL_UDP.replace(name="away", backends=LOCAL_UDP.backends[1:])

LOCAL_DATAGRAMS = case(
    "external-policy.datagrams-at-every-address",
    "Policy Local binds datagrams at every kind of address, spares pods and the node, and is silent without an endpoint.",
    Apply(LOCAL_UDP, AWAY_UDP),
    *probe_each_address(client("a"), LOCAL_UDP, delivered_to("a1"), KEPT),
    *probe_each_address(remote("b"), LOCAL_UDP, delivered_to("b1"), KEPT),
    *probe_each_address(client("a"), AWAY_UDP, DROPPED, SILENT),
    *probe_each_address(pod("a2"), AWAY_UDP, delivered_to("b1"), PODS_EVERYWHERE),
    *probe_each_address(host("a"), AWAY_UDP, delivered_to("b1", source=MASQUERADED), HOST_EVERYWHERE),
    clauses=OUTSIDE_CLAUSES | {UDP_SERVED, KEPT, SILENT, PODS_EVERYWHERE, HOST_EVERYWHERE},
    features=EXPOSED | EXTERNAL,
)

SEVERAL = OPEN.replace(name="several", vips=(Vip(), Vip(ip_mode="VIP")), external_ips=2)
SEVERAL_LOCAL = SEVERAL.replace(name="several-local", external_policy=LOCAL, backends=SEVERAL.backends[1:])
EVERY_IP = "load-balancer.every-ip.served"

LOCAL_AT_SEVERAL = case(
    "external-policy.each-of-several-addresses",
    "Policy Local binds the second load balancer IP and the second external IP as it does the first.",
    Apply(SEVERAL_LOCAL),
    *probe_each_address(client("b"), SEVERAL_LOCAL, delivered_to("b1"), KEPT),
    *probe_each_address(client("a"), SEVERAL_LOCAL, DROPPED, SILENT),
    *probe_each_address(pod("a2"), SEVERAL_LOCAL, delivered_to("b1"), PODS_EVERYWHERE),
    clauses=OUTSIDE_CLAUSES | {KEPT, SILENT, PODS_EVERYWHERE, EVERY_IP},
    features=EXPOSED | EXTERNAL,
)

ENDING = (Backend(on="a1", ready=False, serving=True, terminating=True), Backend(on="b1"))
FALLING_BACK = OPEN.replace(
    name="falling-back", ports=BOTH_PROTOCOLS, backends=ENDING, internal_policy=LOCAL, external_policy=LOCAL
)
FALL_BACK = "endpoints.terminating.used-when-none-ready-on-node"

TERMINATING_AT_EVERY_ADDRESS = case(
    "terminating.under-local-policies-at-every-address",
    "Where a node's last endpoint terminates it serves that node's addresses of every kind, connections and datagrams.",
    Apply(FALLING_BACK),
    *probe_each_address(client("a"), FALLING_BACK, delivered_to("a1"), FALL_BACK, port="a"),
    *probe_each_address(remote("a"), FALLING_BACK, delivered_to("a1"), FALL_BACK, port="b"),
    Probe(
        sender=pod("a2"), to=FALLING_BACK.cluster_ip.at("a"), expect=delivered_to("a1"), clauses=(FALL_BACK,)
    ),
    Probe(
        sender=pod("a2"), to=FALLING_BACK.cluster_ip.at("b"), expect=delivered_to("a1"), clauses=(FALL_BACK,)
    ),
    *probe_each_address(client("b"), FALLING_BACK, delivered_to("b1"), KEPT, port="a"),
    clauses=OUTSIDE_CLAUSES
    | POD_CLAUSES
    | {
        UDP_SERVED,
        KEPT,
        FALL_BACK,
        "internal-policy.local.same-node",
        "internal-policy.external-addresses-exempt",
        "external-policy.cluster-ip-exempt",
    },
    features=EXPOSED | EXTERNAL | INTERNAL | {Feature.TERMINATING_ENDPOINTS},
)

ALL_ENDING = OPEN.replace(
    name="all-ending",
    ports=BOTH_PROTOCOLS,
    backends=tuple(Backend(on=on, ready=False, serving=True, terminating=True) for on in ("a1", "b1")),
)
STEP_IN = "endpoints.terminating.used-when-none-ready"

TERMINATING_UNDER_CLUSTER_POLICY = case(
    "terminating.all-of-them-at-every-address",
    "When all endpoints terminate, every kind of address leads to each of them, connections and datagrams.",
    Apply(ALL_ENDING),
    *probe_each_address(client("a"), ALL_ENDING, FROM_BOTH, STEP_IN, port="a", spread=True),
    *probe_each_address(pod("b2"), ALL_ENDING, FROM_BOTH, STEP_IN, port="b", spread=True),
    clauses=OUTSIDE_CLAUSES | REWRITTEN | SPREAD | {UDP_SERVED, STEP_IN},
    features=EXPOSED | {Feature.TERMINATING_ENDPOINTS},
)

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
    clauses=OUTSIDE_CLAUSES
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

ALONE = OPEN.replace(name="alone", ports=UDP_PORT, backends=OPEN.backends[:1])

HAIRPIN_DATAGRAMS = case(
    "masquerade.hairpin-of-datagrams",
    "The only endpoint reaches itself with datagrams at every kind of address, as it does where everyone is rewritten.",
    Apply(ALONE),
    Probe(sender=pod("a1"), to=ALONE.cluster_ip, expect=ITSELF, clauses=(HAIRPIN,)),
    *probe_each_address(pod("a1"), ALONE, ITSELF, "masquerade.external-policy-cluster.rewritten"),
    clauses=OUTSIDE_CLAUSES
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

ON_NODES = OPEN.replace(name="on-nodes", backends=(Backend(on="a"), Backend(on="b")), ports=BOTH_PROTOCOLS)
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
    clauses=OUTSIDE_CLAUSES | REWRITTEN | SPREAD | {UDP_SERVED, KEPT, REACHED, NODES_OWN},
    features=EXPOSED | EXTERNAL,
    regressions={"R042"},
)

# ------------------------------------------------------------------- nobody answers

HALF = OPEN.replace(
    name="half",
    ports=(Port(name="a"), Port(name="b", number=81), Port(name="c", number=53, protocol=Protocol.UDP)),
    slice_ports=(Port(name="a"),),
)
REFUSED = "endpoints.none.rejected"

ONE_PORT_WITHOUT_ENDPOINTS = case(
    "no-endpoints.ports-of-a-served-service",
    "Of a Service whose slices list one of its ports the others are refused at every kind of address, and that one is served.",
    Apply(HALF),
    *probe_each_address(client("a"), HALF, REJECTED, REFUSED, port="b"),
    *probe_each_address(pod("b2"), HALF, REJECTED, REFUSED, port="c"),
    Probe(sender=pod("a2"), to=HALF.cluster_ip.at("b"), expect=REJECTED, clauses=(REFUSED,)),
    Probe(sender=host("a"), to=HALF.cluster_ip.at("c"), expect=REJECTED, clauses=(REFUSED,)),
    *probe_each_address(client("a"), HALF, FROM_BOTH, port="a"),
    Probe(sender=pod("a2"), to=HALF.cluster_ip.at("a"), expect=delivered_to("a1", "b1")),
    clauses=OUTSIDE_CLAUSES
    | POD_CLAUSES
    | REWRITTEN
    | {REFUSED, "slices.ports.matched-by-name-and-protocol"},
    features=EXPOSED,
    regressions={"R105"},
)

EMPTY_SEVERAL = SEVERAL.replace(name="empty", backends=(), external_policy=LOCAL, ports=BOTH_PROTOCOLS)

REFUSED_AT_EACH = case(
    "no-endpoints.each-of-several-addresses",
    "Without endpoints each of several addresses refuses, connections and datagrams, under policy Local too.",
    Apply(EMPTY_SEVERAL, SEVERAL),
    *probe_each_address(client("a"), EMPTY_SEVERAL, REJECTED, REFUSED, port="a"),
    *probe_each_address(pod("b2"), EMPTY_SEVERAL, REJECTED, REFUSED, port="b"),
    *probe_each_address(client("a"), SEVERAL, FROM_BOTH),
    clauses=OUTSIDE_CLAUSES | REWRITTEN | {REFUSED, EVERY_IP},
    features=EXPOSED | EXTERNAL,
    regressions={"R105"},
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

# ------------------------------------------------------------------- addresses that Services share

SITE = service("site", "b1", type=Type.LOAD_BALANCER, vips=(Vip(),), external_ips=1, external_policy=LOCAL)
MAIL = SITE.replace(name="mail", same_vip_as="site", ports=(Port(number=25),), external_policy=None)
OF_MAIL = delivered_to("b1", source=MASQUERADED)

SHARED_UNDER_TWO_POLICIES = case(
    "external-policy.services-that-share-addresses",
    "Of two Services with one load balancer IP and one external IP each has its own policy.",
    Apply(SITE, MAIL),
    *probe_each_address(client("a"), SITE, DROPPED, SILENT),
    *probe_each_address(client("b"), SITE, delivered_to("b1"), KEPT),
    *probe_each_address(client("a"), MAIL, OF_MAIL),
    *probe_each_address(client("b"), MAIL, OF_MAIL),
    clauses=OUTSIDE_CLAUSES | REWRITTEN | {KEPT, SILENT, "node-port.every-node.served"},
    features=EXPOSED | EXTERNAL,
)

INSIDE, OUTSIDE = "source-ranges.inside-allowed", "source-ranges.outside-dropped"
SITE_FOR_FAR = service(
    "for-far", "b1", type=Type.LOAD_BALANCER, vips=(Vip(),), source_ranges=(SourceRange.REMOTE_NETWORK,)
)
MAIL_FOR_NEAR = SITE_FOR_FAR.replace(
    name="for-near",
    same_vip_as="for-far",
    ports=(Port(number=25),),
    source_ranges=(SourceRange.NODE_NETWORK,),
)

SHARED_WITH_OTHER_RANGES = case(
    "source-ranges.services-that-share-an-address",
    "Two Services with one load balancer IP let in whom each of them lists.",
    Apply(SITE_FOR_FAR, MAIL_FOR_NEAR),
    Probe(sender=remote("a"), to=SITE_FOR_FAR.vip(), expect=OF_MAIL, clauses=(INSIDE,)),
    Probe(sender=client("a"), to=SITE_FOR_FAR.vip(), expect=DROPPED, clauses=(OUTSIDE,)),
    Probe(sender=client("a"), to=MAIL_FOR_NEAR.vip(), expect=OF_MAIL, clauses=(INSIDE,)),
    Probe(sender=remote("a"), to=MAIL_FOR_NEAR.vip(), expect=DROPPED, clauses=(OUTSIDE,)),
    clauses=REWRITTEN | {"load-balancer.reaches-ready-endpoint", INSIDE, OUTSIDE},
    features={Feature.LOAD_BALANCER, Feature.SOURCE_RANGES},
    regressions={"R045"},
)

CASES: tuple[Case, ...] = (
    LOCAL_DATAGRAMS,
    LOCAL_AT_SEVERAL,
    TERMINATING_AT_EVERY_ADDRESS,
    TERMINATING_UNDER_CLUSTER_POLICY,
    HAIRPINS_OF_EVERY_POLICY,
    HAIRPIN_DATAGRAMS,
    HOST_NETWORK_AT_EVERY_ADDRESS,
    ONE_PORT_WITHOUT_ENDPOINTS,
    REFUSED_AT_EACH,
    ENDPOINTS_OF_ONE_FAMILY,
    SHARED_UNDER_TWO_POLICIES,
    SHARED_WITH_OTHER_RANGES,
)
