"""Cases of the topic affinity where several features act together, and at extremes.

Only values; the vocabulary is `kproxy.conformance.case`.
"""

from __future__ import annotations

from kproxy.conformance.case import (
    Apply,
    Backend,
    Case,
    Feature,
    Policy,
    Probe,
    case,
    client,
    delivered_to,
    remote,
)
from kproxy.conformance.cases.combinations import EXPOSED, EXTERNAL, KEPT, OPEN, external_targets
from kproxy.conformance.cases.common import EVERY_KIND

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

CASES: tuple[Case, ...] = (AFFINITY_UNDER_LOCAL_POLICY,)
