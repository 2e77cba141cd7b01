"""Cases of the topic external-ip: marks, a firewall and addresses that a node has besides Services.

Only values; the vocabulary is `kproxy.conformance.case`.
"""

from __future__ import annotations

from kproxy.conformance.case import (
    UNTOUCHED,
    Apply,
    Case,
    Feature,
    Probe,
    backend_target,
    case,
    client,
    host,
    pod,
    service,
)
from kproxy.conformance.cases.common import FROM_BOTH
from kproxy.conformance.cases.profiles import FORWARD_DROP

REWRITTEN = {"masquerade.external-policy-cluster.rewritten"}
IN_REACH = "external-ip.node-address.node-in-reach"

EXTERNAL_IP_OF_A_NODE = case(
    "external-ip.address-of-a-node",
    "An external IP that is a node's own address takes its port there and elsewhere, and nothing else of that node.",
    Apply(
        shared := service("shared", "a1", "b1", external_ips=1, external_ips_of=("b",)),
        direct := service("direct", "b"),
    ),
    Probe(sender=pod("a2"), to=shared.external_ip(), expect=FROM_BOTH),
    Probe(sender=host("a"), to=shared.external_ip(), expect=FROM_BOTH),
    Probe(sender=client("b"), to=shared.external_ip(), expect=FROM_BOTH),
    Probe(sender=host("a"), to=backend_target(direct, "b"), expect=UNTOUCHED, clauses=(IN_REACH,)),
    Probe(sender=pod("a2"), to=backend_target(direct, "b"), expect=UNTOUCHED, clauses=(IN_REACH,)),
    clauses=REWRITTEN | {"external-ip.reaches-ready-endpoint", IN_REACH},
    features={Feature.EXTERNAL_IPS, Feature.EXTERNAL_IPS_OF_NODES},
    regressions={"R056"},
    profile=FORWARD_DROP,
)

CASES: tuple[Case, ...] = (EXTERNAL_IP_OF_A_NODE,)
