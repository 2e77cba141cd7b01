"""Cases on internalTrafficPolicy: whose endpoints answer at cluster IPs, and who gets silence.

Only values; the vocabulary is `kproxy.conformance.case`.
"""

from __future__ import annotations

from kproxy.conformance.case import (
    DROPPED,
    MASQUERADED,
    SAME_ENDPOINT,
    Apply,
    Case,
    Feature,
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
    remote,
    service,
)
from kproxy.conformance.cases import change
from kproxy.conformance.cases.common import EVERY_KIND, FROM_B1, HOST_CLAUSES, POD_CLAUSES, SPREAD, UDP_PORT

LOCAL = Policy.LOCAL

INTERNAL = {Feature.INTERNAL_TRAFFIC_POLICY}
EXTERNAL = {Feature.EXTERNAL_TRAFFIC_POLICY, Feature.NODE_PORT}
EXPOSED = EXTERNAL | {Feature.LOAD_BALANCER, Feature.EXTERNAL_IPS}

OUTSIDE_CLAUSES = {"cluster-ip.from-outside.served", "masquerade.cluster-ip.outside-rewritten"}

INTERNAL_STAYS_ON_NODE = case(
    "internal-policy.stays-on-node",
    "Pods, nodes and endpoints themselves reach the endpoints of their own node only.",
    Apply(web := service("web", "a1", "a2", "b1", internal_policy=LOCAL)),
    Probe(sender=pod("a3"), to=web.cluster_ip, expect=delivered_to("a1", "a2"), spread=True),
    Probe(
        sender=pod("a1"),
        to=web.cluster_ip,
        expect=delivered_to("a1", source=MASQUERADED) | delivered_to("a2"),
        spread=True,
    ),
    Probe(
        sender=host("a"),
        to=web.cluster_ip,
        expect=delivered_to("a1", "a2", source=MASQUERADED),
        spread=True,
    ),
    Probe(sender=pod("b2"), to=web.cluster_ip, expect=delivered_to("b1"), count=6),
    Probe(sender=host("b"), to=web.cluster_ip, expect=FROM_B1, count=6),
    clauses=POD_CLAUSES
    | HOST_CLAUSES
    | SPREAD
    | {"internal-policy.local.same-node", "masquerade.hairpin.rewritten"},
    features=INTERNAL,
    regressions={"R026"},
)

INTERNAL_DROPS_WITHOUT_LOCAL_ENDPOINT = case(
    "internal-policy.drops-without-local-endpoint",
    "On a node without an endpoint every client gets silence, not a refusal, TCP and UDP alike.",
    Apply(
        far := service("far", "b1", internal_policy=LOCAL),
        names := service("names", "b1", internal_policy=LOCAL, ports=UDP_PORT),
    ),
    Probe(sender=pod("a1"), to=far.cluster_ip, expect=DROPPED),
    Probe(sender=host("a"), to=far.cluster_ip, expect=DROPPED),
    Probe(sender=client("a"), to=far.cluster_ip, expect=DROPPED),
    Probe(sender=pod("a1"), to=names.cluster_ip, expect=DROPPED),
    Probe(sender=host("a"), to=names.cluster_ip, expect=DROPPED),
    Probe(sender=pod("b2"), to=far.cluster_ip, expect=delivered_to("b1")),
    Probe(sender=pod("b2"), to=names.cluster_ip, expect=delivered_to("b1")),
    clauses=POD_CLAUSES
    | OUTSIDE_CLAUSES
    | {
        "masquerade.cluster-ip.host-rewritten",
        "protocol.udp.served",
        "internal-policy.local.same-node",
        "internal-policy.local.drop-without-local-endpoint",
    },
    features=INTERNAL,
    regressions={"R026"},
)

INTERNAL_BINDS_OUTSIDE_CLIENTS = case(
    "internal-policy.binds-clients-outside",
    "A client outside that sends to a cluster IP through a node reaches that node's endpoints, rewritten.",
    Apply(pair := service("pair", "a1", "b1", internal_policy=LOCAL)),
    Probe(sender=client("a"), to=pair.cluster_ip, expect=delivered_to("a1", source=MASQUERADED), count=6),
    Probe(sender=remote("b"), to=pair.cluster_ip, expect=FROM_B1, count=6),
    clauses=OUTSIDE_CLAUSES | {"cluster-ip.reaches-ready-endpoint", "internal-policy.local.same-node"},
    features=INTERNAL,
)

INTERNAL_HOST_NETWORK = case(
    "internal-policy.host-network-endpoints",
    "A node is an endpoint of its own node like a pod.",
    Apply(daemons := service("daemons", "a", "b", internal_policy=LOCAL)),
    Probe(sender=pod("a1"), to=daemons.cluster_ip, expect=delivered_to("a"), count=6),
    Probe(sender=pod("b1"), to=daemons.cluster_ip, expect=delivered_to("b"), count=6),
    Probe(sender=host("b"), to=daemons.cluster_ip, expect=delivered_to("b", source=MASQUERADED), count=6),
    clauses=POD_CLAUSES
    | HOST_CLAUSES
    | {"internal-policy.local.same-node", "slices.endpoint.host-network.reached"},
    features=INTERNAL,
    regressions={"R042"},
)

INTERNAL_LEAVES_OTHER_ADDRESSES_ALONE = case(
    "internal-policy.leaves-external-addresses-alone",
    "Node port, external IP and load balancer IP reach the other node's endpoint; the cluster IP does not.",
    Apply(
        open_ := service(
            "open", "b1", internal_policy=LOCAL, type=Type.LOAD_BALANCER, vips=(Vip(),), external_ips=1
        )
    ),
    Probe(sender=client("a"), to=open_.node_port("a"), expect=FROM_B1),
    Probe(sender=remote("a"), to=open_.vip(), expect=FROM_B1),
    Probe(sender=pod("a1"), to=open_.external_ip(), expect=FROM_B1),
    Probe(sender=pod("a1"), to=open_.cluster_ip, expect=DROPPED),
    clauses=EVERY_KIND
    | {
        "node-port.every-node.served",
        "internal-policy.external-addresses-exempt",
        "internal-policy.local.same-node",
        "internal-policy.local.drop-without-local-endpoint",
        "masquerade.external-policy-cluster.rewritten",
        "masquerade.cluster-ip.pod-source-preserved",
    },
    features=INTERNAL | EXPOSED,
    regressions={"R026"},
)

INTERNAL_POLICY_CHANGES = case(
    "internal-policy.changes-both-ways",
    "Cluster, Local, Cluster: new connections follow, one that is open goes on.",
    Apply(anywhere := service("web", "b1")),
    Open(flow="early", sender=pod("a1"), to=anywhere.cluster_ip, expect=delivered_to("b1")),
    Apply(anywhere.replace(internal_policy=LOCAL)),
    Probe(sender=pod("a1"), to=anywhere.cluster_ip, expect=DROPPED, clauses=(change.POLICY,)),
    Probe(sender=pod("b2"), to=anywhere.cluster_ip, expect=delivered_to("b1")),
    Send(flow="early", expect=SAME_ENDPOINT, clauses=("established.survives-policy-change",)),
    Apply(anywhere),
    Probe(sender=pod("a1"), to=anywhere.cluster_ip, expect=delivered_to("b1"), clauses=(change.POLICY,)),
    Send(flow="early", expect=SAME_ENDPOINT, clauses=("established.survives-policy-change",)),
    clauses=POD_CLAUSES
    | {
        "internal-policy.local.same-node",
        "internal-policy.local.drop-without-local-endpoint",
        "change.policy.followed",
        "established.survives-policy-change",
    },
    features=INTERNAL,
)

CASES: tuple[Case, ...] = (
    INTERNAL_STAYS_ON_NODE,
    INTERNAL_DROPS_WITHOUT_LOCAL_ENDPOINT,
    INTERNAL_BINDS_OUTSIDE_CLIENTS,
    INTERNAL_HOST_NETWORK,
    INTERNAL_LEAVES_OTHER_ADDRESSES_ALONE,
    INTERNAL_POLICY_CHANGES,
)
