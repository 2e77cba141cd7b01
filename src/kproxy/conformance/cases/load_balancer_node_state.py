"""Cases of the topic load-balancer: marks, a firewall and addresses that a node has besides Services.

Only values; the vocabulary is `kproxy.conformance.case`.
"""

from __future__ import annotations

from kproxy.conformance.case import (
    MASQUERADED,
    UNTOUCHED,
    Apply,
    Case,
    Feature,
    Probe,
    Type,
    Vip,
    backend_target,
    case,
    client,
    delivered_to,
    host,
    pod,
    service,
)
from kproxy.conformance.cases.profiles import FORWARD_DROP

FROM_EITHER = delivered_to("a1", "b1", source=MASQUERADED)
REWRITTEN = {"masquerade.external-policy-cluster.rewritten"}
NODE_PORT_CLAUSES = REWRITTEN | {"node-port.reaches-ready-endpoint"}
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

CASES: tuple[Case, ...] = (LOAD_BALANCER_IP_OF_A_NODE,)
