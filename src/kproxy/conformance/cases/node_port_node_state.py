"""Cases of the topic node-port: marks, a firewall and addresses that a node has besides Services.

Only values; the vocabulary is `kproxy.conformance.case`.
"""

from __future__ import annotations

from kproxy.conformance.case import (
    MASQUERADED,
    Apply,
    Case,
    Feature,
    Port,
    Probe,
    Type,
    Vip,
    case,
    client,
    delivered_to,
    remote,
    service,
)
from kproxy.conformance.cases.profiles import FORWARD_DROP
from kproxy.model.network import Protocol

UDP_PORT = (Port(number=53, protocol=Protocol.UDP),)
FROM_B1 = delivered_to("b1", source=MASQUERADED)
FROM_EITHER = delivered_to("a1", "b1", source=MASQUERADED)
REWRITTEN = {"masquerade.external-policy-cluster.rewritten"}
NODE_PORT_CLAUSES = REWRITTEN | {"node-port.reaches-ready-endpoint"}
SPREAD = {"balancing.every-endpoint-chosen"}
DATAGRAMS = {"protocol.udp.served"}
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

CASES: tuple[Case, ...] = (FORWARDING_IS_DROPPED,)
