"""Cases of the topic external-policy: marks, a firewall and addresses that a node has besides Services.

Only values; the vocabulary is `kproxy.conformance.case`.
"""

from __future__ import annotations

from kproxy.conformance.case import (
    MASQUERADED,
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
    pods,
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

CASES: tuple[Case, ...] = (ENDPOINTS_IN_A_FLURRY,)
