"""Cases on what changed while a proxy was down, the mode it runs in included: what it finds is followed at its start.

The last ones are on a proxy that is removed from a node by its own means, and is down from then on.

Only values; the vocabulary is `kproxy.conformance.case`.
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
    CheckTraces,
    CleanUp,
    Delete,
    Feature,
    Open,
    Policy,
    Probe,
    Restart,
    Send,
    Type,
    case,
    client,
    delivered_to,
    pod,
    service,
)
from kproxy.conformance.cases import change
from kproxy.conformance.cases.common import FROM_B1, FROM_BOTH, POD_CLAUSES, SPREAD
from kproxy.conformance.cases.profiles import MODE_CHANGE, REMOVED, RESTART
from kproxy.conformance.cases.restart import (
    APPLIED,
    FEATURES,
    LISTED,
    NEIGHBOUR,
    NODE_PORT_CLAUSES,
    TCP_STAYS,
    WEB,
)

ENDPOINTS_CHANGE_MEANWHILE = case(
    "restart.endpoints-change-meanwhile",
    "Endpoints that were replaced while the proxy was down are replaced in its rules, on this node too.",
    Apply(web := service("web", "a1", type=Type.NODE_PORT), NEIGHBOUR),
    Probe(sender=pod("a2"), to=web.cluster_ip, expect=delivered_to("a1")),
    Restart("a", Apply(service("web", "b1", "b3", type=Type.NODE_PORT))),
    Probe(
        sender=pod("a2"),
        to=web.cluster_ip,
        expect=delivered_to("b1", "b3"),
        spread=True,
        clauses=(change.ENDPOINT_ADDED, change.ENDPOINT_REMOVED, change.WHILE_DOWN),
    ),
    Probe(
        sender=pod("b2"),
        to=web.cluster_ip,
        expect=delivered_to("b1", "b3"),
        spread=True,
        clauses=(change.ENDPOINT_ADDED, change.ENDPOINT_REMOVED),
    ),
    Probe(
        sender=client("a"),
        to=web.node_port("a"),
        expect=delivered_to("b1", "b3", source=MASQUERADED),
        spread=True,
        clauses=(change.ENDPOINT_ADDED, change.ENDPOINT_REMOVED, change.WHILE_DOWN),
    ),
    Probe(sender=pod("a2"), to=NEIGHBOUR.cluster_ip, expect=delivered_to("b2")),
    clauses=POD_CLAUSES
    | NODE_PORT_CLAUSES
    | SPREAD
    | APPLIED
    | {"node-port.every-node.served", "change.endpoint-removed.not-used", "change.endpoint-added.used"},
    features=FEATURES | {Feature.NODE_PORT},
    profile=RESTART,
    regressions={"R110"},
)

ADDRESSES_CHANGE_MEANWHILE = case(
    "restart.addresses-change-meanwhile",
    "A Service whose addresses and node port became others while the proxy was down is served at the new ones alone.",
    Apply(WEB),
    Probe(sender=client("a"), to=WEB.node_port("a"), expect=FROM_BOTH),
    Restart("a", Apply(moved := WEB.replace(generation=1))),
    Probe(sender=client("a"), to=moved.node_port("a"), expect=FROM_BOTH, clauses=(change.ADDRESS,)),
    Probe(
        sender=client("a"),
        to=WEB.node_port("a"),
        expect=UNTOUCHED,
        clauses=(change.ADDRESS, change.WHILE_DOWN),
    ),
    Probe(
        sender=pod("a2"),
        to=WEB.cluster_ip,
        expect=DROPPED | UNTOUCHED,
        clauses=(change.ADDRESS, change.WHILE_DOWN),
    ),
    clauses=NODE_PORT_CLAUSES
    | APPLIED
    | {
        "cluster-ip.unallocated.not-served",
        "traffic.not-for-a-service.untouched",
        change.ADDRESS,
    },
    features=FEATURES | {Feature.NODE_PORT},
    profile=RESTART,
)

OLD_RULES = "restart.mode-change.old-rules-removed"
STAYS = service("stays", "a1", "b1", type=Type.NODE_PORT)
GOES = service("goes", "b2", type=Type.NODE_PORT)

ANOTHER_MODE_BEFORE = case(
    "restart.another-mode-before",
    "A proxy that is started in another mode serves by that mode alone, also while its neighbour runs in the old one.",
    Apply(STAYS, GOES),
    Probe(sender=pod("a2"), to=GOES.cluster_ip, expect=delivered_to("b2")),
    Probe(sender=client("a"), to=GOES.node_port("a"), expect=delivered_to("b2", source=MASQUERADED)),
    Restart("a", Delete(GOES)),
    Probe(sender=client("b"), to=STAYS.node_port("b"), expect=FROM_BOTH, spread=True, clauses=(OLD_RULES,)),
    Apply(STAYS.replace(endpoints=(CaseEndpoint(on="b1"),))),
    Probe(
        sender=pod("a2"),
        to=GOES.cluster_ip,
        expect=DROPPED | UNTOUCHED,
        clauses=(change.SERVICE_DELETED, change.WHILE_DOWN, OLD_RULES),
    ),
    Probe(
        sender=client("a"),
        to=GOES.node_port("a"),
        expect=UNTOUCHED,
        clauses=(change.SERVICE_DELETED, change.WHILE_DOWN, OLD_RULES),
    ),
    Probe(
        sender=pod("a2"),
        to=STAYS.cluster_ip,
        expect=delivered_to("b1"),
        clauses=(change.ENDPOINT_REMOVED, OLD_RULES),
    ),
    Probe(sender=client("a"), to=STAYS.node_port("a"), expect=FROM_B1),
    clauses=POD_CLAUSES
    | (NODE_PORT_CLAUSES - LISTED)
    | SPREAD
    | APPLIED
    | {
        "cluster-ip.unallocated.not-served",
        "traffic.not-for-a-service.untouched",
        "change.service-deleted.not-served",
        "change.endpoint-removed.not-used",
        "node-port.every-node.served",
        OLD_RULES,
    },
    features=FEATURES | {Feature.NODE_PORT, Feature.MODE_CHANGE},
    profile=MODE_CHANGE,
)

SERVICE_GOES_MEANWHILE = case(
    "restart.service-goes-meanwhile",
    "A Service that was deleted while the proxy was down is not served; its neighbour is.",
    Apply(WEB, NEIGHBOUR),
    Open(flow="beside", sender=pod("a2"), to=NEIGHBOUR.cluster_ip, expect=delivered_to("b2")),
    Probe(sender=client("a"), to=WEB.node_port("a"), expect=FROM_BOTH),
    Restart("a", Delete(WEB)),
    Probe(
        sender=pod("a2"),
        to=WEB.cluster_ip,
        expect=DROPPED | UNTOUCHED,
        clauses=(change.SERVICE_DELETED, change.WHILE_DOWN),
    ),
    Probe(
        sender=client("a"),
        to=WEB.node_port("a"),
        expect=UNTOUCHED,
        clauses=(change.SERVICE_DELETED, change.WHILE_DOWN),
    ),
    Probe(sender=pod("a2"), to=NEIGHBOUR.cluster_ip, expect=delivered_to("b2")),
    Send(flow="beside", expect=SAME_ENDPOINT, clauses=(TCP_STAYS,)),
    clauses=POD_CLAUSES
    | NODE_PORT_CLAUSES
    | APPLIED
    | {
        "cluster-ip.unallocated.not-served",
        "traffic.not-for-a-service.untouched",
        "change.service-deleted.not-served",
        TCP_STAYS,
    },
    features=FEATURES | {Feature.NODE_PORT},
    profile=RESTART,
)

EMPTIED_AND_FILLED_MEANWHILE = case(
    "restart.emptied-and-filled-meanwhile",
    "A Service that lost its endpoints while the proxy was down is refused; one that got some is served.",
    Apply(full := service("full", "a1"), empty := service("empty"), NEIGHBOUR),
    Probe(sender=pod("a2"), to=full.cluster_ip, expect=delivered_to("a1")),
    Probe(sender=pod("a2"), to=empty.cluster_ip, expect=REJECTED),
    Restart("a", Apply(service("full"), service("empty", "b1"))),
    Probe(sender=pod("a2"), to=full.cluster_ip, expect=REJECTED, clauses=(change.EMPTIED, change.WHILE_DOWN)),
    Probe(
        sender=pod("a2"),
        to=empty.cluster_ip,
        expect=delivered_to("b1"),
        clauses=(change.ENDPOINT_ADDED, change.WHILE_DOWN),
    ),
    clauses=POD_CLAUSES
    | APPLIED
    | {
        "endpoints.none.rejected",
        "change.last-endpoint-removed.rejected",
        "change.endpoint-added.used",
    },
    features=FEATURES,
    profile=RESTART,
)

POLICY_CHANGES_MEANWHILE = case(
    "restart.policy-changes-meanwhile",
    "Policies that changed while the proxy was down bind new connections.",
    Apply(WEB),
    Probe(sender=client("a"), to=WEB.node_port("a"), expect=FROM_BOTH, spread=True),
    Restart("a", Apply(WEB.replace(external_policy=Policy.LOCAL, internal_policy=Policy.LOCAL))),
    Probe(
        sender=client("a"),
        to=WEB.node_port("a"),
        expect=delivered_to("a1"),
        count=8,
        clauses=(change.POLICY, change.WHILE_DOWN),
    ),
    Probe(
        sender=pod("a2"),
        to=WEB.cluster_ip,
        expect=delivered_to("a1"),
        count=8,
        clauses=(change.POLICY, change.WHILE_DOWN),
    ),
    clauses=POD_CLAUSES
    | NODE_PORT_CLAUSES
    | SPREAD
    | APPLIED
    | {
        "internal-policy.local.same-node",
        "internal-policy.external-addresses-exempt",
        "external-policy.cluster-ip-exempt",
        "external-policy.local.local-endpoints-source-preserved",
        "change.policy.followed",
    },
    features=FEATURES | {Feature.NODE_PORT, Feature.INTERNAL_TRAFFIC_POLICY, Feature.EXTERNAL_TRAFFIC_POLICY},
    profile=RESTART,
)

NOTHING_SERVED = ("cleanup.nothing-served",)
NOTHING_LEFT = "cleanup.nothing-left"

SHARED = service("shared", "a1", "b1", type=Type.NODE_PORT)
UNSERVED = service("unserved", type=Type.NODE_PORT)
ELSEWHERE = service("elsewhere", "b1", type=Type.NODE_PORT, external_policy=Policy.LOCAL)

NOTHING_IS_SERVED = case(
    "cleanup.serves-nothing",
    "A node from which the proxy was removed by its own means treats packets to Services as if it had never had one; the other "
    "node serves on.",
    Apply(SHARED, UNSERVED, ELSEWHERE),
    Probe(sender=pod("a2"), to=SHARED.cluster_ip, expect=delivered_to("a1", "b1"), spread=True),
    Probe(sender=pod("a2"), to=UNSERVED.cluster_ip, expect=REJECTED),
    Probe(sender=client("a"), to=UNSERVED.node_port("a"), expect=REJECTED),
    Probe(
        sender=client("a"),
        to=ELSEWHERE.node_port("a"),
        expect=DROPPED,
        clauses=("external-policy.local.drop-without-local-endpoint",),
    ),
    CleanUp("a"),
    Probe(sender=pod("b2"), to=SHARED.cluster_ip, expect=delivered_to("a1", "b1"), spread=True),
    Probe(sender=pod("a2"), to=SHARED.cluster_ip, expect=DROPPED | UNTOUCHED, clauses=NOTHING_SERVED),
    Probe(sender=pod("a2"), to=UNSERVED.cluster_ip, expect=DROPPED | UNTOUCHED, clauses=NOTHING_SERVED),
    Probe(sender=client("a"), to=SHARED.node_port("a"), expect=UNTOUCHED, clauses=NOTHING_SERVED),
    Probe(sender=client("a"), to=UNSERVED.node_port("a"), expect=UNTOUCHED, clauses=NOTHING_SERVED),
    Probe(sender=client("a"), to=ELSEWHERE.node_port("a"), expect=UNTOUCHED, clauses=NOTHING_SERVED),
    clauses=POD_CLAUSES
    | {
        "balancing.every-endpoint-chosen",
        "endpoints.none.rejected",
        "external-policy.local.local-endpoints-source-preserved",
        "external-policy.local.drop-without-local-endpoint",
        "cluster-ip.unallocated.not-served",
        "traffic.not-for-a-service.untouched",
        *NOTHING_SERVED,
    },
    features={Feature.NODE_PORT, Feature.EXTERNAL_TRAFFIC_POLICY, Feature.CLEANUP},
    profile=REMOVED,
)

NOTHING_IS_LEFT = case(
    "cleanup.leaves-nothing",
    "A node from which the proxy was removed by its own means has no chain, rule, table, set, virtual server or device of it, "
    "and all that it had before.",
    Apply(SHARED),
    Probe(sender=pod("a2"), to=SHARED.cluster_ip, expect=delivered_to("a1", "b1"), spread=True),
    CleanUp("a"),
    CheckTraces(node="a", clauses=(NOTHING_LEFT,)),
    clauses=POD_CLAUSES | {"balancing.every-endpoint-chosen", NOTHING_LEFT},
    features={Feature.NODE_PORT, Feature.CLEANUP},
    profile=REMOVED,
)

CASES: tuple[Case, ...] = (
    ENDPOINTS_CHANGE_MEANWHILE,
    SERVICE_GOES_MEANWHILE,
    ADDRESSES_CHANGE_MEANWHILE,
    ANOTHER_MODE_BEFORE,
    EMPTIED_AND_FILLED_MEANWHILE,
    POLICY_CHANGES_MEANWHILE,
    NOTHING_IS_SERVED,
    NOTHING_IS_LEFT,
)
