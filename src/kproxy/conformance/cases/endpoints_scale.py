"""Cases on Services with hundreds of endpoints, beside small ones, and on what changes there.

Only values; the vocabulary is `kproxy.conformance.case`.  Slices hold a hundred endpoints, as those of a control plane do.
Connections are as many as endpoints, so that each slice is met also where they are taken in turn, one slice after the other.
"""

from __future__ import annotations

from functools import reduce

from kproxy.conformance.case import (
    DROPPED,
    MASQUERADED,
    PRESERVED,
    REJECTED,
    Apply,
    Case,
    CaseEndpoint,
    Delete,
    Feature,
    Lawful,
    Policy,
    Port,
    Probe,
    Type,
    case,
    client,
    delivered_to,
    delivered_to_many,
    host,
    pod,
    remote,
    service,
)
from kproxy.conformance.cases import change
from kproxy.conformance.cases.common import POD_CLAUSES
from kproxy.conformance.cases.profiles import LARGE
from kproxy.model.network import Family, Protocol
from kproxy.spec.outcome import SourceIP

ANY_NUMBER = "balancing.any-number-of-endpoints"
SPREAD = {"balancing.every-endpoint-chosen", ANY_NUMBER}

ON_PODS = ("a1", "b1", "a2", "b2")
"""Others are free to send: a pod cannot reach one of its own addresses from another."""
SLICE = 100


def full_slices(number: int) -> tuple[CaseEndpoint, ...]:
    """So many slices of a hundred, on one pod after the other."""
    return tuple(
        CaseEndpoint(on=ON_PODS[n % len(ON_PODS)], many=SLICE, first=SLICE * (n // len(ON_PODS)), slice=n)
        for n in range(number)
    )


def any_of_slices(endpoints: tuple[CaseEndpoint, ...], source: SourceIP = PRESERVED) -> Lawful:
    """Delivered to any endpoint of any of these slices."""
    found = (delivered_to_many(one.on, one.many, first=one.first, source=source) for one in endpoints)
    return reduce(Lawful.union, found)


FEW_SLICES = (*full_slices(2), CaseEndpoint(on="a2", many=40, slice=2))
HUNDREDS = service(
    "hundreds",
    endpoints=FEW_SLICES,
    type=Type.NODE_PORT,
    ports=(Port(name="a"), Port(name="b", number=53, protocol=Protocol.UDP)),
)
SMALL = service("small", "b1", "b2")
OF_SMALL = delivered_to("b1", "b2")


def round_robin_count(endpoints: tuple[CaseEndpoint, ...]) -> int:
    """Connections that come round to every slice where endpoints are taken in turn, and by chance all the more."""
    return sum(endpoint.many for endpoint in endpoints) + 1


BEYOND_TWO_HUNDRED = case(
    "scale.more-than-two-hundred-endpoints",
    "Of a Service with 240 endpoints in three slices each slice is met, from inside and outside; a slice may go and return.",
    Apply(HUNDREDS, SMALL),
    Probe(
        sender=pod("a3"),
        to=HUNDREDS.cluster_ip.at("a"),
        expect=any_of_slices(FEW_SLICES),
        spread=True,
        count=round_robin_count(FEW_SLICES),
        clauses=(ANY_NUMBER,),
    ),
    Probe(
        sender=remote("b"),
        to=HUNDREDS.node_port("b").at("b"),
        expect=any_of_slices(FEW_SLICES, MASQUERADED),
        spread=True,
        count=round_robin_count(FEW_SLICES),
        clauses=(ANY_NUMBER,),
    ),
    Probe(sender=pod("a3"), to=SMALL.cluster_ip, expect=OF_SMALL, spread=True),
    Apply(HUNDREDS.replace(endpoints=FEW_SLICES[1:])),
    Probe(
        sender=pod("a3"),
        to=HUNDREDS.cluster_ip.at("b"),
        expect=any_of_slices(FEW_SLICES[1:]),
        spread=True,
        count=round_robin_count(FEW_SLICES[1:]),
        clauses=(ANY_NUMBER, change.ENDPOINT_REMOVED),
    ),
    Apply(HUNDREDS),
    Probe(
        sender=pod("a3"),
        to=HUNDREDS.cluster_ip.at("b"),
        expect=any_of_slices(FEW_SLICES),
        spread=True,
        count=round_robin_count(FEW_SLICES),
        clauses=(ANY_NUMBER, change.ENDPOINT_ADDED),
    ),
    clauses=POD_CLAUSES
    | SPREAD
    | {
        "slices.merged",
        "protocol.udp.served",
        "node-port.reaches-ready-endpoint",
        "masquerade.external-policy-cluster.rewritten",
        change.ENDPOINT_REMOVED,
        change.ENDPOINT_ADDED,
    },
    features={Feature.NODE_PORT},
    profile=LARGE,
)

HUNDREDS_HERE = HUNDREDS.replace(name="here", internal_policy=Policy.LOCAL, external_policy=Policy.LOCAL)
HUNDREDS_AWAY = HUNDREDS_HERE.replace(name="elsewhere", endpoints=FEW_SLICES[1:2])

LOCAL_AMONG_HUNDREDS = case(
    "scale.policy-local-among-hundreds",
    "Under policy Local a node serves from its own slices of such a Service, and is silent when none is its own.",
    Apply(HUNDREDS_HERE, HUNDREDS_AWAY),
    Probe(
        sender=client("a"),
        to=HUNDREDS_HERE.node_port("a").at("a"),
        expect=any_of_slices((FEW_SLICES[0], FEW_SLICES[2])),
        spread=True,
        count=round_robin_count((FEW_SLICES[0], FEW_SLICES[2])),
    ),
    Probe(
        sender=client("b"),
        to=HUNDREDS_HERE.node_port("b").at("a"),
        expect=any_of_slices(FEW_SLICES[1:2]),
        count=20,
    ),
    Probe(
        sender=pod("b3"),
        to=HUNDREDS_HERE.cluster_ip.at("b"),
        expect=any_of_slices(FEW_SLICES[1:2]),
        count=20,
        clauses=("internal-policy.local.same-node",),
    ),
    Probe(sender=client("a"), to=HUNDREDS_AWAY.node_port("a").at("a"), expect=DROPPED),
    Probe(sender=pod("a3"), to=HUNDREDS_AWAY.cluster_ip.at("a"), expect=DROPPED),
    clauses=POD_CLAUSES
    | {"balancing.every-endpoint-chosen"}
    | {
        "slices.merged",
        "protocol.udp.served",
        "node-port.reaches-ready-endpoint",
        "internal-policy.local.same-node",
        "internal-policy.local.drop-without-local-endpoint",
        "internal-policy.external-addresses-exempt",
        "external-policy.cluster-ip-exempt",
        "external-policy.local.local-endpoints-source-preserved",
        "external-policy.local.drop-without-local-endpoint",
    },
    features={Feature.NODE_PORT, Feature.INTERNAL_TRAFFIC_POLICY, Feature.EXTERNAL_TRAFFIC_POLICY},
    profile=LARGE,
    families=(Family.IPV4,),
)

MANY_SLICES = full_slices(11)
THOUSAND = service("thousand", endpoints=MANY_SLICES, ports=(Port(number=53, protocol=Protocol.UDP),))
EMPTY = service("empty")

BEYOND_A_THOUSAND = case(
    "scale.more-than-a-thousand-endpoints",
    "Of a Service with 1,100 endpoints in eleven slices each is met, and Services beside it change as ever.",
    Apply(THOUSAND, SMALL, EMPTY),
    Probe(
        sender=pod("a3"),
        to=THOUSAND.cluster_ip,
        expect=any_of_slices(MANY_SLICES),
        spread=True,
        count=round_robin_count(MANY_SLICES),
        clauses=(ANY_NUMBER,),
    ),
    Probe(sender=host("b"), to=THOUSAND.cluster_ip, expect=any_of_slices(MANY_SLICES, MASQUERADED), count=20),
    Probe(sender=pod("a3"), to=SMALL.cluster_ip, expect=OF_SMALL, spread=True),
    Probe(sender=pod("a3"), to=EMPTY.cluster_ip, expect=REJECTED),
    Apply(
        THOUSAND.replace(endpoints=MANY_SLICES[1:]),
        SMALL.replace(endpoints=SMALL.endpoints[1:]),
        EMPTY.replace(endpoints=SMALL.endpoints),
    ),
    Probe(
        sender=pod("b3"),
        to=THOUSAND.cluster_ip,
        expect=any_of_slices(MANY_SLICES[1:]),
        spread=True,
        count=round_robin_count(MANY_SLICES[1:]),
        clauses=(ANY_NUMBER, change.ENDPOINT_REMOVED),
    ),
    Probe(
        sender=pod("a3"),
        to=SMALL.cluster_ip,
        expect=delivered_to("b2"),
        count=8,
        clauses=(change.ENDPOINT_REMOVED,),
    ),
    Probe(
        sender=pod("a3"), to=EMPTY.cluster_ip, expect=OF_SMALL, spread=True, clauses=(change.ENDPOINT_ADDED,)
    ),
    Delete(THOUSAND),
    Apply(EMPTY),
    Probe(sender=pod("a3"), to=EMPTY.cluster_ip, expect=REJECTED, clauses=(change.EMPTIED,)),
    Probe(sender=pod("a3"), to=SMALL.cluster_ip, expect=delivered_to("b2"), clauses=(change.OTHER_SERVICES,)),
    clauses=POD_CLAUSES
    | SPREAD
    | {
        "slices.merged",
        "protocol.udp.served",
        "masquerade.cluster-ip.host-rewritten",
        "endpoints.none.rejected",
        change.ENDPOINT_REMOVED,
        change.ENDPOINT_ADDED,
        change.EMPTIED,
        change.OTHER_SERVICES,
    },
    profile=LARGE,
    families=(Family.IPV4,),
)

CASES: tuple[Case, ...] = (
    BEYOND_TWO_HUNDRED,
    LOCAL_AMONG_HUNDREDS,
    BEYOND_A_THOUSAND,
)
