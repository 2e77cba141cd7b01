"""Cases on an API server that lets no proxy learn for a while of what changes: all of it must be caught up with.

Only values; the vocabulary is `kproxy.conformance.case`.  What is cut or late is so in the second round, what is forgotten
in the third.
"""

from __future__ import annotations

from kproxy.conformance.case import (
    DROPPED,
    MASQUERADED,
    REJECTED,
    SAME_ENDPOINT,
    UNTOUCHED,
    Apply,
    Case,
    CaseEndpoint,
    CheckHealth,
    ContinuousProbe,
    Delete,
    DuringWatchFault,
    Feature,
    Lawful,
    Open,
    Policy,
    Probe,
    Send,
    Type,
    Vip,
    WatchFault,
    case,
    client,
    delivered_to,
    pod,
    service,
)
from kproxy.conformance.cases.common import (
    LOCAL_ENDPOINTS_REPORTED,
    MOVES,
    NODE_PORT_CLAUSES,
    POD_CLAUSES,
    UDP_PORT,
    UNRELATED,
)
from kproxy.conformance.cases.profiles import WATCHES

APPLIED = "watch.interrupted.changes-applied"
TOGETHER = "watch.changes-together.last-counts"
GONE = {"cluster-ip.unallocated.not-served", "traffic.not-for-a-service.untouched"}
NOT_SERVED = DROPPED | UNTOUCHED

WEB = service("web", "a1", type=Type.NODE_PORT)
ON_B = WEB.replace(endpoints=(CaseEndpoint(on="b1"), CaseEndpoint(on="b3")))
OLD = service("old", "a1", type=Type.NODE_PORT)
NEW = service("new", "b2", type=Type.NODE_PORT)
NEIGHBOUR = service("neighbour", "a1", "b2")
BESIDE = ContinuousProbe(
    sender=pod("a2"), to=NEIGHBOUR.cluster_ip, expect=delivered_to("a1", "b2"), clauses=(APPLIED,)
)


def _masqueraded_to(*endpoints: str) -> Lawful:
    return delivered_to(*endpoints, source=MASQUERADED)


CONNECTIONS_ARE_RESET = case(
    "watches.connections-are-reset",
    "What changes just when all watches are reset is applied, a deletion too.",
    Apply(WEB, OLD, NEIGHBOUR),
    Probe(sender=pod("a2"), to=WEB.cluster_ip, expect=delivered_to("a1")),
    Probe(sender=client("a"), to=OLD.node_port("a"), expect=_masqueraded_to("a1")),
    BESIDE,
    DuringWatchFault(WatchFault.CONNECTION_RESET, Apply(ON_B, NEW), Delete(OLD)),
    Probe(
        sender=pod("a2"), to=WEB.cluster_ip, expect=delivered_to("b1", "b3"), spread=True, clauses=(APPLIED,)
    ),
    Probe(sender=pod("b1"), to=NEW.cluster_ip, expect=delivered_to("b2"), clauses=(APPLIED,)),
    Probe(sender=pod("a2"), to=OLD.cluster_ip, expect=NOT_SERVED, clauses=(APPLIED,)),
    Probe(sender=client("a"), to=OLD.node_port("a"), expect=UNTOUCHED, clauses=(APPLIED,)),
    clauses=POD_CLAUSES | NODE_PORT_CLAUSES | GONE | {"balancing.every-endpoint-chosen", APPLIED},
    features={Feature.NODE_PORT},
    profile=WATCHES,
)

FLAPPING = service("flapping", "a1", "b1", type=Type.NODE_PORT)
BRIEF = service("brief", "a1", type=Type.NODE_PORT)
AGAIN = service("again", "a1", type=Type.NODE_PORT)
ANEW = service("again", "b2", type=Type.NODE_PORT)

SEVERAL_AT_ONCE = case(
    "watches.several-changes-at-once",
    "Of changes that arrive together the last counts: there and back, created and deleted, deleted and created again.",
    Apply(WEB, FLAPPING, AGAIN),
    Probe(sender=pod("a2"), to=WEB.cluster_ip, expect=delivered_to("a1")),
    Probe(sender=pod("a2"), to=AGAIN.cluster_ip, expect=delivered_to("a1")),
    Open(flow="open", sender=pod("a2"), to=FLAPPING.cluster_ip, expect=delivered_to("a1", "b1")),
    DuringWatchFault(
        WatchFault.DELAYED,
        Apply(FLAPPING.replace(endpoints=()), WEB.replace(endpoints=()), BRIEF),
        Apply(
            FLAPPING.replace(internal_policy=Policy.LOCAL), WEB.replace(endpoints=(CaseEndpoint(on="a3"),))
        ),
        Delete(AGAIN),
        Delete(BRIEF),
        Apply(FLAPPING, ON_B, ANEW),
    ),
    Probe(
        sender=pod("a2"),
        to=FLAPPING.cluster_ip,
        expect=delivered_to("a1", "b1"),
        spread=True,
        clauses=(TOGETHER,),
    ),
    Probe(
        sender=client("a"),
        to=FLAPPING.node_port("a"),
        expect=_masqueraded_to("a1", "b1"),
        spread=True,
        clauses=(TOGETHER,),
    ),
    Probe(
        sender=pod("a2"), to=WEB.cluster_ip, expect=delivered_to("b1", "b3"), spread=True, clauses=(TOGETHER,)
    ),
    Probe(sender=pod("a2"), to=ANEW.cluster_ip, expect=delivered_to("b2"), count=4, clauses=(TOGETHER,)),
    Probe(
        sender=client("a"), to=ANEW.node_port("a"), expect=_masqueraded_to("b2"), count=4, clauses=(TOGETHER,)
    ),
    Probe(sender=pod("a2"), to=BRIEF.cluster_ip, expect=NOT_SERVED, clauses=(TOGETHER,)),
    Probe(sender=client("a"), to=BRIEF.node_port("a"), expect=UNTOUCHED, clauses=(TOGETHER,)),
    Send(flow="open", expect=SAME_ENDPOINT, clauses=("established.survives-endpoint-change",)),
    clauses=POD_CLAUSES
    | NODE_PORT_CLAUSES
    | GONE
    | {
        "balancing.every-endpoint-chosen",
        "established.survives-endpoint-change",
        "node-port.every-node.served",
        TOGETHER,
    },
    features={Feature.NODE_PORT, Feature.INTERNAL_TRAFFIC_POLICY},
    profile=WATCHES,
)

DNS = service("dns", "a1", ports=UDP_PORT)
KEPT = service("kept", "a1", ports=UDP_PORT)
EMPTIED = service("emptied", "a1")
RENUMBERED = service("again", "b2", type=Type.NODE_PORT, generation=1)

HISTORY_IS_FORGOTTEN = case(
    "watches.history-is-forgotten",
    "What went while proxies could not watch, and of which they get 410 Gone when they can, is not served "
    "any more: Services, endpoints, and the old addresses of one that was made anew.",
    Apply(WEB, OLD, EMPTIED, AGAIN, NEIGHBOUR, DNS, KEPT),
    Probe(sender=pod("a2"), to=EMPTIED.cluster_ip, expect=delivered_to("a1")),
    BESIDE,
    Apply(service("neighbour", "a1", "b2")),
    Probe(sender=pod("a2"), to=OLD.cluster_ip, expect=delivered_to("a1")),
    Probe(sender=client("a"), to=AGAIN.node_port("a"), expect=_masqueraded_to("a1")),
    Open(flow="moving", sender=pod("a2"), to=DNS.cluster_ip, expect=delivered_to("a1")),
    Open(flow="beside", sender=pod("a2"), to=KEPT.cluster_ip, expect=delivered_to("a1")),
    DuringWatchFault(
        WatchFault.GONE,
        Delete(OLD),
        Delete(AGAIN),
        Apply(ON_B, service("emptied"), NEW, service("dns", "b1", ports=UDP_PORT), RENUMBERED),
    ),
    Probe(
        sender=pod("a2"), to=WEB.cluster_ip, expect=delivered_to("b1", "b3"), spread=True, clauses=(APPLIED,)
    ),
    Probe(sender=pod("a2"), to=OLD.cluster_ip, expect=NOT_SERVED, clauses=(APPLIED,)),
    Probe(sender=client("a"), to=OLD.node_port("a"), expect=UNTOUCHED, clauses=(APPLIED,)),
    Probe(sender=pod("a2"), to=EMPTIED.cluster_ip, expect=REJECTED, clauses=(APPLIED,)),
    Probe(sender=pod("b1"), to=NEW.cluster_ip, expect=delivered_to("b2"), clauses=(APPLIED,)),
    Probe(sender=pod("a2"), to=RENUMBERED.cluster_ip, expect=delivered_to("b2"), clauses=(APPLIED,)),
    Probe(sender=pod("a2"), to=AGAIN.cluster_ip, expect=NOT_SERVED, clauses=(APPLIED,)),
    Probe(sender=client("a"), to=AGAIN.node_port("a"), expect=UNTOUCHED, clauses=(APPLIED,)),
    Send(flow="moving", expect=delivered_to("b1"), clauses=(MOVES,)),
    Send(flow="beside", expect=SAME_ENDPOINT, clauses=(UNRELATED,)),
    clauses=POD_CLAUSES
    | NODE_PORT_CLAUSES
    | GONE
    | {
        "balancing.every-endpoint-chosen",
        "endpoints.none.rejected",
        "protocol.udp.served",
        APPLIED,
        MOVES,
        UNRELATED,
    },
    features={Feature.NODE_PORT},
    profile=WATCHES,
)

LOCAL = service(
    "local", "a1", "a2", "b1", type=Type.LOAD_BALANCER, external_policy=Policy.LOCAL, vips=(Vip(),)
)
LEAVING = LOCAL.replace(name="leaving")
FEWER = LOCAL.replace(endpoints=(CaseEndpoint(on="a2"), CaseEndpoint(on="b1")))

HEALTH_PORTS_FOLLOW = case(
    "watches.health-ports-follow",
    "Health check node ports follow what changed while proxies could not watch; that of a deleted Service is closed.",
    Apply(LOCAL, LEAVING),
    CheckHealth(
        sender=client("a"), to=LOCAL.health_check("a"), expect=2, clauses=(LOCAL_ENDPOINTS_REPORTED,)
    ),
    DuringWatchFault(WatchFault.DELAYED, Apply(LOCAL.replace(endpoints=())), Apply(LOCAL)),
    CheckHealth(
        sender=client("a"), to=LOCAL.health_check("a"), expect=2, clauses=(TOGETHER, LOCAL_ENDPOINTS_REPORTED)
    ),
    CheckHealth(
        sender=client("a"), to=LEAVING.health_check("a"), expect=2, clauses=(LOCAL_ENDPOINTS_REPORTED,)
    ),
    DuringWatchFault(WatchFault.GONE, Apply(FEWER), Delete(LEAVING)),
    CheckHealth(
        sender=client("a"), to=LOCAL.health_check("a"), expect=1, clauses=(APPLIED, LOCAL_ENDPOINTS_REPORTED)
    ),
    CheckHealth(
        sender=client("a"),
        to=LEAVING.health_check("a"),
        expect=None,
        clauses=(APPLIED, LOCAL_ENDPOINTS_REPORTED),
    ),
    Probe(
        sender=client("a"), to=LOCAL.node_port("a"), expect=delivered_to("a2"), count=4, clauses=(APPLIED,)
    ),
    clauses={
        "node-port.reaches-ready-endpoint",
        "external-policy.local.local-endpoints-source-preserved",
        LOCAL_ENDPOINTS_REPORTED,
        APPLIED,
        TOGETHER,
    },
    features={
        Feature.NODE_PORT,
        Feature.LOAD_BALANCER,
        Feature.EXTERNAL_TRAFFIC_POLICY,
        Feature.HEALTH_CHECKS,
    },
    profile=WATCHES,
)

CASES: tuple[Case, ...] = (
    CONNECTIONS_ARE_RESET,
    SEVERAL_AT_ONCE,
    HISTORY_IS_FORGOTTEN,
    HEALTH_PORTS_FOLLOW,
)
