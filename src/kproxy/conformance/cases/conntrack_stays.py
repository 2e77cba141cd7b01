"""Cases on UDP flows that stay where they are: with an endpoint that serves, though a new flow would be led elsewhere or nowhere.

Only values; the vocabulary is `kproxy.conformance.case`.
"""

from __future__ import annotations

from kproxy.conformance.case import (
    DROPPED,
    MASQUERADED,
    REJECTED,
    SAME_ENDPOINT,
    Apply,
    Case,
    CaseEndpoint,
    Feature,
    Open,
    Policy,
    Probe,
    Send,
    Type,
    case,
    client,
    delivered_to,
    pod,
    service,
)
from kproxy.conformance.cases import change
from kproxy.conformance.cases.common import (
    DATAGRAMS,
    FROM_B1,
    MOVES,
    NONE_LEFT,
    POD_CLAUSES,
    STARTS,
    UDP_PORT,
)

LOCAL = Policy.LOCAL

DNS = service("dns", "a1", ports=UDP_PORT)

STAYS = "conntrack.udp.stays-on-policy-change"

UDP_STAYS_WHEN_POLICIES_CHANGE = case(
    "conntrack.udp-stays-when-policies-change",
    "A policy or a hint that would lead a new flow elsewhere leaves one that is there in its place.",
    Apply(
        far := service("far", "b1", ports=UDP_PORT),
        hinted := service("hinted", "b1", ports=UDP_PORT),
    ),
    Open(flow="policy", sender=pod("a2"), to=far.cluster_ip, expect=delivered_to("b1")),
    Open(flow="hint", sender=pod("a2"), to=hinted.cluster_ip, expect=delivered_to("b1")),
    Apply(
        service("far", "b1", "a1", ports=UDP_PORT, internal_policy=LOCAL),
        service(
            "hinted",
            endpoints=(CaseEndpoint(on="b1", zones=("zone-b",)), CaseEndpoint(on="a1", zones=("zone-a",))),
            ports=UDP_PORT,
        ),
    ),
    Probe(sender=pod("a2"), to=far.cluster_ip, expect=delivered_to("a1"), count=6, clauses=(change.POLICY,)),
    Probe(
        sender=pod("a2"),
        to=hinted.cluster_ip,
        expect=delivered_to("a1"),
        count=6,
        clauses=(change.TOPOLOGY,),
    ),
    Send(flow="policy", expect=SAME_ENDPOINT, clauses=(STAYS,)),
    Send(flow="hint", expect=SAME_ENDPOINT, clauses=(STAYS,)),
    clauses=POD_CLAUSES
    | DATAGRAMS
    | {
        "internal-policy.local.same-node",
        "topology.same-zone",
        "change.policy.followed",
        "change.topology.followed",
        STAYS,
    },
    features={Feature.INTERNAL_TRAFFIC_POLICY, Feature.TOPOLOGY_HINTS},
)

UDP_STAYS_WHERE_POLICY_LEAVES_NOTHING = case(
    "conntrack.udp-stays-where-policy-leaves-nothing",
    "Where a policy becomes Local and the node has no endpoint, new datagrams get no answer, and a flow that is there goes on.",
    Apply(
        inside := service("inside", "b1", ports=UDP_PORT),
        outside := service("outside", "b1", type=Type.NODE_PORT, ports=UDP_PORT, external_ips=1),
    ),
    Open(flow="inside", sender=pod("a2"), to=inside.cluster_ip, expect=delivered_to("b1")),
    Open(flow="outside", sender=client("a"), to=outside.node_port("a"), expect=FROM_B1),
    Open(flow="silent meanwhile", sender=pod("a2"), to=inside.cluster_ip, expect=delivered_to("b1")),
    Open(flow="silent as an external IP goes", sender=client("a"), to=outside.node_port("a"), expect=FROM_B1),
    Apply(
        service("inside", "b1", ports=UDP_PORT, internal_policy=LOCAL),
        service("outside", "b1", type=Type.NODE_PORT, ports=UDP_PORT, external_policy=LOCAL),
    ),
    Probe(sender=pod("a2"), to=inside.cluster_ip, expect=DROPPED, clauses=(change.POLICY,)),
    Probe(sender=client("a"), to=outside.node_port("a"), expect=DROPPED, clauses=(change.POLICY,)),
    Send(flow="inside", expect=SAME_ENDPOINT, clauses=(STAYS,)),
    Send(flow="outside", expect=SAME_ENDPOINT, clauses=(STAYS,)),
    Apply(
        service("inside", "b1", "a1", ports=UDP_PORT, internal_policy=LOCAL),
        service("outside", "b1", "a1", type=Type.NODE_PORT, ports=UDP_PORT, external_policy=LOCAL),
    ),
    Probe(sender=pod("a2"), to=inside.cluster_ip, expect=delivered_to("a1"), clauses=(change.POLICY,)),
    Probe(sender=client("a"), to=outside.node_port("a"), expect=delivered_to("a1"), clauses=(change.POLICY,)),
    Send(flow="inside", expect=SAME_ENDPOINT, clauses=(STAYS,)),
    Send(flow="outside", expect=SAME_ENDPOINT, clauses=(STAYS,)),
    Send(flow="silent meanwhile", expect=SAME_ENDPOINT, clauses=(STAYS,)),
    Send(flow="silent as an external IP goes", expect=SAME_ENDPOINT, clauses=(STAYS,)),
    clauses=POD_CLAUSES
    | DATAGRAMS
    | {
        "node-port.reaches-ready-endpoint",
        "node-port.every-node.served",
        "masquerade.external-policy-cluster.rewritten",
        "internal-policy.local.same-node",
        "external-policy.local.local-endpoints-source-preserved",
        "internal-policy.local.drop-without-local-endpoint",
        "external-policy.local.drop-without-local-endpoint",
        "change.policy.followed",
        STAYS,
    },
    features={
        Feature.NODE_PORT,
        Feature.EXTERNAL_IPS,
        Feature.INTERNAL_TRAFFIC_POLICY,
        Feature.EXTERNAL_TRAFFIC_POLICY,
    },
)

SERVES_ON = "conntrack.udp.stays-with-serving-terminating-endpoint"

UDP_STAYS_WHILE_ITS_ENDPOINT_SERVES = case(
    "conntrack.udp-stays-while-its-endpoint-serves",
    "A flow stays with an endpoint that terminates as long as it serves, and then moves.",
    Apply(DNS),
    Open(flow="old", sender=pod("b2"), to=DNS.cluster_ip, expect=delivered_to("a1")),
    Apply(
        DNS.replace(
            endpoints=(
                CaseEndpoint(on="a1", ready=False, serving=True, terminating=True),
                CaseEndpoint(on="b1"),
            )
        )
    ),
    Probe(
        sender=pod("b2"), to=DNS.cluster_ip, expect=delivered_to("b1"), count=6, clauses=(change.READINESS,)
    ),
    Send(flow="old", expect=SAME_ENDPOINT, clauses=(SERVES_ON,)),
    Apply(
        DNS.replace(
            endpoints=(
                CaseEndpoint(on="a1", ready=False, serving=False, terminating=True),
                CaseEndpoint(on="b1"),
            )
        )
    ),
    Probe(
        sender=pod("b2"), to=DNS.cluster_ip, expect=delivered_to("b1"), count=6, clauses=(change.READINESS,)
    ),
    Send(flow="old", expect=delivered_to("b1"), clauses=(MOVES,)),
    clauses=POD_CLAUSES
    | DATAGRAMS
    | {
        "endpoints.ready-only",
        "endpoints.terminating.not-used-beside-ready",
        "change.readiness.followed",
        SERVES_ON,
        MOVES,
    },
    features={Feature.TERMINATING_ENDPOINTS},
)

UDP_REFUSED_WHERE_NO_ENDPOINT_IS_LEFT = case(
    "conntrack.udp-refused-where-no-endpoint-is-left",
    "A flow stays with an endpoint that serves though it is not ready; once only another one serves so, it is refused like a new one.",
    Apply(DNS),
    Open(flow="old", sender=pod("b2"), to=DNS.cluster_ip, expect=delivered_to("a1")),
    Apply(DNS.replace(endpoints=(CaseEndpoint(on="a1", ready=False, serving=True),))),
    Probe(sender=pod("b2"), to=DNS.cluster_ip, expect=REJECTED, clauses=(change.READINESS, change.EMPTIED)),
    Send(flow="old", expect=SAME_ENDPOINT, clauses=(SERVES_ON,)),
    Apply(
        DNS.replace(
            endpoints=(
                CaseEndpoint(on="a1", ready=False, serving=False),
                CaseEndpoint(on="b1", ready=False, serving=True),
            )
        )
    ),
    Send(flow="old", expect=REJECTED, clauses=(NONE_LEFT,)),
    Apply(DNS.replace(endpoints=(CaseEndpoint(on="b1"),))),
    Send(flow="old", expect=delivered_to("b1"), clauses=(STARTS,)),
    clauses=POD_CLAUSES
    | DATAGRAMS
    | {
        "change.readiness.followed",
        change.EMPTIED,
        STARTS,
        "endpoints.none.rejected",
        "endpoints.not-serving.never-used",
        SERVES_ON,
        NONE_LEFT,
    },
)

UDP_STAYS_UNTIL_ITS_ENDPOINT_IS_GONE = case(
    "conntrack.udp-stays-until-its-endpoint-is-gone",
    "A flow stays with an endpoint that terminates and serves, and moves when that is gone without having stopped.",
    Apply(DNS),
    Open(flow="old", sender=pod("b2"), to=DNS.cluster_ip, expect=delivered_to("a1")),
    Apply(
        DNS.replace(
            endpoints=(
                CaseEndpoint(on="a1", ready=False, serving=True, terminating=True),
                CaseEndpoint(on="b1"),
            )
        )
    ),
    Send(flow="old", expect=SAME_ENDPOINT, clauses=(SERVES_ON,)),
    Apply(DNS.replace(endpoints=(CaseEndpoint(on="b1"),))),
    Probe(
        sender=pod("b2"),
        to=DNS.cluster_ip,
        expect=delivered_to("b1"),
        count=6,
        clauses=(change.ENDPOINT_REMOVED,),
    ),
    Send(flow="old", expect=delivered_to("b1"), clauses=(MOVES,)),
    clauses=POD_CLAUSES | DATAGRAMS | {change.ENDPOINT_REMOVED, SERVES_ON, MOVES},
    features={Feature.TERMINATING_ENDPOINTS},
)

SPLIT = service("split", "b1", ports=UDP_PORT, external_ips=1, internal_policy=LOCAL)

UDP_DROPPED_WHERE_POLICY_LEAVES_NOTHING_FOR_IT = case(
    "conntrack.udp-is-dropped-where-policy-leaves-nothing-for-it",
    "A flow to a cluster IP ends with its endpoint where the internal policy is Local and the node has none, though the external IP "
    "has others.",
    Apply(SPLIT.replace(internal_policy=Policy.CLUSTER)),
    Open(flow="inside", sender=pod("a2"), to=SPLIT.cluster_ip, expect=delivered_to("b1")),
    Open(flow="outside", sender=client("a"), to=SPLIT.external_ip(), expect=FROM_B1),
    Apply(SPLIT),
    Probe(sender=pod("a2"), to=SPLIT.cluster_ip, expect=DROPPED, clauses=(change.POLICY,)),
    Send(flow="inside", expect=SAME_ENDPOINT, clauses=(STAYS,)),
    Apply(SPLIT.replace(endpoints=(CaseEndpoint(on="b2"),))),
    Send(flow="inside", expect=DROPPED, clauses=(NONE_LEFT,)),
    Send(flow="outside", expect=delivered_to("b2", source=MASQUERADED), clauses=(MOVES,)),
    clauses=POD_CLAUSES
    | DATAGRAMS
    | {
        "external-ip.reaches-ready-endpoint",
        "masquerade.external-policy-cluster.rewritten",
        "internal-policy.local.same-node",
        "internal-policy.local.drop-without-local-endpoint",
        "change.policy.followed",
        STAYS,
        MOVES,
        NONE_LEFT,
    },
    features={Feature.EXTERNAL_IPS, Feature.INTERNAL_TRAFFIC_POLICY},
)

CASES: tuple[Case, ...] = (
    UDP_STAYS_WHEN_POLICIES_CHANGE,
    UDP_STAYS_WHERE_POLICY_LEAVES_NOTHING,
    UDP_STAYS_WHILE_ITS_ENDPOINT_SERVES,
    UDP_STAYS_UNTIL_ITS_ENDPOINT_IS_GONE,
    UDP_REFUSED_WHERE_NO_ENDPOINT_IS_LEFT,
    UDP_DROPPED_WHERE_POLICY_LEAVES_NOTHING_FOR_IT,
)
