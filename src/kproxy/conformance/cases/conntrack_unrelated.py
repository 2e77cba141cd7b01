"""Cases on connection tracking entries that are none of the proxy's: each is the same one after every change.

Only values; the vocabulary is `kproxy.conformance.case`.  Changes of all cases of the lab count, not only these.
"""

from __future__ import annotations

from kproxy.conformance.case import (
    MASQUERADED,
    REJECTED,
    UNTOUCHED,
    Apply,
    Case,
    Delete,
    Feature,
    Open,
    Probe,
    Send,
    Type,
    UnrelatedEntries,
    case,
    client,
    delivered_to,
    pod,
    service,
)
from kproxy.conformance.cases import change
from kproxy.conformance.cases.common import DATAGRAMS, FROM_B1, MOVES, POD_CLAUSES, UDP_PORT, UNRELATED

DNS = service("dns", "a1", ports=UDP_PORT)
MOVED = service("dns", "b1", ports=UDP_PORT)
ON_A = delivered_to("a1", source=MASQUERADED)

EXPOSED_DNS = DNS.replace(name="exposed", type=Type.NODE_PORT)
NEXT_DOOR = service("next-door", "a1", ports=UDP_PORT)

OTHERS_KEEP_THEIR_ENTRIES = case(
    "conntrack.others-keep-their-entries",
    "Entries of other traffic are the same ones after every change: of a CNI's host port that leads to an endpoint, of "
    "datagrams to a Service's port number elsewhere, of another Service at that endpoint, of TCP.",
    Apply(EXPOSED_DNS, NEXT_DOOR),
    Open(flow="own", sender=pod("a2"), to=EXPOSED_DNS.cluster_ip, expect=delivered_to("a1")),
    UnrelatedEntries(
        node="a", service=EXPOSED_DNS, other_service=NEXT_DOOR, endpoint="a1", clauses=(UNRELATED,)
    ),
    Apply(EXPOSED_DNS.replace(endpoints=MOVED.endpoints)),
    Send(flow="own", expect=delivered_to("b1"), clauses=(MOVES,)),
    Apply(EXPOSED_DNS.replace(endpoints=())),
    Probe(sender=pod("a2"), to=EXPOSED_DNS.cluster_ip, expect=REJECTED),
    Delete(EXPOSED_DNS),
    Probe(sender=pod("a2"), to=NEXT_DOOR.cluster_ip, expect=delivered_to("a1")),
    clauses=POD_CLAUSES | DATAGRAMS | {"endpoints.none.rejected", MOVES, UNRELATED},
    features={Feature.NODE_PORT},
    regressions={"R009"},
)

NUMBERED = DNS.replace(name="numbered", type=Type.NODE_PORT)

NODE_PORT_NUMBERS_ELSEWHERE = case(
    "conntrack.node-port-numbers-elsewhere-stay",
    "Entries of datagrams to another machine's port that has the number of a node port are the same after every change.",
    Apply(NUMBERED),
    Open(flow="own", sender=client("a"), to=NUMBERED.node_port("a"), expect=ON_A),
    UnrelatedEntries(
        node="a",
        service=NUMBERED,
        other_service=NUMBERED,
        endpoint="a1",
        at_node_port=True,
        clauses=(UNRELATED,),
    ),
    Apply(NUMBERED.replace(endpoints=MOVED.endpoints)),
    Send(flow="own", expect=FROM_B1, clauses=(MOVES,)),
    Delete(NUMBERED),
    Probe(
        sender=client("a"), to=NUMBERED.node_port("a"), expect=UNTOUCHED, clauses=(change.SERVICE_DELETED,)
    ),
    clauses=DATAGRAMS
    | {
        "node-port.reaches-ready-endpoint",
        "masquerade.external-policy-cluster.rewritten",
        "traffic.not-for-a-service.untouched",
        "change.service-deleted.not-served",
        MOVES,
        UNRELATED,
    },
    features={Feature.NODE_PORT},
)

CASES: tuple[Case, ...] = (OTHERS_KEEP_THEIR_ENTRIES, NODE_PORT_NUMBERS_ELSEWHERE)
