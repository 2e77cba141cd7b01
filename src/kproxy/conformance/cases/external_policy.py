"""Cases on externalTrafficPolicy: whose endpoints answer whom at a Service's other addresses, and who gets silence.

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
    Port,
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
from kproxy.conformance.cases.common import (
    EVERY_KIND,
    FROM_B1,
    FROM_BOTH,
    HOST_CLAUSES,
    LOCAL_CLAUSES,
    POD_CLAUSES,
    SPREAD,
    UDP_PORT,
)
from kproxy.conformance.cases.profiles import NO_DETECTOR
from kproxy.model.network import Protocol

LOCAL = Policy.LOCAL

INTERNAL = {Feature.INTERNAL_TRAFFIC_POLICY}
EXTERNAL = {Feature.EXTERNAL_TRAFFIC_POLICY, Feature.NODE_PORT}
EXPOSED = EXTERNAL | {Feature.LOAD_BALANCER, Feature.EXTERNAL_IPS}

SILENCE = {"external-policy.local.drop-without-local-endpoint"}

ALL_OPEN = service(
    "web",
    "a1",
    "a2",
    "b1",
    type=Type.LOAD_BALANCER,
    external_policy=LOCAL,
    vips=(Vip(),),
    external_ips=1,
)

EXTERNAL_KEEPS_SOURCE = case(
    "external-policy.keeps-node-and-source",
    "Clients outside reach endpoints of the node they came to, which see the client's address.",
    Apply(ALL_OPEN),
    Probe(sender=client("a"), to=ALL_OPEN.node_port("a"), expect=delivered_to("a1", "a2"), spread=True),
    Probe(sender=remote("a"), to=ALL_OPEN.vip(), expect=delivered_to("a1", "a2"), spread=True),
    Probe(sender=client("a"), to=ALL_OPEN.external_ip(), expect=delivered_to("a1", "a2"), spread=True),
    Probe(sender=remote("b"), to=ALL_OPEN.node_port("b"), expect=delivered_to("b1"), count=6),
    Probe(sender=client("b"), to=ALL_OPEN.vip(), expect=delivered_to("b1"), count=6),
    Probe(sender=remote("b"), to=ALL_OPEN.external_ip(), expect=delivered_to("b1"), count=6),
    clauses=EVERY_KIND | SPREAD | {"external-policy.local.local-endpoints-source-preserved"},
    features=EXPOSED,
    regressions={"R028", "R029"},
)

EXTERNAL_KEEPS_SOURCE_OF_DATAGRAMS = case(
    "external-policy.keeps-source-of-datagrams",
    "Endpoints see the client's address in datagrams too, and a node without an endpoint is silent.",
    Apply(
        dns := service("dns", "a1", type=Type.NODE_PORT, external_policy=LOCAL, ports=UDP_PORT),
    ),
    Probe(sender=client("a"), to=dns.node_port("a"), expect=delivered_to("a1")),
    Probe(sender=remote("a"), to=dns.node_port("a"), expect=delivered_to("a1")),
    Probe(sender=client("b"), to=dns.node_port("b"), expect=DROPPED),
    Probe(sender=remote("b"), to=dns.node_port("b"), expect=DROPPED),
    clauses=LOCAL_CLAUSES | SILENCE | {"protocol.udp.served"},
    features=EXTERNAL,
    regressions={"R032"},
)

EXTERNAL_DROPS_WITHOUT_LOCAL_ENDPOINT = case(
    "external-policy.drops-without-local-endpoint",
    "A node without an endpoint is silent to clients outside, at every kind of address.",
    Apply(away := ALL_OPEN.replace(name="away", endpoints=ALL_OPEN.endpoints[2:])),
    Probe(sender=client("a"), to=away.node_port("a"), expect=DROPPED),
    Probe(sender=remote("a"), to=away.node_port("a"), expect=DROPPED),
    Probe(sender=client("a"), to=away.vip(), expect=DROPPED),
    Probe(sender=remote("a"), to=away.external_ip(), expect=DROPPED),
    Probe(sender=client("b"), to=away.node_port("b"), expect=delivered_to("b1")),
    Probe(sender=client("b"), to=away.vip(), expect=delivered_to("b1")),
    Probe(sender=client("b"), to=away.external_ip(), expect=delivered_to("b1")),
    clauses=EVERY_KIND | SILENCE | {"external-policy.local.local-endpoints-source-preserved"},
    features=EXPOSED,
    regressions={"R032"},
)

EXTERNAL_SHORTCUT_WITHOUT_LOCAL_ENDPOINT = case(
    "external-policy.inside-reaches-other-nodes",
    "Pods and processes of a node without an endpoint are served all the same; clients outside are not.",
    Apply(away),
    Probe(sender=pod("a1"), to=away.node_port("a"), expect=delivered_to("b1")),
    Probe(sender=pod("a1"), to=away.vip(), expect=delivered_to("b1")),
    Probe(sender=pod("a1"), to=away.external_ip(), expect=delivered_to("b1")),
    Probe(sender=host("a"), to=away.node_port("a"), expect=FROM_B1),
    Probe(sender=host("a"), to=away.vip(), expect=FROM_B1),
    Probe(sender=host("a"), to=away.external_ip(), expect=FROM_B1),
    Probe(sender=client("a"), to=away.vip(), expect=DROPPED),
    clauses=EVERY_KIND
    | SILENCE
    | {
        "external-policy.local.local-endpoints-source-preserved",
        "external-policy.local.pods-reach-all-endpoints",
        "external-policy.local.host-reaches-all-endpoints",
    },
    features=EXPOSED,
    regressions={"R019", "R020", "R027"},
)

EXTERNAL_SHORTCUT_BESIDE_LOCAL_ENDPOINT = case(
    "external-policy.inside-reaches-all-nodes",
    "Pods and processes of a node reach endpoints of every node, even if it has some of its own.",
    Apply(both := ALL_OPEN.replace(name="both", endpoints=(ALL_OPEN.endpoints[0], ALL_OPEN.endpoints[2]))),
    Probe(sender=pod("a2"), to=both.vip(), expect=delivered_to("a1", "b1"), spread=True),
    Probe(sender=pod("b2"), to=both.node_port("b"), expect=delivered_to("a1", "b1"), spread=True),
    Probe(sender=host("a"), to=both.node_port("a"), expect=FROM_BOTH, spread=True),
    Probe(sender=host("b"), to=both.external_ip(), expect=FROM_BOTH, spread=True),
    clauses=EVERY_KIND
    | SPREAD
    | {
        "external-policy.local.pods-reach-all-endpoints",
        "external-policy.local.host-reaches-all-endpoints",
    },
    features=EXPOSED,
)

EXTERNAL_LEAVES_CLUSTER_IP_ALONE = case(
    "external-policy.leaves-cluster-ip-alone",
    "The cluster IP of a Service with external policy Local reaches endpoints of every node.",
    Apply(away, both),
    Probe(sender=pod("a2"), to=both.cluster_ip, expect=delivered_to("a1", "b1"), spread=True),
    Probe(sender=pod("a2"), to=away.cluster_ip, expect=delivered_to("b1")),
    Probe(sender=host("a"), to=away.cluster_ip, expect=FROM_B1),
    clauses=POD_CLAUSES | HOST_CLAUSES | SPREAD | {"external-policy.cluster-ip-exempt"},
    features=EXPOSED,
    regressions={"R024"},
)

BOTH_POLICIES_LOCAL = case(
    "external-policy.independent-of-internal-policy",
    "With both policies Local each binds its own addresses: cluster IP here, node port from inside anywhere.",
    Apply(
        strict := service(
            "strict", "a1", "b1", type=Type.NODE_PORT, internal_policy=LOCAL, external_policy=LOCAL
        )
    ),
    Probe(sender=pod("a2"), to=strict.cluster_ip, expect=delivered_to("a1"), count=6),
    Probe(sender=pod("a2"), to=strict.node_port("a"), expect=delivered_to("a1", "b1"), spread=True),
    Probe(sender=client("a"), to=strict.node_port("a"), expect=delivered_to("a1"), count=6),
    clauses=POD_CLAUSES
    | LOCAL_CLAUSES
    | SPREAD
    | {
        "internal-policy.local.same-node",
        "internal-policy.external-addresses-exempt",
        "external-policy.cluster-ip-exempt",
        "external-policy.local.pods-reach-all-endpoints",
    },
    features=INTERNAL | EXTERNAL,
    regressions={"R024"},
)

EXTERNAL_HOST_NETWORK = case(
    "external-policy.host-network-endpoint",
    "A node that is itself an endpoint answers clients outside, whose address it sees.",
    Apply(self_ := service("self", "a", type=Type.NODE_PORT, external_policy=LOCAL)),
    Probe(sender=client("a"), to=self_.node_port("a"), expect=delivered_to("a")),
    Probe(sender=remote("a"), to=self_.node_port("a"), expect=delivered_to("a")),
    Probe(sender=client("b"), to=self_.node_port("b"), expect=DROPPED),
    clauses=LOCAL_CLAUSES | SILENCE | {"slices.endpoint.host-network.reached"},
    features=EXTERNAL,
    regressions={"R042"},
)

POD_OF_ANOTHER_NODE = case(
    "external-policy.pod-of-another-node",
    "A pod that sends to another node's port may be taken for a pod there; its address is kept in any case.",
    Apply(split := service("split", "b1", "b2", type=Type.NODE_PORT, external_policy=LOCAL)),
    Probe(sender=pod("a1"), to=split.node_port("b"), expect=delivered_to("b1", "b2") | DROPPED, count=6),
    Probe(sender=client("b"), to=split.node_port("b"), expect=delivered_to("b1", "b2"), spread=True),
    clauses=LOCAL_CLAUSES
    | SPREAD
    | {
        "external-policy.local.other-nodes-pod.either",
        "node-port.other-node.untouched",
        "detect-local.cluster-cidr",
    },
    features=EXTERNAL,
)

PODS_UNKNOWN = case(
    "external-policy.pods-unknown",
    "Where pods cannot be detected they are like clients outside; the node itself still reaches every "
    "endpoint.",
    Apply(near := service("near", "a1", type=Type.LOAD_BALANCER, external_policy=LOCAL, vips=(Vip(),)), both),
    Probe(sender=pod("a2"), to=both.vip(), expect=delivered_to("a1"), count=6),
    Probe(sender=pod("b2"), to=near.vip(), expect=DROPPED),
    Probe(sender=pod("b2"), to=near.node_port("b"), expect=DROPPED),
    Probe(sender=host("b"), to=both.vip(), expect=FROM_BOTH, spread=True),
    clauses=SILENCE
    | SPREAD
    | {
        "load-balancer.reaches-ready-endpoint",
        "external-policy.local.local-endpoints-source-preserved",
        "external-policy.local.no-detector.pods-as-outside",
        "external-policy.local.host-reaches-all-endpoints",
    },
    features=EXPOSED | {Feature.DETECT_LOCAL},
    profile=NO_DETECTOR,
)

CLUSTER_FAR = service("web", "b1", type=Type.NODE_PORT)
LOCAL_FAR = CLUSTER_FAR.replace(external_policy=LOCAL)

EXTERNAL_POLICY_CHANGES = case(
    "external-policy.changes-both-ways",
    "Cluster, Local, Cluster: new connections follow, one that is open goes on.",
    Apply(CLUSTER_FAR),
    Open(
        flow="early",
        sender=client("a"),
        to=CLUSTER_FAR.node_port("a"),
        expect=FROM_B1,
    ),
    Apply(LOCAL_FAR),
    Probe(sender=client("a"), to=LOCAL_FAR.node_port("a"), expect=DROPPED, clauses=(change.POLICY,)),
    Probe(
        sender=client("b"), to=LOCAL_FAR.node_port("b"), expect=delivered_to("b1"), clauses=(change.POLICY,)
    ),
    Probe(sender=pod("a1"), to=LOCAL_FAR.node_port("a"), expect=delivered_to("b1")),
    Send(flow="early", expect=SAME_ENDPOINT, clauses=("established.survives-policy-change",)),
    Apply(CLUSTER_FAR),
    Probe(sender=client("a"), to=CLUSTER_FAR.node_port("a"), expect=FROM_B1, clauses=(change.POLICY,)),
    Probe(sender=client("b"), to=CLUSTER_FAR.node_port("b"), expect=FROM_B1, clauses=(change.POLICY,)),
    Send(flow="early", expect=SAME_ENDPOINT, clauses=("established.survives-policy-change",)),
    clauses=LOCAL_CLAUSES
    | SILENCE
    | {
        "node-port.every-node.served",
        "masquerade.external-policy-cluster.rewritten",
        "external-policy.local.pods-reach-all-endpoints",
        "change.policy.followed",
        "established.survives-policy-change",
    },
    features=EXTERNAL,
    regressions={"R042"},
)

INSIDE_OUTLIVES_THE_POLICY = case(
    "external-policy.connections-from-inside-outlive-it",
    "Connections that a pod and a process opened under policy Local, past it, go on under Cluster and under Local again.",
    Apply(LOCAL_FAR),
    Open(flow="pod", sender=pod("a1"), to=LOCAL_FAR.node_port("a"), expect=delivered_to("b1")),
    Open(flow="process", sender=host("a"), to=LOCAL_FAR.node_port("a"), expect=FROM_B1),
    Apply(CLUSTER_FAR),
    Probe(sender=client("a"), to=CLUSTER_FAR.node_port("a"), expect=FROM_B1, clauses=(change.POLICY,)),
    Send(flow="pod", expect=SAME_ENDPOINT, clauses=("established.survives-policy-change",)),
    Send(flow="process", expect=SAME_ENDPOINT, clauses=("established.survives-policy-change",)),
    Apply(LOCAL_FAR),
    Probe(sender=client("a"), to=LOCAL_FAR.node_port("a"), expect=DROPPED, clauses=(change.POLICY,)),
    Send(flow="pod", expect=SAME_ENDPOINT, clauses=("established.survives-policy-change",)),
    Send(flow="process", expect=SAME_ENDPOINT, clauses=("established.survives-policy-change",)),
    clauses=LOCAL_CLAUSES
    | SILENCE
    | {
        "node-port.every-node.served",
        "masquerade.external-policy-cluster.rewritten",
        "external-policy.local.pods-reach-all-endpoints",
        "external-policy.local.host-reaches-all-endpoints",
        "change.policy.followed",
        "established.survives-policy-change",
    },
    features=EXTERNAL,
)

LAST_LOCAL_ENDPOINT_GOES = case(
    "external-policy.last-local-endpoint-goes-and-returns",
    "When the node's last endpoint leaves, clients outside get silence, but an open connection goes on.",
    Apply(here := service("web", "a1", "b1", type=Type.NODE_PORT, external_policy=LOCAL)),
    Open(flow="early", sender=client("a"), to=here.node_port("a"), expect=delivered_to("a1")),
    Apply(LOCAL_FAR),
    Probe(sender=client("a"), to=here.node_port("a"), expect=DROPPED, clauses=(change.ENDPOINT_REMOVED,)),
    Probe(sender=client("b"), to=here.node_port("b"), expect=delivered_to("b1")),
    Send(flow="early", expect=SAME_ENDPOINT, clauses=("established.survives-policy-change",)),
    Apply(here),
    Probe(
        sender=client("a"),
        to=here.node_port("a"),
        expect=delivered_to("a1"),
        count=6,
        clauses=(change.ENDPOINT_ADDED,),
    ),
    Send(flow="early", expect=SAME_ENDPOINT, clauses=("established.survives-policy-change",)),
    clauses=LOCAL_CLAUSES
    | SILENCE
    | {
        "change.endpoint-removed.not-used",
        "change.endpoint-added.used",
        "established.survives-policy-change",
    },
    features=EXTERNAL,
)

BARE = service(
    "bare",
    "a1",
    "a2",
    "b1",
    type=Type.LOAD_BALANCER,
    external_policy=LOCAL,
    vips=(Vip(),),
    ports=(
        Port(name="a", node_port=False),
        Port(name="b", number=53, protocol=Protocol.UDP, node_port=False),
    ),
)
BARE_AWAY = BARE.replace(name="bare-away", endpoints=BARE.endpoints[2:])
LOCAL_VIP = {
    "load-balancer.reaches-ready-endpoint",
    "load-balancer.without-node-port.served",
    "external-policy.local.local-endpoints-source-preserved",
    "protocol.udp.served",
}

WITHOUT_NODE_PORTS = case(
    "external-policy.load-balancer-without-node-ports",
    "A load balancer IP whose Service has no node ports is bound by policy Local as others are, and so are its datagrams.",
    Apply(BARE, BARE_AWAY),
    Probe(sender=client("a"), to=BARE.vip().at("a"), expect=delivered_to("a1", "a2"), spread=True),
    Probe(sender=remote("b"), to=BARE.vip().at("a"), expect=delivered_to("b1"), count=6),
    Probe(sender=client("a"), to=BARE.vip().at("b"), expect=delivered_to("a1", "a2"), spread=True),
    Probe(sender=remote("b"), to=BARE.vip().at("b"), expect=delivered_to("b1"), count=6),
    Probe(sender=client("a"), to=BARE_AWAY.vip().at("a"), expect=DROPPED),
    Probe(sender=remote("a"), to=BARE_AWAY.vip().at("b"), expect=DROPPED),
    clauses=LOCAL_VIP | SILENCE | SPREAD,
    features={Feature.EXTERNAL_TRAFFIC_POLICY, Feature.LOAD_BALANCER},
)

INSIDE_WITHOUT_NODE_PORTS = case(
    "external-policy.inside-reaches-load-balancers-without-node-ports",
    "Pods and processes of any node reach every endpoint there, the former with their own address.",
    Apply(BARE, BARE_AWAY),
    Probe(sender=pod("a3"), to=BARE.vip().at("a"), expect=delivered_to("a1", "a2", "b1"), spread=True),
    Probe(sender=pod("a3"), to=BARE_AWAY.vip().at("a"), expect=delivered_to("b1")),
    Probe(sender=pod("a3"), to=BARE_AWAY.vip().at("b"), expect=delivered_to("b1")),
    Probe(sender=host("a"), to=BARE_AWAY.vip().at("a"), expect=FROM_B1),
    Probe(sender=client("b"), to=BARE_AWAY.vip().at("a"), expect=delivered_to("b1")),
    clauses=LOCAL_VIP
    | SPREAD
    | {"external-policy.local.pods-reach-all-endpoints", "external-policy.local.host-reaches-all-endpoints"},
    features={Feature.EXTERNAL_TRAFFIC_POLICY, Feature.LOAD_BALANCER},
)

ONLY_EXTERNAL_IPS = service(
    "only-external-ips",
    "a1",
    "b1",
    "b2",
    external_policy=LOCAL,
    external_ips=1,
    ports=(Port(name="a"), Port(name="b", number=53, protocol=Protocol.UDP)),
)
ONLY_EXTERNAL_IPS_AWAY = ONLY_EXTERNAL_IPS.replace(name="away-too", endpoints=ONLY_EXTERNAL_IPS.endpoints[1:])

EXTERNAL_IPS_ALONE = case(
    "external-policy.external-ips-alone",
    "Policy Local binds the external IPs of a Service that has neither node ports nor a load balancer.",
    Apply(ONLY_EXTERNAL_IPS, ONLY_EXTERNAL_IPS_AWAY),
    Probe(sender=client("a"), to=ONLY_EXTERNAL_IPS.external_ip().at("a"), expect=delivered_to("a1"), count=8),
    Probe(
        sender=remote("b"),
        to=ONLY_EXTERNAL_IPS.external_ip().at("b"),
        expect=delivered_to("b1", "b2"),
        spread=True,
    ),
    Probe(sender=client("a"), to=ONLY_EXTERNAL_IPS_AWAY.external_ip().at("a"), expect=DROPPED),
    Probe(sender=client("a"), to=ONLY_EXTERNAL_IPS_AWAY.external_ip().at("b"), expect=DROPPED),
    Probe(
        sender=pod("a2"),
        to=ONLY_EXTERNAL_IPS_AWAY.external_ip().at("a"),
        expect=delivered_to("b1", "b2"),
        spread=True,
    ),
    Probe(
        sender=host("a"),
        to=ONLY_EXTERNAL_IPS_AWAY.external_ip().at("a"),
        expect=delivered_to("b1", "b2", source=MASQUERADED),
        spread=True,
    ),
    Probe(
        sender=pod("a2"),
        to=ONLY_EXTERNAL_IPS.cluster_ip.at("a"),
        expect=delivered_to("a1", "b1", "b2"),
        spread=True,
    ),
    clauses=POD_CLAUSES
    | SILENCE
    | SPREAD
    | {
        "external-ip.reaches-ready-endpoint",
        "external-policy.cluster-ip-exempt",
        "external-policy.local.local-endpoints-source-preserved",
        "external-policy.local.pods-reach-all-endpoints",
        "external-policy.local.host-reaches-all-endpoints",
        "protocol.udp.served",
    },
    features={Feature.EXTERNAL_TRAFFIC_POLICY, Feature.EXTERNAL_IPS},
    regressions={"R029"},
)

CASES: tuple[Case, ...] = (
    EXTERNAL_KEEPS_SOURCE,
    EXTERNAL_KEEPS_SOURCE_OF_DATAGRAMS,
    EXTERNAL_DROPS_WITHOUT_LOCAL_ENDPOINT,
    EXTERNAL_SHORTCUT_WITHOUT_LOCAL_ENDPOINT,
    EXTERNAL_SHORTCUT_BESIDE_LOCAL_ENDPOINT,
    EXTERNAL_LEAVES_CLUSTER_IP_ALONE,
    BOTH_POLICIES_LOCAL,
    EXTERNAL_HOST_NETWORK,
    POD_OF_ANOTHER_NODE,
    PODS_UNKNOWN,
    EXTERNAL_POLICY_CHANGES,
    INSIDE_OUTLIVES_THE_POLICY,
    LAST_LOCAL_ENDPOINT_GOES,
    WITHOUT_NODE_PORTS,
    INSIDE_WITHOUT_NODE_PORTS,
    EXTERNAL_IPS_ALONE,
)
