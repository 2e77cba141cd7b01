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
    UNTOUCHED,
    Apply,
    Backend,
    Case,
    Feature,
    Lawful,
    Place,
    Policy,
    Port,
    Probe,
    Service,
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
from kproxy.conformance.cases.profiles import MASQUERADE_ALL, NO_DETECTOR, NODE_PORT_CIDR
from kproxy.net import Family, Protocol

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


def addresses(of: Service, node: str, port: str = "") -> tuple[Target, ...]:
    """Its node port on a node, and each of its load balancer and external IPs."""
    found = (
        of.node_port(node),
        *map(of.vip, range(len(of.vips))),
        *map(of.external_ip, range(of.external_ips)),
    )
    return tuple(target.at(port) for target in found)


def everywhere(
    sender: Vantage, of: Service, expect: Lawful, *clauses: str, port: str = "", spread: bool = False
) -> Iterator[Probe]:
    """The same question at each of these addresses."""
    for to in addresses(of, sender.node, port):
        yield Probe(sender=sender, to=to, expect=expect, spread=spread, clauses=clauses)


# ------------------------------------------------------------------- policies, at every kind of address

LOCAL_UDP = OPEN.but(name="local", ports=UDP_PORT, external_policy=LOCAL)
AWAY_UDP = LOCAL_UDP.but(name="away", backends=LOCAL_UDP.backends[1:])

LOCAL_DATAGRAMS = case(
    "external-policy.datagrams-at-every-address",
    "Policy Local binds datagrams at every kind of address, spares pods and the node, and is silent without an endpoint.",
    Apply(LOCAL_UDP, AWAY_UDP),
    *everywhere(client("a"), LOCAL_UDP, delivered_to("a1"), KEPT),
    *everywhere(remote("b"), LOCAL_UDP, delivered_to("b1"), KEPT),
    *everywhere(client("a"), AWAY_UDP, DROPPED, SILENT),
    *everywhere(pod("a2"), AWAY_UDP, delivered_to("b1"), PODS_EVERYWHERE),
    *everywhere(host("a"), AWAY_UDP, delivered_to("b1", source=MASQUERADED), HOST_EVERYWHERE),
    clauses=OUTSIDE_CLAUSES | {UDP_SERVED, KEPT, SILENT, PODS_EVERYWHERE, HOST_EVERYWHERE},
    features=EXPOSED | EXTERNAL,
)

SEVERAL = OPEN.but(name="several", vips=(Vip(), Vip(ip_mode="VIP")), external_ips=2)
SEVERAL_LOCAL = SEVERAL.but(name="several-local", external_policy=LOCAL, backends=SEVERAL.backends[1:])
EVERY_IP = "load-balancer.every-ip.served"

LOCAL_AT_SEVERAL = case(
    "external-policy.each-of-several-addresses",
    "Policy Local binds the second load balancer IP and the second external IP as it does the first.",
    Apply(SEVERAL_LOCAL),
    *everywhere(client("b"), SEVERAL_LOCAL, delivered_to("b1"), KEPT),
    *everywhere(client("a"), SEVERAL_LOCAL, DROPPED, SILENT),
    *everywhere(pod("a2"), SEVERAL_LOCAL, delivered_to("b1"), PODS_EVERYWHERE),
    clauses=OUTSIDE_CLAUSES | {KEPT, SILENT, PODS_EVERYWHERE, EVERY_IP},
    features=EXPOSED | EXTERNAL,
)

ENDING = (Backend(on="a1", ready=False, serving=True, terminating=True), Backend(on="b1"))
FALLING_BACK = OPEN.but(
    name="falling-back", ports=BOTH_PROTOCOLS, backends=ENDING, internal_policy=LOCAL, external_policy=LOCAL
)
FALL_BACK = "endpoints.terminating.used-when-none-ready-on-node"

TERMINATING_AT_EVERY_ADDRESS = case(
    "terminating.under-local-policies-at-every-address",
    "Where a node's last endpoint terminates it serves that node's addresses of every kind, connections and datagrams.",
    Apply(FALLING_BACK),
    *everywhere(client("a"), FALLING_BACK, delivered_to("a1"), FALL_BACK, port="a"),
    *everywhere(remote("a"), FALLING_BACK, delivered_to("a1"), FALL_BACK, port="b"),
    Probe(
        sender=pod("a2"), to=FALLING_BACK.cluster_ip.at("a"), expect=delivered_to("a1"), clauses=(FALL_BACK,)
    ),
    Probe(
        sender=pod("a2"), to=FALLING_BACK.cluster_ip.at("b"), expect=delivered_to("a1"), clauses=(FALL_BACK,)
    ),
    *everywhere(client("b"), FALLING_BACK, delivered_to("b1"), KEPT, port="a"),
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

ALL_ENDING = OPEN.but(
    name="all-ending",
    ports=BOTH_PROTOCOLS,
    backends=tuple(Backend(on=on, ready=False, serving=True, terminating=True) for on in ("a1", "b1")),
)
STEP_IN = "endpoints.terminating.used-when-none-ready"

TERMINATING_UNDER_CLUSTER_POLICY = case(
    "terminating.all-of-them-at-every-address",
    "When all endpoints terminate, every kind of address leads to each of them, connections and datagrams.",
    Apply(ALL_ENDING),
    *everywhere(client("a"), ALL_ENDING, FROM_BOTH, STEP_IN, port="a", spread=True),
    *everywhere(pod("b2"), ALL_ENDING, FROM_BOTH, STEP_IN, port="b", spread=True),
    clauses=OUTSIDE_CLAUSES | REWRITTEN | SPREAD | {UDP_SERVED, STEP_IN},
    features=EXPOSED | {Feature.TERMINATING_ENDPOINTS},
)

HERE_AND_THERE = OPEN.but(
    name="both-local", internal_policy=LOCAL, external_policy=LOCAL, ports=BOTH_PROTOCOLS
)
ITSELF = delivered_to("a1", source=MASQUERADED)

HAIRPINS_OF_EVERY_POLICY = case(
    "masquerade.hairpin-under-both-local-policies",
    "An endpoint that reaches itself is rewritten where policy Local leaves it no other, and where it may have another.",
    Apply(HERE_AND_THERE),
    Probe(sender=pod("a1"), to=HERE_AND_THERE.cluster_ip.at("a"), expect=ITSELF, clauses=(HAIRPIN,)),
    Probe(sender=pod("a1"), to=HERE_AND_THERE.cluster_ip.at("b"), expect=ITSELF, clauses=(HAIRPIN,)),
    *everywhere(pod("a1"), HERE_AND_THERE, ITSELF | delivered_to("b1"), HAIRPIN, port="a", spread=True),
    *everywhere(pod("a1"), HERE_AND_THERE, ITSELF | delivered_to("b1"), HAIRPIN, port="b", spread=True),
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

ALONE = OPEN.but(name="alone", ports=UDP_PORT, backends=OPEN.backends[:1])

HAIRPIN_DATAGRAMS = case(
    "masquerade.hairpin-of-datagrams",
    "The only endpoint reaches itself with datagrams at every kind of address, as it does where everyone is rewritten.",
    Apply(ALONE),
    Probe(sender=pod("a1"), to=ALONE.cluster_ip, expect=ITSELF, clauses=(HAIRPIN,)),
    *everywhere(pod("a1"), ALONE, ITSELF, "masquerade.external-policy-cluster.rewritten"),
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

ON_NODES = OPEN.but(name="on-nodes", backends=(Backend(on="a"), Backend(on="b")), ports=BOTH_PROTOCOLS)
ON_NODES_LOCAL = ON_NODES.but(name="on-nodes-local", external_policy=LOCAL)
NEAR_OR_FAR = delivered_to("a") | delivered_to("b", source=MASQUERADED)
REACHED, NODES_OWN = (
    "slices.endpoint.host-network.reached",
    "masquerade.endpoint-of-the-node-itself.preserved",
)

HOST_NETWORK_AT_EVERY_ADDRESS = case(
    "objects.host-network-endpoints-at-every-address",
    "Nodes that are endpoints answer at every kind of address, connections and datagrams, under either policy.",
    Apply(ON_NODES, ON_NODES_LOCAL),
    *everywhere(client("a"), ON_NODES, NEAR_OR_FAR, REACHED, port="a", spread=True),
    *everywhere(remote("a"), ON_NODES, NEAR_OR_FAR, REACHED, port="b", spread=True),
    *everywhere(client("b"), ON_NODES_LOCAL, delivered_to("b"), KEPT, port="a"),
    *everywhere(remote("b"), ON_NODES_LOCAL, delivered_to("b"), KEPT, port="b"),
    clauses=OUTSIDE_CLAUSES | REWRITTEN | SPREAD | {UDP_SERVED, KEPT, REACHED, NODES_OWN},
    features=EXPOSED | EXTERNAL,
    regressions={"R042"},
)

# ------------------------------------------------------------------- nobody answers

HALF = OPEN.but(
    name="half",
    ports=(Port(name="a"), Port(name="b", number=81), Port(name="c", number=53, protocol=Protocol.UDP)),
    slice_ports=(Port(name="a"),),
)
REFUSED = "endpoints.none.rejected"

ONE_PORT_WITHOUT_ENDPOINTS = case(
    "no-endpoints.ports-of-a-served-service",
    "Of a Service whose slices list one of its ports the others are refused at every kind of address, and that one is served.",
    Apply(HALF),
    *everywhere(client("a"), HALF, REJECTED, REFUSED, port="b"),
    *everywhere(pod("b2"), HALF, REJECTED, REFUSED, port="c"),
    Probe(sender=pod("a2"), to=HALF.cluster_ip.at("b"), expect=REJECTED, clauses=(REFUSED,)),
    Probe(sender=host("a"), to=HALF.cluster_ip.at("c"), expect=REJECTED, clauses=(REFUSED,)),
    *everywhere(client("a"), HALF, FROM_BOTH, port="a"),
    Probe(sender=pod("a2"), to=HALF.cluster_ip.at("a"), expect=delivered_to("a1", "b1")),
    clauses=OUTSIDE_CLAUSES
    | POD_CLAUSES
    | REWRITTEN
    | {REFUSED, "slices.ports.matched-by-name-and-protocol"},
    features=EXPOSED,
    regressions={"R105"},
)

EMPTY_SEVERAL = SEVERAL.but(name="empty", backends=(), external_policy=LOCAL, ports=BOTH_PROTOCOLS)

REFUSED_AT_EACH = case(
    "no-endpoints.each-of-several-addresses",
    "Without endpoints each of several addresses refuses, connections and datagrams, under policy Local too.",
    Apply(EMPTY_SEVERAL, SEVERAL),
    *everywhere(client("a"), EMPTY_SEVERAL, REJECTED, REFUSED, port="a"),
    *everywhere(pod("b2"), EMPTY_SEVERAL, REJECTED, REFUSED, port="b"),
    *everywhere(client("a"), SEVERAL, FROM_BOTH),
    clauses=OUTSIDE_CLAUSES | REWRITTEN | {REFUSED, EVERY_IP},
    features=EXPOSED | EXTERNAL,
    regressions={"R105"},
)

TWO_FAMILIES = OPEN.but(
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
    regressions={"R121"},
)

# ------------------------------------------------------------------- addresses that Services share

SITE = service("site", "b1", type=Type.LOAD_BALANCER, vips=(Vip(),), external_ips=1, external_policy=LOCAL)
MAIL = SITE.but(name="mail", share_vip_of="site", ports=(Port(number=25),), external_policy=None)
OF_MAIL = delivered_to("b1", source=MASQUERADED)

SHARED_UNDER_TWO_POLICIES = case(
    "external-policy.services-that-share-addresses",
    "Of two Services with one load balancer IP and one external IP each has its own policy.",
    Apply(SITE, MAIL),
    *everywhere(client("a"), SITE, DROPPED, SILENT),
    *everywhere(client("b"), SITE, delivered_to("b1"), KEPT),
    *everywhere(client("a"), MAIL, OF_MAIL),
    *everywhere(client("b"), MAIL, OF_MAIL),
    clauses=OUTSIDE_CLAUSES | REWRITTEN | {KEPT, SILENT, "node-port.every-node.served"},
    features=EXPOSED | EXTERNAL,
)

INSIDE, OUTSIDE = "source-ranges.inside-allowed", "source-ranges.outside-dropped"
SITE_FOR_FAR = service(
    "for-far", "b1", type=Type.LOAD_BALANCER, vips=(Vip(),), source_ranges=(Place.REMOTE_NETWORK,)
)
MAIL_FOR_NEAR = SITE_FOR_FAR.but(
    name="for-near", share_vip_of="for-far", ports=(Port(number=25),), source_ranges=(Place.NODE_NETWORK,)
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

# ------------------------------------------------------------------- source ranges

FOREIGN = tuple(f"203.0.113.{number}/32" for number in range(60)) + tuple(
    f"2001:db8:{number:x}::/48" for number in range(0x1000, 0x1000 + 60)
)
MANY_RANGES = OPEN.but(
    name="many-ranges", external_ips=0, raw_source_ranges=FOREIGN, source_ranges=("remote",)
)

MANY = case(
    "source-ranges.many-of-them",
    "Of more than a hundred ranges the last lets in as the first does, and none of them whom it does not hold.",
    Apply(MANY_RANGES),
    Probe(sender=remote("a"), to=MANY_RANGES.vip(), expect=FROM_BOTH, clauses=(INSIDE,)),
    Probe(sender=client("a"), to=MANY_RANGES.vip(), expect=DROPPED, clauses=(OUTSIDE,)),
    Probe(sender=pod("a2"), to=MANY_RANGES.vip(), expect=DROPPED, clauses=(OUTSIDE,)),
    clauses=REWRITTEN
    | {"load-balancer.reaches-ready-endpoint", INSIDE, OUTSIDE, "source-ranges.apply-to-pods"},
    features={Feature.LOAD_BALANCER, Feature.SOURCE_RANGES},
)

OVERLAPPING = MANY_RANGES.but(
    name="overlapping",
    raw_source_ranges=("172.18.0.100/32", "172.16.0.0/12", "fd00:18::100/128", "fd00:18::/32"),
    source_ranges=(Place.NODE_NETWORK, Place.NODE_NETWORK, "client"),
)

RANGES_OVERLAP = case(
    "source-ranges.ranges-that-overlap",
    "Ranges of which one holds another, and one that is listed twice, let in whom any of them holds.",
    Apply(OVERLAPPING),
    Probe(sender=client("a"), to=OVERLAPPING.vip(), expect=FROM_BOTH, clauses=(INSIDE,)),
    Probe(sender=client("b"), to=OVERLAPPING.vip(), expect=FROM_BOTH, clauses=(INSIDE,)),
    Probe(sender=remote("a"), to=OVERLAPPING.vip(), expect=DROPPED, clauses=(OUTSIDE,)),
    clauses=REWRITTEN | {"load-balancer.reaches-ready-endpoint", INSIDE, OUTSIDE},
    features={Feature.LOAD_BALANCER, Feature.SOURCE_RANGES},
)

GUARDED_LOCAL = OPEN.but(
    name="guarded",
    external_ips=0,
    external_policy=LOCAL,
    ports=BOTH_PROTOCOLS,
    source_ranges=(Place.REMOTE_NETWORK, "a2"),
)

RANGES_UNDER_LOCAL_POLICY = case(
    "source-ranges.of-every-port-under-policy-local",
    "Ranges hold for each port and protocol under policy Local, for pods too, which else reach endpoints anywhere.",
    Apply(GUARDED_LOCAL),
    *(
        probe
        for port in ("a", "b")
        for probe in (
            Probe(
                sender=remote("a"),
                to=GUARDED_LOCAL.vip().at(port),
                expect=delivered_to("a1"),
                clauses=(INSIDE, KEPT),
            ),
            Probe(sender=client("a"), to=GUARDED_LOCAL.vip().at(port), expect=DROPPED, clauses=(OUTSIDE,)),
            Probe(sender=pod("a3"), to=GUARDED_LOCAL.vip().at(port), expect=DROPPED, clauses=(OUTSIDE,)),
            Probe(
                sender=pod("a2"),
                to=GUARDED_LOCAL.vip().at(port),
                expect=delivered_to("a1", "b1"),
                clauses=(INSIDE, PODS_EVERYWHERE),
            ),
        )
    ),
    clauses={
        "load-balancer.reaches-ready-endpoint",
        UDP_SERVED,
        KEPT,
        INSIDE,
        OUTSIDE,
        PODS_EVERYWHERE,
        "source-ranges.apply-to-pods",
    },
    features={Feature.LOAD_BALANCER, Feature.SOURCE_RANGES} | EXTERNAL,
)

# ------------------------------------------------------------------- names and numbers

LONG = "a-service-whose-name-is-as-long-as-the-api-server-lets-it-be-"
LONG_ONE = service(
    LONG + "x1", "a1", type=Type.LOAD_BALANCER, vips=(Vip(),), ports=BOTH_PROTOCOLS, affinity_seconds=10800
)
LONG_TWO = LONG_ONE.but(name=LONG + "x2", backends=(Backend(on="b1"),), source_ranges=(Place.NODE_NETWORK,))

LONG_NAMES = case(
    "objects.long-names-that-differ-at-their-end-in-namespaces-of-long-names",
    "Two Services whose names have 63 characters and differ in the last are told apart, whatever is written of names.",
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
            Probe(
                sender=client("a"), to=LONG_TWO.vip().at(port), expect=delivered_to("b1", source=MASQUERADED)
            ),
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

EXTREME = OPEN.but(
    name="extreme",
    ports=(
        Port(name="a", number=1),
        Port(name="b", number=65535),
        Port(name="c", number=65535, protocol=Protocol.UDP),
    ),
)

FIRST_AND_LAST_PORTS = case(
    "protocols.first-and-last-port-numbers",
    "Ports 1 and 65535 are served like others.",
    Apply(EXTREME),
    *(
        Probe(sender=pod("a2"), to=EXTREME.cluster_ip.at(port), expect=delivered_to("a1", "b1"))
        for port in "abc"
    ),
    *(Probe(sender=client("a"), to=EXTREME.vip().at(port), expect=FROM_BOTH) for port in "abc"),
    *(Probe(sender=client("a"), to=EXTREME.external_ip().at(port), expect=FROM_BOTH) for port in "abc"),
    clauses=POD_CLAUSES
    | REWRITTEN
    | {
        "load-balancer.reaches-ready-endpoint",
        "external-ip.reaches-ready-endpoint",
        UDP_SERVED,
        "protocol.same-number.independent",
    },
    features={Feature.LOAD_BALANCER, Feature.EXTERNAL_IPS},
)

# ------------------------------------------------------------------- affinity, hints, sizes

STICKY = OPEN.but(
    name="sticky", affinity_seconds=10800, external_policy=LOCAL, backends=(*OPEN.backends, Backend(on="a2"))
)
STICKS, WITHIN = "affinity.client-ip.sticks", "affinity.within-policy"

AFFINITY_UNDER_LOCAL_POLICY = case(
    "affinity.under-local-policy-at-every-address",
    "Under policy Local a client outside sticks to an endpoint of the node at every kind of address.",
    Apply(STICKY),
    *(
        Probe(
            sender=sender,
            to=to,
            expect=delivered_to("a1", "a2"),
            count=8,
            clauses=(WITHIN,),
        )
        for sender in (client("a"), remote("a"))
        for to in addresses(STICKY, "a")
    ),
    clauses=OUTSIDE_CLAUSES | {KEPT, WITHIN},
    features=EXPOSED | EXTERNAL | {Feature.SESSION_AFFINITY},
    regressions={"R091"},
)

PERSONAL = OPEN.but(
    name="personal",
    ports=BOTH_PROTOCOLS,
    backends=(
        Backend(on="a1", zones=("zone-a",), nodes=("b",)),
        Backend(on="b1", zones=("zone-b",), nodes=("a",)),
    ),
)
SAME_NODE, HINTED = "topology.same-node", "topology.external-traffic.hints-followed"

NODE_HINTS_OUTSIDE = case(
    "topology.node-hints-bind-traffic-from-outside",
    "Hints for nodes bind every kind of address, connections and datagrams, by the node that the packet came to.",
    Apply(PERSONAL),
    *everywhere(client("a"), PERSONAL, delivered_to("b1", source=MASQUERADED), SAME_NODE, HINTED, port="a"),
    *everywhere(client("b"), PERSONAL, delivered_to("a1", source=MASQUERADED), SAME_NODE, HINTED, port="b"),
    *everywhere(host("a"), PERSONAL, delivered_to("b1", source=MASQUERADED), SAME_NODE, HINTED, port="b"),
    clauses=OUTSIDE_CLAUSES | REWRITTEN | {UDP_SERVED, SAME_NODE, HINTED, "node-port.every-node.served"},
    features=EXPOSED | {Feature.TOPOLOGY_HINTS},
)

LARGE, LARGE_LOCAL = OPEN.but(name="large", ports=BOTH_PROTOCOLS), HERE_AND_THERE.but(name="large-local")
PASSES = "payload.large.passes"

LARGE_PAYLOADS = case(
    "node-port.large-payloads-at-every-address",
    "Large requests and answers pass at every kind of address, rewritten or not, UDP fragments included.",
    Apply(LARGE, LARGE_LOCAL),
    *(
        Probe(sender=client("a"), to=to, expect=expect, oversize=5000, clauses=(PASSES,))
        for of, expect in ((LARGE, FROM_BOTH), (LARGE_LOCAL, delivered_to("a1")))
        for port in ("a", "b")
        for to in addresses(of, "a", port)
    ),
    clauses=OUTSIDE_CLAUSES
    | REWRITTEN
    | {UDP_SERVED, KEPT, PASSES, "internal-policy.external-addresses-exempt"},
    features=EXPOSED | EXTERNAL,
)

# ------------------------------------------------------------------- other configurations

ALL_REWRITTEN = "masquerade.all.cluster-ip-rewritten"
INTERNAL_LOCAL = OPEN.but(name="internal-local", internal_policy=LOCAL, ports=BOTH_PROTOCOLS)

ALL_UNDER_INTERNAL_LOCAL = case(
    "masquerade.all-under-internal-policy-local",
    "With masqueradeAll a pod that internal policy Local keeps on its node is rewritten too, connections and datagrams.",
    Apply(INTERNAL_LOCAL),
    *(
        Probe(sender=sender, to=INTERNAL_LOCAL.cluster_ip.at(port), expect=ITSELF, clauses=(ALL_REWRITTEN,))
        for sender in (pod("a1"), pod("a2"))
        for port in ("a", "b")
    ),
    *everywhere(pod("a2"), INTERNAL_LOCAL, FROM_BOTH, port="b"),
    clauses=OUTSIDE_CLAUSES
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

LISTED, UNLISTED = (
    "node-port.addresses.inside-configured.served",
    "node-port.addresses.outside-configured.untouched",
)
NODE_UDP = service("node-udp", "a1", "b1", type=Type.NODE_PORT, ports=UDP_PORT)
NODE_UDP_LOCAL = NODE_UDP.but(name="node-udp-local", external_policy=LOCAL)

DATAGRAMS_AT_CONFIGURED_ADDRESSES = case(
    "node-port.datagrams-at-configured-addresses",
    "With a list of ranges datagrams are served at addresses inside and left alone outside, under either policy.",
    Apply(NODE_UDP, NODE_UDP_LOCAL),
    Probe(sender=client("a"), to=NODE_UDP.node_port("a"), expect=FROM_BOTH, clauses=(LISTED,)),
    Probe(sender=client("a"), to=NODE_UDP_LOCAL.node_port("a"), expect=delivered_to("a1"), clauses=(LISTED,)),
    *(
        Probe(sender=sender, to=of.node_port("a", second=True), expect=UNTOUCHED, clauses=(UNLISTED,))
        for sender in (client("a"), pod("a2"), host("a"))
        for of in (NODE_UDP, NODE_UDP_LOCAL)
    ),
    clauses=REWRITTEN | {"node-port.reaches-ready-endpoint", UDP_SERVED, KEPT, LISTED, UNLISTED},
    features={Feature.NODE_PORT} | EXTERNAL,
    profile=NODE_PORT_CIDR,
)

ON_LOOPBACK = service("on-loopback", "a1", "b1", type=Type.NODE_PORT, ports=BOTH_PROTOCOLS)
LOCALHOST = "node-port.localhost.enabled.served"

LOCALHOST_COMBINED = case(
    "node-port.localhost-over-udp-and-without-endpoints",
    "Node ports on 127.0.0.1 serve datagrams too, and refuse where there is no endpoint.",
    Apply(ON_LOOPBACK, nobody := ON_LOOPBACK.but(name="nobody", backends=())),
    Probe(
        sender=host("a"),
        to=ON_LOOPBACK.localhost("a").at("a"),
        expect=FROM_BOTH,
        spread=True,
        clauses=(LOCALHOST,),
    ),
    Probe(
        sender=host("a"),
        to=ON_LOOPBACK.localhost("a").at("b"),
        expect=FROM_BOTH,
        spread=True,
        clauses=(LOCALHOST,),
    ),
    Probe(sender=host("a"), to=nobody.localhost("a").at("a"), expect=REJECTED, clauses=(REFUSED,)),
    Probe(sender=host("a"), to=nobody.localhost("a").at("b"), expect=REJECTED, clauses=(REFUSED,)),
    clauses=REWRITTEN | SPREAD | {"node-port.reaches-ready-endpoint", UDP_SERVED, LOCALHOST, REFUSED},
    features={Feature.NODE_PORT, Feature.LOCALHOST_NODE_PORTS},
    profile=NO_DETECTOR,
    families=(Family.IPV4,),
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
    MANY,
    RANGES_OVERLAP,
    RANGES_UNDER_LOCAL_POLICY,
    LONG_NAMES,
    NAMES_THAT_LOOK_ALIKE,
    FIRST_AND_LAST_PORTS,
    AFFINITY_UNDER_LOCAL_POLICY,
    NODE_HINTS_OUTSIDE,
    LARGE_PAYLOADS,
    ALL_UNDER_INTERNAL_LOCAL,
    DATAGRAMS_AT_CONFIGURED_ADDRESSES,
    LOCALHOST_COMBINED,
)
