"""Cases of endpoints that fail: a proxy that retries takes their connections to others.

Only values; the vocabulary is `kproxy.conformance.case`.
"""

from __future__ import annotations

from kproxy.conformance.case import (
    SAME_ENDPOINT,
    Apply,
    Case,
    Feature,
    Open,
    Probe,
    Send,
    StopListening,
    Type,
    case,
    client,
    delivered_to,
    host,
    pod,
    service,
)
from kproxy.conformance.cases.common import (
    FROM_BOTH,
    HOST_CLAUSES,
    NODE_PORT_CLAUSES,
    POD_CLAUSES,
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

CASES: tuple[Case, ...] = (ENDPOINT_REFUSES, ENDPOINT_HANGS, AFFINITY_MOVES)
