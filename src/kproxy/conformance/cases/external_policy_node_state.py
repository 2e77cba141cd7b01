"""Cases of the topic external-policy: marks, a firewall and addresses that a node has besides Services.

Only values; the vocabulary is `kproxy.conformance.case`.
"""

from __future__ import annotations

from kproxy.conformance.case import (
    Apply,
    Case,
    Feature,
    Policy,
    Probe,
    Type,
    case,
    client,
    delivered_to,
    pods,
    remote,
    service,
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
