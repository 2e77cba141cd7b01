"""Cases on topology hints: zones, nodes, and all the conditions under which hints do not count.

Only values; the vocabulary is `kproxy.conformance.case`.  Node a is in ``zone-a``, node b in ``zone-b``.
Most hints here cross: an endpoint on a is hinted for b's zone, so that no case is won by locality.
"""

from __future__ import annotations

from dataclasses import replace

from kproxy.conformance.case import (
    MASQUERADED,
    Apply,
    Case,
    CaseEndpoint,
    Feature,
    Policy,
    Port,
    Probe,
    Restart,
    SetZone,
    Type,
    Vip,
    case,
    client,
    delivered_to,
    host,
    pod,
    remote,
    service,
)
from kproxy.conformance.cases import change
from kproxy.conformance.cases.combinations import (
    BOTH_PROTOCOLS,
    EXPOSED,
    OPEN,
    REWRITTEN,
    UDP_SERVED,
    probe_each_address,
)
from kproxy.conformance.cases.common import EVERY_KIND, FROM_B1, HOST_CLAUSES, POD_CLAUSES, SPREAD
from kproxy.conformance.cases.profiles import LARGE, STARTS
from kproxy.model.network import Protocol

HERE, THERE = ("zone-a",), ("zone-b",)
HINTS = {Feature.TOPOLOGY_HINTS}

ZONE = {"topology.same-zone"}

STARTS_AGAIN = 3
"""Restarts of each node: with the first, eight starts, so that what one start in forty does shows in one run of five."""

CROSSED = (CaseEndpoint(on="a1", zones=THERE), CaseEndpoint(on="b1", zones=HERE))

ZONE_HINTS_DECIDE = case(
    "topology.zone-hints-decide",
    "Pods and nodes reach the endpoints hinted for their zone, wherever these are.",
    Apply(
        crossed := service("crossed", endpoints=CROSSED),
        names := service("names", endpoints=CROSSED, ports=(Port(number=53, protocol=Protocol.UDP),)),
    ),
    Probe(sender=pod("a2"), to=crossed.cluster_ip, expect=delivered_to("b1"), count=8),
    Probe(sender=pod("b2"), to=crossed.cluster_ip, expect=delivered_to("a1"), count=8),
    Probe(sender=host("a"), to=crossed.cluster_ip, expect=FROM_B1, count=8),
    Probe(sender=pod("a2"), to=names.cluster_ip, expect=delivered_to("b1"), count=8),
    clauses=POD_CLAUSES | HOST_CLAUSES | ZONE | {"protocol.udp.served"},
    features=HINTS,
    regressions={"R100"},
)

SEVERAL_ZONES = case(
    "topology.several-zones-in-a-hint",
    "An endpoint hinted for two zones answers in both, one hinted for one zone in that one.",
    Apply(
        shared := service(
            "shared",
            endpoints=(CaseEndpoint(on="a1", zones=HERE + THERE), CaseEndpoint(on="b1", zones=THERE)),
        )
    ),
    Probe(sender=pod("a2"), to=shared.cluster_ip, expect=delivered_to("a1"), count=8),
    Probe(sender=pod("b2"), to=shared.cluster_ip, expect=delivered_to("a1", "b1"), spread=True),
    clauses=POD_CLAUSES | SPREAD | ZONE | {"topology.several-zones-in-hint"},
    features=HINTS,
)

NODE_HINTS_COME_FIRST = case(
    "topology.node-hints-come-first",
    "Node hints decide where they name the node, against zone hints and against where endpoints are.",
    Apply(
        personal := service(
            "personal",
            endpoints=(
                CaseEndpoint(on="a1", zones=HERE, nodes=("b",)),
                CaseEndpoint(on="b1", zones=THERE, nodes=("a",)),
            ),
        )
    ),
    Probe(sender=pod("a2"), to=personal.cluster_ip, expect=delivered_to("b1"), count=8),
    Probe(sender=pod("b2"), to=personal.cluster_ip, expect=delivered_to("a1"), count=8),
    clauses=POD_CLAUSES | {"topology.same-node"},
    features=HINTS,
)

ZONE_DECIDES_WITHOUT_NODE_MATCH = case(
    "topology.zone-decides-where-no-node-matches",
    "On a node that no node hint names, zone hints decide.",
    Apply(
        partial := service(
            "partial",
            endpoints=(
                CaseEndpoint(on="a1", zones=THERE, nodes=("b",)),
                CaseEndpoint(on="b1", zones=HERE, nodes=("b",)),
            ),
        )
    ),
    Probe(sender=pod("a2"), to=partial.cluster_ip, expect=delivered_to("b1"), count=8),
    Probe(sender=pod("b2"), to=partial.cluster_ip, expect=delivered_to("a1", "b1"), spread=True),
    clauses=POD_CLAUSES | SPREAD | ZONE | {"topology.same-node", "topology.no-node-match.zone-decides"},
    features=HINTS,
)

VOID = "topology.missing-hint.all-endpoints"

ONE_HINT_MISSING = case(
    "topology.one-missing-hint-voids-all",
    "One ready endpoint without a hint is enough for all hints of that kind not to count.",
    Apply(
        zones := service("zones", endpoints=(CaseEndpoint(on="a1", zones=HERE), CaseEndpoint(on="b1"))),
        nodes := service("nodes", endpoints=(CaseEndpoint(on="a1", nodes=("a",)), CaseEndpoint(on="b1"))),
    ),
    Probe(
        sender=pod("a2"), to=zones.cluster_ip, expect=delivered_to("a1", "b1"), spread=True, clauses=(VOID,)
    ),
    Probe(
        sender=pod("b2"), to=zones.cluster_ip, expect=delivered_to("a1", "b1"), spread=True, clauses=(VOID,)
    ),
    Probe(
        sender=pod("a2"), to=nodes.cluster_ip, expect=delivered_to("a1", "b1"), spread=True, clauses=(VOID,)
    ),
    clauses=POD_CLAUSES | SPREAD | {VOID},
    features=HINTS,
    regressions={"R099"},
)

UNREADY_HINTS = case(
    "topology.hints-of-unready-endpoints-do-not-count",
    "An unready endpoint neither claims its zone nor voids the others' hints.",
    Apply(
        claimed := service(
            "claimed",
            endpoints=(
                CaseEndpoint(on="a1", ready=False, serving=False, zones=HERE),
                CaseEndpoint(on="b1", zones=THERE),
                CaseEndpoint(on="b2", zones=THERE),
            ),
        ),
        unhinted := service(
            "unhinted",
            endpoints=(CaseEndpoint(on="a2", ready=False, serving=False), *CROSSED),
        ),
    ),
    Probe(sender=pod("a3"), to=claimed.cluster_ip, expect=delivered_to("b1", "b2"), spread=True),
    Probe(sender=pod("a3"), to=unhinted.cluster_ip, expect=delivered_to("b1"), count=8),
    clauses=POD_CLAUSES
    | SPREAD
    | ZONE
    | {
        "endpoints.ready-only",
        "topology.unready-hints-ignored",
        "topology.no-match.all-endpoints",
    },
    features=HINTS,
    regressions={"R099"},
)

LEAVING = CaseEndpoint(on="a1", ready=False, serving=True, terminating=True)

TERMINATING_HINTS = case(
    "topology.hints-of-terminating-endpoints-do-not-count",
    "An endpoint that terminates, though it serves, neither claims its zone nor voids the hints of those that are ready.",
    Apply(
        claimed := service(
            "claimed",
            endpoints=(
                replace(LEAVING, zones=HERE),
                CaseEndpoint(on="b1", zones=THERE),
                CaseEndpoint(on="b2", zones=THERE),
            ),
        ),
        unhinted := service(
            "unhinted", endpoints=(LEAVING, *CROSSED[1:], CaseEndpoint(on="a2", zones=THERE))
        ),
    ),
    Probe(sender=pod("a3"), to=claimed.cluster_ip, expect=delivered_to("b1", "b2"), spread=True),
    Probe(sender=pod("a3"), to=unhinted.cluster_ip, expect=delivered_to("b1"), count=8),
    clauses=POD_CLAUSES
    | SPREAD
    | ZONE
    | {
        "endpoints.terminating.not-used-beside-ready",
        "topology.unready-hints-ignored",
        "topology.no-match.all-endpoints",
    },
    features=HINTS | {Feature.TERMINATING_ENDPOINTS},
)

NO_HINT_MATCHES = case(
    "topology.no-match-means-all",
    "Where no hint names the node or its zone, all endpoints answer.",
    Apply(
        foreign := service(
            "foreign", endpoints=(CaseEndpoint(on="a1", zones=("zone-c",)), CaseEndpoint(on="b1", zones=HERE))
        )
    ),
    Probe(sender=pod("b2"), to=foreign.cluster_ip, expect=delivered_to("a1", "b1"), spread=True),
    Probe(sender=pod("a2"), to=foreign.cluster_ip, expect=delivered_to("b1"), count=8),
    clauses=POD_CLAUSES | SPREAD | ZONE | {"topology.no-match.all-endpoints"},
    features=HINTS,
)

TERMINATING_ONES_HAVE_NO_ZONE = case(
    "topology.terminating-endpoints-answer-in-every-zone",
    "When only terminating endpoints are left, all of them answer, whatever their hints.",
    Apply(
        last := service(
            "last",
            endpoints=(
                CaseEndpoint(on="a1", ready=False, serving=True, terminating=True, zones=HERE),
                CaseEndpoint(on="b1", ready=False, serving=True, terminating=True, zones=THERE),
            ),
        )
    ),
    Probe(sender=pod("a2"), to=last.cluster_ip, expect=delivered_to("a1", "b1"), spread=True),
    clauses=POD_CLAUSES
    | SPREAD
    | {"endpoints.terminating.used-when-none-ready", "topology.terminating.hints-ignored"},
    features=HINTS | {Feature.TERMINATING_ENDPOINTS},
)

LOCAL_POLICIES_COME_FIRST = case(
    "topology.local-policies-ignore-hints",
    "Under policy Local the node's own endpoints answer, though hinted elsewhere; other traffic has hints.",
    Apply(
        inner := service("inner", endpoints=CROSSED, internal_policy=Policy.LOCAL),
        outer := service("outer", endpoints=CROSSED, type=Type.NODE_PORT, external_policy=Policy.LOCAL),
    ),
    Probe(sender=pod("a2"), to=inner.cluster_ip, expect=delivered_to("a1"), count=8),
    Probe(sender=client("a"), to=outer.node_port("a"), expect=delivered_to("a1"), count=8),
    Probe(sender=pod("a2"), to=outer.cluster_ip, expect=delivered_to("b1"), count=8),
    clauses=POD_CLAUSES
    | ZONE
    | {
        "node-port.reaches-ready-endpoint",
        "internal-policy.local.same-node",
        "external-policy.cluster-ip-exempt",
        "external-policy.local.local-endpoints-source-preserved",
        "topology.local-policy.hints-ignored",
    },
    features=HINTS | {Feature.NODE_PORT, Feature.INTERNAL_TRAFFIC_POLICY, Feature.EXTERNAL_TRAFFIC_POLICY},
)

OUTSIDE_TRAFFIC_HAS_HINTS = case(
    "topology.traffic-from-outside-follows-hints",
    "Node port, external IP and load balancer IP lead to endpoints hinted for the node the packet came to.",
    Apply(
        open_ := service("open", endpoints=CROSSED, type=Type.LOAD_BALANCER, vips=(Vip(),), external_ips=1)
    ),
    Probe(sender=client("a"), to=open_.node_port("a"), expect=FROM_B1, count=8),
    Probe(sender=remote("b"), to=open_.vip(), expect=delivered_to("a1", source=MASQUERADED), count=8),
    Probe(sender=client("b"), to=open_.external_ip(), expect=delivered_to("a1", source=MASQUERADED), count=8),
    clauses=ZONE
    | {
        "node-port.reaches-ready-endpoint",
        "node-port.every-node.served",
        "load-balancer.reaches-ready-endpoint",
        "external-ip.reaches-ready-endpoint",
        "masquerade.external-policy-cluster.rewritten",
        "topology.external-traffic.hints-followed",
    },
    features=HINTS | {Feature.NODE_PORT, Feature.LOAD_BALANCER, Feature.EXTERNAL_IPS},
)

BY_ZONE = (CaseEndpoint(on="a1", zones=HERE), CaseEndpoint(on="b1", zones=THERE))

ZONE_LOSES_ITS_ENDPOINT = case(
    "topology.zone-loses-its-endpoint",
    "Traffic of a zone goes elsewhere when its last endpoint leaves, and returns with it; hints may change.",
    Apply(web := service("web", endpoints=BY_ZONE)),
    Probe(sender=pod("a2"), to=web.cluster_ip, expect=delivered_to("a1"), count=8),
    Apply(web.replace(endpoints=BY_ZONE[1:])),
    Probe(
        sender=pod("a2"),
        to=web.cluster_ip,
        expect=delivered_to("b1"),
        count=8,
        clauses=(change.ENDPOINT_REMOVED,),
    ),
    Apply(web),
    Probe(
        sender=pod("a2"),
        to=web.cluster_ip,
        expect=delivered_to("a1"),
        count=8,
        clauses=(change.ENDPOINT_ADDED,),
    ),
    Apply(web.replace(endpoints=CROSSED)),
    Probe(
        sender=pod("a2"), to=web.cluster_ip, expect=delivered_to("b1"), count=8, clauses=(change.TOPOLOGY,)
    ),
    clauses=POD_CLAUSES
    | ZONE
    | {
        "topology.no-match.all-endpoints",
        "change.endpoint-removed.not-used",
        "change.endpoint-added.used",
        "change.topology.followed",
    },
    features=HINTS,
)

NODE_CHANGES_ZONE = case(
    "topology.node-changes-zone",
    "When a node's zone label changes, goes and returns, its traffic follows; another node's does not.",
    Apply(web),
    Probe(sender=pod("a2"), to=web.cluster_ip, expect=delivered_to("a1"), count=8),
    SetZone("a", "zone-b"),
    Probe(
        sender=pod("a2"), to=web.cluster_ip, expect=delivered_to("b1"), count=8, clauses=(change.TOPOLOGY,)
    ),
    Probe(sender=pod("b2"), to=web.cluster_ip, expect=delivered_to("b1"), count=8),
    SetZone("a", ""),
    Probe(
        sender=pod("a2"),
        to=web.cluster_ip,
        expect=delivered_to("a1", "b1"),
        spread=True,
        clauses=(change.TOPOLOGY,),
    ),
    SetZone("a", "zone-a"),
    Probe(
        sender=pod("a2"), to=web.cluster_ip, expect=delivered_to("a1"), count=8, clauses=(change.TOPOLOGY,)
    ),
    clauses=POD_CLAUSES
    | SPREAD
    | ZONE
    | {"topology.no-zone-label.all-endpoints", "change.topology.followed"},
    features=HINTS,
    profile=LARGE,
)

STARTED = service("started", endpoints=CROSSED)
KNOWN = ("restart.zone-label.followed",)
BOTH_AGAIN = (
    Restart("a"),
    Restart("b"),
    Probe(sender=pod("a2"), to=STARTED.cluster_ip, expect=delivered_to("b1"), count=8, clauses=KNOWN),
    Probe(sender=pod("b2"), to=STARTED.cluster_ip, expect=delivered_to("a1"), count=8, clauses=KNOWN),
)

ZONE_KNOWN_AT_START = case(
    "topology.zone-is-known-at-every-start",
    "A proxy that starts where the node has its zone label follows hints at once, however often it starts.",
    Apply(STARTED),
    Probe(sender=pod("a2"), to=STARTED.cluster_ip, expect=delivered_to("b1"), count=8, clauses=KNOWN),
    Probe(sender=pod("b2"), to=STARTED.cluster_ip, expect=delivered_to("a1"), count=8, clauses=KNOWN),
    *BOTH_AGAIN * STARTS_AGAIN,
    clauses=POD_CLAUSES | ZONE | set(KNOWN),
    features=HINTS | {Feature.RESTART},
    profile=STARTS,
)

# ------------------------------------------------------------------- several features together

PERSONAL = OPEN.replace(
    name="personal",
    ports=BOTH_PROTOCOLS,
    endpoints=(
        CaseEndpoint(on="a1", zones=("zone-a",), nodes=("b",)),
        CaseEndpoint(on="b1", zones=("zone-b",), nodes=("a",)),
    ),
)

SAME_NODE, HINTED = "topology.same-node", "topology.external-traffic.hints-followed"

NODE_HINTS_OUTSIDE = case(
    "topology.node-hints-bind-traffic-from-outside",
    "Hints for nodes bind every kind of address, connections and datagrams, by the node that the packet came to.",
    Apply(PERSONAL),
    *probe_each_address(client("a"), PERSONAL, FROM_B1, SAME_NODE, HINTED, port="a"),
    *probe_each_address(
        client("b"), PERSONAL, delivered_to("a1", source=MASQUERADED), SAME_NODE, HINTED, port="b"
    ),
    *probe_each_address(host("a"), PERSONAL, FROM_B1, SAME_NODE, HINTED, port="b"),
    clauses=EVERY_KIND | REWRITTEN | {UDP_SERVED, SAME_NODE, HINTED, "node-port.every-node.served"},
    features=EXPOSED | {Feature.TOPOLOGY_HINTS},
)

CASES: tuple[Case, ...] = (
    ZONE_HINTS_DECIDE,
    SEVERAL_ZONES,
    NODE_HINTS_COME_FIRST,
    ZONE_DECIDES_WITHOUT_NODE_MATCH,
    ONE_HINT_MISSING,
    UNREADY_HINTS,
    TERMINATING_HINTS,
    NO_HINT_MATCHES,
    TERMINATING_ONES_HAVE_NO_ZONE,
    LOCAL_POLICIES_COME_FIRST,
    OUTSIDE_TRAFFIC_HAS_HINTS,
    ZONE_LOSES_ITS_ENDPOINT,
    NODE_CHANGES_ZONE,
    ZONE_KNOWN_AT_START,
    NODE_HINTS_OUTSIDE,
)
