"""Cases of the topic node-port: senders whose address is not their own.

Only values; the vocabulary is `kproxy.conformance.case`.
"""

from __future__ import annotations

from kproxy.conformance.case import (
    DROPPED,
    UNTOUCHED,
    Apply,
    Case,
    Feature,
    Policy,
    Probe,
    Type,
    Vip,
    case,
    client,
    host,
    loopback_daemon,
    service,
    spoofed,
)
from kproxy.conformance.cases.common import ANYWHERE, DATAGRAMS, FROM_B1, NODE_PORT_CLAUSES, UDP_PORT
from kproxy.conformance.cases.profiles import NO_DETECTOR
from kproxy.model.network import Family, Protocol

IPV4_ONLY = (Family.IPV4,)
WEB = service("web", "b1", type=Type.NODE_PORT)
DNS = service("dns", "b1", type=Type.LOAD_BALANCER, ports=UDP_PORT, vips=(Vip(),))

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
    NODES_ADDRESS_FROM_OUTSIDE,
    LOOPBACK_ADDRESS_FROM_OUTSIDE,
)
