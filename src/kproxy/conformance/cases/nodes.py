"""Cases on what a node has besides Services: marks, a firewall, its own address, many changes in little time.

Only values; the vocabulary is `kproxy.conformance.case`.
"""

from __future__ import annotations

from kproxy.conformance.case import (
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
    backend_target,
    case,
    client,
    delivered_to,
    host,
    pod,
    pods,
    remote,
    service,
)
from kproxy.conformance.cases.profiles import FORWARD_DROP, LIBERAL
from kproxy.model.network import Protocol

UDP_PORT = (Port(number=53, protocol=Protocol.UDP),)
FOREIGN_BIT = 0x100000
DEFAULT_BIT = 0x4000
"""The bit of masqueradeBit 14, which is another proxy's where this one has another."""

WEB = service("web", "b1", type=Type.NODE_PORT)
NAMES = service("names", "b1", ports=UDP_PORT)
FROM_B1 = delivered_to("b1", source=MASQUERADED)
FROM_EITHER = delivered_to("a1", "b1", source=MASQUERADED)

HOST_CLAUSES = {"cluster-ip.reaches-ready-endpoint", "masquerade.cluster-ip.host-rewritten"}
REWRITTEN = {"masquerade.external-policy-cluster.rewritten"}
NODE_PORT_CLAUSES = REWRITTEN | {"node-port.reaches-ready-endpoint"}
SPREAD = {"balancing.every-endpoint-chosen"}
DATAGRAMS = {"protocol.udp.served"}

KEPT, CLEARED = "masquerade.foreign-mark-bits.kept", "masquerade.own-mark.cleared"

MARKS_OF_OTHERS = case(
    "masquerade.marks-of-others",
    "A mark that a process of the node sets is on its packets when they leave rewritten, and the proxy's own is not.",
    Apply(WEB, NAMES),
    Probe(sender=host("a"), to=WEB.cluster_ip, expect=FROM_B1, mark=FOREIGN_BIT, clauses=(KEPT, CLEARED)),
    Probe(sender=host("a"), to=NAMES.cluster_ip, expect=FROM_B1, mark=FOREIGN_BIT, clauses=(KEPT, CLEARED)),
    Probe(sender=host("a"), to=WEB.node_port("a"), expect=FROM_B1, mark=FOREIGN_BIT, clauses=(KEPT, CLEARED)),
    clauses=HOST_CLAUSES | NODE_PORT_CLAUSES | DATAGRAMS | {"node-port.every-node.served", KEPT, CLEARED},
    features={Feature.NODE_PORT},
    regressions={"R076", "R077"},
)

BIT_OF_ANOTHER_PROXY = case(
    "masquerade.bit-is-configured",
    "With another masqueradeBit, the usual one is a foreign bit like others.",
    Apply(WEB),
    Probe(
        sender=host("a"),
        to=WEB.cluster_ip,
        expect=FROM_B1,
        mark=FOREIGN_BIT | DEFAULT_BIT,
        clauses=(KEPT, CLEARED),
    ),
    clauses=HOST_CLAUSES | {KEPT, CLEARED},
    regressions={"R077"},
    profile=LIBERAL,
)

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
        expect=FROM_EITHER,
        spread=True,
        clauses=(FORWARDED,),
    ),
    Probe(sender=remote("a"), to=either.vip(), expect=FROM_EITHER, spread=True, clauses=(FORWARDED,)),
    Probe(sender=remote("a"), to=names.vip(), expect=FROM_B1, clauses=(FORWARDED,)),
    clauses=NODE_PORT_CLAUSES | SPREAD | DATAGRAMS | {"load-balancer.reaches-ready-endpoint", FORWARDED},
    features={Feature.FORWARD_POLICY, Feature.NODE_PORT, Feature.LOAD_BALANCER},
    regressions={"R059"},
    profile=FORWARD_DROP,
)

IN_REACH = "external-ip.node-address.node-in-reach"

EXTERNAL_IP_OF_A_NODE = case(
    "external-ip.address-of-a-node",
    "An external IP that is a node's own address takes its port there and elsewhere, and nothing else of that node.",
    Apply(
        shared := service("shared", "a1", "b1", external_ips=1, external_ips_of=("b",)),
        direct := service("direct", "b"),
    ),
    Probe(sender=pod("a2"), to=shared.external_ip(), expect=FROM_EITHER),
    Probe(sender=host("a"), to=shared.external_ip(), expect=FROM_EITHER),
    Probe(sender=client("b"), to=shared.external_ip(), expect=FROM_EITHER),
    Probe(sender=host("a"), to=backend_target(direct, "b"), expect=UNTOUCHED, clauses=(IN_REACH,)),
    Probe(sender=pod("a2"), to=backend_target(direct, "b"), expect=UNTOUCHED, clauses=(IN_REACH,)),
    clauses=REWRITTEN | {"external-ip.reaches-ready-endpoint", IN_REACH},
    features={Feature.EXTERNAL_IPS, Feature.EXTERNAL_IPS_OF_NODES},
    regressions={"R056"},
    profile=FORWARD_DROP,
)

LOAD_BALANCER_IP_OF_A_NODE = case(
    "load-balancer.address-of-a-node",
    "Node ports go on at an address of a node that is a load balancer IP too.",
    Apply(shared := service("shared", "a1", "b1", type=Type.LOAD_BALANCER, vips=(Vip(node="a"),))),
    Probe(sender=client("a"), to=shared.vip(), expect=FROM_EITHER),
    Probe(sender=pod("b2"), to=shared.vip(), expect=FROM_EITHER),
    Probe(sender=client("a"), to=shared.node_port("a"), expect=FROM_EITHER, clauses=(IN_REACH,)),
    Probe(sender=pod("b2"), to=shared.node_port("a"), expect=FROM_EITHER, clauses=(IN_REACH,)),
    clauses=NODE_PORT_CLAUSES
    | {"load-balancer.reaches-ready-endpoint", "node-port.other-node.untouched", IN_REACH},
    features={Feature.LOAD_BALANCER, Feature.NODE_PORT, Feature.EXTERNAL_IPS_OF_NODES},
    regressions={"R057"},
    profile=FORWARD_DROP,
)

LOCAL = service("web", type=Type.NODE_PORT, external_policy=Policy.LOCAL)

ENDPOINTS_IN_A_FLURRY = case(
    "external-policy.endpoints-in-a-flurry",
    "After many changes in little time a node that has an endpoint again serves it, and no node drops by an old state.",
    Apply(LOCAL.replace(backends=pods("a1", "b1"))),
    *(Apply(LOCAL.replace(backends=pods(*names))) for names in (("b1",), ("a1",), (), ("a2",), ("b1",))),
    Apply(last := LOCAL.replace(backends=pods("a2", "b2"))),
    Probe(sender=client("a"), to=last.node_port("a"), expect=delivered_to("a2")),
    Probe(sender=remote("b"), to=last.node_port("b"), expect=delivered_to("b2")),
    *(Apply(LOCAL.replace(backends=pods(*names))) for names in (("b2",), ("a2",), ("a1", "b1"), ("b1",))),
    Apply(LOCAL.replace(backends=pods("a1"))),
    Probe(sender=client("a"), to=last.node_port("a"), expect=delivered_to("a1")),
    clauses={"node-port.reaches-ready-endpoint", "external-policy.local.local-endpoints-source-preserved"},
    features={Feature.NODE_PORT, Feature.EXTERNAL_TRAFFIC_POLICY},
    regressions={"R031"},
)

CASES: tuple[Case, ...] = (
    MARKS_OF_OTHERS,
    BIT_OF_ANOTHER_PROXY,
    FORWARDING_IS_DROPPED,
    EXTERNAL_IP_OF_A_NODE,
    LOAD_BALANCER_IP_OF_A_NODE,
    ENDPOINTS_IN_A_FLURRY,
)
