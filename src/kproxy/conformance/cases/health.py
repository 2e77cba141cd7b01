"""Cases on health check node ports: what a load balancer learns of a node.

Only values; the vocabulary is `kproxy.conformance.case`.
"""

from __future__ import annotations

from kproxy.conformance.case import (
    Apply,
    Backend,
    Case,
    CheckHealth,
    Delete,
    Feature,
    Policy,
    Probe,
    Type,
    Vip,
    case,
    client,
    delivered_to,
    host,
    remote,
    service,
)
from kproxy.conformance.cases.profiles import NODE_PORT_CIDR

FEATURES = {Feature.HEALTH_CHECKS, Feature.LOAD_BALANCER, Feature.EXTERNAL_TRAFFIC_POLICY, Feature.NODE_PORT}
TOLD = "health-check.local-endpoints.told"
BOUND = "health-check.node-port-addresses.bind"
LOCAL_CLAUSES = {"node-port.reaches-ready-endpoint", "external-policy.local.local-endpoints-source-preserved"}

WEB = service("web", "a1", "a2", "b1", type=Type.LOAD_BALANCER, external_policy=Policy.LOCAL, vips=(Vip(),))
MOVED = WEB.but(backends=(Backend(on="b1"), Backend(on="b2")))
WIDE = WEB.but(external_policy=Policy.CLUSTER)

FOLLOWS_LOCAL_ENDPOINTS = case(
    "health-check.follows-local-endpoints",
    "Each node tells how many endpoints it has, and stops when the policy is Cluster.",
    Apply(WEB),
    CheckHealth(sender=client("a"), to=WEB.health_check("a"), expect=2, clauses=(TOLD,)),
    CheckHealth(sender=remote("b"), to=WEB.health_check("b"), expect=1, clauses=(TOLD,)),
    CheckHealth(sender=host("a"), to=WEB.health_check("a"), expect=2, clauses=(TOLD,)),
    Probe(sender=client("a"), to=WEB.node_port("a"), expect=delivered_to("a1", "a2")),
    Apply(MOVED),
    CheckHealth(sender=client("a"), to=WEB.health_check("a"), expect=0, clauses=(TOLD,)),
    CheckHealth(sender=client("b"), to=WEB.health_check("b"), expect=2, clauses=(TOLD,)),
    Apply(WIDE),
    CheckHealth(sender=client("b"), to=WEB.health_check("b"), expect=None, clauses=(TOLD,)),
    clauses=LOCAL_CLAUSES | {TOLD},
    features=FEATURES,
    regressions={"R037", "R041"},
)

ENDING = service(
    "ending",
    type=Type.LOAD_BALANCER,
    external_policy=Policy.LOCAL,
    vips=(Vip(),),
    backends=(Backend(on="a1", ready=False, serving=True, terminating=True),),
)

TERMINATING_DO_NOT_COUNT = case(
    "health-check.terminating-endpoints-do-not-count",
    "A node whose last endpoint terminates serves what comes, and tells the load balancer to send no more.",
    Apply(ENDING, beside := WEB.but(name="beside")),
    CheckHealth(sender=client("a"), to=ENDING.health_check("a"), expect=0, clauses=(TOLD,)),
    CheckHealth(sender=client("a"), to=beside.health_check("a"), expect=2, clauses=(TOLD,)),
    Probe(sender=client("a"), to=ENDING.node_port("a"), expect=delivered_to("a1")),
    Delete(beside),
    CheckHealth(sender=client("a"), to=beside.health_check("a"), expect=None, clauses=(TOLD,)),
    clauses={
        "node-port.reaches-ready-endpoint",
        "external-policy.local.local-endpoints-source-preserved",
        "endpoints.terminating.used-when-none-ready-on-node",
        TOLD,
    },
    features=FEATURES | {Feature.TERMINATING_ENDPOINTS},
)

ON_SELECTED_ADDRESSES = case(
    "health-check.on-selected-addresses",
    "Where nodePortAddresses are set, a health check node port is on those and on no other.",
    Apply(WEB),
    CheckHealth(sender=client("a"), to=WEB.health_check("a"), expect=2, clauses=(BOUND,)),
    CheckHealth(sender=client("a"), to=WEB.health_check("a", second=True), expect=None, clauses=(BOUND,)),
    Probe(sender=client("a"), to=WEB.node_port("a"), expect=delivered_to("a1", "a2")),
    clauses=LOCAL_CLAUSES | {"node-port.addresses.inside-configured.served", TOLD, BOUND},
    features=FEATURES,
    regressions={"R039"},
    profile=NODE_PORT_CIDR,
)

CASES: tuple[Case, ...] = (FOLLOWS_LOCAL_ENDPOINTS, TERMINATING_DO_NOT_COUNT, ON_SELECTED_ADDRESSES)
