"""Cases on node ports: every node serves them, for every client, and rewrites their source.

Only values; the vocabulary is `kproxy.conformance.case`.  On every node a daemon listens on every node
port's number: what is not served by the proxy is seen to reach that daemon.
"""

from __future__ import annotations

from kproxy.conformance.case import (
    DROPPED,
    LOOPBACK,
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
    Type,
    Vip,
    case,
    client,
    delivered_to,
    endpoint_target,
    host,
    loopback_daemon,
    pod,
    remote,
    service,
    spoofed,
)
from kproxy.conformance.cases import change
from kproxy.conformance.cases.common import (
    ANYWHERE,
    DATAGRAMS,
    FROM_B1,
    FROM_BOTH,
    NODE_PORT_CLAUSES,
    SPREAD,
    UDP_PORT,
)
from kproxy.conformance.cases.profiles import FORWARD_DROP, NO_DETECTOR
from kproxy.model.network import Family, Protocol

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
        sender=client("a"), to=moved.node_port("a"), expect=FROM_BOTH, spread=True, clauses=(change.ADDRESS,)
    ),
    Probe(sender=client("a"), to=WEB.node_port("a"), expect=UNTOUCHED, clauses=(change.ADDRESS,)),
    Probe(sender=host("a"), to=WEB.node_port("a"), expect=UNTOUCHED, clauses=(change.ADDRESS,)),
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
    Probe(sender=client("a"), to=WEB.node_port("a"), expect=FROM_BOTH, spread=True, clauses=(change.TYPE,)),
    Apply(WEB.replace(type=Type.CLUSTER_IP)),
    Probe(sender=client("a"), to=WEB.node_port("a"), expect=UNTOUCHED, clauses=(change.TYPE,)),
    Probe(sender=pod("a2"), to=WEB.cluster_ip, expect=delivered_to("a1", "b1"), clauses=(change.TYPE,)),
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

# ------------------------------------------------------------------- a node that drops what is forwarded

FORWARDED = "node-port.forward-policy-drop.passes"

FORWARDING_IS_DROPPED = case(
    "node-port.forwarding-is-dropped",
    "A node that drops what it would forward still serves node ports and load balancer IPs, near and far.",
    Apply(
        either := service("either", "a1", "b1", type=Type.LOAD_BALANCER, vips=(Vip(),)),
        names := service("names", "b1", type=Type.LOAD_BALANCER, ports=UDP_PORT, vips=(Vip(),)),
    ),
    Probe(
        sender=client("a"),
        to=either.node_port("a"),
        expect=FROM_BOTH,
        spread=True,
        clauses=(FORWARDED,),
    ),
    Probe(sender=remote("a"), to=either.vip(), expect=FROM_BOTH, spread=True, clauses=(FORWARDED,)),
    Probe(sender=remote("a"), to=names.vip(), expect=FROM_B1, clauses=(FORWARDED,)),
    clauses=NODE_PORT_CLAUSES | SPREAD | DATAGRAMS | {"load-balancer.reaches-ready-endpoint", FORWARDED},
    features={Feature.FORWARD_POLICY, Feature.NODE_PORT, Feature.LOAD_BALANCER},
    regressions={"R059"},
    profile=FORWARD_DROP,
)

# ------------------------------------------------------------------- source ports

REMOTE = service("web", "b1", type=Type.NODE_PORT)
REMOTE_DNS = service("dns", "b1", type=Type.LOAD_BALANCER, ports=UDP_PORT, vips=(Vip(),))
OWN = "node-port.number-as-source.untouched"

NODE_SENDS_FROM_A_NODE_PORT = case(
    "node-port.node-sends-from-its-number",
    "A process of the node, and a pod, may send from the number of a node port, and get their answers.",
    Apply(REMOTE, REMOTE_DNS, direct := service("direct", "b2", ports=UDP_PORT)),
    Probe(
        sender=host("a"),
        to=endpoint_target(direct, "b2"),
        expect=UNTOUCHED,
        from_port_of=REMOTE_DNS.node_port("a"),
        clauses=(OWN,),
    ),
    Probe(
        sender=host("b"),
        to=endpoint_target(REMOTE, "b1"),
        expect=UNTOUCHED,
        from_port_of=REMOTE.node_port("b"),
        clauses=(OWN,),
    ),
    Probe(
        sender=pod("a2"),
        to=endpoint_target(REMOTE, "b1"),
        expect=UNTOUCHED,
        from_port_of=REMOTE.node_port("b"),
        clauses=(OWN,),
    ),
    Probe(sender=client("a"), to=REMOTE.node_port("a"), expect=FROM_B1),
    clauses=NODE_PORT_CLAUSES | ANYWHERE | {"traffic.not-for-a-service.untouched", OWN},
    features={Feature.NODE_PORT, Feature.LOAD_BALANCER},
    regressions={"R070"},
)

# ------------------------------------------------------------------- senders whose address is not their own

IPV4_ONLY = (Family.IPV4,)

NODES_ADDRESS_FROM_OUTSIDE = case(
    "node-port.nodes-address-from-outside",
    "Who comes from outside with the node's own address, or loopback's, is served at no node port, far or near.",
    Apply(
        REMOTE_DNS,
        near := service("near", "b1", ports=UDP_PORT, type=Type.NODE_PORT, external_policy=Policy.LOCAL),
    ),
    Probe(sender=spoofed("a", via="a"), to=REMOTE_DNS.node_port("a"), expect=DROPPED),
    Probe(sender=spoofed(LOOPBACK, via="a"), to=REMOTE_DNS.node_port("a"), expect=DROPPED),
    Probe(sender=spoofed("a", via="a"), to=near.node_port("a"), expect=DROPPED),
    Probe(sender=spoofed(LOOPBACK, via="a"), to=near.node_port("a"), expect=DROPPED),
    Probe(sender=client("a"), to=REMOTE_DNS.node_port("a"), expect=FROM_B1),
    clauses=NODE_PORT_CLAUSES | ANYWHERE | DATAGRAMS | {"traffic.own-source-from-outside.dropped"},
    features={Feature.NODE_PORT, Feature.LOAD_BALANCER, Feature.EXTERNAL_TRAFFIC_POLICY},
    families=IPV4_ONLY,
)

LOOPBACK_ADDRESS_FROM_OUTSIDE = case(
    "node-port.loopback-address-from-outside",
    "A neighbour that claims to be 127.0.0.1 reaches no loopback daemon, though the kernel routes such addresses.",
    Apply(REMOTE),
    Probe(sender=spoofed(LOOPBACK, via="a"), to=loopback_daemon("a", Protocol.UDP), expect=DROPPED),
    Probe(sender=spoofed(LOOPBACK, via="a"), to=loopback_daemon("a"), expect=DROPPED),
    Probe(sender=host("a"), to=loopback_daemon("a", Protocol.UDP), expect=UNTOUCHED),
    Probe(sender=client("a"), to=REMOTE.node_port("a"), expect=FROM_B1),
    clauses=NODE_PORT_CLAUSES
    | ANYWHERE
    | {"node-port.localhost.martian-dropped", "traffic.not-for-a-service.untouched"},
    features={Feature.NODE_PORT, Feature.LOCALHOST_NODE_PORTS},
    regressions={"R063"},
    profile=NO_DETECTOR,
    families=IPV4_ONLY,
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
    FORWARDING_IS_DROPPED,
    NODE_SENDS_FROM_A_NODE_PORT,
    NODES_ADDRESS_FROM_OUTSIDE,
    LOOPBACK_ADDRESS_FROM_OUTSIDE,
)
