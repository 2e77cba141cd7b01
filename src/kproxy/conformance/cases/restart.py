"""Cases on a proxy that is killed and started again: what must not be noticed, and what must.

Only values; the vocabulary is `kproxy.conformance.case`.
"""

from __future__ import annotations

from kproxy.conformance.case import (
    DEFAULT,
    DROPPED,
    MASQUERADED,
    SAME_ENDPOINT,
    UNTOUCHED,
    AddNodeAddress,
    Apply,
    Case,
    CaseEndpoint,
    CaseService,
    ContinuousProbe,
    Feature,
    Open,
    Policy,
    Probe,
    Restart,
    Send,
    Type,
    UnrelatedEntries,
    case,
    client,
    delivered_to,
    host,
    pod,
    service,
)
from kproxy.conformance.cases import change
from kproxy.conformance.cases.common import (
    FROM_B1,
    FROM_BOTH,
    HOST_CLAUSES,
    POD_CLAUSES,
    SPREAD,
    UDP_PORT,
    UNRELATED,
)
from kproxy.conformance.cases.profiles import RESTART

FEATURES = {Feature.RESTART}

LISTED = {"node-port.addresses.inside-configured.served"}
NODE_PORT_CLAUSES = LISTED | {
    "node-port.reaches-ready-endpoint",
    "masquerade.external-policy-cluster.rewritten",
}
APPLIED = {"restart.changes-while-down.applied"}
KEPT = ("restart.rules-kept", "restart.no-failed-connection")
TCP_STAYS = "established.survives-proxy-restart"
UDP_STAYS = "conntrack.udp.stays-over-restart"

WEB = service("web", "a1", "b1", type=Type.NODE_PORT)
DNS = service("dns", "a1", "b1", ports=UDP_PORT)
NEIGHBOUR = service("neighbour", "b2")
ON_A = service("on-a", "a1")
OTHER_BIT = 15


def _sticky_probes(*services: CaseService, clauses: tuple[str, ...] = ()) -> tuple[Probe, ...]:
    """New connections of pods of node a, all of which must reach the endpoint that the pod had before."""
    return tuple(
        Probe(
            sender=pod(name),
            to=one.cluster_ip,
            expect=delivered_to("a1", "b1", "b2"),
            count=6,
            sticky_group=f"{name} {one.name}",
            clauses=clauses,
        )
        for name in ("a2", "a3")
        for one in services
    )


FLOWS_GO_ON = case(
    "restart.flows-go-on",
    "Connections and UDP flows that are open stay where they are; new ones are served.",
    Apply(WEB, DNS),
    Open(flow="pod", sender=pod("a2"), to=WEB.cluster_ip, expect=delivered_to("a1", "b1")),
    Open(flow="node", sender=host("a"), to=WEB.cluster_ip, expect=FROM_BOTH),
    Open(flow="outside", sender=client("a"), to=WEB.node_port("a"), expect=FROM_BOTH),
    Open(flow="datagrams", sender=pod("a2"), to=DNS.cluster_ip, expect=delivered_to("a1", "b1")),
    Open(flow="more", sender=pod("a3"), to=DNS.cluster_ip, expect=delivered_to("a1", "b1")),
    Restart("a"),
    Send(flow="pod", expect=SAME_ENDPOINT, clauses=(TCP_STAYS,)),
    Send(flow="node", expect=SAME_ENDPOINT, clauses=(TCP_STAYS,)),
    Send(flow="outside", expect=SAME_ENDPOINT, clauses=(TCP_STAYS,)),
    Send(flow="datagrams", expect=SAME_ENDPOINT, clauses=(UDP_STAYS,)),
    Send(flow="more", expect=SAME_ENDPOINT, clauses=(UDP_STAYS,)),
    Probe(sender=pod("a2"), to=WEB.cluster_ip, expect=delivered_to("a1", "b1"), spread=True),
    Probe(sender=client("a"), to=WEB.node_port("a"), expect=FROM_BOTH, spread=True),
    clauses=POD_CLAUSES
    | HOST_CLAUSES
    | NODE_PORT_CLAUSES
    | SPREAD
    | {"protocol.udp.served", TCP_STAYS, UDP_STAYS},
    features=FEATURES | {Feature.NODE_PORT},
    profile=RESTART,
    regressions={"R008", "R109"},
)

POLICY_STAYS = "conntrack.udp.stays-on-policy-change"

UDP_FLOWS_STAY_WHERE_POLICY_LEAVES_NOTHING = case(
    "restart.udp-flows-stay-where-policy-leaves-nothing",
    "A UDP flow that a policy left in its place stays there when the proxy has started again; new datagrams get no answer.",
    Apply(WEB, far := service("far", "b1", ports=UDP_PORT)),
    Open(flow="pod", sender=pod("a2"), to=far.cluster_ip, expect=delivered_to("b1")),
    Apply(inward := far.replace(internal_policy=Policy.LOCAL)),
    Probe(sender=pod("a2"), to=inward.cluster_ip, expect=DROPPED, clauses=(change.POLICY,)),
    Send(flow="pod", expect=SAME_ENDPOINT, clauses=(POLICY_STAYS,)),
    Restart("a"),
    Send(flow="pod", expect=SAME_ENDPOINT, clauses=(UDP_STAYS, POLICY_STAYS)),
    Probe(sender=pod("a2"), to=inward.cluster_ip, expect=DROPPED),
    Probe(sender=pod("a2"), to=WEB.cluster_ip, expect=delivered_to("a1", "b1")),
    clauses=POD_CLAUSES
    | {
        "protocol.udp.served",
        "internal-policy.local.same-node",
        "internal-policy.local.drop-without-local-endpoint",
        "change.policy.followed",
        POLICY_STAYS,
        UDP_STAYS,
    },
    features=FEATURES | {Feature.INTERNAL_TRAFFIC_POLICY},
    profile=RESTART,
)

STALE_MOVES = ("restart.stale-udp-entries.reconciled", change.WHILE_DOWN)

STALE_UDP_FLOWS_MOVE = case(
    "restart.stale-udp-flows-move",
    "A UDP flow whose endpoint left while the proxy was down moves to a live one.",
    Apply(alone := service("alone", "a1", ports=UDP_PORT)),
    Open(flow="pod", sender=pod("a2"), to=alone.cluster_ip, expect=delivered_to("a1")),
    Open(flow="node", sender=host("a"), to=alone.cluster_ip, expect=delivered_to("a1", source=MASQUERADED)),
    Restart("a", Apply(service("alone", "b1", ports=UDP_PORT))),
    Send(flow="pod", expect=delivered_to("b1"), clauses=STALE_MOVES),
    Send(
        flow="node",
        expect=FROM_B1,
        clauses=STALE_MOVES,
    ),
    clauses=POD_CLAUSES
    | HOST_CLAUSES
    | APPLIED
    | {"protocol.udp.served", "restart.stale-udp-entries.reconciled"},
    features=FEATURES,
    profile=RESTART,
    regressions={"R006"},
)

DRAINED_ENDPOINT_RETURNS_MEANWHILE = case(
    "restart.drained-endpoint-returns-meanwhile",
    "An endpoint that left with a connection open, and returned while the proxy was down, is used again.",
    Apply(service("web", "a1")),
    Open(flow="open", sender=pod("a2"), to=WEB.cluster_ip, expect=delivered_to("a1")),
    Apply(service("web", "b1")),
    Probe(
        sender=pod("a2"),
        to=WEB.cluster_ip,
        expect=delivered_to("b1"),
        count=8,
        clauses=(change.ENDPOINT_REMOVED,),
    ),
    Restart("a", Apply(service("web", "a1", "b1"))),
    Probe(
        sender=pod("a2"),
        to=WEB.cluster_ip,
        expect=delivered_to("a1", "b1"),
        spread=True,
        clauses=(change.ENDPOINT_ADDED, change.WHILE_DOWN),
    ),
    Send(flow="open", expect=SAME_ENDPOINT, clauses=(TCP_STAYS,)),
    clauses=POD_CLAUSES
    | SPREAD
    | APPLIED
    | {"change.endpoint-removed.not-used", "change.endpoint-added.used", TCP_STAYS},
    features=FEATURES,
    profile=RESTART,
    regressions={"R085"},
)

NOBODY_NOTICES = case(
    "restart.nobody-notices",
    "Clients that never pause are served while the proxy is killed, is down, and starts again.",
    Apply(WEB),
    ContinuousProbe(sender=pod("a2"), to=WEB.cluster_ip, expect=delivered_to("a1", "b1"), clauses=KEPT),
    ContinuousProbe(sender=host("a"), to=WEB.cluster_ip, expect=FROM_BOTH, clauses=KEPT),
    ContinuousProbe(sender=client("a"), to=WEB.node_port("a"), expect=FROM_BOTH, clauses=KEPT),
    Restart("a"),
    Probe(sender=pod("a2"), to=WEB.cluster_ip, expect=delivered_to("a1", "b1"), spread=True),
    clauses=POD_CLAUSES | HOST_CLAUSES | NODE_PORT_CLAUSES | SPREAD | set(KEPT),
    features=FEATURES | {Feature.NODE_PORT},
    profile=RESTART,
    regressions={"R109"},
)

NEW_ADDRESS_SERVES_AFTER_IT = case(
    "restart.new-address-serves-after-it",
    "A node's new address inside the listed ranges serves node ports at the latest when the proxy has started again.",
    Apply(WEB),
    AddNodeAddress("a"),
    Probe(sender=client("a"), to=WEB.node_port_at_added_address("a"), expect=FROM_BOTH | UNTOUCHED, count=8),
    Probe(sender=client("a"), to=WEB.node_port("a"), expect=FROM_BOTH, spread=True),
    Restart("a"),
    Probe(sender=client("a"), to=WEB.node_port_at_added_address("a"), expect=FROM_BOTH, spread=True),
    Probe(sender=pod("a2"), to=WEB.node_port_at_added_address("a"), expect=FROM_BOTH, spread=True),
    clauses=NODE_PORT_CLAUSES | SPREAD | {"node-port.addresses.gained-inside-configured.either"},
    features=FEATURES | {Feature.NODE_PORT},
    profile=RESTART,
)

WAITED = "restart.lists-incomplete.rules-kept"

SLICES_COME_LATE = case(
    "restart.slices-come-late",
    "While a proxy that has started has the Services but not yet the EndpointSlices, all are served as "
    "before.",
    Apply(WEB, on_b := service("late", "b1")),
    ContinuousProbe(sender=pod("a2"), to=WEB.cluster_ip, expect=delivered_to("a1", "b1"), clauses=(WAITED,)),
    ContinuousProbe(sender=client("a"), to=WEB.node_port("a"), expect=FROM_BOTH, clauses=(WAITED,)),
    Probe(sender=pod("a2"), to=on_b.cluster_ip, expect=delivered_to("b1")),
    Restart("a", Apply(on_b.replace(endpoints=(CaseEndpoint(on="b2"),))), without_slices=1.0),
    Probe(sender=pod("a2"), to=WEB.cluster_ip, expect=delivered_to("a1", "b1"), spread=True),
    Probe(
        sender=pod("a2"),
        to=on_b.cluster_ip,
        expect=delivered_to("b2"),
        count=4,
        clauses=(change.WHILE_DOWN,),
    ),
    clauses=POD_CLAUSES | NODE_PORT_CLAUSES | SPREAD | APPLIED | {WAITED},
    features=FEATURES | {Feature.NODE_PORT},
    profile=RESTART,
)

STICKY = service("sticky", "a1", "b1", "b2", affinity_seconds=10800)
STICKY_TOO = STICKY.replace(name="sticky-too")
STICKS_ON = "affinity.stays-over-restart"

AFFINITY_STAYS = case(
    "restart.affinity-stays",
    "Clients that stick to an endpoint reach it when the proxy has started again.",
    Apply(STICKY, STICKY_TOO),
    *(
        Open(flow=f"{name} {to.service}", sender=pod(name), to=to, expect=delivered_to("a1", "b1", "b2"))
        for name in ("a2", "a3")
        for to in (STICKY.cluster_ip, STICKY_TOO.cluster_ip)
    ),
    *_sticky_probes(STICKY, STICKY_TOO),
    Restart("a"),
    *_sticky_probes(STICKY, STICKY_TOO, clauses=(STICKS_ON,)),
    clauses=POD_CLAUSES | {"affinity.client-ip.sticks", STICKS_ON},
    features=FEATURES | {Feature.SESSION_AFFINITY},
    profile=RESTART,
)

EXPOSED_DNS = DNS.replace(name="exposed", type=Type.NODE_PORT, endpoints=(CaseEndpoint(on="a1"),))

OTHERS_KEEP_THEIR_ENTRIES = case(
    "restart.others-keep-their-entries",
    "A proxy that starts, and reconciles UDP entries, leaves those of other traffic as they were.",
    Apply(EXPOSED_DNS, next_door := service("next-door", "a1", ports=UDP_PORT)),
    Probe(sender=pod("a2"), to=EXPOSED_DNS.cluster_ip, expect=delivered_to("a1")),
    UnrelatedEntries(
        node="a", service=EXPOSED_DNS, other_service=next_door, endpoint="a1", clauses=(UNRELATED,)
    ),
    Restart("a", Apply(EXPOSED_DNS.replace(endpoints=(CaseEndpoint(on="b1"),)))),
    Probe(
        sender=pod("a2"), to=EXPOSED_DNS.cluster_ip, expect=delivered_to("b1"), clauses=(change.WHILE_DOWN,)
    ),
    clauses=POD_CLAUSES | APPLIED | {"protocol.udp.served", UNRELATED},
    features=FEATURES | {Feature.NODE_PORT},
    profile=RESTART,
    regressions={"R009"},
)

MASQUERADE_BIT_CHANGES = case(
    "restart.masquerade-bit-changes",
    "Started with another masqueradeBit, the proxy rewrites by that one, and the old one is a process's own.",
    Apply(WEB, ON_A),
    Probe(sender=client("b"), to=WEB.node_port("b"), expect=FROM_BOTH, spread=True),
    Restart("b", masquerade_bit=OTHER_BIT),
    Probe(sender=client("b"), to=WEB.node_port("b"), expect=FROM_BOTH, spread=True),
    Probe(
        sender=host("b"),
        to=ON_A.cluster_ip,
        expect=delivered_to("a1", source=MASQUERADED),
        mark=1 << DEFAULT.masquerade_bit,
        clauses=("restart.masquerade-bit.followed", "masquerade.foreign-mark-bits.kept"),
    ),
    clauses=HOST_CLAUSES
    | NODE_PORT_CLAUSES
    | SPREAD
    | {"restart.masquerade-bit.followed", "masquerade.foreign-mark-bits.kept"},
    features=FEATURES | {Feature.NODE_PORT},
    profile=RESTART,
)

CASES: tuple[Case, ...] = (
    FLOWS_GO_ON,
    UDP_FLOWS_STAY_WHERE_POLICY_LEAVES_NOTHING,
    STALE_UDP_FLOWS_MOVE,
    DRAINED_ENDPOINT_RETURNS_MEANWHILE,
    NOBODY_NOTICES,
    NEW_ADDRESS_SERVES_AFTER_IT,
    SLICES_COME_LATE,
    AFFINITY_STAYS,
    OTHERS_KEEP_THEIR_ENTRIES,
    MASQUERADE_BIT_CHANGES,
)
