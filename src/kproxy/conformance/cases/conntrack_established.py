"""Cases of the topic conntrack: established connections.

Only values; the vocabulary is `kproxy.conformance.case`.
"""

from __future__ import annotations

from kproxy.conformance.case import (
    MASQUERADED,
    RESET,
    Apply,
    Case,
    Feature,
    Open,
    Probe,
    Reopen,
    StopListening,
    Type,
    case,
    client,
    delivered_to,
    host,
    pod,
    service,
)
from kproxy.conformance.cases import change
from kproxy.conformance.cases.common import (
    ANYWHERE,
    FROM_B1,
    HOST_CLAUSES,
    NODE_PORT_CLAUSES,
    ON_B1,
    POD_CLAUSES,
)

WEB = service("web", "b1", type=Type.NODE_PORT)
AGAIN = "established.port-used-again.follows"

PORT_IS_USED_AGAIN = case(
    "established.port-is-used-again",
    "Clients that connect again from the same port after their endpoint was replaced reach the new one.",
    Apply(old := service("web", "a1", type=Type.NODE_PORT), STAYING := service("staying", "b2")),
    Open(flow="pod", sender=pod("b2"), to=old.cluster_ip, expect=delivered_to("a1")),
    Open(flow="node", sender=host("a"), to=old.cluster_ip, expect=delivered_to("a1", source=MASQUERADED)),
    Open(
        flow="outside",
        sender=client("a"),
        to=old.node_port("a"),
        expect=delivered_to("a1", source=MASQUERADED),
    ),
    Open(flow="staying", sender=pod("a2"), to=STAYING.cluster_ip, expect=delivered_to("b2")),
    Apply(WEB),
    Reopen(flow="pod", expect=ON_B1, clauses=(AGAIN,)),
    Reopen(flow="node", expect=FROM_B1, clauses=(AGAIN,)),
    Reopen(flow="outside", expect=FROM_B1, clauses=(AGAIN,)),
    Reopen(flow="staying", expect=delivered_to("b2"), clauses=(AGAIN,)),
    Probe(sender=pod("b2"), to=WEB.cluster_ip, expect=ON_B1, clauses=(change.ENDPOINT_REMOVED,)),
    clauses=POD_CLAUSES | HOST_CLAUSES | NODE_PORT_CLAUSES | {"change.endpoint-removed.not-used", AGAIN},
    features={Feature.NODE_PORT},
    regressions={"R083", "R087"},
)

DEAD_ENDPOINT_RESETS = case(
    "established.dead-endpoint-resets",
    "A connection to an endpoint that listens no more is reset, and not refused: the proxy knows nothing of it.",
    Apply(lone := service("lone", "b1", type=Type.NODE_PORT)),
    Open(flow="pod", sender=pod("a2"), to=lone.cluster_ip, expect=ON_B1),
    Open(flow="outside", sender=client("a"), to=lone.node_port("a"), expect=FROM_B1),
    StopListening(flow="pod"),
    Reopen(flow="pod", expect=RESET, clauses=(AGAIN,)),
    Reopen(flow="outside", expect=RESET, clauses=(AGAIN,)),
    clauses=POD_CLAUSES | NODE_PORT_CLAUSES | ANYWHERE | {AGAIN},
    features={Feature.NODE_PORT},
)

CASES: tuple[Case, ...] = (
    PORT_IS_USED_AGAIN,
    DEAD_ENDPOINT_RESETS,
)
