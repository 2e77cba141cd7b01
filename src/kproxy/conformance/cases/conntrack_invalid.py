"""Cases on what connection tracking finds invalid, and on traffic of which a node sees one direction only.

Only values; the vocabulary is `kproxy.conformance.case`.
"""

from __future__ import annotations

from kproxy.conformance.case import (
    MASQUERADED,
    SAME_ENDPOINT,
    UNTOUCHED,
    Apply,
    Case,
    Feature,
    Open,
    OutOfWindow,
    Policy,
    Probe,
    ReadSysctl,
    Send,
    Type,
    case,
    client,
    delivered_to,
    endpoint_target,
    host,
    pod,
    remote,
    service,
)
from kproxy.conformance.cases.common import (
    ANYWHERE,
    DATAGRAMS,
    FROM_B1,
    HOST_CLAUSES,
    LOCAL_CLAUSES,
    NODE_PORT_CLAUSES,
    ON_B1,
    POD_CLAUSES,
    SPREAD,
    UDP_PORT,
)
from kproxy.conformance.cases.profiles import LIBERAL

NOT_LEAKED = "conntrack.invalid-not-leaked"
LIBERAL_SET = "conntrack.liberal.set"
ONE_WAY = "conntrack.one-direction.passes"

INVALID_SEGMENT_IS_NOT_LEAKED = case(
    "conntrack.invalid-segment-is-not-leaked",
    "A segment outside the window does not reach a pod untranslated: its connection lives on.",
    Apply(web := service("web", "b1"), near := service("near", "a1")),
    Open(flow="far", sender=pod("a2"), to=web.cluster_ip, expect=delivered_to("b1")),
    Open(flow="near", sender=pod("a2"), to=near.cluster_ip, expect=delivered_to("a1")),
    OutOfWindow(flow="far"),
    OutOfWindow(flow="near"),
    Send(flow="far", expect=SAME_ENDPOINT, clauses=(NOT_LEAKED,)),
    Send(flow="near", expect=SAME_ENDPOINT, clauses=(NOT_LEAKED,)),
    clauses=POD_CLAUSES | {NOT_LEAKED},
    regressions={"R013"},
)

INVALID_SEGMENT_IS_NOT_LEAKED_OUTSIDE = case(
    "conntrack.invalid-segment-is-not-leaked-outside",
    "A segment outside the window does not reach a client outside untranslated: its connection lives on.",
    Apply(exposed := service("exposed", "a1", type=Type.NODE_PORT, external_policy=Policy.LOCAL)),
    Open(flow="on-link", sender=client("a"), to=exposed.node_port("a"), expect=delivered_to("a1")),
    Open(flow="routed", sender=remote("a"), to=exposed.node_port("a"), expect=delivered_to("a1")),
    OutOfWindow(flow="on-link"),
    OutOfWindow(flow="routed"),
    Send(flow="on-link", expect=SAME_ENDPOINT, clauses=(NOT_LEAKED,)),
    Send(flow="routed", expect=SAME_ENDPOINT, clauses=(NOT_LEAKED,)),
    clauses=LOCAL_CLAUSES | {NOT_LEAKED},
    features={Feature.NODE_PORT, Feature.EXTERNAL_TRAFFIC_POLICY},
    regressions={"R013"},
)

INVALID_SEGMENT_TO_THE_NODE = case(
    "conntrack.invalid-segment-is-not-leaked-to-the-node",
    "A segment outside the window does not reach a process of the node untranslated: its connection lives on.",
    Apply(far := service("far", "b1"), near := service("near", "a1")),
    Open(flow="far", sender=host("a"), to=far.cluster_ip, expect=FROM_B1),
    Open(flow="near", sender=host("a"), to=near.cluster_ip, expect=delivered_to("a1", source=MASQUERADED)),
    OutOfWindow(flow="far"),
    OutOfWindow(flow="near"),
    Send(flow="far", expect=SAME_ENDPOINT, clauses=(NOT_LEAKED,)),
    Send(flow="near", expect=SAME_ENDPOINT, clauses=(NOT_LEAKED,)),
    clauses=HOST_CLAUSES | {NOT_LEAKED},
    regressions={"R014"},
)

LIBERAL_TRACKING = case(
    "conntrack.liberal-tracking",
    "With tcpBeLiberal a segment outside the window is translated, for pods, the node and clients outside.",
    Apply(far := service("far", "b1", type=Type.NODE_PORT), near := service("near", "a1")),
    ReadSysctl(node="a", name="netfilter/nf_conntrack_tcp_be_liberal", expect="1", clauses=(LIBERAL_SET,)),
    ReadSysctl(
        node="b",
        name="netfilter/nf_conntrack_tcp_timeout_close_wait",
        expect="3600",
        clauses=(LIBERAL_SET,),
    ),
    ReadSysctl(node="a", name="netfilter/nf_conntrack_udp_timeout", expect="45", clauses=(LIBERAL_SET,)),
    ReadSysctl(
        node="a", name="netfilter/nf_conntrack_udp_timeout_stream", expect="180", clauses=(LIBERAL_SET,)
    ),
    Open(flow="far", sender=pod("a2"), to=far.cluster_ip, expect=ON_B1),
    Open(flow="near", sender=pod("a2"), to=near.cluster_ip, expect=delivered_to("a1")),
    Open(flow="node", sender=host("a"), to=far.cluster_ip, expect=FROM_B1),
    Open(flow="outside", sender=client("a"), to=far.node_port("a"), expect=FROM_B1),
    OutOfWindow(flow="far"),
    OutOfWindow(flow="near"),
    OutOfWindow(flow="node"),
    OutOfWindow(flow="outside"),
    Send(flow="far", expect=SAME_ENDPOINT, clauses=(NOT_LEAKED,)),
    Send(flow="near", expect=SAME_ENDPOINT, clauses=(NOT_LEAKED,)),
    Send(flow="node", expect=SAME_ENDPOINT, clauses=(NOT_LEAKED,)),
    Send(flow="outside", expect=SAME_ENDPOINT, clauses=(NOT_LEAKED,)),
    clauses=POD_CLAUSES | HOST_CLAUSES | NODE_PORT_CLAUSES | ANYWHERE | {NOT_LEAKED, LIBERAL_SET},
    features={Feature.NODE_PORT, Feature.CONNTRACK_SETTINGS},
    regressions={"R013", "R014"},
    profile=LIBERAL,
)

ONE_DIRECTION = case(
    "conntrack.one-direction-of-a-connection",
    "With tcpBeLiberal a node passes on connections whose answers take another way.",
    Apply(far := service("far", "b1")),
    Open(flow="astray", sender=client("a"), to=endpoint_target(far, "b1"), expect=UNTOUCHED),
    Send(flow="astray", expect=UNTOUCHED, clauses=(ONE_WAY,)),
    Probe(sender=pod("a2"), to=far.cluster_ip, expect=ON_B1),
    clauses=POD_CLAUSES | {"traffic.not-for-a-service.untouched", ONE_WAY},
    features={Feature.CONNTRACK_SETTINGS},
    regressions={"R015"},
    profile=LIBERAL,
)

ONE_DIRECTION_OF_DATAGRAMS = case(
    "conntrack.one-direction-of-datagrams",
    "A node passes on datagrams whose answers take another way, whatever becomes of Services meanwhile.",
    Apply(far := service("far", "b1", ports=UDP_PORT)),
    Open(flow="astray", sender=client("a"), to=endpoint_target(far, "b1"), expect=UNTOUCHED),
    Apply(service("far", "b1", "b2", ports=UDP_PORT)),
    Send(flow="astray", expect=UNTOUCHED, clauses=(ONE_WAY,)),
    Probe(sender=pod("a2"), to=far.cluster_ip, expect=delivered_to("b1", "b2"), spread=True),
    clauses=POD_CLAUSES | DATAGRAMS | SPREAD | {"traffic.not-for-a-service.untouched", ONE_WAY},
    regressions={"R015"},
)

CASES: tuple[Case, ...] = (
    INVALID_SEGMENT_IS_NOT_LEAKED,
    INVALID_SEGMENT_IS_NOT_LEAKED_OUTSIDE,
    INVALID_SEGMENT_TO_THE_NODE,
    LIBERAL_TRACKING,
    ONE_DIRECTION,
    ONE_DIRECTION_OF_DATAGRAMS,
)
