"""Cases on session affinity: what a client sticks to, for how long, and what it must let go of.

Only values; the vocabulary is `kproxy.conformance.case`.  A flow is held before each row of connections
that must stick, so that the choice has been made: of connections that race, nothing is promised.
"""

from __future__ import annotations

from kproxy.conformance.case import (
    MASQUERADED,
    SAME_ENDPOINT,
    UNUSED_HOSTS,
    Apply,
    Case,
    CaseEndpoint,
    Feature,
    Lawful,
    Open,
    Policy,
    Port,
    Probe,
    ReachedEndpoint,
    Send,
    Step,
    Target,
    Type,
    Vantage,
    Vip,
    Wait,
    case,
    client,
    delivered_to,
    host,
    pod,
    remote,
    service,
    spoofed,
)
from kproxy.conformance.cases import change
from kproxy.conformance.cases.common import FROM_B1, FROM_BOTH, POD_CLAUSES, SPREAD, UDP_PORT
from kproxy.conformance.cases.profiles import LIBERAL
from kproxy.model.network import Family

LOCAL = Policy.LOCAL
HOURS = 10800
AFFINITY = {Feature.SESSION_AFFINITY}

STICKS = "affinity.client-ip.sticks"
BY_ORIGINAL_SOURCE = "affinity.client-ip.by-original-source"
WITHIN_POLICY = "affinity.within-policy"
SWITCHED = "affinity.switched-on-and-off"
MOVES = "affinity.endpoint-gone.moves-at-once"
OUTSIDE_CLAUSES = {"cluster-ip.from-outside.served", "masquerade.cluster-ip.outside-rewritten"}

THREE = delivered_to("a1", "b1", "b2")
THREE_REWRITTEN = delivered_to("a1", "b1", "b2", source=MASQUERADED)


def affinity_steps(sender: Vantage, to: Target, expect: Lawful, *clauses: str) -> tuple[Step, ...]:
    """One connection, and after it a dozen that must reach its endpoint; ``clauses``: which they hold a subject to as well."""
    name = " ".join(filter(None, (f"{sender} to", to.kind.name, to.service, to.port)))
    rewritten = any(isinstance(seen, ReachedEndpoint) and seen.source is MASQUERADED for seen in expect)
    own = (STICKS, BY_ORIGINAL_SOURCE) if rewritten else (STICKS,)
    return (
        Open(flow=name, sender=sender, to=to, expect=expect),
        Probe(sender=sender, to=to, expect=expect, count=12, sticky_group=name, clauses=(*own, *clauses)),
    )


def _stays(sender: Vantage, to: Target, expect: Lawful) -> Probe:
    return Probe(
        sender=sender,
        to=to,
        expect=expect,
        count=8,
        sticky_group=f"{sender} {to.kind.name}",
        clauses=(STICKS, ADDED),
    )


WEB = service("web", "a1", "b1", "b2", affinity_seconds=HOURS)
DNS = WEB.replace(name="dns", ports=UDP_PORT)

CLIENTS_STICK = case(
    "affinity.clients-stick",
    "New connections of a pod, of a node and of clients outside each reach one endpoint of three.",
    Apply(WEB),
    *affinity_steps(pod("a2"), WEB.cluster_ip, THREE),
    *affinity_steps(pod("b3"), WEB.cluster_ip, THREE),
    *affinity_steps(host("a"), WEB.cluster_ip, THREE_REWRITTEN),
    *affinity_steps(client("a"), WEB.cluster_ip, THREE_REWRITTEN),
    *affinity_steps(remote("b"), WEB.cluster_ip, THREE_REWRITTEN),
    clauses=POD_CLAUSES
    | OUTSIDE_CLAUSES
    | {STICKS, "masquerade.cluster-ip.host-rewritten", BY_ORIGINAL_SOURCE},
    features=AFFINITY,
)

DATAGRAMS_STICK = case(
    "affinity.datagrams-stick",
    "Datagrams from new ports stick like connections.",
    Apply(DNS),
    *affinity_steps(pod("a2"), DNS.cluster_ip, THREE),
    *affinity_steps(client("b"), DNS.cluster_ip, THREE_REWRITTEN),
    clauses=POD_CLAUSES | OUTSIDE_CLAUSES | {STICKS, "protocol.udp.served", BY_ORIGINAL_SOURCE},
    features=AFFINITY,
)

TWO_PORTS = WEB.replace(name="two", ports=(Port(name="a"), Port(name="b", number=81)))

EVERY_PORT_BY_ITSELF = case(
    "affinity.every-port-by-itself",
    "On each of two ports a client sticks to one endpoint, maybe not the same.",
    Apply(TWO_PORTS),
    *affinity_steps(pod("a2"), TWO_PORTS.cluster_ip.at("a"), THREE),
    *affinity_steps(pod("a2"), TWO_PORTS.cluster_ip.at("b"), THREE),
    clauses=POD_CLAUSES | {STICKS, "affinity.scope.per-port"},
    features=AFFINITY,
)

OPEN = WEB.replace(name="open", type=Type.LOAD_BALANCER, vips=(Vip(),), external_ips=1)

EVERY_ADDRESS_STICKS = case(
    "affinity.every-address-sticks",
    "A client sticks at each kind of address of a Service, whether or not they share the choice.",
    Apply(OPEN),
    *affinity_steps(client("a"), OPEN.cluster_ip, THREE_REWRITTEN),
    *affinity_steps(client("a"), OPEN.node_port("a"), THREE_REWRITTEN),
    *affinity_steps(client("a"), OPEN.vip(), THREE_REWRITTEN),
    *affinity_steps(client("a"), OPEN.external_ip(), THREE_REWRITTEN),
    *affinity_steps(pod("a2"), OPEN.node_port("a"), THREE_REWRITTEN),
    clauses=OUTSIDE_CLAUSES
    | {
        "cluster-ip.reaches-ready-endpoint",
        "node-port.reaches-ready-endpoint",
        "load-balancer.reaches-ready-endpoint",
        "external-ip.reaches-ready-endpoint",
        "masquerade.external-policy-cluster.rewritten",
        STICKS,
        BY_ORIGINAL_SOURCE,
        "affinity.scope.per-port",
    },
    features=AFFINITY | {Feature.NODE_PORT, Feature.LOAD_BALANCER, Feature.EXTERNAL_IPS},
)

PAIR = service("web", "a1", "b1", affinity_seconds=HOURS)

MOVES_WHEN_ITS_ENDPOINT_GOES = case(
    "affinity.moves-when-its-endpoint-goes",
    "Whichever endpoint a client sticks to, when it leaves the next connection reaches the other at once.",
    Apply(PAIR),
    Open(flow="open", sender=pod("a2"), to=PAIR.cluster_ip, expect=delivered_to("a1", "b1")),
    Apply(PAIR.replace(endpoints=PAIR.endpoints[1:])),
    Probe(sender=pod("a2"), to=PAIR.cluster_ip, expect=delivered_to("b1"), count=6, clauses=(MOVES,)),
    Send(flow="open", expect=SAME_ENDPOINT, clauses=("established.survives-removal-of-its-endpoint",)),
    Apply(PAIR.replace(endpoints=PAIR.endpoints[:1])),
    Probe(sender=pod("a2"), to=PAIR.cluster_ip, expect=delivered_to("a1"), count=6, clauses=(MOVES,)),
    Send(flow="open", expect=SAME_ENDPOINT, clauses=("established.survives-removal-of-its-endpoint",)),
    clauses=POD_CLAUSES | {MOVES, "established.survives-removal-of-its-endpoint"},
    features=AFFINITY,
    regressions={"R086"},
)

ADDED = "affinity.endpoint-added.stays"
FOUR = delivered_to("a1", "a3", "b1", "b2")
FEW = PAIR.replace(type=Type.NODE_PORT)
GROWN = FEW.replace(endpoints=(CaseEndpoint(on="b2"), CaseEndpoint(on="a3"), *FEW.endpoints))

STAYS_WHEN_OTHERS_COME = case(
    "affinity.stays-when-others-come",
    "Clients stay with the endpoint they stick to when others are added, before and after it in the list.",
    Apply(FEW),
    Open(flow="inside", sender=pod("a2"), to=FEW.cluster_ip, expect=delivered_to("a1", "b1")),
    Open(flow="outside", sender=client("a"), to=FEW.node_port("a"), expect=FROM_BOTH),
    _stays(pod("a2"), FEW.cluster_ip, delivered_to("a1", "b1")),
    _stays(client("a"), FEW.node_port("a"), FROM_BOTH),
    Apply(GROWN),
    _stays(pod("a2"), FEW.cluster_ip, FOUR),
    _stays(client("a"), FEW.node_port("a"), delivered_to("a1", "a3", "b1", "b2", source=MASQUERADED)),
    clauses=POD_CLAUSES
    | {STICKS, ADDED, "node-port.reaches-ready-endpoint", "masquerade.external-policy-cluster.rewritten"},
    features=AFFINITY | {Feature.NODE_PORT},
)

MOVES_WHEN_ITS_ENDPOINT_IS_NOT_READY = case(
    "affinity.moves-when-its-endpoint-is-not-ready",
    "A client moves at once when the endpoint it sticks to is there still, but not ready, or terminating.",
    Apply(service("web", "a1", affinity_seconds=HOURS)),
    Probe(sender=pod("a2"), to=PAIR.cluster_ip, expect=delivered_to("a1"), count=6),
    Apply(PAIR.replace(endpoints=(CaseEndpoint(on="a1", ready=False, serving=False), CaseEndpoint(on="b1")))),
    Probe(sender=pod("a2"), to=PAIR.cluster_ip, expect=delivered_to("b1"), count=6, clauses=(MOVES,)),
    Apply(
        PAIR.replace(
            endpoints=(
                CaseEndpoint(on="a1"),
                CaseEndpoint(on="b1", ready=False, serving=True, terminating=True),
            )
        )
    ),
    Probe(sender=pod("a2"), to=PAIR.cluster_ip, expect=delivered_to("a1"), count=6, clauses=(MOVES,)),
    clauses=POD_CLAUSES | {"endpoints.ready-only", "endpoints.terminating.not-used-beside-ready", MOVES},
    features=AFFINITY | {Feature.TERMINATING_ENDPOINTS},
    regressions={"R086", "R090"},
)

NARROW = service(
    "narrow",
    "a1",
    "a2",
    "b1",
    type=Type.NODE_PORT,
    internal_policy=LOCAL,
    external_policy=LOCAL,
    affinity_seconds=HOURS,
)

STICKS_WITHIN_LOCAL_POLICY = case(
    "affinity.sticks-within-local-policy",
    "Under policy Local a client sticks to one of the node's endpoints, and to no other.",
    Apply(NARROW),
    *affinity_steps(client("a"), NARROW.node_port("a"), delivered_to("a1", "a2"), WITHIN_POLICY),
    *affinity_steps(remote("a"), NARROW.node_port("a"), delivered_to("a1", "a2"), WITHIN_POLICY),
    *affinity_steps(pod("a3"), NARROW.cluster_ip, delivered_to("a1", "a2"), WITHIN_POLICY),
    clauses=POD_CLAUSES
    | {
        "node-port.reaches-ready-endpoint",
        "internal-policy.local.same-node",
        "internal-policy.external-addresses-exempt",
        "external-policy.cluster-ip-exempt",
        "external-policy.local.local-endpoints-source-preserved",
        STICKS,
        WITHIN_POLICY,
    },
    features=AFFINITY | {Feature.NODE_PORT, Feature.INTERNAL_TRAFFIC_POLICY, Feature.EXTERNAL_TRAFFIC_POLICY},
    regressions={"R091"},
)

FAR = service("far", "b1", type=Type.NODE_PORT, external_policy=LOCAL, affinity_seconds=HOURS)
FAR_AND_NEAR = FAR.replace(endpoints=PAIR.endpoints)

POLICY_IS_STRONGER = case(
    "affinity.policies-and-hints-are-stronger",
    "A client that sticks to another node's endpoint leaves it where a policy or a hint does not allow it.",
    Apply(FAR, hinted := service("hinted", "b1", affinity_seconds=HOURS)),
    Probe(sender=client("a"), to=FAR.cluster_ip, expect=FROM_B1),
    Probe(sender=pod("a2"), to=FAR.cluster_ip, expect=delivered_to("b1")),
    Probe(sender=pod("a2"), to=hinted.cluster_ip, expect=delivered_to("b1")),
    Apply(
        FAR_AND_NEAR.replace(internal_policy=LOCAL),
        hinted.replace(
            endpoints=(CaseEndpoint(on="a1", zones=("zone-a",)), CaseEndpoint(on="b1", zones=("zone-b",)))
        ),
    ),
    Probe(
        sender=client("a"),
        to=FAR.node_port("a"),
        expect=delivered_to("a1"),
        count=6,
        clauses=(change.POLICY, WITHIN_POLICY),
    ),
    Probe(
        sender=pod("a2"),
        to=FAR.cluster_ip,
        expect=delivered_to("a1"),
        count=6,
        clauses=(change.POLICY, WITHIN_POLICY),
    ),
    Probe(
        sender=pod("a2"),
        to=hinted.cluster_ip,
        expect=delivered_to("a1"),
        count=6,
        clauses=(change.TOPOLOGY, WITHIN_POLICY),
    ),
    clauses=POD_CLAUSES
    | OUTSIDE_CLAUSES
    | {
        "node-port.reaches-ready-endpoint",
        "internal-policy.local.same-node",
        "internal-policy.external-addresses-exempt",
        "external-policy.cluster-ip-exempt",
        "external-policy.local.local-endpoints-source-preserved",
        "topology.same-zone",
        "change.policy.followed",
        "change.topology.followed",
        WITHIN_POLICY,
    },
    features=AFFINITY
    | {
        Feature.NODE_PORT,
        Feature.INTERNAL_TRAFFIC_POLICY,
        Feature.EXTERNAL_TRAFFIC_POLICY,
        Feature.TOPOLOGY_HINTS,
    },
    regressions={"R091"},
)

SWITCHED_ON_AND_OFF = case(
    "affinity.switched-on-and-off",
    "A client is spread, sticks while affinity is on, and is spread again; its old connection goes on.",
    Apply(loose := WEB.replace(affinity_seconds=None)),
    Open(flow="early", sender=pod("a2"), to=WEB.cluster_ip, expect=THREE),
    Probe(sender=pod("a2"), to=WEB.cluster_ip, expect=THREE, spread=True),
    Apply(WEB),
    *affinity_steps(pod("a2"), WEB.cluster_ip, THREE, SWITCHED),
    Send(flow="early", expect=SAME_ENDPOINT, clauses=(SWITCHED,)),
    Apply(loose),
    Probe(sender=pod("a2"), to=WEB.cluster_ip, expect=THREE, spread=True, clauses=(SWITCHED,)),
    Send(flow="early", expect=SAME_ENDPOINT, clauses=(SWITCHED,)),
    clauses=POD_CLAUSES | SPREAD | {STICKS, SWITCHED},
    features=AFFINITY,
    regressions={"R030"},
)

TIMED_PODS = ("a1", "a2", "b1", "b2")
TIMED = service(
    "timed",
    endpoints=tuple(CaseEndpoint(on=name, shift=shift) for name in TIMED_PODS for shift in (0, 1)),
    affinity_seconds=8,
)
"""Eight endpoints: that each of eight clients meets the same one twice, though free to choose, happens once in 8^8 times."""

OF_TIMED = delivered_to(*TIMED_PODS) | delivered_to(*TIMED_PODS, shift=1)
OF_TIMED_REWRITTEN = delivered_to(*TIMED_PODS, source=MASQUERADED) | delivered_to(
    *TIMED_PODS, source=MASQUERADED, shift=1
)
FREED, SHORTER = "affinity.timeout.frees-choice", "affinity.timeout-change.followed"


def all_clients(
    *, sticky_group: str = "", rebalances: str = "", clauses: tuple[str, ...] = ()
) -> tuple[Probe, ...]:
    """One connection of each of eight clients that are no endpoints."""
    outside = (client("a"), client("b"), remote("a"), remote("b"), host("a"), host("b"))
    lawful = {pod("a3"): OF_TIMED, pod("b3"): OF_TIMED, **dict.fromkeys(outside, OF_TIMED_REWRITTEN)}
    return tuple(
        Probe(
            sender=sender,
            to=TIMED.cluster_ip,
            expect=expect,
            sticky_group=sticky_group,
            rebalances=rebalances,
            clauses=clauses,
        )
        for sender, expect in lawful.items()
    )


TIMED_CLAUSES = (
    POD_CLAUSES
    | OUTSIDE_CLAUSES
    | {"masquerade.cluster-ip.host-rewritten", "slices.merged", "slices.target-port.per-endpoint"}
)

TIME_STARTS_AGAIN = case(
    "affinity.time-starts-again",
    "Clients that return before the time is over stick for longer than that time in all.",
    Apply(TIMED),
    *all_clients(sticky_group="all"),
    Wait(4.5),
    *all_clients(sticky_group="all", clauses=(STICKS,)),
    Wait(4.5),
    *all_clients(sticky_group="all", clauses=(STICKS, FREED)),
    clauses=TIMED_CLAUSES | {STICKS, FREED},
    features=AFFINITY,
)

TIME_RUNS_OUT = case(
    "affinity.time-runs-out",
    "Clients that return when the time is over do not all reach the endpoint that they had.",
    Apply(TIMED.replace(affinity_seconds=2)),
    *all_clients(rebalances="all"),
    Wait(3.5),
    *all_clients(rebalances="all", clauses=(FREED,)),
    clauses=TIMED_CLAUSES | {FREED},
    features=AFFINITY,
    regressions={"R092"},
)

TIME_IS_CHANGED = case(
    "affinity.time-is-changed",
    "A shorter time binds clients that stick already, from their next connection on.",
    Apply(TIMED.replace(affinity_seconds=HOURS)),
    *all_clients(),
    Apply(TIMED.replace(affinity_seconds=2)),
    *all_clients(rebalances="all"),
    Wait(3.5),
    *all_clients(rebalances="all", clauses=(SHORTER,)),
    clauses=TIMED_CLAUSES | {SHORTER},
    features=AFFINITY,
    regressions={"R093"},
)

CHANGED_AND_CONNECTIONS_OVER = case(
    "affinity.time-is-changed-and-connections-are-over",
    "A shorter time binds clients also where one is bound as long as its last connection is remembered, two minutes.",
    Apply(TIMED.replace(affinity_seconds=HOURS)),
    Probe(sender=pod("a3"), to=TIMED.cluster_ip, expect=OF_TIMED),
    Apply(TIMED.replace(affinity_seconds=2)),
    *all_clients(rebalances="all"),
    Wait(135),
    *all_clients(rebalances="all", clauses=(SHORTER,)),
    clauses=TIMED_CLAUSES | {SHORTER},
    features=AFFINITY,
    regressions={"R093"},
    slow=True,
)

MANY_CLIENTS = case(
    "affinity.many-clients",
    "Though more clients connect than a proxy need remember, each gets an endpoint, and again.",
    Apply(names := service("names", "a1", "b1", ports=UDP_PORT, affinity_seconds=HOURS)),
    Probe(sender=spoofed(UNUSED_HOSTS, "a"), to=names.cluster_ip, expect=FROM_BOTH, count=220, spread=True),
    Apply(names),
    Probe(sender=spoofed(UNUSED_HOSTS, "a"), to=names.cluster_ip, expect=FROM_BOTH, count=220, spread=True),
    clauses={
        "cluster-ip.reaches-ready-endpoint",
        "cluster-ip.from-outside.served",
        "masquerade.cluster-ip.outside-rewritten",
        "protocol.udp.served",
        "balancing.every-endpoint-chosen",
        "affinity.many-clients.either",
    },
    features=AFFINITY,
    profile=LIBERAL,
    families=(Family.IPV4,),
)

CASES: tuple[Case, ...] = (
    CLIENTS_STICK,
    DATAGRAMS_STICK,
    EVERY_PORT_BY_ITSELF,
    EVERY_ADDRESS_STICKS,
    MOVES_WHEN_ITS_ENDPOINT_GOES,
    STAYS_WHEN_OTHERS_COME,
    MOVES_WHEN_ITS_ENDPOINT_IS_NOT_READY,
    STICKS_WITHIN_LOCAL_POLICY,
    POLICY_IS_STRONGER,
    SWITCHED_ON_AND_OFF,
    TIME_STARTS_AGAIN,
    TIME_RUNS_OUT,
    TIME_IS_CHANGED,
    CHANGED_AND_CONNECTIONS_OVER,
    MANY_CLIENTS,
)
