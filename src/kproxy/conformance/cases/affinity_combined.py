"""Cases of the topic affinity where several features act together, and at extremes.

Only values; the vocabulary is `kproxy.conformance.case`.
"""

from __future__ import annotations

from kproxy.conformance.case import (
    MASQUERADED,
    REJECTED,
    Apply,
    Case,
    CaseEndpoint,
    Delete,
    Feature,
    Policy,
    Probe,
    Type,
    case,
    client,
    delivered_to,
    pod,
    pods,
    remote,
    service,
)
from kproxy.conformance.cases import change
from kproxy.conformance.cases.affinity import affinity_steps
from kproxy.conformance.cases.combinations import EXPOSED, EXTERNAL, KEPT, OPEN, external_targets
from kproxy.conformance.cases.common import EVERY_KIND, POD_CLAUSES, SPREAD

LOCAL = Policy.LOCAL

STICKY = OPEN.replace(
    name="sticky",
    affinity_seconds=10800,
    external_policy=LOCAL,
    endpoints=(*OPEN.endpoints, CaseEndpoint(on="a2")),
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
    Apply(PLAIN.replace(endpoints=())),
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

ALONE = service("alone", "a1", affinity_seconds=10800, type=Type.NODE_PORT)
JOINED = ALONE.replace(endpoints=pods("a1", "b1", "b2"))
ADDED = "affinity.endpoint-added.stays"


def _of_one_group(*on: str, clauses: tuple[str, ...]) -> tuple[Probe, ...]:
    """Probes of some clients, each of which must reach the endpoint of all its probes in the case."""
    inside = [(pod(name), ALONE.cluster_ip, delivered_to(*on)) for name in ("a2", "a3", "b3")]
    outside = (client("a"), ALONE.node_port("a"), delivered_to(*on, source=MASQUERADED))
    return tuple(
        Probe(sender=sender, to=to, expect=expect, count=4, sticky_group=str(sender), clauses=clauses)
        for sender, to, expect in (*inside, outside)
    )


BEGINS_WITH_ONE = case(
    "affinity.begins-with-a-single-endpoint",
    "Clients that reached a Service's only endpoint stay with it when others join.",
    Apply(ALONE),
    *_of_one_group("a1", clauses=(STICKS,)),
    Apply(JOINED),
    *_of_one_group("a1", "b1", "b2", clauses=(STICKS, ADDED)),
    clauses=POD_CLAUSES
    | {
        "node-port.reaches-ready-endpoint",
        "masquerade.external-policy-cluster.rewritten",
        STICKS,
        ADDED,
    },
    features={Feature.SESSION_AFFINITY, Feature.NODE_PORT},
)

LEAVING = service(
    "leaving",
    affinity_seconds=10800,
    type=Type.NODE_PORT,
    internal_policy=LOCAL,
    external_policy=LOCAL,
    endpoints=(
        CaseEndpoint(on="a1", ready=False, serving=True, terminating=True),
        CaseEndpoint(on="a2", ready=False, serving=True, terminating=True),
        CaseEndpoint(on="b1"),
    ),
)
CROSSED = service(
    "crossed",
    affinity_seconds=10800,
    type=Type.NODE_PORT,
    external_policy=LOCAL,
    endpoints=(CaseEndpoint(on="a1", zones=("zone-b",)), CaseEndpoint(on="b1", zones=("zone-a",))),
)

OF_THE_NODE_ALONE = case(
    "affinity.to-endpoints-that-local-policies-alone-choose",
    "Under policy Local a client sticks to an endpoint that is chosen for no other traffic: one that terminates while others are "
    "ready, or is hinted for another zone.",
    Apply(LEAVING, CROSSED),
    *affinity_steps(client("a"), LEAVING.node_port("a"), delivered_to("a1", "a2"), WITHIN),
    *affinity_steps(pod("a3"), LEAVING.cluster_ip, delivered_to("a1", "a2"), WITHIN),
    Probe(sender=client("a"), to=CROSSED.node_port("a"), expect=delivered_to("a1"), count=4),
    Probe(sender=pod("a2"), to=CROSSED.cluster_ip, expect=delivered_to("b1"), count=4),
    clauses=POD_CLAUSES
    | {
        "node-port.reaches-ready-endpoint",
        "internal-policy.local.same-node",
        "internal-policy.external-addresses-exempt",
        "external-policy.cluster-ip-exempt",
        "external-policy.local.local-endpoints-source-preserved",
        "endpoints.terminating.used-when-none-ready-on-node",
        "topology.same-zone",
        "topology.local-policy.hints-ignored",
        STICKS,
        WITHIN,
    },
    features={
        Feature.SESSION_AFFINITY,
        Feature.NODE_PORT,
        Feature.INTERNAL_TRAFFIC_POLICY,
        Feature.EXTERNAL_TRAFFIC_POLICY,
        Feature.TERMINATING_ENDPOINTS,
        Feature.TOPOLOGY_HINTS,
    },
)

CASES: tuple[Case, ...] = (
    AFFINITY_UNDER_LOCAL_POLICY,
    PODS_BEHIND_TWO_SERVICES,
    BEGINS_WITH_ONE,
    OF_THE_NODE_ALONE,
)
