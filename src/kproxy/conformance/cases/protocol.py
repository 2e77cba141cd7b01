"""Cases on protocols: TCP, UDP and SCTP side by side on one number.

Only values; the vocabulary is `kproxy.conformance.case`.
"""

from __future__ import annotations

from kproxy.conformance.case import (
    MASQUERADED,
    REJECTED,
    SAME_ENDPOINT,
    UNTOUCHED,
    Apply,
    Case,
    Feature,
    Open,
    Port,
    Probe,
    Send,
    Type,
    case,
    client,
    delivered_to,
    host,
    pod,
    service,
)
from kproxy.conformance.cases import change
from kproxy.conformance.cases.combinations import OPEN, REWRITTEN, UDP_SERVED
from kproxy.conformance.cases.common import FROM_B1, FROM_BOTH, POD_CLAUSES, SPREAD
from kproxy.conformance.cases.profiles import LIBERAL
from kproxy.model.network import Protocol

TWINS = service(
    "twins",
    "a1",
    "b1",
    ports=(Port(name="a", number=53), Port(name="b", number=53, protocol=Protocol.UDP)),
)
ON_BOTH = delivered_to("a1", "b1")
FROM_A1 = delivered_to("a1", source=MASQUERADED)

SIDE_BY_SIDE = {"protocol.same-number.independent"}

CONNECTIONS_AND_DATAGRAMS_ON_ONE_NUMBER = case(
    "protocols.connections-and-datagrams-on-one-number",
    "TCP and UDP ports with one number lead to an endpoint port each, for pods and nodes.",
    Apply(TWINS),
    Probe(sender=pod("a2"), to=TWINS.cluster_ip.at("a"), expect=ON_BOTH, spread=True),
    Probe(sender=pod("a2"), to=TWINS.cluster_ip.at("b"), expect=ON_BOTH, spread=True),
    Probe(sender=host("b"), to=TWINS.cluster_ip.at("b"), expect=FROM_BOTH, spread=True),
    clauses=POD_CLAUSES
    | SPREAD
    | SIDE_BY_SIDE
    | {"protocol.udp.served", "masquerade.cluster-ip.host-rewritten"},
)

ONE_OF_TWO_IS_REMOVED = case(
    "protocols.one-of-two-is-removed",
    "When the UDP port of a number goes, the TCP port stays and keeps its connections; it may come back.",
    Apply(TWINS),
    Open(flow="tcp", sender=pod("a2"), to=TWINS.cluster_ip.at("a"), expect=ON_BOTH),
    Probe(sender=pod("a2"), to=TWINS.cluster_ip.at("b"), expect=ON_BOTH),
    Apply(TWINS.replace(ports=TWINS.ports[:1])),
    Probe(
        sender=pod("a2"),
        to=TWINS.cluster_ip.at("b"),
        expect=REJECTED | UNTOUCHED,
        clauses=(change.PORT_REMOVED,),
    ),
    Probe(
        sender=pod("a2"),
        to=TWINS.cluster_ip.at("a"),
        expect=ON_BOTH,
        spread=True,
        clauses=(change.PORT_REMOVED,),
    ),
    Send(flow="tcp", expect=SAME_ENDPOINT, clauses=("established.survives-port-change-elsewhere",)),
    Apply(TWINS),
    Probe(
        sender=pod("b2"),
        to=TWINS.cluster_ip.at("b"),
        expect=ON_BOTH,
        spread=True,
        clauses=(change.PORT_ADDED,),
    ),
    clauses=POD_CLAUSES
    | SPREAD
    | SIDE_BY_SIDE
    | {
        "protocol.udp.served",
        "cluster-ip.undefined-protocol.not-served",
        "change.port-removed.not-served",
        "change.port-added.served",
        "established.survives-port-change-elsewhere",
    },
)

TCP_FIRST = service("turned", "a1", type=Type.NODE_PORT, ports=(Port(name="a"),))
UDP_THEN = TCP_FIRST.replace(ports=(Port(name="a", protocol=Protocol.UDP),))
OVER_TCP, OVER_UDP = (TCP_FIRST.cluster_ip.over(over) for over in (Protocol.TCP, Protocol.UDP))
BY_TCP, BY_UDP = (TCP_FIRST.node_port("a").over(over) for over in (Protocol.TCP, Protocol.UDP))
NAMED_SO = delivered_to("a1")
FROM_OUTSIDE = delivered_to("a1", source=MASQUERADED)
TURNED = (change.PORT_ADDED, change.PORT_REMOVED)

A_PORT_CHANGES_ITS_PROTOCOL = case(
    "protocols.a-port-changes-its-protocol",
    "A port that keeps its name and numbers and changes its protocol is served by the new one and not by the old, and back.",
    Apply(TCP_FIRST),
    Probe(sender=pod("a2"), to=OVER_TCP, expect=NAMED_SO),
    Probe(sender=client("a"), to=BY_TCP, expect=FROM_OUTSIDE),
    Apply(UDP_THEN),
    Probe(sender=pod("a2"), to=OVER_UDP, expect=NAMED_SO, clauses=TURNED),
    Probe(sender=client("a"), to=BY_UDP, expect=FROM_OUTSIDE, clauses=TURNED),
    Probe(sender=pod("a2"), to=OVER_TCP, expect=REJECTED | UNTOUCHED, clauses=TURNED),
    Probe(sender=client("a"), to=BY_TCP, expect=UNTOUCHED, clauses=TURNED),
    Apply(TCP_FIRST),
    Probe(sender=pod("a2"), to=OVER_TCP, expect=NAMED_SO, clauses=TURNED),
    Probe(sender=client("a"), to=BY_TCP, expect=FROM_OUTSIDE, clauses=TURNED),
    Probe(sender=pod("a2"), to=OVER_UDP, expect=REJECTED | UNTOUCHED, clauses=TURNED),
    Probe(sender=client("a"), to=BY_UDP, expect=UNTOUCHED, clauses=TURNED),
    clauses=POD_CLAUSES
    | {
        "protocol.udp.served",
        "cluster-ip.undefined-protocol.not-served",
        "node-port.reaches-ready-endpoint",
        "masquerade.external-policy-cluster.rewritten",
        "traffic.not-for-a-service.untouched",
        *TURNED,
    },
    features={Feature.NODE_PORT},
)

SCTP_BESIDE_THE_OTHERS = case(
    "protocols.sctp-beside-the-others",
    "TCP, UDP and SCTP share a cluster IP and a number.",
    Apply(
        trio := service(
            "trio",
            "a1",
            "b1",
            ports=(
                Port(name="a", number=5060),
                Port(name="b", number=5060, protocol=Protocol.UDP),
                Port(name="c", number=5060, protocol=Protocol.SCTP),
            ),
        )
    ),
    Probe(sender=pod("a2"), to=trio.cluster_ip.at("c"), expect=ON_BOTH, spread=True),
    Probe(sender=host("b"), to=trio.cluster_ip.at("c"), expect=FROM_BOTH, spread=True),
    Probe(sender=pod("a2"), to=trio.cluster_ip.at("a"), expect=ON_BOTH, spread=True),
    Probe(sender=pod("a2"), to=trio.cluster_ip.at("b"), expect=ON_BOTH, spread=True),
    clauses=POD_CLAUSES
    | SPREAD
    | SIDE_BY_SIDE
    | {"protocol.udp.served", "protocol.sctp.served", "masquerade.cluster-ip.host-rewritten"},
    features={Feature.SCTP},
)

SCTP_NODE_PORT = case(
    "protocols.sctp-node-port",
    "A node port of SCTP is served beside one of TCP with the same number, through either node.",
    Apply(
        signalling := service(
            "signalling",
            "a1",
            type=Type.NODE_PORT,
            ports=(Port(name="a"), Port(name="b", protocol=Protocol.SCTP, same_node_port_as="a")),
        )
    ),
    Probe(sender=client("a"), to=signalling.node_port("a").at("b"), expect=FROM_A1),
    Probe(sender=client("b"), to=signalling.node_port("b").at("b"), expect=FROM_A1),
    Probe(sender=client("a"), to=signalling.node_port("a").at("a"), expect=FROM_A1),
    clauses=SIDE_BY_SIDE
    | {
        "node-port.reaches-ready-endpoint",
        "node-port.every-node.served",
        "masquerade.external-policy-cluster.rewritten",
        "protocol.sctp.served",
    },
    features={Feature.SCTP, Feature.NODE_PORT},
    regressions={"R118"},
)

SCTP_OF_MANY_ADDRESSES = case(
    "protocols.sctp-of-many-addresses",
    "An association is set up over the address that the client sent to, though it lists more of its own.",
    Apply(signalling),
    Probe(
        sender=client("a"),
        to=signalling.node_port("a").at("b"),
        expect=FROM_A1,
        multihomed=True,
        clauses=("protocol.sctp.many-addresses.served",),
    ),
    Probe(sender=client("a"), to=signalling.node_port("a").at("b"), expect=FROM_A1),
    clauses=SIDE_BY_SIDE
    | {
        "node-port.reaches-ready-endpoint",
        "masquerade.external-policy-cluster.rewritten",
        "protocol.sctp.served",
        "protocol.sctp.many-addresses.served",
    },
    features={Feature.SCTP, Feature.NODE_PORT},
    regressions={"R119"},
    slow=True,  # when a packet is late, both ends try their other addresses: only virtual time has none that is
)

SCTP_WITHOUT_SOCKETS = case(
    "protocols.sctp-without-sockets",
    "What begins an association reaches an endpoint, and TCP beside it is served, though no kernel here need know SCTP.",
    Apply(
        pair := service(
            "pair",
            "b1",
            type=Type.NODE_PORT,
            ports=(Port(name="a"), Port(name="b", protocol=Protocol.SCTP)),
        )
    ),
    Probe(
        sender=pod("a2"),
        to=pair.cluster_ip.at("b"),
        expect=delivered_to("b1"),
        init_chunk_only=True,
        clauses=("protocol.sctp.without-sockets.served",),
    ),
    Probe(
        sender=client("a"),
        to=pair.cluster_ip.at("b"),
        expect=FROM_B1,
        init_chunk_only=True,
        clauses=("protocol.sctp.without-sockets.served",),
    ),
    Probe(
        sender=client("a"),
        to=pair.node_port("a").at("b"),
        expect=FROM_B1,
        init_chunk_only=True,
        clauses=("protocol.sctp.without-sockets.served",),
    ),
    Probe(sender=pod("a2"), to=pair.cluster_ip.at("a"), expect=delivered_to("b1")),
    clauses=POD_CLAUSES
    | SIDE_BY_SIDE
    | {
        "protocol.sctp.served",
        "protocol.sctp.without-sockets.served",
        "cluster-ip.from-outside.served",
        "masquerade.cluster-ip.outside-rewritten",
        "node-port.reaches-ready-endpoint",
        "node-port.every-node.served",
        "masquerade.external-policy-cluster.rewritten",
    },
    features={Feature.SCTP, Feature.NODE_PORT},
    profile=LIBERAL,
)

# ------------------------------------------------------------------- several features together

EXTREME = OPEN.replace(
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

CASES: tuple[Case, ...] = (
    CONNECTIONS_AND_DATAGRAMS_ON_ONE_NUMBER,
    ONE_OF_TWO_IS_REMOVED,
    A_PORT_CHANGES_ITS_PROTOCOL,
    SCTP_BESIDE_THE_OTHERS,
    SCTP_NODE_PORT,
    SCTP_OF_MANY_ADDRESSES,
    SCTP_WITHOUT_SOCKETS,
    FIRST_AND_LAST_PORTS,
)
