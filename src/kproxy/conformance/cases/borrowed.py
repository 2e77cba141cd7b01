"""Cases on senders whose address is not their own: pods', the node's, loopback's.

Only values; the vocabulary is `kproxy.conformance.case`.
"""

from __future__ import annotations

from kproxy.conformance.case import (
    DROPPED,
    MASQUERADED,
    UNTOUCHED,
    Apply,
    Case,
    Feature,
    Policy,
    Port,
    Probe,
    Type,
    Vip,
    case,
    client,
    delivered_to,
    host,
    loopback_daemon,
    pod,
    service,
    spoofed,
)
from kproxy.conformance.cases.profiles import (
    BRIDGE_INTERFACE,
    INTERFACE_PREFIX,
    NO_DETECTOR,
    NODE_CIDR,
)
from kproxy.model.network import Family, Protocol

UDP_PORT = (Port(number=53, protocol=Protocol.UDP),)
IPV4_ONLY = (Family.IPV4,)

WEB = service("web", "b1", type=Type.NODE_PORT)
DNS = service("dns", "b1", type=Type.LOAD_BALANCER, ports=UDP_PORT, vips=(Vip(),))
NAMES = service("names", "a3", "b1", ports=UDP_PORT)
FROM_B1 = delivered_to("b1", source=MASQUERADED)
ON_EITHER = delivered_to("a3", "b1")
FROM_EITHER = delivered_to("a3", "b1", source=MASQUERADED)

POD_CLAUSES = {"cluster-ip.reaches-ready-endpoint", "masquerade.cluster-ip.pod-source-preserved"}
OUTSIDE_CLAUSES = {
    "cluster-ip.reaches-ready-endpoint",
    "cluster-ip.from-outside.served",
    "masquerade.cluster-ip.outside-rewritten",
}
NODE_PORT_CLAUSES = {"node-port.reaches-ready-endpoint", "masquerade.external-policy-cluster.rewritten"}
ANYWHERE = {"node-port.every-node.served"}
DATAGRAMS = {"protocol.udp.served"}

POD_ADDRESS_FROM_OUTSIDE = case(
    "detect-local.pod-address-from-outside",
    "Where the pods' range tells who is a pod, a source of it is one, though it comes in from outside.",
    Apply(NAMES),
    Probe(sender=spoofed("b2", via="a"), to=NAMES.cluster_ip, expect=ON_EITHER),
    Probe(sender=spoofed("a2", via="a"), to=NAMES.cluster_ip, expect=ON_EITHER),
    Probe(sender=client("a"), to=NAMES.cluster_ip, expect=FROM_EITHER),
    clauses=POD_CLAUSES | OUTSIDE_CLAUSES | DATAGRAMS | {"detect-local.cluster-cidr"},
    features={Feature.DETECT_LOCAL},
)

POD_ADDRESS_FROM_ANOTHER_NODE = case(
    "detect-local.pod-address-of-another-node",
    "Where the node's own range tells pods, a source of another node's range is a client outside.",
    Apply(NAMES),
    Probe(sender=spoofed("b2", via="a"), to=NAMES.cluster_ip, expect=FROM_EITHER),
    Probe(sender=spoofed("a2", via="a"), to=NAMES.cluster_ip, expect=ON_EITHER),
    Probe(sender=pod("a1"), to=NAMES.cluster_ip, expect=ON_EITHER),
    clauses=POD_CLAUSES | OUTSIDE_CLAUSES | DATAGRAMS | {"detect-local.node-cidr"},
    features={Feature.DETECT_LOCAL},
    profile=NODE_CIDR,
)

POD_ADDRESS_BY_A_WRONG_INTERFACE = case(
    "detect-local.pod-address-by-no-pods-interface",
    "Where interfaces' names tell pods, a pod's address that comes in by the uplink is a client's outside.",
    Apply(NAMES),
    Probe(sender=spoofed("a2", via="a"), to=NAMES.cluster_ip, expect=FROM_EITHER),
    Probe(sender=pod("a2"), to=NAMES.cluster_ip, expect=ON_EITHER),
    clauses=POD_CLAUSES | OUTSIDE_CLAUSES | DATAGRAMS | {"detect-local.interface-name-prefix"},
    features={Feature.DETECT_LOCAL},
    profile=INTERFACE_PREFIX,
)

POD_ADDRESS_PAST_THE_BRIDGE = case(
    "detect-local.pod-address-past-the-bridge",
    "Where a bridge tells pods, a pod's address that does not come in by it is a client's outside.",
    Apply(NAMES),
    Probe(sender=spoofed("a1", via="a"), to=NAMES.cluster_ip, expect=FROM_EITHER),
    Probe(sender=pod("a1"), to=NAMES.cluster_ip, expect=ON_EITHER),
    clauses=POD_CLAUSES | OUTSIDE_CLAUSES | DATAGRAMS | {"detect-local.bridge-interface"},
    features={Feature.DETECT_LOCAL},
    profile=BRIDGE_INTERFACE,
)

NODES_ADDRESS_FROM_OUTSIDE = case(
    "node-port.nodes-address-from-outside",
    "Who comes from outside with the node's own address, or loopback's, is served at no node port, far or near.",
    Apply(
        DNS, near := service("near", "b1", ports=UDP_PORT, type=Type.NODE_PORT, external_policy=Policy.LOCAL)
    ),
    Probe(sender=spoofed("a", via="a"), to=DNS.node_port("a"), expect=DROPPED),
    Probe(sender=spoofed("loopback", via="a"), to=DNS.node_port("a"), expect=DROPPED),
    Probe(sender=spoofed("a", via="a"), to=near.node_port("a"), expect=DROPPED),
    Probe(sender=spoofed("loopback", via="a"), to=near.node_port("a"), expect=DROPPED),
    Probe(sender=client("a"), to=DNS.node_port("a"), expect=FROM_B1),
    clauses=NODE_PORT_CLAUSES | ANYWHERE | DATAGRAMS | {"traffic.own-source-from-outside.dropped"},
    features={Feature.NODE_PORT, Feature.LOAD_BALANCER, Feature.EXTERNAL_TRAFFIC_POLICY},
    families=IPV4_ONLY,
)

LOOPBACK_ADDRESS_FROM_OUTSIDE = case(
    "node-port.loopback-address-from-outside",
    "A neighbour that claims to be 127.0.0.1 reaches no loopback daemon, though the kernel routes such addresses.",
    Apply(WEB),
    Probe(sender=spoofed("loopback", via="a"), to=loopback_daemon("a", Protocol.UDP), expect=DROPPED),
    Probe(sender=spoofed("loopback", via="a"), to=loopback_daemon("a"), expect=DROPPED),
    Probe(sender=host("a"), to=loopback_daemon("a", Protocol.UDP), expect=UNTOUCHED),
    Probe(sender=client("a"), to=WEB.node_port("a"), expect=FROM_B1),
    clauses=NODE_PORT_CLAUSES
    | ANYWHERE
    | {"node-port.localhost.martian-dropped", "traffic.not-for-a-service.untouched"},
    features={Feature.NODE_PORT, Feature.LOCALHOST_NODE_PORTS},
    regressions={"R063"},
    profile=NO_DETECTOR,
    families=IPV4_ONLY,
)

CASES: tuple[Case, ...] = (
    POD_ADDRESS_FROM_OUTSIDE,
    POD_ADDRESS_FROM_ANOTHER_NODE,
    POD_ADDRESS_BY_A_WRONG_INTERFACE,
    POD_ADDRESS_PAST_THE_BRIDGE,
    NODES_ADDRESS_FROM_OUTSIDE,
    LOOPBACK_ADDRESS_FROM_OUTSIDE,
)
