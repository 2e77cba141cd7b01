"""Cases on shares: each endpoint gets as many new connections as the others, also after removals.

Only values; the vocabulary is `kproxy.conformance.case`.  Each of these probes takes hundreds of connections, so
they are few; that every endpoint is chosen at all is checked all over the catalogue.
"""

from __future__ import annotations

from kproxy.conformance.case import (
    Apply,
    Case,
    CaseEndpoint,
    Feature,
    Port,
    Probe,
    Type,
    case,
    client,
    delivered_to,
    delivered_to_many,
    pod,
    pods,
    service,
)
from kproxy.conformance.case.outcomes import MASQUERADED
from kproxy.conformance.cases import change
from kproxy.conformance.cases.common import POD_CLAUSES
from kproxy.conformance.cases.profiles import LARGE
from kproxy.model.network import Protocol

EVEN = "balancing.even"

FIVE = service("web", "a1", "a2", "b1", "b2", "b3")
TWICE = FIVE.replace(endpoints=(*FIVE.endpoints, CaseEndpoint(on="a2", slice=1)))
THREE = FIVE.replace(endpoints=pods("a2", "b1", "b3"))

CONNECTIONS = case(
    "balancing.connections",
    "Each of five endpoints gets a fifth of the connections, one listed twice no more; when two leave, each "
    "of the others gets a third.",
    Apply(TWICE),
    Probe(sender=pod("a3"), to=FIVE.cluster_ip, expect=delivered_to("a1", "a2", "b1", "b2", "b3"), even=True),
    Apply(THREE),
    Probe(
        sender=pod("a3"),
        to=FIVE.cluster_ip,
        expect=delivered_to("a2", "b1", "b3"),
        even=True,
        clauses=(change.ENDPOINT_REMOVED,),
    ),
    clauses=POD_CLAUSES
    | {
        EVEN,
        "slices.duplicates-are-one-endpoint",
        "slices.merged",
        "change.endpoint-removed.not-used",
    },
)

FOUR = service("dns", "a1", "a2", "b1", "b2", type=Type.NODE_PORT, ports=(Port(protocol=Protocol.UDP),))
LEFT = FOUR.replace(endpoints=pods("a1", "b1", "b2"))

DATAGRAMS = case(
    "balancing.datagrams",
    "At a node port a client outside meets each of four endpoints; when one leaves, each of the others alike.",
    Apply(FOUR),
    Probe(
        sender=client("a"),
        to=FOUR.node_port("a"),
        expect=delivered_to("a1", "a2", "b1", "b2", source=MASQUERADED),
        spread=True,
    ),
    Apply(LEFT),
    Probe(
        sender=client("a"),
        to=FOUR.node_port("a"),
        expect=delivered_to("a1", "b1", "b2", source=MASQUERADED),
        even=True,
        clauses=(change.ENDPOINT_REMOVED,),
    ),
    clauses={
        EVEN,
        "balancing.every-endpoint-chosen",
        "node-port.reaches-ready-endpoint",
        "masquerade.external-policy-cluster.rewritten",
        "protocol.udp.served",
        "change.endpoint-removed.not-used",
    },
    features={Feature.NODE_PORT},
)

ALIKE = service("alike", endpoints=(*pods("a1", "a2"), CaseEndpoint(on="a1", many=2)))
"""In IPv6 the first two of ``a1``'s further addresses have the digits of the pods' own: fd00:244:0:11::1 and fd00:244:0:1::11."""

ADDRESSES_THAT_LOOK_ALIKE = case(
    "balancing.addresses-that-look-alike",
    "Of endpoints whose addresses have the same digits, with colons at other places, each is chosen, and as often.",
    Apply(ALIKE),
    Probe(
        sender=pod("b2"),
        to=ALIKE.cluster_ip,
        expect=delivered_to("a1", "a2") | delivered_to_many("a1", 1) | delivered_to_many("a1", 1, first=1),
        even=True,
    ),
    clauses=POD_CLAUSES | {EVEN},
    profile=LARGE,
)

CASES: tuple[Case, ...] = (CONNECTIONS, DATAGRAMS, ADDRESSES_THAT_LOOK_ALIKE)
