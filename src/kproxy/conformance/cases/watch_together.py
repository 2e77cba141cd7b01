"""Cases on changes of one object that a proxy learns of together, before it can apply the first of them.

Only values; the vocabulary is `kproxy.conformance.case`.  Of what arrives together a proxy may take a part for a sync of
its own: so the neighbour changes first, and each object's changes follow one another directly.  A sync that begins
between them can separate those of one object only.
"""

from __future__ import annotations

from collections.abc import Iterator

from kproxy.conformance.case import (
    DROPPED,
    MASQUERADED,
    REJECTED,
    SAME_ENDPOINT,
    UNTOUCHED,
    Apply,
    Case,
    CaseEndpoint,
    CaseService,
    CheckHealth,
    Delete,
    DuringWatchFault,
    Feature,
    Open,
    Policy,
    Port,
    Probe,
    Send,
    Type,
    Vip,
    WatchFault,
    case,
    client,
    delivered_to,
    pod,
    pods,
    service,
)
from kproxy.conformance.cases.common import (
    LOCAL_CLAUSES,
    LOCAL_ENDPOINTS_REPORTED,
    NODE_PORT_CLAUSES,
    POD_CLAUSES,
)
from kproxy.conformance.cases.profiles import WATCHES
from kproxy.model.network import Protocol

TOGETHER = "watch.changes-together.last-counts"
PORT_GONE = {"cluster-ip.undefined-port.not-served"}
NODE_PORT_GONE = {"traffic.not-for-a-service.untouched"}
NOT_SERVED = DROPPED | UNTOUCHED
NOT_A_PORT = REJECTED | UNTOUCHED

A, B = Port(name="a"), Port(name="b", number=81)
NEIGHBOUR = service("beside", "a1")
FIRST = Apply(NEIGHBOUR.replace(endpoints=pods("b2")))
"""Change that a proxy's next sync may begin with."""
FOLLOWED = Probe(sender=pod("a2"), to=NEIGHBOUR.cluster_ip, expect=delivered_to("b2"), clauses=(TOGETHER,))
LABELLED = (("example.com/revision", "2"),)

PORTS = service("ports", "a1", ports=(A,), slice_ports=(A, B))
STICKY = service("sticky", "a1", "b1", "b2")
INSIDE = service("inside", "a1", "b1")
OUTSIDE = service("outside", "a1", "b1", type=Type.LOAD_BALANCER)
MOVED = service("moved", "a1")
ON_PORT_B = PORTS.replace(ports=(B,))
STICKS = STICKY.replace(affinity_seconds=10800)
INSIDE_LOCAL = INSIDE.replace(internal_policy=Policy.LOCAL)
OUTSIDE_LOCAL = OUTSIDE.replace(external_policy=Policy.LOCAL)
ON_B1 = MOVED.replace(endpoints=pods("b1"))


def _each_in_turn(*forms: CaseService) -> Iterator[Apply]:
    return map(Apply, forms)


WITHOUT_BEARING_FOLLOWS = case(
    "watches.change-without-bearing-follows-at-once",
    "A change of a Service or of endpoints that is followed at once by one of a label, an annotation or the status is applied.",
    Apply(PORTS, STICKY, INSIDE, OUTSIDE, MOVED, NEIGHBOUR),
    Probe(sender=pod("a2"), to=PORTS.cluster_ip.at("a"), expect=delivered_to("a1")),
    Probe(sender=pod("a2"), to=INSIDE.cluster_ip, expect=delivered_to("a1", "b1"), spread=True),
    Probe(
        sender=client("a"),
        to=OUTSIDE.node_port("a"),
        expect=delivered_to("a1", "b1", source=MASQUERADED),
        spread=True,
    ),
    Probe(sender=pod("a2"), to=MOVED.cluster_ip, expect=delivered_to("a1")),
    DuringWatchFault(
        WatchFault.DELAYED,
        FIRST,
        *_each_in_turn(ON_PORT_B, ON_PORT_B.replace(labels=LABELLED)),
        *_each_in_turn(STICKS, STICKS.replace(annotations=LABELLED)),
        *_each_in_turn(INSIDE_LOCAL, INSIDE_LOCAL.replace(labels=LABELLED)),
        *_each_in_turn(OUTSIDE_LOCAL, OUTSIDE_LOCAL.replace(vips=(Vip(hostname_only=True),))),
        *_each_in_turn(ON_B1, ON_B1.replace(slice_labels=LABELLED)),
    ),
    FOLLOWED,
    Probe(sender=pod("a2"), to=PORTS.cluster_ip.at("b"), expect=delivered_to("a1"), clauses=(TOGETHER,)),
    Probe(sender=pod("a2"), to=PORTS.cluster_ip.at("a"), expect=NOT_A_PORT, clauses=(TOGETHER,)),
    Probe(
        sender=pod("a2"),
        to=STICKY.cluster_ip,
        expect=delivered_to("a1", "b1", "b2"),
        count=12,
        sticky_group="sticky",
        clauses=(TOGETHER, "affinity.client-ip.sticks"),
    ),
    Probe(sender=pod("a2"), to=INSIDE.cluster_ip, expect=delivered_to("a1"), count=8, clauses=(TOGETHER,)),
    Probe(
        sender=client("a"), to=OUTSIDE.node_port("a"), expect=delivered_to("a1"), count=8, clauses=(TOGETHER,)
    ),
    Probe(sender=pod("a2"), to=MOVED.cluster_ip, expect=delivered_to("b1"), count=4, clauses=(TOGETHER,)),
    clauses=POD_CLAUSES
    | NODE_PORT_CLAUSES
    | LOCAL_CLAUSES
    | PORT_GONE
    | {
        "balancing.every-endpoint-chosen",
        "affinity.client-ip.sticks",
        "internal-policy.local.same-node",
        "load-balancer.hostname-only.ignored",
        TOGETHER,
    },
    features={
        Feature.NODE_PORT,
        Feature.LOAD_BALANCER,
        Feature.SESSION_AFFINITY,
        Feature.INTERNAL_TRAFFIC_POLICY,
        Feature.EXTERNAL_TRAFFIC_POLICY,
    },
    profile=WATCHES,
)

RETURNING = service("returning", "a1", ports=(A,), slice_ports=(A, B))
ADDRESSES = service("addresses", "a1", type=Type.NODE_PORT)
ELSEWHERE = ADDRESSES.replace(generation=1)
STAYS = (TOGETHER, "established.survives-endpoint-change")

THERE_AND_BACK = case(
    "watches.there-and-back-at-once",
    "Ports, addresses and endpoints that change there and back at once are as they were, and connections go on.",
    Apply(RETURNING, ADDRESSES, MOVED, NEIGHBOUR),
    Open(flow="port", sender=pod("a2"), to=RETURNING.cluster_ip.at("a"), expect=delivered_to("a1")),
    Open(flow="endpoint", sender=pod("a2"), to=MOVED.cluster_ip, expect=delivered_to("a1")),
    Probe(sender=client("a"), to=ADDRESSES.node_port("a"), expect=delivered_to("a1", source=MASQUERADED)),
    DuringWatchFault(
        WatchFault.DELAYED,
        FIRST,
        *_each_in_turn(RETURNING.replace(ports=(B,)), RETURNING),
        *_each_in_turn(ELSEWHERE, ADDRESSES),
        *_each_in_turn(ON_B1, MOVED),
    ),
    FOLLOWED,
    Probe(sender=pod("a2"), to=RETURNING.cluster_ip.at("a"), expect=delivered_to("a1"), clauses=(TOGETHER,)),
    Probe(sender=pod("a2"), to=RETURNING.cluster_ip.at("b"), expect=NOT_A_PORT, clauses=(TOGETHER,)),
    Probe(sender=pod("a2"), to=ADDRESSES.cluster_ip, expect=delivered_to("a1"), clauses=(TOGETHER,)),
    Probe(sender=pod("a2"), to=ELSEWHERE.cluster_ip, expect=NOT_SERVED, clauses=(TOGETHER,)),
    Probe(
        sender=client("a"),
        to=ADDRESSES.node_port("a"),
        expect=delivered_to("a1", source=MASQUERADED),
        clauses=(TOGETHER,),
    ),
    Probe(sender=client("a"), to=ELSEWHERE.node_port("a"), expect=UNTOUCHED, clauses=(TOGETHER,)),
    Probe(sender=pod("a2"), to=MOVED.cluster_ip, expect=delivered_to("a1"), count=4, clauses=(TOGETHER,)),
    Send(flow="port", expect=SAME_ENDPOINT, clauses=STAYS),
    Send(flow="endpoint", expect=SAME_ENDPOINT, clauses=STAYS),
    clauses=POD_CLAUSES
    | NODE_PORT_CLAUSES
    | PORT_GONE
    | NODE_PORT_GONE
    | {"cluster-ip.unallocated.not-served", *STAYS},
    features={Feature.NODE_PORT},
    profile=WATCHES,
)

TURNED = service("turned", "a1", ports=(A, B), type=Type.NODE_PORT)
WITHOUT_A = TURNED.replace(ports=(B,))
OVER_UDP = TURNED.replace(ports=(B, Port(name="a", protocol=Protocol.UDP)))
AGAIN = service("again", "a1", ports=(A,), type=Type.NODE_PORT)
ANEW = AGAIN.replace(ports=(B,))
OLD = service("old", "a1")
HEIR = service("heir", "b1", same_cluster_ip_as="old")

PORTS_ARE_REPLACED = case(
    "watches.ports-are-replaced-at-once",
    "A port that goes and returns with another protocol, a Service made anew with other ports, and another Service at the "
    "address of a deleted one are served as they are last, all of it learned at once.",
    Apply(TURNED, AGAIN, OLD, NEIGHBOUR),
    Probe(sender=pod("a2"), to=TURNED.cluster_ip.at("a").over(Protocol.TCP), expect=delivered_to("a1")),
    Open(flow="b", sender=pod("a2"), to=TURNED.cluster_ip.at("b"), expect=delivered_to("a1")),
    Probe(sender=pod("a2"), to=AGAIN.cluster_ip.at("a"), expect=delivered_to("a1")),
    Probe(sender=pod("a2"), to=OLD.cluster_ip, expect=delivered_to("a1")),
    DuringWatchFault(
        WatchFault.DELAYED,
        FIRST,
        *_each_in_turn(WITHOUT_A, OVER_UDP),
        Delete(AGAIN),
        Apply(ANEW),
        Delete(OLD),
        Apply(HEIR),
    ),
    FOLLOWED,
    Probe(
        sender=pod("a2"),
        to=TURNED.cluster_ip.at("a").over(Protocol.UDP),
        expect=delivered_to("a1"),
        clauses=(TOGETHER,),
    ),
    Probe(
        sender=pod("a2"),
        to=TURNED.cluster_ip.at("a").over(Protocol.TCP),
        expect=NOT_A_PORT,
        clauses=(TOGETHER,),
    ),
    Probe(
        sender=client("a"),
        to=TURNED.node_port("a").at("a").over(Protocol.UDP),
        expect=delivered_to("a1", source=MASQUERADED),
        clauses=(TOGETHER,),
    ),
    Probe(
        sender=client("a"),
        to=TURNED.node_port("a").at("a").over(Protocol.TCP),
        expect=UNTOUCHED,
        clauses=(TOGETHER,),
    ),
    Send(flow="b", expect=SAME_ENDPOINT, clauses=("established.survives-port-change-elsewhere",)),
    Probe(sender=pod("a2"), to=AGAIN.cluster_ip.at("b"), expect=delivered_to("a1"), clauses=(TOGETHER,)),
    Probe(sender=pod("a2"), to=AGAIN.cluster_ip.at("a"), expect=NOT_A_PORT, clauses=(TOGETHER,)),
    Probe(sender=client("a"), to=AGAIN.node_port("a").at("a"), expect=UNTOUCHED, clauses=(TOGETHER,)),
    Probe(sender=pod("a2"), to=HEIR.cluster_ip, expect=delivered_to("b1"), count=4, clauses=(TOGETHER,)),
    clauses=POD_CLAUSES
    | NODE_PORT_CLAUSES
    | PORT_GONE
    | NODE_PORT_GONE
    | {
        "protocol.udp.served",
        "cluster-ip.undefined-protocol.not-served",
        "established.survives-port-change-elsewhere",
        TOGETHER,
    },
    features={Feature.NODE_PORT},
    profile=WATCHES,
)

FLEETING = service("fleeting", "a1")
IN_TWO_SLICES = FLEETING.replace(endpoints=(CaseEndpoint(on="a1"), CaseEndpoint(on="b1", slice=1)))

SLICE_COMES_AND_GOES = case(
    "watches.slice-comes-and-goes-at-once",
    "The endpoints of an EndpointSlice that is created and deleted at once get no connection.",
    Apply(FLEETING, NEIGHBOUR),
    Probe(sender=pod("a2"), to=FLEETING.cluster_ip, expect=delivered_to("a1")),
    DuringWatchFault(WatchFault.DELAYED, FIRST, *_each_in_turn(IN_TWO_SLICES, FLEETING)),
    FOLLOWED,
    Probe(sender=pod("a2"), to=FLEETING.cluster_ip, expect=delivered_to("a1"), count=12, clauses=(TOGETHER,)),
    clauses=POD_CLAUSES | {TOGETHER},
    profile=WATCHES,
)

COUNTED = service("counted", "a1", "a2", type=Type.LOAD_BALANCER, external_policy=Policy.LOCAL, vips=(Vip(),))
RECOUNTED = COUNTED.replace(generation=1)
COUNT = (TOGETHER, LOCAL_ENDPOINTS_REPORTED)

HEALTH_PORT_IS_REPLACED = case(
    "watches.health-port-is-replaced-at-once",
    "A load balancer's Service that is made anew with another health check node port reports at that one, and no more at the "
    "old one, all of it learned at once.",
    Apply(COUNTED, NEIGHBOUR),
    CheckHealth(
        sender=client("a"), to=COUNTED.health_check("a"), expect=2, clauses=(LOCAL_ENDPOINTS_REPORTED,)
    ),
    DuringWatchFault(WatchFault.DELAYED, FIRST, Delete(COUNTED), Apply(RECOUNTED)),
    FOLLOWED,
    CheckHealth(sender=client("a"), to=RECOUNTED.health_check("a"), expect=2, clauses=COUNT),
    CheckHealth(sender=client("a"), to=COUNTED.health_check("a"), expect=None, clauses=COUNT),
    clauses=POD_CLAUSES | {*COUNT},
    features={Feature.LOAD_BALANCER, Feature.EXTERNAL_TRAFFIC_POLICY, Feature.HEALTH_CHECKS},
    profile=WATCHES,
)

CASES: tuple[Case, ...] = (
    WITHOUT_BEARING_FOLLOWS,
    THERE_AND_BACK,
    PORTS_ARE_REPLACED,
    SLICE_COMES_AND_GOES,
    HEALTH_PORT_IS_REPLACED,
)
