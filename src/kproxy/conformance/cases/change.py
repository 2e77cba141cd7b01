"""Cases of the topic change: how soon changes are in effect; and its clauses by short names, which steps of other cases cite.

Only values.  What is timed are the sentinels' own changes, each alone, after every round of the lab: see
`kproxy.conformance.engine.convergence`.  What must be in effect though nothing follows it is in the profile `LONE_CHANGES`.
"""

from __future__ import annotations

from kproxy.conformance.case import (
    REJECTED,
    Apply,
    Case,
    CheckHealth,
    CheckLatency,
    Delete,
    Feature,
    Policy,
    Probe,
    Type,
    Vip,
    case,
    client,
    delivered_to,
    pod,
    service,
)
from kproxy.conformance.cases.common import POD_CLAUSES, draining, terminated
from kproxy.conformance.cases.profiles import LONE_CHANGES
from kproxy.model.network import Family

ENDPOINT_ADDED = "change.endpoint-added.used"
ENDPOINT_REMOVED = "change.endpoint-removed.not-used"
EMPTIED = "change.last-endpoint-removed.rejected"
READINESS = "change.readiness.followed"
SERVICE_DELETED = "change.service-deleted.not-served"
SERVICE_RECREATED = "change.service-recreated.served"
OTHER_SERVICES = "change.other-services.undisturbed"
PORT_ADDED = "change.port-added.served"
PORT_REMOVED = "change.port-removed.not-served"
ADDRESS = "change.address.followed"
TYPE = "change.type.followed"
LABELS = "change.labels.followed"
POLICY = "change.policy.followed"
TOPOLOGY = "change.topology.followed"
SOURCE_RANGES = "change.source-ranges.followed"
WHILE_DOWN = "restart.changes-while-down.applied"

FOLLOWED = (ENDPOINT_ADDED, ENDPOINT_REMOVED)
FROM_A, FROM_B = pod("a2"), pod("b2")
WEB = service("web", "a1")
NEIGHBOUR = service("neighbour", "b3")

CHANGES_ARE_IN_EFFECT_SOON = case(
    "convergence.changes-are-in-effect-soon",
    "A Service that is created, gets another endpoint or port, or is deleted is so on every node within seconds.",
    Apply(WEB, NEIGHBOUR),
    Probe(sender=FROM_B, to=WEB.cluster_ip, expect=delivered_to("a1")),
    Apply(moved := service("web", "b1")),
    Probe(sender=FROM_A, to=moved.cluster_ip, expect=delivered_to("b1"), clauses=FOLLOWED),
    Delete(moved),
    Probe(sender=FROM_B, to=NEIGHBOUR.cluster_ip, expect=delivered_to("b3")),
    CheckLatency(clauses=("change.in-effect-soon",)),
    clauses=POD_CLAUSES | {*FOLLOWED, "change.in-effect-soon"},
)

MOVING = service("moving", "a1", "a3")
MOVED = service("moving", "b1", "b3")
MOVED_ON = service("moving", "a3", "b2")
DRAINED = service("draining", endpoints=(draining("a1"), draining("b1")))
ONE_STOPPED = DRAINED.replace(endpoints=(terminated("a1"), draining("b1")))
FULL, EMPTY = service("full", "a1"), service("full")
INSIDE = service("counted", "a1", "a2")
STICKY = service("sticky", "a2", affinity_seconds=10800)
"""Unchanged beside them: what a proxy keeps of its affinity must not hold up what changes."""
COUNTED = INSIDE.replace(type=Type.LOAD_BALANCER, external_policy=Policy.LOCAL, vips=(Vip(),))

CHANGES_COME_ALONE = case(
    "convergence.changes-come-alone",
    "What changes one Service at a time, while nothing else does and nothing follows, is in effect: others in an endpoint's "
    "place, also several times within moments, one that stops serving among such as terminate, the last one gone and back, and "
    "a load balancer's health check where endpoints stay as they are; all of it beside a Service with affinity.",
    Apply(MOVING, DRAINED, FULL, INSIDE, STICKY),
    Probe(sender=FROM_A, to=MOVING.cluster_ip, expect=delivered_to("a1", "a3"), spread=True),
    Probe(sender=FROM_B, to=DRAINED.cluster_ip, expect=delivered_to("a1", "b1"), spread=True),
    Probe(sender=FROM_A, to=FULL.cluster_ip, expect=delivered_to("a1")),
    Apply(MOVED),
    Probe(
        sender=FROM_A, to=MOVING.cluster_ip, expect=delivered_to("b1", "b3"), spread=True, clauses=FOLLOWED
    ),
    Apply(ONE_STOPPED),
    Probe(sender=FROM_B, to=DRAINED.cluster_ip, expect=delivered_to("b1"), count=8, clauses=(READINESS,)),
    Apply(EMPTY),
    Probe(sender=FROM_B, to=FULL.cluster_ip, expect=REJECTED, clauses=(EMPTIED,)),
    Apply(FULL),
    Probe(sender=FROM_B, to=FULL.cluster_ip, expect=delivered_to("a1"), clauses=(ENDPOINT_ADDED,)),
    *(Apply(one) for one in (*(MOVING, MOVED) * 4, MOVED_ON)),
    Probe(
        sender=FROM_A, to=MOVING.cluster_ip, expect=delivered_to("a3", "b2"), spread=True, clauses=FOLLOWED
    ),
    Apply(COUNTED),
    CheckHealth(sender=client("a"), to=COUNTED.health_check("a"), expect=2, clauses=(TYPE,)),
    clauses=POD_CLAUSES
    | {
        *FOLLOWED,
        "balancing.every-endpoint-chosen",
        "endpoints.terminating.used-when-none-ready",
        "endpoints.none.rejected",
        EMPTIED,
        READINESS,
        TYPE,
    },
    features={
        Feature.TERMINATING_ENDPOINTS,
        Feature.LOAD_BALANCER,
        Feature.EXTERNAL_TRAFFIC_POLICY,
        Feature.HEALTH_CHECKS,
        Feature.SESSION_AFFINITY,
    },
    profile=LONE_CHANGES,
    families=(Family.IPV4,),
)

CASES: tuple[Case, ...] = (CHANGES_ARE_IN_EFFECT_SOON, CHANGES_COME_ALONE)
