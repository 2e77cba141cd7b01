"""Cases of the topic load-balancer: marks, a firewall and addresses that a node has besides Services.

Only values; the vocabulary is `kproxy.conformance.case`.
"""

from __future__ import annotations

from kproxy.conformance.case import (
    Apply,
    Case,
    Feature,
    Probe,
    Type,
    Vip,
    case,
    client,
    pod,
    service,
)
from kproxy.conformance.cases.common import FROM_BOTH
from kproxy.conformance.cases.profiles import FORWARD_DROP

REWRITTEN = {"masquerade.external-policy-cluster.rewritten"}
NODE_PORT_CLAUSES = REWRITTEN | {"node-port.reaches-ready-endpoint"}
IN_REACH = "external-ip.node-address.node-in-reach"


LOAD_BALANCER_IP_OF_A_NODE = case(
    "load-balancer.address-of-a-node",
    "Node ports go on at an address of a node that is a load balancer IP too.",
    Apply(shared := service("shared", "a1", "b1", type=Type.LOAD_BALANCER, vips=(Vip(node="a"),))),
    Probe(sender=client("a"), to=shared.vip(), expect=FROM_BOTH),
    Probe(sender=pod("b2"), to=shared.vip(), expect=FROM_BOTH),
    Probe(sender=client("a"), to=shared.node_port("a"), expect=FROM_BOTH, clauses=(IN_REACH,)),
    Probe(sender=pod("b2"), to=shared.node_port("a"), expect=FROM_BOTH, clauses=(IN_REACH,)),
    clauses=NODE_PORT_CLAUSES
    | {"load-balancer.reaches-ready-endpoint", "node-port.other-node.untouched", IN_REACH},
    features={Feature.LOAD_BALANCER, Feature.NODE_PORT, Feature.EXTERNAL_IPS_OF_NODES},
    regressions={"R057"},
    profile=FORWARD_DROP,
)

CASES: tuple[Case, ...] = (LOAD_BALANCER_IP_OF_A_NODE,)
