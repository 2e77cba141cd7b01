"""Cases on node ports: every node serves them, for every client, and rewrites their source.

Only values; the vocabulary is `kproxy.conformance.case`.  On every node a daemon listens on every node
port's number: what is not served by the proxy is seen to reach that daemon.
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
    remote,
    service,
)
from kproxy.conformance.cases import changes
from kproxy.conformance.cases.common import FROM_BOTH, NODE_PORT_CLAUSES, SPREAD
from kproxy.model.network import Protocol

ON_A = service("on-a", "a1", type=Type.NODE_PORT)
WEB = service("web", "a1", "b1", type=Type.NODE_PORT)
DNS = service("dns", "a1", "b1", type=Type.NODE_PORT, ports=(Port(number=53, protocol=Protocol.UDP),))

FROM_A1 = delivered_to("a1", source=MASQUERADED)


CLIENTS_OUTSIDE_ARE_REWRITTEN = case(
    "node-port.clients-outside-are-rewritten",
    "Clients on-link and routed reach endpoints near and far through either node, and are rewritten.",
    Apply(WEB),
    Probe(sender=client("a"), to=WEB.node_port("a"), expect=FROM_BOTH, spread=True),
    Probe(sender=client("b"), to=WEB.node_port("b"), expect=FROM_BOTH, spread=True),
    Probe(sender=remote("a"), to=WEB.node_port("a"), expect=FROM_BOTH, spread=True),
    Probe(sender=remote("b"), to=WEB.node_port("b"), expect=FROM_BOTH, spread=True),
    clauses=NODE_PORT_CLAUSES | SPREAD,
    features={Feature.NODE_PORT},
)

DATAGRAMS_TOO = case(
    "node-port.datagrams-too",
    "The same for UDP, from outside, from a pod and from the node; large datagrams pass.",
    Apply(DNS),
    Probe(
        sender=client("a"),
        to=DNS.node_port("a"),
        expect=FROM_BOTH,
        spread=True,
        payload_bytes=4000,
        clauses=("payload.large.passes",),
    ),
    Probe(sender=remote("b"), to=DNS.node_port("b"), expect=FROM_BOTH, spread=True),
    Probe(sender=pod("a2"), to=DNS.node_port("a"), expect=FROM_BOTH, spread=True),
    Probe(sender=host("a"), to=DNS.node_port("a"), expect=FROM_BOTH, spread=True),
    clauses=NODE_PORT_CLAUSES | SPREAD | {"protocol.udp.served", "payload.large.passes"},
    features={Feature.NODE_PORT},
)

NODE_WITHOUT_ENDPOINT_SERVES = case(
    "node-port.node-without-endpoint-serves",
    "A node that has no endpoint of the Service serves its node port like one that has.",
    Apply(ON_A),
    Probe(sender=client("b"), to=ON_A.node_port("b"), expect=FROM_A1),
    Probe(sender=remote("b"), to=ON_A.node_port("b"), expect=FROM_A1),
    Probe(sender=pod("b1"), to=ON_A.node_port("b"), expect=FROM_A1),
    Probe(sender=host("b"), to=ON_A.node_port("b"), expect=FROM_A1),
    Probe(sender=client("a"), to=ON_A.node_port("a"), expect=FROM_A1),
    clauses=NODE_PORT_CLAUSES | {"node-port.every-node.served"},
    features={Feature.NODE_PORT},
)

FROM_INSIDE = case(
    "node-port.from-inside",
    "Pods and nodes reach node ports of their own node, and are rewritten.",
    Apply(WEB),
    Probe(sender=pod("a2"), to=WEB.node_port("a"), expect=FROM_BOTH, spread=True),
    Probe(sender=pod("a1"), to=WEB.node_port("a"), expect=FROM_BOTH, spread=True),
    Probe(sender=host("a"), to=WEB.node_port("a"), expect=FROM_BOTH, spread=True),
    clauses=NODE_PORT_CLAUSES | SPREAD,
    features={Feature.NODE_PORT},
    regressions={"R074"},
)

FROM_THE_OTHER_NODE = case(
    "node-port.from-the-other-node",
    "Pods and processes of one node reach the node port of another, which serves them.",
    Apply(ON_A),
    Probe(sender=pod("a2"), to=ON_A.node_port("b"), expect=FROM_A1),
    Probe(sender=pod("a1"), to=ON_A.node_port("b"), expect=FROM_A1),
    Probe(sender=host("a"), to=ON_A.node_port("b"), expect=FROM_A1),
    Probe(sender=pod("b1"), to=ON_A.node_port("a"), expect=FROM_A1),
    Probe(sender=host("b"), to=ON_A.node_port("a"), expect=FROM_A1),
    clauses=NODE_PORT_CLAUSES | {"node-port.every-node.served", "node-port.other-node.untouched"},
    features={Feature.NODE_PORT},
)

HOST_NETWORK_ENDPOINT_OF_THE_OTHER_NODE = case(
    "node-port.host-network-endpoint-of-the-other-node",
    "A node port leads to a node's own address as it does to a pod's.",
    Apply(daemon := service("daemon", "b", type=Type.NODE_PORT)),
    Probe(sender=client("a"), to=daemon.node_port("a"), expect=delivered_to("b", source=MASQUERADED)),
    Probe(sender=pod("a1"), to=daemon.node_port("a"), expect=delivered_to("b", source=MASQUERADED)),
    clauses=NODE_PORT_CLAUSES | {"node-port.every-node.served", "slices.endpoint.host-network.reached"},
    features={Feature.NODE_PORT},
    regressions={"R042"},
)

HOST_NETWORK_ENDPOINT_OF_THIS_NODE = case(
    "node-port.host-network-endpoint-of-this-node",
    "A process of the node that is itself the endpoint sees its client's address: what stays on the node is "
    "not rewritten.",
    Apply(daemon),
    Probe(sender=client("b"), to=daemon.node_port("b"), expect=delivered_to("b")),
    Probe(sender=remote("b"), to=daemon.cluster_ip, expect=delivered_to("b")),
    Probe(sender=pod("b1"), to=daemon.node_port("b"), expect=delivered_to("b")),
    Probe(sender=pod("b1"), to=daemon.cluster_ip, expect=delivered_to("b")),
    Probe(sender=client("a"), to=daemon.node_port("a"), expect=delivered_to("b", source=MASQUERADED)),
    clauses=NODE_PORT_CLAUSES
    | {
        "node-port.every-node.served",
        "slices.endpoint.host-network.reached",
        "masquerade.endpoint-of-the-node-itself.preserved",
        "cluster-ip.reaches-ready-endpoint",
        "cluster-ip.from-outside.served",
        "masquerade.cluster-ip.outside-rewritten",
        "masquerade.cluster-ip.pod-source-preserved",
    },
    features={Feature.NODE_PORT},
    regressions={"R042"},
)

EACH_PORT_ITS_OWN = case(
    "node-port.each-port-its-own",
    "Two ports of a Service have a node port each, and neither leads to the other's endpoint port.",
    Apply(
        two := service("two", "a1", type=Type.NODE_PORT, ports=(Port(name="a"), Port(name="b", number=81)))
    ),
    Probe(sender=client("a"), to=two.node_port("a").at("a"), expect=FROM_A1),
    Probe(sender=client("a"), to=two.node_port("a").at("b"), expect=FROM_A1),
    clauses=NODE_PORT_CLAUSES,
    features={Feature.NODE_PORT},
)

ONE_NUMBER_TWO_PROTOCOLS = case(
    "node-port.one-number-two-protocols",
    "A TCP and a UDP port may have the same node port; each leads to its own endpoint port.",
    Apply(
        twins := service(
            "twins",
            "a1",
            type=Type.NODE_PORT,
            ports=(Port(name="a"), Port(name="b", protocol=Protocol.UDP, same_node_port_as="a")),
        )
    ),
    Probe(sender=client("a"), to=twins.node_port("a").at("a"), expect=FROM_A1),
    Probe(sender=client("a"), to=twins.node_port("a").at("b"), expect=FROM_A1),
    Probe(sender=remote("b"), to=twins.node_port("b").at("b"), expect=FROM_A1),
    clauses=NODE_PORT_CLAUSES
    | {"node-port.every-node.served", "protocol.udp.served", "protocol.same-number.independent"},
    features={Feature.NODE_PORT},
)

OTHER_PROTOCOL_IS_UNTOUCHED = case(
    "node-port.other-protocol-is-untouched",
    "A node port of TCP only leaves datagrams to that number to the node's own daemons.",
    Apply(ON_A),
    Probe(sender=client("a"), to=ON_A.node_port("a").over(Protocol.UDP), expect=UNTOUCHED),
    Probe(sender=client("a"), to=ON_A.node_port("a"), expect=FROM_A1),
    clauses=NODE_PORT_CLAUSES | {"traffic.not-for-a-service.untouched"},
    features={Feature.NODE_PORT},
)

NUMBER_IS_NOT_SERVED_ON_THE_CLUSTER_IP = case(
    "node-port.number-is-not-served-on-the-cluster-ip",
    "The node port's number leads nowhere on the cluster IP, neither to an endpoint nor to a node's daemon.",
    Apply(WEB),
    Probe(sender=pod("a2"), to=WEB.cluster_ip.at_node_port_number(), expect=REJECTED | UNTOUCHED),
    Probe(sender=client("b"), to=WEB.cluster_ip.at_node_port_number(), expect=REJECTED | UNTOUCHED),
    Probe(sender=pod("a2"), to=WEB.cluster_ip, expect=delivered_to("a1", "b1")),
    clauses={
        "cluster-ip.reaches-ready-endpoint",
        "masquerade.cluster-ip.pod-source-preserved",
        "node-port.number-on-service-address.not-served",
    },
    features={Feature.NODE_PORT},
    regressions={"R052"},
)

MOVES_TO_ANOTHER_NUMBER = case(
    "node-port.moves-to-another-number",
    "When the node port changes, the new one is served and the old one is the node's again.",
    Apply(WEB),
    Probe(sender=client("a"), to=WEB.node_port("a"), expect=FROM_BOTH),
    Apply(moved := WEB.replace(generation=1)),
    Probe(
        sender=client("a"), to=moved.node_port("a"), expect=FROM_BOTH, spread=True, clauses=(changes.ADDRESS,)
    ),
    Probe(sender=client("a"), to=WEB.node_port("a"), expect=UNTOUCHED, clauses=(changes.ADDRESS,)),
    Probe(sender=host("a"), to=WEB.node_port("a"), expect=UNTOUCHED, clauses=(changes.ADDRESS,)),
    clauses=NODE_PORT_CLAUSES | SPREAD | {"traffic.not-for-a-service.untouched", "change.address.followed"},
    features={Feature.NODE_PORT},
)

COMES_AND_GOES_WITH_THE_TYPE = case(
    "node-port.comes-and-goes-with-the-type",
    "A Service gains and loses its node port with its type; its cluster IP and connections stay.",
    Apply(WEB.replace(type=Type.CLUSTER_IP)),
    Probe(sender=client("a"), to=WEB.node_port("a"), expect=UNTOUCHED),
    Open(flow="cluster", sender=pod("a2"), to=WEB.cluster_ip, expect=delivered_to("a1", "b1")),
    Apply(WEB),
    Probe(sender=client("a"), to=WEB.node_port("a"), expect=FROM_BOTH, spread=True, clauses=(changes.TYPE,)),
    Apply(WEB.replace(type=Type.CLUSTER_IP)),
    Probe(sender=client("a"), to=WEB.node_port("a"), expect=UNTOUCHED, clauses=(changes.TYPE,)),
    Probe(sender=pod("a2"), to=WEB.cluster_ip, expect=delivered_to("a1", "b1"), clauses=(changes.TYPE,)),
    Send(flow="cluster", expect=SAME_ENDPOINT, clauses=("established.survives-port-change-elsewhere",)),
    clauses=NODE_PORT_CLAUSES
    | SPREAD
    | {
        "cluster-ip.reaches-ready-endpoint",
        "masquerade.cluster-ip.pod-source-preserved",
        "traffic.not-for-a-service.untouched",
        "established.survives-port-change-elsewhere",
        "change.type.followed",
    },
    features={Feature.NODE_PORT},
)

CASES: tuple[Case, ...] = (
    CLIENTS_OUTSIDE_ARE_REWRITTEN,
    DATAGRAMS_TOO,
    NODE_WITHOUT_ENDPOINT_SERVES,
    FROM_INSIDE,
    FROM_THE_OTHER_NODE,
    HOST_NETWORK_ENDPOINT_OF_THE_OTHER_NODE,
    HOST_NETWORK_ENDPOINT_OF_THIS_NODE,
    EACH_PORT_ITS_OWN,
    ONE_NUMBER_TWO_PROTOCOLS,
    OTHER_PROTOCOL_IS_UNTOUCHED,
    NUMBER_IS_NOT_SERVED_ON_THE_CLUSTER_IP,
    MOVES_TO_ANOTHER_NUMBER,
    COMES_AND_GOES_WITH_THE_TYPE,
)
