"""Cases of the topic node-port: source ports that are chosen and redrawn.

Only values; the vocabulary is `kproxy.conformance.case`.
"""

from __future__ import annotations

from kproxy.conformance.case import (
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
    host,
    pod,
    service,
)
from kproxy.conformance.cases.common import ANYWHERE, FROM_B1, NODE_PORT_CLAUSES, UDP_PORT

WEB = service("web", "b1", type=Type.NODE_PORT)
DNS = service("dns", "b1", type=Type.LOAD_BALANCER, ports=UDP_PORT, vips=(Vip(),))
OWN = "node-port.number-as-source.untouched"

NODE_SENDS_FROM_A_NODE_PORT = case(
    "node-port.node-sends-from-its-number",
    "A process of the node, and a pod, may send from the number of a node port, and get their answers.",
    Apply(WEB, DNS, direct := service("direct", "b2", ports=UDP_PORT)),
    Probe(
        sender=host("a"),
        to=backend_target(direct, "b2"),
        expect=UNTOUCHED,
        from_port_of=DNS.node_port("a"),
        clauses=(OWN,),
    ),
    Probe(
        sender=host("b"),
        to=backend_target(WEB, "b1"),
        expect=UNTOUCHED,
        from_port_of=WEB.node_port("b"),
        clauses=(OWN,),
    ),
    Probe(
        sender=pod("a2"),
        to=backend_target(WEB, "b1"),
        expect=UNTOUCHED,
        from_port_of=WEB.node_port("b"),
        clauses=(OWN,),
    ),
    Probe(sender=client("a"), to=WEB.node_port("a"), expect=FROM_B1),
    clauses=NODE_PORT_CLAUSES | ANYWHERE | {"traffic.not-for-a-service.untouched", OWN},
    features={Feature.NODE_PORT, Feature.LOAD_BALANCER},
    regressions={"R070"},
)

CASES: tuple[Case, ...] = (NODE_SENDS_FROM_A_NODE_PORT,)
