"""Cases of the topic affinity where several features act together, and at extremes.

Only values; the vocabulary is `kproxy.conformance.case`.
"""

from __future__ import annotations

from kproxy.conformance.case import (
    REJECTED,
    Apply,
    Backend,
    Case,
    Delete,
    Feature,
    Policy,
    Probe,
    case,
    client,
    delivered_to,
    pod,
    remote,
    service,
)
from kproxy.conformance.cases import change
from kproxy.conformance.cases.combinations import EXPOSED, EXTERNAL, KEPT, OPEN, external_targets
from kproxy.conformance.cases.common import EVERY_KIND, POD_CLAUSES, SPREAD

LOCAL = Policy.LOCAL

STICKY = OPEN.replace(
    name="sticky", affinity_seconds=10800, external_policy=LOCAL, backends=(*OPEN.backends, Backend(on="a2"))
)

STICKS, WITHIN = "affinity.client-ip.sticks", "affinity.within-policy"

AFFINITY_UNDER_LOCAL_POLICY = case(
    "affinity.under-local-policy-at-every-address",
    "Under policy Local a client outside sticks to an endpoint of the node at every kind of address.",
    Apply(STICKY),
    *(
        Probe(
            sender=sender,
            to=to,
            expect=delivered_to("a1", "a2"),
            count=8,
            clauses=(WITHIN,),
        )
        for sender in (client("a"), remote("a"))
        for to in external_targets(STICKY, "a")
    ),
    clauses=EVERY_KIND | {KEPT, WITHIN},
    features=EXPOSED | EXTERNAL | {Feature.SESSION_AFFINITY},
    regressions={"R091"},
)

PLAIN = service("plain", "a1", "b1", "b2")
SAME_PODS = PLAIN.replace(name="sticky", same_target_ports_as="plain", affinity_seconds=10800)
AGAIN = Probe(
    sender=pod("a2"),
    to=SAME_PODS.cluster_ip,
    expect=delivered_to("a1", "b1", "b2"),
    count=12,
    sticky_group="pod",
    clauses=(STICKS,),
)
IN_TURN = Probe(sender=pod("a2"), to=PLAIN.cluster_ip, expect=delivered_to("a1", "b1", "b2"), spread=True)

PODS_BEHIND_TWO_SERVICES = case(
    "affinity.pods-behind-another-service-too",
    "Of two Services with the same pods and target port one has affinity and one has none, also when either loses the pods.",
    Apply(PLAIN, SAME_PODS),
    AGAIN,
    IN_TURN,
    Apply(PLAIN.replace(backends=())),
    Probe(sender=pod("a2"), to=PLAIN.cluster_ip, expect=REJECTED, clauses=(change.EMPTIED,)),
    AGAIN,
    Apply(PLAIN),
    AGAIN,
    IN_TURN,
    Delete(SAME_PODS),
    IN_TURN,
    clauses=POD_CLAUSES | SPREAD | {"endpoints.none.rejected", change.EMPTIED, STICKS},
    features={Feature.SESSION_AFFINITY},
)

CASES: tuple[Case, ...] = (AFFINITY_UNDER_LOCAL_POLICY, PODS_BEHIND_TWO_SERVICES)
