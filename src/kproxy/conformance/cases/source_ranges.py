"""Cases on loadBalancerSourceRanges: whom they let in, whom they bind, and what they leave alone.

Only values; the vocabulary is `kproxy.conformance.case`.  Every silence has someone beside it who is
let in at the same address or at another of the Service's.
"""

from __future__ import annotations

from kproxy.conformance.case import (
    DROPPED,
    MASQUERADED,
    REJECTED,
    SAME_ENDPOINT,
    UNTOUCHED,
    Apply,
    Case,
    Feature,
    Open,
    Policy,
    Port,
    Probe,
    Send,
    SourceRange,
    Type,
    Vip,
    case,
    client,
    delivered_to,
    host,
    pod,
    remote,
    service,
)
from kproxy.conformance.cases import change
from kproxy.conformance.cases.common import FROM_BOTH, SPREAD
from kproxy.conformance.cases.profiles import FORWARD_DROP
from kproxy.model.network import Family, Protocol

OPEN = service("web", "a1", "b1", type=Type.LOAD_BALANCER, vips=(Vip(),))
FROM_B2 = delivered_to("b2", source=MASQUERADED)

SERVED = {"load-balancer.reaches-ready-endpoint", "masquerade.external-policy-cluster.rewritten"}
ALLOWED = SERVED | {"source-ranges.inside-allowed"}
DENIED = {"source-ranges.outside-dropped"}
FEATURES = {Feature.LOAD_BALANCER, Feature.SOURCE_RANGES}

CLIENTS_INSIDE_AND_OUTSIDE = case(
    "source-ranges.clients-inside-and-outside",
    "A client inside the ranges is served, one outside gets silence; through either node.",
    Apply(guarded := OPEN.replace(source_ranges=(SourceRange.NOWHERE, SourceRange.REMOTE_NETWORK))),
    Probe(sender=remote("a"), to=guarded.vip(), expect=FROM_BOTH, spread=True),
    Probe(sender=remote("b"), to=guarded.vip(), expect=FROM_BOTH, spread=True),
    Probe(sender=client("a"), to=guarded.vip(), expect=DROPPED),
    Probe(sender=client("b"), to=guarded.vip(), expect=DROPPED),
    clauses=ALLOWED | DENIED | SPREAD,
    features=FEATURES,
    regressions={"R043", "R047"},
)

DATAGRAMS_TOO = case(
    "source-ranges.datagrams-too",
    "Ranges bind datagrams as they bind connections, down to a single address.",
    Apply(
        dns := OPEN.replace(
            name="dns", ports=(Port(number=53, protocol=Protocol.UDP),), source_ranges=("client",)
        )
    ),
    Probe(sender=client("a"), to=dns.vip(), expect=FROM_BOTH, spread=True),
    Probe(sender=client("b"), to=dns.vip(), expect=DROPPED),
    Probe(sender=remote("a"), to=dns.vip(), expect=DROPPED),
    clauses=ALLOWED | DENIED | SPREAD | {"protocol.udp.served"},
    features=FEATURES,
    regressions={"R043"},
)

PODS_ARE_BOUND = case(
    "source-ranges.pods-are-bound",
    "A pod that is listed is served, its neighbour on the node is not, though neither leaves the node.",
    Apply(listed := OPEN.replace(source_ranges=("a2", "remote"))),
    Probe(sender=pod("a2"), to=listed.vip(), expect=FROM_BOTH, spread=True),
    Probe(sender=pod("a3"), to=listed.vip(), expect=DROPPED),
    Probe(sender=pod("b2"), to=listed.vip(), expect=DROPPED),
    Probe(sender=remote("a"), to=listed.vip(), expect=FROM_BOTH),
    clauses=ALLOWED | DENIED | SPREAD | {"source-ranges.apply-to-pods"},
    features=FEATURES,
    regressions={"R049"},
)

PODS_OF_THE_CLUSTER_ARE_LET_IN = case(
    "source-ranges.pods-of-the-cluster-are-let-in",
    "A range that holds the cluster's pods lets them in, endpoints of the Service included, and no other "
    "client.",
    Apply(inward := OPEN.replace(source_ranges=(SourceRange.CLUSTER_CIDR,))),
    Probe(sender=pod("a1"), to=inward.vip(), expect=FROM_BOTH, spread=True),
    Probe(sender=pod("b3"), to=inward.vip(), expect=FROM_BOTH, spread=True),
    Probe(sender=client("a"), to=inward.vip(), expect=DROPPED),
    clauses=ALLOWED | DENIED | SPREAD,
    features=FEATURES,
)

NODES_ARE_BOUND = case(
    "source-ranges.nodes-are-bound",
    "A node's own processes are let in where its address is listed, and not where it is not.",
    Apply(own := OPEN.replace(source_ranges=("a",))),
    Probe(sender=host("a"), to=own.vip(), expect=FROM_BOTH, spread=True),
    Probe(sender=host("b"), to=own.vip(), expect=DROPPED),
    Probe(sender=client("a"), to=own.vip(), expect=DROPPED),
    clauses=ALLOWED | DENIED | SPREAD | {"source-ranges.apply-to-host"},
    features=FEATURES,
    regressions={"R045"},
)

EVERY_ADDRESS_IS_GUARDED = case(
    "source-ranges.every-address-is-guarded",
    "Ranges hold for each of two load balancer IPs, and let the node that they list first reach both.",
    Apply(
        pair := OPEN.replace(
            vips=(Vip(), Vip(ip_mode="VIP")), source_ranges=("a", SourceRange.REMOTE_NETWORK)
        )
    ),
    Probe(sender=remote("a"), to=pair.vip(0), expect=FROM_BOTH, spread=True),
    Probe(sender=remote("a"), to=pair.vip(1), expect=FROM_BOTH, spread=True),
    Probe(sender=host("a"), to=pair.vip(0), expect=FROM_BOTH, spread=True),
    Probe(sender=host("a"), to=pair.vip(1), expect=FROM_BOTH, spread=True),
    Probe(sender=client("a"), to=pair.vip(0), expect=DROPPED),
    Probe(sender=client("a"), to=pair.vip(1), expect=DROPPED),
    clauses=ALLOWED | DENIED | SPREAD | {"load-balancer.every-ip.served"},
    features=FEATURES,
    regressions={"R043", "R044"},
)

NEIGHBOURS_ARE_NOT_BOUND = case(
    "source-ranges.neighbours-are-not-bound",
    "A Service on the same load balancer IP and one beside it are open to all that a guarded one shuts out.",
    Apply(
        shut := OPEN.replace(name="shut", source_ranges=(SourceRange.REMOTE_NETWORK,)),
        mail := service(
            "mail",
            "b2",
            type=Type.LOAD_BALANCER,
            vips=(Vip(),),
            same_vip_as="shut",
            ports=(Port(number=25),),
        ),
        beside := service("beside", "b2", type=Type.LOAD_BALANCER, vips=(Vip(),)),
    ),
    Probe(sender=remote("a"), to=shut.vip(), expect=FROM_BOTH, spread=True),
    Probe(sender=client("a"), to=shut.vip(), expect=DROPPED),
    Probe(sender=host("a"), to=shut.vip(), expect=DROPPED),
    Probe(sender=client("a"), to=mail.vip(), expect=FROM_B2),
    Probe(sender=host("a"), to=mail.vip(), expect=FROM_B2),
    Probe(sender=client("a"), to=beside.vip(), expect=FROM_B2),
    Probe(sender=host("a"), to=beside.vip(), expect=FROM_B2),
    clauses=ALLOWED | DENIED | SPREAD | {"source-ranges.apply-to-host"},
    features=FEATURES,
    regressions={"R045", "R046"},
)

OTHER_ADDRESSES_ARE_NOT_BOUND = case(
    "source-ranges.other-addresses-are-not-bound",
    "Who is shut out at the load balancer IP is served at the node port, the cluster IP and the external IP.",
    Apply(fenced := OPEN.replace(external_ips=1, source_ranges=(SourceRange.REMOTE_NETWORK,))),
    Probe(sender=client("a"), to=fenced.vip(), expect=DROPPED),
    Probe(sender=pod("a2"), to=fenced.vip(), expect=DROPPED),
    Probe(sender=client("a"), to=fenced.node_port("a"), expect=FROM_BOTH, spread=True),
    Probe(sender=client("a"), to=fenced.external_ip(), expect=FROM_BOTH, spread=True),
    Probe(sender=client("a"), to=fenced.cluster_ip, expect=FROM_BOTH, spread=True),
    Probe(sender=pod("a2"), to=fenced.cluster_ip, expect=delivered_to("a1", "b1"), spread=True),
    clauses=DENIED
    | SPREAD
    | {
        "source-ranges.apply-to-pods",
        "source-ranges.node-port-exempt",
        "source-ranges.external-ip-exempt",
        "source-ranges.cluster-ip-exempt",
        "node-port.reaches-ready-endpoint",
        "external-ip.reaches-ready-endpoint",
        "cluster-ip.reaches-ready-endpoint",
        "cluster-ip.from-outside.served",
        "masquerade.cluster-ip.outside-rewritten",
        "masquerade.cluster-ip.pod-source-preserved",
        "masquerade.external-policy-cluster.rewritten",
    },
    features=FEATURES | {Feature.EXTERNAL_IPS, Feature.NODE_PORT},
)

UNDER_POLICY_LOCAL = case(
    "source-ranges.under-policy-local",
    "With externalTrafficPolicy Local ranges bind as well, and who is let in keeps its address.",
    Apply(near := OPEN.replace(external_policy=Policy.LOCAL, source_ranges=(SourceRange.REMOTE_NETWORK,))),
    Probe(sender=remote("a"), to=near.vip(), expect=delivered_to("a1"), count=8),
    Probe(sender=remote("b"), to=near.vip(), expect=delivered_to("b1"), count=8),
    Probe(sender=client("a"), to=near.vip(), expect=DROPPED),
    clauses=DENIED
    | {
        "load-balancer.reaches-ready-endpoint",
        "source-ranges.inside-allowed",
        "external-policy.local.local-endpoints-source-preserved",
    },
    features=FEATURES | {Feature.EXTERNAL_TRAFFIC_POLICY},
    regressions={"R030"},
)

ZERO_RANGE_LETS_ALL_IN = case(
    "source-ranges.zero-range-lets-all-in",
    "A /0 range beside others lets every sender in: clients, pods, nodes.",
    Apply(everyone := OPEN.replace(source_ranges=(SourceRange.NOWHERE, SourceRange.EVERYWHERE))),
    Probe(sender=client("a"), to=everyone.vip(), expect=FROM_BOTH, spread=True),
    Probe(sender=pod("b2"), to=everyone.vip(), expect=FROM_BOTH),
    Probe(sender=host("b"), to=everyone.vip(), expect=FROM_BOTH),
    clauses=SERVED | SPREAD | {"source-ranges.zero-range.allows-all"},
    features=FEATURES,
)

ZERO_RANGE_OF_IPV4 = case(
    "source-ranges.zero-range-of-ipv4",
    "The range 0.0.0.0/0 beside one of IPv6 lets in no client over IPv6 that the other does not.",
    Apply(
        guarded := OPEN.replace(
            literal_source_ranges=("0.0.0.0/0",), source_ranges=(SourceRange.REMOTE_NETWORK,)
        )
    ),
    Probe(sender=remote("a"), to=guarded.vip(), expect=FROM_BOTH),
    Probe(sender=client("a"), to=guarded.vip(), expect=DROPPED),
    clauses=ALLOWED | DENIED,
    features=FEATURES,
    families=(Family.IPV6,),
)

ZERO_RANGE_OF_IPV6 = case(
    "source-ranges.zero-range-of-ipv6",
    "The range ::/0 beside one of IPv4 lets in no client over IPv4 that the other does not.",
    Apply(
        guarded := OPEN.replace(literal_source_ranges=("::/0",), source_ranges=(SourceRange.REMOTE_NETWORK,))
    ),
    Probe(sender=remote("a"), to=guarded.vip(), expect=FROM_BOTH),
    Probe(sender=client("a"), to=guarded.vip(), expect=DROPPED),
    clauses=ALLOWED | DENIED,
    features=FEATURES,
    families=(Family.IPV4,),
)

TWO_HALVES_LET_ALL_IN = case(
    "source-ranges.two-halves-let-all-in",
    "Two ranges of length one let every client in; one of them only half of the world.",
    Apply(
        halves := OPEN.replace(name="halves", source_ranges=(SourceRange.LOWER_HALF, SourceRange.UPPER_HALF)),
        upper := OPEN.replace(name="upper", source_ranges=(SourceRange.UPPER_HALF, SourceRange.NOWHERE)),
    ),
    Probe(sender=client("a"), to=halves.vip(), expect=FROM_BOTH, spread=True),
    Probe(sender=pod("b2"), to=halves.vip(), expect=FROM_BOTH),
    Probe(sender=client("a"), to=upper.vip(), expect=FROM_BOTH),
    Probe(sender=pod("b2"), to=upper.vip(), expect=DROPPED),
    clauses=ALLOWED | DENIED | SPREAD | {"source-ranges.apply-to-pods"},
    features=FEATURES,
    families=(Family.IPV4,),
)

BLANKS_ARE_TRIMMED = case(
    "source-ranges.blanks-are-trimmed",
    "Ranges with blanks around them let in and shut out like others.",
    Apply(blank := OPEN.replace(literal_source_ranges=(" 172.18.0.0/24 ", "  fd00:18::/64 "))),
    Probe(sender=client("a"), to=blank.vip(), expect=FROM_BOTH, spread=True),
    Probe(sender=remote("a"), to=blank.vip(), expect=DROPPED),
    clauses=ALLOWED | DENIED | SPREAD | {"source-ranges.blanks-trimmed"},
    features=FEATURES,
)

RANGES_OF_THE_OTHER_FAMILY = case(
    "source-ranges.ranges-of-the-other-family",
    "IPv4 ranges alone may leave an IPv6 address open to all or to none; other addresses are served.",
    Apply(
        foreign := OPEN.replace(literal_source_ranges=("198.51.100.0/24",)),
        guarded_too := OPEN.replace(name="guarded", source_ranges=(SourceRange.REMOTE_NETWORK,)),
    ),
    Probe(sender=client("a"), to=foreign.vip(), expect=FROM_BOTH | DROPPED, count=4),
    Probe(sender=client("a"), to=foreign.node_port("a"), expect=FROM_BOTH, spread=True),
    Probe(sender=remote("a"), to=guarded_too.vip(), expect=FROM_BOTH, spread=True),
    Probe(sender=client("a"), to=guarded_too.vip(), expect=DROPPED),
    clauses=ALLOWED
    | DENIED
    | SPREAD
    | {
        "node-port.reaches-ready-endpoint",
        "source-ranges.node-port-exempt",
        "source-ranges.other-family-only.either",
    },
    features=FEATURES | {Feature.NODE_PORT},
    families=(Family.IPV6,),
)

WITHOUT_ENDPOINTS = case(
    "source-ranges.without-endpoints",
    "Without endpoints who is inside the ranges is refused; who is outside is refused too, or gets silence.",
    Apply(
        empty := OPEN.replace(name="empty", endpoints=(), source_ranges=(SourceRange.REMOTE_NETWORK,)),
        beside,
    ),
    Probe(sender=remote("a"), to=empty.vip(), expect=REJECTED),
    Probe(sender=client("a"), to=empty.vip(), expect=REJECTED | DROPPED),
    Probe(sender=client("a"), to=beside.vip(), expect=FROM_B2),
    clauses=SERVED | {"endpoints.none.rejected", "source-ranges.no-endpoint.either"},
    features=FEATURES,
)

RANGES_CHANGE = case(
    "source-ranges.ranges-change",
    "Ranges that move to another client bind both, and ranges that are removed bind no client and no node; connections of "
    "those shut out meanwhile go on.",
    Apply(OPEN.replace(source_ranges=(SourceRange.REMOTE_NETWORK,))),
    Open(flow="remote", sender=remote("a"), to=OPEN.vip(), expect=FROM_BOTH),
    Probe(sender=client("a"), to=OPEN.vip(), expect=DROPPED),
    Probe(sender=host("a"), to=OPEN.vip(), expect=DROPPED),
    Apply(OPEN.replace(source_ranges=(SourceRange.NODE_NETWORK,))),
    Probe(sender=client("a"), to=OPEN.vip(), expect=FROM_BOTH, spread=True, clauses=(change.SOURCE_RANGES,)),
    Probe(sender=remote("a"), to=OPEN.vip(), expect=DROPPED, clauses=(change.SOURCE_RANGES,)),
    Send(flow="remote", expect=SAME_ENDPOINT, clauses=("established.survives-source-range-change",)),
    Apply(OPEN),
    Probe(sender=client("a"), to=OPEN.vip(), expect=FROM_BOTH, clauses=(change.SOURCE_RANGES,)),
    Probe(sender=remote("a"), to=OPEN.vip(), expect=FROM_BOTH, spread=True, clauses=(change.SOURCE_RANGES,)),
    Probe(sender=host("a"), to=OPEN.vip(), expect=FROM_BOTH, clauses=(change.SOURCE_RANGES,)),
    clauses=ALLOWED
    | DENIED
    | SPREAD
    | {
        "source-ranges.apply-to-host",
        "change.source-ranges.followed",
        "established.survives-source-range-change",
    },
    features=FEATURES,
    regressions={"R043", "R048"},
)

AT_A_NODE = service(
    "at-a-node",
    "a1",
    "b1",
    type=Type.LOAD_BALANCER,
    vips=(Vip(node="a", second=True),),
    ports=(Port(node_port=False),),
    source_ranges=("a", SourceRange.NOWHERE),
)
CLOSED_AT_A_NODE = AT_A_NODE.replace(
    name="closed", ports=(Port(number=81, node_port=False),), source_ranges=(SourceRange.REMOTE_NETWORK,)
)
BESIDE_THE_NODES_OWN = AT_A_NODE.replace(name="beside-its-own", ports=(Port(number=82, node_port=False),))
OWN_PORT = BESIDE_THE_NODES_OWN.node_port("a", second=True)
"""A port of the same address that no Service has, and a daemon of the node."""
NODES_OWN = "external-address.undefined-port.not-served"

ADDRESS_OF_THE_NODE = case(
    "source-ranges.address-of-the-node",
    "A node sends to a load balancer IP of its own from that very address, and is let in where another of its addresses is.",
    Apply(AT_A_NODE, CLOSED_AT_A_NODE),
    Probe(
        sender=host("a"),
        to=AT_A_NODE.vip(),
        expect=FROM_BOTH,
        spread=True,
        clauses=("source-ranges.node-with-vip-as-source.allowed",),
    ),
    Probe(sender=host("a"), to=CLOSED_AT_A_NODE.vip(), expect=DROPPED, clauses=(*DENIED,)),
    Probe(sender=client("a"), to=AT_A_NODE.vip(), expect=DROPPED, clauses=(*DENIED,)),
    Probe(sender=pod("a2"), to=AT_A_NODE.vip(), expect=DROPPED, clauses=(*DENIED,)),
    clauses=SERVED
    | DENIED
    | SPREAD
    | {
        "load-balancer.without-node-port.served",
        "source-ranges.apply-to-host",
        "source-ranges.apply-to-pods",
        "source-ranges.node-with-vip-as-source.allowed",
    },
    features=FEATURES | {Feature.EXTERNAL_IPS_OF_NODES},
    regressions={"R044"},
    profile=FORWARD_DROP,
)

OTHER_PORTS_OF_THE_NODE = case(
    "source-ranges.other-ports-of-the-node",
    "Ranges for a load balancer IP that is a node's own address bind the Service's port alone: the node's "
    "others answer every client.",
    Apply(BESIDE_THE_NODES_OWN),
    Probe(sender=client("a"), to=BESIDE_THE_NODES_OWN.vip(), expect=DROPPED, clauses=(*DENIED,)),
    Probe(sender=client("a"), to=OWN_PORT, expect=UNTOUCHED, clauses=(NODES_OWN,)),
    Probe(sender=pod("a2"), to=OWN_PORT, expect=UNTOUCHED, clauses=(NODES_OWN,)),
    Probe(sender=host("a"), to=OWN_PORT, expect=UNTOUCHED, clauses=(NODES_OWN,)),
    Probe(sender=host("a"), to=BESIDE_THE_NODES_OWN.vip(), expect=FROM_BOTH),
    clauses=SERVED
    | DENIED
    | {NODES_OWN, "load-balancer.without-node-port.served", "source-ranges.node-with-vip-as-source.allowed"},
    features=FEATURES | {Feature.EXTERNAL_IPS_OF_NODES, Feature.NODE_PORT},
    profile=FORWARD_DROP,
)

CASES: tuple[Case, ...] = (
    CLIENTS_INSIDE_AND_OUTSIDE,
    DATAGRAMS_TOO,
    PODS_ARE_BOUND,
    PODS_OF_THE_CLUSTER_ARE_LET_IN,
    NODES_ARE_BOUND,
    EVERY_ADDRESS_IS_GUARDED,
    NEIGHBOURS_ARE_NOT_BOUND,
    OTHER_ADDRESSES_ARE_NOT_BOUND,
    UNDER_POLICY_LOCAL,
    ZERO_RANGE_LETS_ALL_IN,
    ZERO_RANGE_OF_IPV4,
    ZERO_RANGE_OF_IPV6,
    TWO_HALVES_LET_ALL_IN,
    BLANKS_ARE_TRIMMED,
    RANGES_OF_THE_OTHER_FAMILY,
    WITHOUT_ENDPOINTS,
    RANGES_CHANGE,
    ADDRESS_OF_THE_NODE,
    OTHER_PORTS_OF_THE_NODE,
)
