"""Cases on what is long, many, first or last: lists, names, numbers, payloads.

Only values; the vocabulary is `kproxy.conformance.case`.  What is written of them has limits of its own: names of chains,
comments, ranges of a set.
"""

from __future__ import annotations

from kproxy.conformance.case import (
    DROPPED,
    MASQUERADED,
    Apply,
    Backend,
    Case,
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
    remote,
    service,
)
from kproxy.conformance.cases.combined import (
    BOTH_PROTOCOLS,
    EXPOSED,
    EXTERNAL,
    FROM_BOTH,
    KEPT,
    OPEN,
    OUTSIDE_CLAUSES,
    POD_CLAUSES,
    REWRITTEN,
    UDP_SERVED,
    external_targets,
)
from kproxy.model.network import Protocol

INSIDE, OUTSIDE = "source-ranges.inside-allowed", "source-ranges.outside-dropped"

# ------------------------------------------------------------------- lists

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

# ------------------------------------------------------------------- names and numbers

LONG = "a-service-whose-name-is-as-long-as-the-api-server-lets-it-be-"
LONG_ONE = service(
    LONG + "x1", "a1", type=Type.LOAD_BALANCER, vips=(Vip(),), ports=BOTH_PROTOCOLS, affinity_seconds=10800
)
LONG_TWO = LONG_ONE.replace(
    name=LONG + "x2", backends=(Backend(on="b1"),), source_ranges=(SourceRange.NODE_NETWORK,)
)

LONG_NAMES = case(
    "objects.long-names-that-differ-at-their-end-in-namespaces-of-long-names",
    "Two Services whose names have 63 characters and differ in the last are told apart, whatever is written of names.",
    Apply(LONG_ONE, LONG_TWO),
    *(
        probe
        for port in ("a", "b")
        for probe in (
            Probe(sender=pod("a2"), to=LONG_ONE.cluster_ip.at(port), expect=delivered_to("a1")),
            Probe(sender=pod("a2"), to=LONG_TWO.cluster_ip.at(port), expect=delivered_to("b1")),
            Probe(
                sender=client("a"), to=LONG_ONE.vip().at(port), expect=delivered_to("a1", source=MASQUERADED)
            ),
            Probe(
                sender=client("a"), to=LONG_TWO.vip().at(port), expect=delivered_to("b1", source=MASQUERADED)
            ),
        )
    ),
    clauses=POD_CLAUSES
    | REWRITTEN
    | {"load-balancer.reaches-ready-endpoint", UDP_SERVED, INSIDE, "source-ranges.cluster-ip-exempt"},
    features={Feature.LOAD_BALANCER, Feature.SOURCE_RANGES, Feature.SESSION_AFFINITY},
)

WEB = service("web", "b1", ports=(Port(name="a"), Port(name="b", number=81)))
WEB_A, WEB_B = service("web-a", "a1"), service("web-b", "a2", ports=(Port(name="a"),))

NAMES_THAT_LOOK_ALIKE = case(
    "objects.names-that-look-alike",
    "Port `a` of Service `web` and the port of Service `web-a`, which has no name, are not taken for one another.",
    Apply(WEB, WEB_A, WEB_B),
    Probe(sender=pod("a3"), to=WEB.cluster_ip.at("a"), expect=delivered_to("b1")),
    Probe(sender=pod("a3"), to=WEB.cluster_ip.at("b"), expect=delivered_to("b1")),
    Probe(sender=pod("a3"), to=WEB_A.cluster_ip, expect=delivered_to("a1")),
    Probe(sender=pod("a3"), to=WEB_B.cluster_ip.at("a"), expect=delivered_to("a2")),
    clauses=POD_CLAUSES,
)

EXTREME = OPEN.replace(
    name="extreme",
    ports=(
        Port(name="a", number=1),
        Port(name="b", number=65535),
        Port(name="c", number=65535, protocol=Protocol.UDP),
    ),
)

FIRST_AND_LAST_PORTS = case(
    "protocols.first-and-last-port-numbers",
    "Ports 1 and 65535 are served like others.",
    Apply(EXTREME),
    *(
        Probe(sender=pod("a2"), to=EXTREME.cluster_ip.at(port), expect=delivered_to("a1", "b1"))
        for port in "abc"
    ),
    *(Probe(sender=client("a"), to=EXTREME.vip().at(port), expect=FROM_BOTH) for port in "abc"),
    *(Probe(sender=client("a"), to=EXTREME.external_ip().at(port), expect=FROM_BOTH) for port in "abc"),
    clauses=POD_CLAUSES
    | REWRITTEN
    | {
        "load-balancer.reaches-ready-endpoint",
        "external-ip.reaches-ready-endpoint",
        UDP_SERVED,
        "protocol.same-number.independent",
    },
    features={Feature.LOAD_BALANCER, Feature.EXTERNAL_IPS},
)

# ------------------------------------------------------------------- payloads

LARGE = OPEN.replace(name="large", ports=BOTH_PROTOCOLS)
LARGE_LOCAL = LARGE.replace(name="large-local", external_policy=Policy.LOCAL)
PASSES = "payload.large.passes"

LARGE_PAYLOADS = case(
    "node-port.large-payloads-at-every-address",
    "Large requests and answers pass at every kind of address, rewritten or not, UDP fragments included.",
    Apply(LARGE, LARGE_LOCAL),
    *(
        Probe(sender=client("a"), to=to, expect=expect, payload_bytes=5000, clauses=(PASSES,))
        for of, expect in ((LARGE, FROM_BOTH), (LARGE_LOCAL, delivered_to("a1")))
        for port in ("a", "b")
        for to in external_targets(of, "a", port)
    ),
    clauses=OUTSIDE_CLAUSES | REWRITTEN | {UDP_SERVED, KEPT, PASSES},
    features=EXPOSED | EXTERNAL,
)

CASES: tuple[Case, ...] = (
    MANY,
    RANGES_OVERLAP,
    LONG_NAMES,
    NAMES_THAT_LOOK_ALIKE,
    FIRST_AND_LAST_PORTS,
    LARGE_PAYLOADS,
)
