"""Cases of the topic node-port: marks, a firewall and addresses that a node has besides Services.

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
    remote,
    service,
)
from kproxy.conformance.cases.common import DATAGRAMS, FROM_B1, FROM_BOTH, SPREAD, UDP_PORT
from kproxy.conformance.cases.profiles import FORWARD_DROP

REWRITTEN = {"masquerade.external-policy-cluster.rewritten"}
NODE_PORT_CLAUSES = REWRITTEN | {"node-port.reaches-ready-endpoint"}
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

CASES: tuple[Case, ...] = (FORWARDING_IS_DROPPED,)
