"""Cases of the topic source-ranges where several features act together, and at extremes.

Only values; the vocabulary is `kproxy.conformance.case`.
"""

from __future__ import annotations

from kproxy.conformance.case import (
    DROPPED,
    UNTOUCHED,
    Apply,
    Case,
    Delete,
    Feature,
    Policy,
    Port,
    Probe,
    SourceRange,
    Type,
    Vip,
    case,
    client,
    delivered_to,
    pod,
    pods,
    remote,
    service,
)
from kproxy.conformance.cases import change
from kproxy.conformance.cases.combinations import (
    BOTH_PROTOCOLS,
    EXTERNAL,
    KEPT,
    OPEN,
    PODS_EVERYWHERE,
    REWRITTEN,
    UDP_SERVED,
)
from kproxy.conformance.cases.common import FROM_B1, FROM_BOTH, POD_CLAUSES

INSIDE, OUTSIDE = "source-ranges.inside-allowed", "source-ranges.outside-dropped"

SITE_FOR_FAR = service(
    "for-far", "b1", type=Type.LOAD_BALANCER, vips=(Vip(),), source_ranges=(SourceRange.REMOTE_NETWORK,)
)

MAIL_FOR_NEAR = SITE_FOR_FAR.replace(
    name="for-near",
    same_vip_as="for-far",
    ports=(Port(number=25),),
    source_ranges=(SourceRange.NODE_NETWORK,),
)

SHARED_WITH_OTHER_RANGES = case(
    "source-ranges.services-that-share-an-address",
    "Two Services with one load balancer IP let in whom each of them lists.",
    Apply(SITE_FOR_FAR, MAIL_FOR_NEAR),
    Probe(sender=remote("a"), to=SITE_FOR_FAR.vip(), expect=FROM_B1, clauses=(INSIDE,)),
    Probe(sender=client("a"), to=SITE_FOR_FAR.vip(), expect=DROPPED, clauses=(OUTSIDE,)),
    Probe(sender=client("a"), to=MAIL_FOR_NEAR.vip(), expect=FROM_B1, clauses=(INSIDE,)),
    Probe(sender=remote("a"), to=MAIL_FOR_NEAR.vip(), expect=DROPPED, clauses=(OUTSIDE,)),
    clauses=REWRITTEN | {"load-balancer.reaches-ready-endpoint", INSIDE, OUTSIDE},
    features={Feature.LOAD_BALANCER, Feature.SOURCE_RANGES},
    regressions={"R045"},
)

ENDING = SITE_FOR_FAR.replace(name="ending")
BESIDE = service("beside", "a1")

RANGES_END_WITH_THEIR_SERVICE = case(
    "source-ranges.end-with-their-service",
    "When a Service with ranges is deleted, nobody is kept from its address, and other Services go on to change; it comes back with other ranges.",
    Apply(ENDING, BESIDE),
    Probe(sender=remote("a"), to=ENDING.vip(), expect=FROM_B1, clauses=(INSIDE,)),
    Probe(sender=client("a"), to=ENDING.vip(), expect=DROPPED, clauses=(OUTSIDE,)),
    Delete(ENDING),
    Probe(sender=remote("a"), to=ENDING.vip(), expect=UNTOUCHED, clauses=(change.SERVICE_DELETED,)),
    Probe(sender=client("a"), to=ENDING.vip(), expect=UNTOUCHED, clauses=(change.SERVICE_DELETED,)),
    Apply(BESIDE.replace(endpoints=pods("b1"))),
    Probe(
        sender=pod("a2"), to=BESIDE.cluster_ip, expect=delivered_to("b1"), count=4, clauses=change.FOLLOWED
    ),
    Apply(ENDING.replace(source_ranges=(SourceRange.NODE_NETWORK,))),
    Probe(sender=client("a"), to=ENDING.vip(), expect=FROM_B1, clauses=(INSIDE, change.SERVICE_RECREATED)),
    Probe(sender=remote("a"), to=ENDING.vip(), expect=DROPPED, clauses=(OUTSIDE,)),
    clauses=POD_CLAUSES
    | REWRITTEN
    | {
        "load-balancer.reaches-ready-endpoint",
        "traffic.not-for-a-service.untouched",
        change.SERVICE_DELETED,
        change.SERVICE_RECREATED,
        *change.FOLLOWED,
        INSIDE,
        OUTSIDE,
    },
    features={Feature.LOAD_BALANCER, Feature.SOURCE_RANGES},
)

PASSED_ON = SITE_FOR_FAR.replace(
    name="passed-on", same_vip_as="for-far", source_ranges=(SourceRange.NODE_NETWORK,)
)

ADDRESS_PASSES_ON = case(
    "source-ranges.address-passes-to-another-service",
    "When a Service with ranges is deleted, another one with its address and port lets in whom it lists itself, and no other.",
    Apply(SITE_FOR_FAR, BESIDE),
    Probe(sender=remote("a"), to=SITE_FOR_FAR.vip(), expect=FROM_B1, clauses=(INSIDE,)),
    Probe(sender=client("a"), to=SITE_FOR_FAR.vip(), expect=DROPPED, clauses=(OUTSIDE,)),
    Delete(SITE_FOR_FAR),
    Apply(PASSED_ON, BESIDE.replace(endpoints=pods("b1"))),
    Probe(sender=client("a"), to=PASSED_ON.vip(), expect=FROM_B1, clauses=(INSIDE, change.ADDRESS)),
    Probe(sender=remote("a"), to=PASSED_ON.vip(), expect=DROPPED, clauses=(OUTSIDE,)),
    Probe(
        sender=pod("a2"), to=BESIDE.cluster_ip, expect=delivered_to("b1"), count=4, clauses=change.FOLLOWED
    ),
    clauses=POD_CLAUSES
    | REWRITTEN
    | {"load-balancer.reaches-ready-endpoint", change.ADDRESS, *change.FOLLOWED, INSIDE, OUTSIDE},
    features={Feature.LOAD_BALANCER, Feature.SOURCE_RANGES},
)

LOCAL = Policy.LOCAL

GUARDED_LOCAL = OPEN.replace(
    name="guarded",
    external_ips=0,
    external_policy=LOCAL,
    ports=BOTH_PROTOCOLS,
    source_ranges=(SourceRange.REMOTE_NETWORK, "a2"),
)

RANGES_UNDER_LOCAL_POLICY = case(
    "source-ranges.of-every-port-under-policy-local",
    "Ranges hold for each port and protocol under policy Local, for pods too, which else reach endpoints anywhere.",
    Apply(GUARDED_LOCAL),
    *(
        probe
        for port in ("a", "b")
        for probe in (
            Probe(
                sender=remote("a"),
                to=GUARDED_LOCAL.vip().at(port),
                expect=delivered_to("a1"),
                clauses=(INSIDE, KEPT),
            ),
            Probe(sender=client("a"), to=GUARDED_LOCAL.vip().at(port), expect=DROPPED, clauses=(OUTSIDE,)),
            Probe(sender=pod("a3"), to=GUARDED_LOCAL.vip().at(port), expect=DROPPED, clauses=(OUTSIDE,)),
            Probe(
                sender=pod("a2"),
                to=GUARDED_LOCAL.vip().at(port),
                expect=delivered_to("a1", "b1"),
                clauses=(INSIDE, PODS_EVERYWHERE),
            ),
        )
    ),
    clauses={
        "load-balancer.reaches-ready-endpoint",
        UDP_SERVED,
        KEPT,
        INSIDE,
        OUTSIDE,
        PODS_EVERYWHERE,
        "source-ranges.apply-to-pods",
    },
    features={Feature.LOAD_BALANCER, Feature.SOURCE_RANGES} | EXTERNAL,
)

FOREIGN = tuple(f"203.0.113.{number}/32" for number in range(60)) + tuple(
    f"2001:db8:{number:x}::/48" for number in range(0x1000, 0x1000 + 60)
)

MANY_RANGES = OPEN.replace(
    name="many-ranges", external_ips=0, literal_source_ranges=FOREIGN, source_ranges=("remote",)
)

MANY = case(
    "source-ranges.many-of-them",
    "Of more than a hundred ranges the last lets in as the first does, and none of them whom it does not hold.",
    Apply(MANY_RANGES),
    Probe(sender=remote("a"), to=MANY_RANGES.vip(), expect=FROM_BOTH, clauses=(INSIDE,)),
    Probe(sender=client("a"), to=MANY_RANGES.vip(), expect=DROPPED, clauses=(OUTSIDE,)),
    Probe(sender=pod("a2"), to=MANY_RANGES.vip(), expect=DROPPED, clauses=(OUTSIDE,)),
    clauses=REWRITTEN
    | {"load-balancer.reaches-ready-endpoint", INSIDE, OUTSIDE, "source-ranges.apply-to-pods"},
    features={Feature.LOAD_BALANCER, Feature.SOURCE_RANGES},
)

OVERLAPPING = MANY_RANGES.replace(
    name="overlapping",
    literal_source_ranges=("172.18.0.100/32", "172.16.0.0/12", "fd00:18::100/128", "fd00:18::/32"),
    source_ranges=(SourceRange.NODE_NETWORK, SourceRange.NODE_NETWORK, "client"),
)

RANGES_OVERLAP = case(
    "source-ranges.ranges-that-overlap",
    "Ranges of which one holds another, and one that is listed twice, let in whom any of them holds.",
    Apply(OVERLAPPING),
    Probe(sender=client("a"), to=OVERLAPPING.vip(), expect=FROM_BOTH, clauses=(INSIDE,)),
    Probe(sender=client("b"), to=OVERLAPPING.vip(), expect=FROM_BOTH, clauses=(INSIDE,)),
    Probe(sender=remote("a"), to=OVERLAPPING.vip(), expect=DROPPED, clauses=(OUTSIDE,)),
    clauses=REWRITTEN | {"load-balancer.reaches-ready-endpoint", INSIDE, OUTSIDE},
    features={Feature.LOAD_BALANCER, Feature.SOURCE_RANGES},
)

CASES: tuple[Case, ...] = (
    SHARED_WITH_OTHER_RANGES,
    RANGES_END_WITH_THEIR_SERVICE,
    ADDRESS_PASSES_ON,
    RANGES_UNDER_LOCAL_POLICY,
    MANY,
    RANGES_OVERLAP,
)
