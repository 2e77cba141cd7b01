"""Cases on a kernel that refuses for a while what a node's proxy writes: what must keep working, be reported, and be applied later.

Only values; the vocabulary is `kproxy.conformance.case`.  All of them disturb node a in their second round, and let it
go on in their third, in which nothing else changes; node b is the control.  The last one is on a node whose rules another
program removes, as a firewall does that is started anew.
"""

from __future__ import annotations

from kproxy.conformance.case import (
    DROPPED,
    MASQUERADED,
    REJECTED,
    SAME_ENDPOINT,
    UNTOUCHED,
    AllowWrites,
    Apply,
    Case,
    CaseEndpoint,
    CheckHealth,
    CheckProxy,
    ContinuousProbe,
    Delete,
    FailWrites,
    Feature,
    Flushed,
    FlushRules,
    Lawful,
    Open,
    Policy,
    Probe,
    Send,
    Type,
    Vip,
    case,
    client,
    delivered_to,
    host,
    pod,
    service,
)
from kproxy.conformance.cases import change
from kproxy.conformance.cases.common import (
    HOST_CLAUSES,
    LOCAL_ENDPOINTS_REPORTED,
    MOVES,
    NODE_PORT_CLAUSES,
    POD_CLAUSES,
    UDP_PORT,
    UNRELATED,
)
from kproxy.conformance.cases.profiles import FLUSHED, WRITES
from kproxy.model.network import Family

FEATURES = {Feature.REFUSED_WRITES}

KEPT = "writes.refused.rules-kept"
CAUGHT_UP = "writes.refused.tried-again"
GONE = {
    "cluster-ip.unallocated.not-served",
    "traffic.not-for-a-service.untouched",
    "change.service-deleted.not-served",
}

DELETED_TOO = (CAUGHT_UP, change.SERVICE_DELETED)

WEB = service("web", "a1", type=Type.NODE_PORT)
MOVED = WEB.replace(endpoints=(CaseEndpoint(on="b1"), CaseEndpoint(on="b3")))
OLD = service("old", "a1", type=Type.NODE_PORT)
NEW = service("new", "b2", type=Type.NODE_PORT)
NEIGHBOUR = service("neighbour", "a1", "b2", type=Type.NODE_PORT)
NOT_SERVED = DROPPED | UNTOUCHED


def _masqueraded_to(*endpoints: str) -> Lawful:
    return delivered_to(*endpoints, source=MASQUERADED)


CATCHES_UP = case(
    "writes.what-was-refused-is-written",
    "Endpoints that were replaced, a Service that came and one that went while a node's kernel refused all writes are in "
    "its rules soon after it takes them; until then what was served is served.",
    Apply(WEB, OLD, NEIGHBOUR),
    Probe(sender=pod("a2"), to=WEB.cluster_ip, expect=delivered_to("a1")),
    Probe(sender=client("a"), to=OLD.node_port("a"), expect=_masqueraded_to("a1")),
    ContinuousProbe(
        sender=pod("a2"), to=NEIGHBOUR.cluster_ip, expect=delivered_to("a1", "b2"), clauses=(KEPT,)
    ),
    ContinuousProbe(
        sender=client("a"), to=NEIGHBOUR.node_port("a"), expect=_masqueraded_to("a1", "b2"), clauses=(KEPT,)
    ),
    FailWrites("a"),
    Apply(MOVED, NEW),
    Delete(OLD),
    Probe(sender=pod("b2"), to=WEB.cluster_ip, expect=delivered_to("b1", "b3"), spread=True),
    Probe(sender=pod("a2"), to=WEB.cluster_ip, expect=delivered_to("a1"), count=8, clauses=(KEPT,)),
    Probe(sender=pod("a2"), to=OLD.cluster_ip, expect=delivered_to("a1"), clauses=(KEPT,)),
    AllowWrites("a"),
    Probe(
        sender=pod("a2"),
        to=WEB.cluster_ip,
        expect=delivered_to("b1", "b3"),
        spread=True,
        clauses=(CAUGHT_UP,),
    ),
    Probe(
        sender=client("a"),
        to=WEB.node_port("a"),
        expect=_masqueraded_to("b1", "b3"),
        spread=True,
        clauses=(CAUGHT_UP,),
    ),
    Probe(sender=pod("a2"), to=NEW.cluster_ip, expect=delivered_to("b2"), clauses=(CAUGHT_UP,)),
    Probe(sender=client("a"), to=NEW.node_port("a"), expect=_masqueraded_to("b2"), clauses=(CAUGHT_UP,)),
    Probe(sender=pod("a2"), to=OLD.cluster_ip, expect=NOT_SERVED, clauses=DELETED_TOO),
    Probe(sender=client("a"), to=OLD.node_port("a"), expect=UNTOUCHED, clauses=DELETED_TOO),
    clauses=POD_CLAUSES
    | NODE_PORT_CLAUSES
    | GONE
    | {"balancing.every-endpoint-chosen", "node-port.every-node.served", KEPT, CAUGHT_UP},
    features=FEATURES | {Feature.NODE_PORT},
    profile=WRITES,
)

FULL = service("full", "a1")
EMPTY = service("empty")

EMPTIED_AND_FILLED = case(
    "writes.emptied-and-filled-meanwhile",
    "A Service that lost its endpoints while its node's kernel refused all writes is refused; one that got some is served.",
    Apply(FULL, EMPTY),
    Probe(sender=pod("a2"), to=FULL.cluster_ip, expect=delivered_to("a1")),
    Probe(sender=pod("a2"), to=EMPTY.cluster_ip, expect=REJECTED),
    FailWrites("a"),
    Apply(service("full"), service("empty", "b1")),
    Probe(sender=pod("b2"), to=FULL.cluster_ip, expect=REJECTED),
    Probe(sender=pod("a2"), to=FULL.cluster_ip, expect=delivered_to("a1"), clauses=(KEPT,)),
    AllowWrites("a"),
    Probe(sender=pod("a2"), to=FULL.cluster_ip, expect=REJECTED, clauses=(CAUGHT_UP,)),
    Probe(sender=pod("a2"), to=EMPTY.cluster_ip, expect=delivered_to("b1"), clauses=(CAUGHT_UP,)),
    clauses=POD_CLAUSES | {"endpoints.none.rejected", KEPT, CAUGHT_UP},
    features=FEATURES,
    regressions={"R107"},
    profile=WRITES,
)

WIDE = service("wide", "a1", "b1", type=Type.NODE_PORT)
NARROW = WIDE.replace(external_policy=Policy.LOCAL, internal_policy=Policy.LOCAL)

SEVERAL_CHANGES = case(
    "writes.changes-follow-one-another-meanwhile",
    "A Service that was changed twice, one that was changed there and back, and one that was deleted and made anew while "
    "a node's kernel refused all writes are served as they are now.",
    Apply(WIDE, WEB, again := service("again", "a1", type=Type.NODE_PORT)),
    Probe(sender=client("a"), to=WIDE.node_port("a"), expect=_masqueraded_to("a1", "b1"), spread=True),
    Probe(sender=pod("a2"), to=again.cluster_ip, expect=delivered_to("a1")),
    FailWrites("a"),
    Apply(WIDE.replace(endpoints=()), MOVED),
    Delete(again),
    Apply(NARROW, WEB, anew := service("again", "b2", type=Type.NODE_PORT, generation=1)),
    Probe(sender=pod("b2"), to=WIDE.cluster_ip, expect=delivered_to("b1"), count=8),
    Probe(sender=pod("b1"), to=anew.cluster_ip, expect=delivered_to("b2")),
    AllowWrites("a"),
    Probe(
        sender=client("a"), to=WIDE.node_port("a"), expect=delivered_to("a1"), count=8, clauses=(CAUGHT_UP,)
    ),
    Probe(sender=pod("a2"), to=WIDE.cluster_ip, expect=delivered_to("a1"), count=8, clauses=(CAUGHT_UP,)),
    Probe(sender=pod("a2"), to=WEB.cluster_ip, expect=delivered_to("a1"), count=8, clauses=(CAUGHT_UP,)),
    Probe(sender=pod("a2"), to=anew.cluster_ip, expect=delivered_to("b2"), clauses=(CAUGHT_UP,)),
    Probe(sender=pod("a2"), to=again.cluster_ip, expect=NOT_SERVED, clauses=(CAUGHT_UP,)),
    Probe(sender=client("a"), to=again.node_port("a"), expect=UNTOUCHED, clauses=(CAUGHT_UP,)),
    clauses=POD_CLAUSES
    | NODE_PORT_CLAUSES
    | {
        "balancing.every-endpoint-chosen",
        "cluster-ip.unallocated.not-served",
        "traffic.not-for-a-service.untouched",
        "internal-policy.local.same-node",
        "internal-policy.external-addresses-exempt",
        "external-policy.cluster-ip-exempt",
        "external-policy.local.local-endpoints-source-preserved",
        CAUGHT_UP,
    },
    features=FEATURES | {Feature.NODE_PORT, Feature.INTERNAL_TRAFFIC_POLICY, Feature.EXTERNAL_TRAFFIC_POLICY},
    profile=WRITES,
)

DNS = service("dns", "a1", ports=UDP_PORT)
BESIDE = service("beside", "a1", ports=UDP_PORT)

UDP_FLOWS_MOVE = case(
    "writes.udp-flows-move-afterwards",
    "A UDP flow whose endpoint left while its node's kernel refused all writes moves to a live one; a neighbour's stays.",
    Apply(DNS, BESIDE),
    Open(flow="moving", sender=pod("a2"), to=DNS.cluster_ip, expect=delivered_to("a1")),
    Open(flow="beside", sender=pod("a2"), to=BESIDE.cluster_ip, expect=delivered_to("a1")),
    FailWrites("a"),
    Apply(service("dns", "b1", ports=UDP_PORT)),
    Probe(sender=pod("b2"), to=DNS.cluster_ip, expect=delivered_to("b1")),
    Send(flow="beside", expect=SAME_ENDPOINT, clauses=(KEPT,)),
    AllowWrites("a"),
    Probe(sender=pod("a2"), to=DNS.cluster_ip, expect=delivered_to("b1"), clauses=(CAUGHT_UP,)),
    Send(flow="moving", expect=delivered_to("b1"), clauses=(MOVES,)),
    Send(flow="beside", expect=SAME_ENDPOINT, clauses=(UNRELATED,)),
    clauses=POD_CLAUSES | {"protocol.udp.served", MOVES, UNRELATED, KEPT, CAUGHT_UP},
    features=FEATURES,
    regressions={"R011"},
    profile=WRITES,
)

LATE = "proxy-health.late.told"
LATE_AT_PORT = "health-check.late-proxy.told"
LOCAL = service(
    "local", "a1", "a2", "b1", type=Type.LOAD_BALANCER, external_policy=Policy.LOCAL, vips=(Vip(),)
)
FEWER = LOCAL.replace(endpoints=(CaseEndpoint(on="a2"), CaseEndpoint(on="b1")))
LEAVING = LOCAL.replace(name="leaving")
SOON = 20.0
"""Seconds, of which the second or two that a change may wait here are a part."""


def _check_proxy(node: str, path: str, status: int) -> CheckProxy:
    return CheckProxy(sender=client(node), node=node, path=path, expect=status, clauses=(LATE,), timeout=SOON)


HEALTH_IS_REPORTED = case(
    "writes.health-is-told",
    "A proxy whose kernel refuses all writes is not healthy, by its own port and by health check node ports, until what "
    "was changed is written; its neighbour is.",
    Apply(LOCAL, LEAVING),
    _check_proxy("a", "/healthz", 200),
    CheckHealth(
        sender=client("a"), to=LOCAL.health_check("a"), expect=2, clauses=(LOCAL_ENDPOINTS_REPORTED,)
    ),
    CheckHealth(
        sender=client("a"), to=LEAVING.health_check("a"), expect=2, clauses=(LOCAL_ENDPOINTS_REPORTED,)
    ),
    Probe(sender=client("a"), to=LOCAL.node_port("a"), expect=delivered_to("a1", "a2")),
    FailWrites("a"),
    Apply(FEWER),
    Delete(LEAVING),
    _check_proxy("a", "/healthz", 503),
    _check_proxy("a", "/livez", 503),
    CheckHealth(sender=client("a"), to=LOCAL.health_check("a"), expect=0, clauses=(LATE_AT_PORT,)),
    _check_proxy("b", "/healthz", 200),
    CheckHealth(
        sender=client("b"), to=LOCAL.health_check("b"), expect=1, clauses=(LOCAL_ENDPOINTS_REPORTED,)
    ),
    AllowWrites("a"),
    _check_proxy("a", "/healthz", 200),
    _check_proxy("a", "/livez", 200),
    CheckHealth(
        sender=client("a"),
        to=LOCAL.health_check("a"),
        expect=1,
        clauses=(LATE_AT_PORT, LOCAL_ENDPOINTS_REPORTED),
    ),
    CheckHealth(
        sender=client("a"), to=LEAVING.health_check("a"), expect=None, clauses=(LOCAL_ENDPOINTS_REPORTED,)
    ),
    Probe(
        sender=client("a"), to=LOCAL.node_port("a"), expect=delivered_to("a2"), count=4, clauses=(CAUGHT_UP,)
    ),
    clauses={
        "node-port.reaches-ready-endpoint",
        "external-policy.local.local-endpoints-source-preserved",
        LOCAL_ENDPOINTS_REPORTED,
        LATE,
        LATE_AT_PORT,
        CAUGHT_UP,
    },
    features=FEATURES
    | {
        Feature.NODE_PORT,
        Feature.LOAD_BALANCER,
        Feature.EXTERNAL_TRAFFIC_POLICY,
        Feature.HEALTH_CHECKS,
        Feature.PROXY_HEALTH,
    },
    families=(Family.IPV4,),
    regressions={"R038"},
    profile=WRITES,
)

RESTORED = ("rules.removed-by-another.restored",)

SHARED = service("shared", "a1", "b1", type=Type.NODE_PORT)
UNSERVED = service("unserved", type=Type.NODE_PORT)
ELSEWHERE = service("elsewhere", "b1", type=Type.NODE_PORT, external_policy=Policy.LOCAL)

SERVED_AGAIN = case(
    "rules.served-again-after-all-were-removed",
    "When another program has removed all rules of iptables from a node, what was served, refused and dropped there soon is "
    "again, though no object changes.",
    Apply(SHARED, UNSERVED, ELSEWHERE),
    Probe(sender=pod("a2"), to=SHARED.cluster_ip, expect=delivered_to("a1", "b1"), spread=True),
    Probe(sender=pod("a2"), to=UNSERVED.cluster_ip, expect=REJECTED),
    FlushRules("a"),
    Probe(
        sender=pod("a2"), to=SHARED.cluster_ip, expect=delivered_to("a1", "b1"), spread=True, clauses=RESTORED
    ),
    Probe(
        sender=host("a"),
        to=SHARED.cluster_ip,
        expect=delivered_to("b1", "a1", source=MASQUERADED),
        clauses=RESTORED,
    ),
    Probe(
        sender=client("a"),
        to=SHARED.node_port("a"),
        expect=delivered_to("a1", "b1", source=MASQUERADED),
        spread=True,
        clauses=RESTORED,
    ),
    Probe(sender=pod("a2"), to=UNSERVED.cluster_ip, expect=REJECTED, clauses=RESTORED),
    Probe(sender=client("a"), to=UNSERVED.node_port("a"), expect=REJECTED, clauses=RESTORED),
    Probe(
        sender=client("a"),
        to=ELSEWHERE.node_port("a"),
        expect=DROPPED,
        clauses=(*RESTORED, "external-policy.local.drop-without-local-endpoint"),
    ),
    clauses=POD_CLAUSES
    | HOST_CLAUSES
    | NODE_PORT_CLAUSES
    | {
        "balancing.every-endpoint-chosen",
        "endpoints.none.rejected",
        "external-policy.local.local-endpoints-source-preserved",
        "external-policy.local.drop-without-local-endpoint",
        *RESTORED,
    },
    features={Feature.NODE_PORT, Feature.EXTERNAL_TRAFFIC_POLICY, Feature.FLUSHED_RULES},
    profile=FLUSHED,
)

ONE_TABLE = ("rules.removed-by-another.one-table-restored",)

SERVED_WITHOUT_NAT = case(
    "rules.served-again-after-table-nat-was-emptied",
    "When another program has removed all rules of table nat from a node, and left the other tables as they were, what was "
    "served there soon is again, though no object changes.",
    Apply(SHARED),
    Probe(sender=pod("b2"), to=SHARED.cluster_ip, expect=delivered_to("a1", "b1"), spread=True),
    FlushRules("b", Flushed.TABLE_NAT),
    Probe(
        sender=pod("b2"),
        to=SHARED.cluster_ip,
        expect=delivered_to("a1", "b1"),
        spread=True,
        clauses=ONE_TABLE,
    ),
    Probe(
        sender=client("b"),
        to=SHARED.node_port("b"),
        expect=delivered_to("a1", "b1", source=MASQUERADED),
        spread=True,
        clauses=ONE_TABLE,
    ),
    clauses=POD_CLAUSES | NODE_PORT_CLAUSES | {"balancing.every-endpoint-chosen", *ONE_TABLE},
    features={Feature.NODE_PORT, Feature.FLUSHED_RULES},
    regressions={"R108"},
    profile=FLUSHED,
)

RULESET = ("rules.removed-by-another.ruleset-restored",)

SERVED_WITH_THE_NEXT_CHANGE = case(
    "rules.served-after-the-ruleset-was-flushed",
    "When another program has removed all tables of nftables from a node, what was served, refused and masqueraded there is "
    "again once another Service changes.",
    Apply(SHARED),
    Probe(sender=pod("a2"), to=SHARED.cluster_ip, expect=delivered_to("a1", "b1"), spread=True),
    Apply(UNSERVED),
    Probe(sender=pod("a2"), to=UNSERVED.cluster_ip, expect=REJECTED),
    FlushRules("a", Flushed.NFTABLES),
    Probe(
        sender=pod("a2"), to=SHARED.cluster_ip, expect=delivered_to("a1", "b1"), spread=True, clauses=RULESET
    ),
    Probe(
        sender=client("a"),
        to=SHARED.node_port("a"),
        expect=delivered_to("a1", "b1", source=MASQUERADED),
        spread=True,
        clauses=RULESET,
    ),
    Probe(sender=pod("a2"), to=UNSERVED.cluster_ip, expect=REJECTED, clauses=RULESET),
    clauses=POD_CLAUSES
    | NODE_PORT_CLAUSES
    | {"balancing.every-endpoint-chosen", "endpoints.none.rejected", *RULESET},
    features={Feature.NODE_PORT, Feature.FLUSHED_RULES},
    profile=FLUSHED,
)

BOUND = ("rules.removed-by-another.addresses-restored",)

BOUND_AGAIN = case(
    "rules.served-again-after-addresses-were-removed",
    "When another program has removed the addresses that a proxy binds for Services from a node, what was served there soon is "
    "again, though no object changes.",
    Apply(SHARED),
    Probe(sender=pod("b2"), to=SHARED.cluster_ip, expect=delivered_to("a1", "b1"), spread=True),
    FlushRules("b", Flushed.ADDRESSES),
    Probe(
        sender=pod("b2"), to=SHARED.cluster_ip, expect=delivered_to("a1", "b1"), spread=True, clauses=BOUND
    ),
    Probe(
        sender=host("b"),
        to=SHARED.cluster_ip,
        expect=delivered_to("b1", "a1", source=MASQUERADED),
        clauses=BOUND,
    ),
    clauses=POD_CLAUSES | HOST_CLAUSES | {"balancing.every-endpoint-chosen", *BOUND},
    features={Feature.FLUSHED_ADDRESSES},
    regressions={"R089"},
    profile=FLUSHED,
)

CASES: tuple[Case, ...] = (
    CATCHES_UP,
    EMPTIED_AND_FILLED,
    SEVERAL_CHANGES,
    UDP_FLOWS_MOVE,
    HEALTH_IS_REPORTED,
    SERVED_AGAIN,
    SERVED_WITHOUT_NAT,
    SERVED_WITH_THE_NEXT_CHANGE,
    BOUND_AGAIN,
)
