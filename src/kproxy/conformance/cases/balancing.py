"""Cases on shares, and on endpoints that fail: a proxy that retries takes the connections of one to the others.

Only values; the vocabulary is `kproxy.conformance.case`.  Each probe of a share takes hundreds of connections, so
they are few; that every endpoint is chosen at all is checked all over the catalogue.
"""

from __future__ import annotations

from kproxy.conformance.case import (
    SAME_ENDPOINT,
    Apply,
    Case,
    CaseEndpoint,
    Feature,
    Open,
    Port,
    Probe,
    Send,
    StopListening,
    Type,
    case,
    client,
    delivered_to,
    delivered_to_many,
    host,
    pod,
    pods,
    service,
)
from kproxy.conformance.case.outcomes import MASQUERADED
from kproxy.conformance.cases import change
from kproxy.conformance.cases.common import FROM_BOTH, HOST_CLAUSES, NODE_PORT_CLAUSES, POD_CLAUSES
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

RETRY = {Feature.CONNECTION_RETRY}
REFUSED, UNANSWERED, MOVES = (
    "balancing.retry.refused",
    "balancing.retry.unanswered",
    "affinity.retry.moves",
)
EITHER = delivered_to("a1", "b1")
WEB = service("web", "a1", "b1", type=Type.NODE_PORT)

ENDPOINT_REFUSES = case(
    "balancing.endpoint-refuses",
    "Of two endpoints one refuses: no connection fails, wherever it comes from; one that is open at the other goes on.",
    Apply(WEB, beside := service("beside", "a1", "b1")),
    Open(flow="first", sender=pod("a2"), to=WEB.cluster_ip, expect=EITHER),
    Open(flow="beside", sender=pod("a2"), to=beside.cluster_ip, expect=EITHER),
    StopListening(flow="first"),
    Probe(sender=pod("a2"), to=WEB.cluster_ip, expect=EITHER, count=8, clauses=(REFUSED,)),
    Probe(sender=host("a"), to=WEB.cluster_ip, expect=FROM_BOTH, count=8, clauses=(REFUSED,)),
    Probe(sender=client("a"), to=WEB.node_port("a"), expect=FROM_BOTH, count=8, clauses=(REFUSED,)),
    Send(flow="beside", expect=SAME_ENDPOINT, clauses=(REFUSED,)),
    clauses=POD_CLAUSES | HOST_CLAUSES | NODE_PORT_CLAUSES | {REFUSED},
    features=RETRY | {Feature.NODE_PORT},
)

ENDPOINT_HANGS = case(
    "balancing.endpoint-hangs",
    "Of two endpoints one answers no connection: none fails, wherever it comes from.",
    Apply(WEB),
    Open(flow="first", sender=pod("a2"), to=WEB.cluster_ip, expect=EITHER),
    StopListening(flow="first", hangs=True),
    Probe(sender=pod("a2"), to=WEB.cluster_ip, expect=EITHER, count=8, clauses=(UNANSWERED,)),
    Probe(sender=client("a"), to=WEB.node_port("a"), expect=FROM_BOTH, count=8, clauses=(UNANSWERED,)),
    clauses=POD_CLAUSES | NODE_PORT_CLAUSES | {UNANSWERED},
    features=RETRY | {Feature.NODE_PORT},
)

STICKY = service("sticky", "a1", "b1", affinity_seconds=10800)

AFFINITY_MOVES = case(
    "balancing.affinity-leaves-an-endpoint-that-fails",
    "A client whose endpoint refuses gets the other one, and keeps it.",
    Apply(STICKY),
    Open(flow="bound", sender=pod("a2"), to=STICKY.cluster_ip, expect=EITHER),
    StopListening(flow="bound"),
    Probe(
        sender=pod("a2"),
        to=STICKY.cluster_ip,
        expect=EITHER,
        count=8,
        sticky_group="after",
        clauses=("affinity.client-ip.sticks", REFUSED, MOVES),
    ),
    clauses=POD_CLAUSES | {"affinity.client-ip.sticks", REFUSED, MOVES},
    features=RETRY | {Feature.SESSION_AFFINITY},
)

CASES: tuple[Case, ...] = (
    CONNECTIONS,
    DATAGRAMS,
    ADDRESSES_THAT_LOOK_ALIKE,
    ENDPOINT_REFUSES,
    ENDPOINT_HANGS,
    AFFINITY_MOVES,
)
