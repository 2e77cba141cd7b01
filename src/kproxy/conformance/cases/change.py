"""Cases of the topic change: how soon changes are in effect; and its clauses by short names, which steps of other cases cite.

Only values.  What is timed are the sentinels' own changes, each alone, after every round of the lab: see
`kproxy.conformance.engine.convergence`.
"""

from __future__ import annotations

from kproxy.conformance.case import Apply, Case, CheckLatency, Delete, Probe, case, delivered_to, pod, service
from kproxy.conformance.cases.common import POD_CLAUSES

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

CASES: tuple[Case, ...] = (CHANGES_ARE_IN_EFFECT_SOON,)
