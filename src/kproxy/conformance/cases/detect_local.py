"""Cases of the topic detect-local: distinction of pods from other senders.

Only values; the vocabulary is `kproxy.conformance.case`.
"""

from __future__ import annotations

from kproxy.conformance.case import (
    DROPPED,
    MASQUERADED,
    Apply,
    Case,
    Feature,
    Policy,
    Probe,
    Type,
    Vip,
    case,
    client,
    delivered_to,
    host,
    pod,
    remote,
    service,
    spoofed,
)
from kproxy.conformance.cases.common import (
    DATAGRAMS,
    FROM_BOTH,
    HOST_CLAUSES,
    LOCAL_CLAUSES,
    POD_CLAUSES,
    SPREAD,
    UDP_PORT,
)
from kproxy.conformance.cases.profiles import BRIDGE_INTERFACE, INTERFACE_PREFIX, LOCALHOST_OFF, NODE_CIDR
from kproxy.model.network import Family

LOCAL = Policy.LOCAL
DETECT = {Feature.DETECT_LOCAL}
EXTERNAL = {Feature.NODE_PORT, Feature.EXTERNAL_TRAFFIC_POLICY}
OUTSIDE_CLAUSES = {"cluster-ip.from-outside.served", "masquerade.cluster-ip.outside-rewritten"}


WEB = service("web", "a1", "b1")
SPLIT_LOCAL = service("split", "a2", "b1", type=Type.NODE_PORT, external_policy=LOCAL)
AWAY_LOCAL = service("away", "a2", type=Type.NODE_PORT, external_policy=LOCAL)
KEPT_OR_REWRITTEN = delivered_to("a1", "b1") | FROM_BOTH


CLUSTER_CIDR_OF_ONE_FAMILY = case(
    "detect-local.cluster-cidr-of-one-family",
    "With a clusterCIDR of IPv4 only, pods are detected in IPv4; in IPv6 no client is rewritten but at "
    "external addresses.",
    Apply(
        WEB,
        near := service("near", "a1", "a2"),
        wide := service("wide", "a1", "b1", type=Type.NODE_PORT),
    ),
    Probe(sender=pod("a2"), to=WEB.cluster_ip, expect=delivered_to("a1", "b1"), spread=True),
    Probe(sender=host("a"), to=WEB.cluster_ip, expect=KEPT_OR_REWRITTEN, spread=True),
    Probe(sender=client("a"), to=near.cluster_ip, expect=delivered_to("a1", "a2"), spread=True),
    Probe(sender=client("a"), to=wide.node_port("a"), expect=FROM_BOTH, spread=True),
    clauses=SPREAD
    | {
        "cluster-ip.reaches-ready-endpoint",
        "node-port.reaches-ready-endpoint",
        "node-port.addresses.family-not-listed.served",
        "masquerade.cluster-ip.no-detector.preserved",
        "masquerade.cluster-ip.no-detector.host.either",
        "masquerade.external-policy-cluster.rewritten",
        "detect-local.cluster-cidr.per-family",
        "cluster-ip.from-outside.served",
    },
    features=DETECT | {Feature.NODE_PORT},
    profile=LOCALHOST_OFF,
    families=(Family.IPV6,),
)

CLUSTER_CIDR_OF_THE_OTHER_FAMILY = case(
    "detect-local.cluster-cidr-where-the-other-family-has-none",
    "The range of IPv4 detects IPv4's pods, whether or not IPv6 has one.",
    Apply(WEB),
    Probe(sender=pod("a2"), to=WEB.cluster_ip, expect=delivered_to("a1", "b1"), spread=True),
    Probe(sender=host("a"), to=WEB.cluster_ip, expect=FROM_BOTH, spread=True),
    Probe(sender=client("a"), to=WEB.cluster_ip, expect=FROM_BOTH, spread=True),
    clauses=POD_CLAUSES | HOST_CLAUSES | OUTSIDE_CLAUSES | SPREAD,
    features=DETECT,
    profile=LOCALHOST_OFF,
    families=(Family.IPV4,),
)

NODE_CIDR_DETECTS_PODS = case(
    "detect-local.node-cidr",
    "Pods are those of the node's own range: one of another node is a client outside.",
    Apply(WEB, SPLIT_LOCAL, AWAY_LOCAL),
    Probe(sender=pod("a2"), to=WEB.cluster_ip, expect=delivered_to("a1", "b1"), spread=True),
    Probe(sender=host("a"), to=WEB.cluster_ip, expect=FROM_BOTH, spread=True),
    Probe(sender=remote("b"), to=WEB.cluster_ip, expect=FROM_BOTH, spread=True),
    Probe(sender=pod("b2"), to=SPLIT_LOCAL.node_port("b"), expect=delivered_to("a2", "b1"), spread=True),
    Probe(sender=pod("a1"), to=SPLIT_LOCAL.node_port("b"), expect=delivered_to("b1"), count=8),
    Probe(sender=pod("a1"), to=AWAY_LOCAL.node_port("b"), expect=DROPPED),
    clauses=POD_CLAUSES
    | HOST_CLAUSES
    | OUTSIDE_CLAUSES
    | LOCAL_CLAUSES
    | SPREAD
    | {
        "detect-local.node-cidr",
        "external-policy.local.pods-reach-all-endpoints",
        "external-policy.local.drop-without-local-endpoint",
        "node-port.other-node.untouched",
    },
    features=DETECT | EXTERNAL,
    profile=NODE_CIDR,
)

PREFIX_DETECTS_PODS = case(
    "detect-local.interface-name-prefix",
    "Pods are those whose packets enter by an interface of the prefix; the node and all others are not.",
    Apply(WEB, SPLIT_LOCAL, AWAY_LOCAL),
    Probe(sender=pod("a2"), to=WEB.cluster_ip, expect=delivered_to("a1", "b1"), spread=True),
    Probe(sender=host("a"), to=WEB.cluster_ip, expect=FROM_BOTH, spread=True),
    Probe(sender=client("a"), to=WEB.cluster_ip, expect=FROM_BOTH, spread=True),
    Probe(sender=pod("b2"), to=SPLIT_LOCAL.node_port("b"), expect=delivered_to("a2", "b1"), spread=True),
    Probe(sender=pod("a1"), to=SPLIT_LOCAL.node_port("b"), expect=delivered_to("b1"), count=8),
    Probe(sender=pod("a1"), to=AWAY_LOCAL.node_port("b"), expect=DROPPED),
    clauses=POD_CLAUSES
    | HOST_CLAUSES
    | OUTSIDE_CLAUSES
    | LOCAL_CLAUSES
    | SPREAD
    | {
        "detect-local.interface-name-prefix",
        "external-policy.local.pods-reach-all-endpoints",
        "external-policy.local.drop-without-local-endpoint",
        "node-port.other-node.untouched",
    },
    features=DETECT | EXTERNAL,
    regressions={"R075"},
    profile=INTERFACE_PREFIX,
)

BRIDGE_DETECTS_PODS = case(
    "detect-local.bridge-interface",
    "Pods are those behind the interface named, a1 alone; its neighbours and the node are outside.",
    Apply(
        far := service("far", "a3", "b1"),
        wide := service("wide", "a3", "b1", type=Type.LOAD_BALANCER, external_policy=LOCAL, vips=(Vip(),)),
    ),
    Probe(sender=pod("a1"), to=far.cluster_ip, expect=delivered_to("a3", "b1"), spread=True),
    Probe(
        sender=pod("a2"),
        to=far.cluster_ip,
        expect=delivered_to("a3", "b1", source=MASQUERADED),
        spread=True,
    ),
    Probe(
        sender=host("a"),
        to=far.cluster_ip,
        expect=delivered_to("a3", "b1", source=MASQUERADED),
        spread=True,
    ),
    Probe(sender=pod("a1"), to=wide.vip(), expect=delivered_to("a3", "b1"), spread=True),
    Probe(sender=pod("a2"), to=wide.vip(), expect=delivered_to("a3"), count=8),
    clauses=POD_CLAUSES
    | HOST_CLAUSES
    | OUTSIDE_CLAUSES
    | SPREAD
    | {
        "load-balancer.reaches-ready-endpoint",
        "detect-local.bridge-interface",
        "external-policy.local.pods-reach-all-endpoints",
        "external-policy.local.local-endpoints-source-preserved",
    },
    features=DETECT | EXTERNAL | {Feature.LOAD_BALANCER},
    profile=BRIDGE_INTERFACE,
)

# ------------------------------------------------------------------- senders whose address is not their own

NAMES = service("names", "a3", "b1", ports=UDP_PORT)
ON_EITHER = delivered_to("a3", "b1")
FROM_EITHER = delivered_to("a3", "b1", source=MASQUERADED)

SPOOFED_CLAUSES = {
    "cluster-ip.reaches-ready-endpoint",
    "cluster-ip.from-outside.served",
    "masquerade.cluster-ip.outside-rewritten",
}


POD_ADDRESS_FROM_OUTSIDE = case(
    "detect-local.pod-address-from-outside",
    "Where pods are detected by their range, a source of it is a pod, though it comes in from outside.",
    Apply(NAMES),
    Probe(sender=spoofed("b2", via="a"), to=NAMES.cluster_ip, expect=ON_EITHER),
    Probe(sender=spoofed("a2", via="a"), to=NAMES.cluster_ip, expect=ON_EITHER),
    Probe(sender=client("a"), to=NAMES.cluster_ip, expect=FROM_EITHER),
    clauses=POD_CLAUSES | SPOOFED_CLAUSES | DATAGRAMS | {"detect-local.cluster-cidr"},
    features={Feature.DETECT_LOCAL},
)

POD_ADDRESS_FROM_ANOTHER_NODE = case(
    "detect-local.pod-address-of-another-node",
    "Where pods are detected by the node's own range, a source of another node's range is a client outside.",
    Apply(NAMES),
    Probe(sender=spoofed("b2", via="a"), to=NAMES.cluster_ip, expect=FROM_EITHER),
    Probe(sender=spoofed("a2", via="a"), to=NAMES.cluster_ip, expect=ON_EITHER),
    Probe(sender=pod("a1"), to=NAMES.cluster_ip, expect=ON_EITHER),
    clauses=POD_CLAUSES | SPOOFED_CLAUSES | DATAGRAMS | {"detect-local.node-cidr"},
    features={Feature.DETECT_LOCAL},
    profile=NODE_CIDR,
)

POD_ADDRESS_BY_A_WRONG_INTERFACE = case(
    "detect-local.pod-address-by-no-pods-interface",
    "Where pods are detected by interfaces' names, a pod's address that comes in by the uplink is a "
    "client's outside.",
    Apply(NAMES),
    Probe(sender=spoofed("a2", via="a"), to=NAMES.cluster_ip, expect=FROM_EITHER),
    Probe(sender=pod("a2"), to=NAMES.cluster_ip, expect=ON_EITHER),
    clauses=POD_CLAUSES | SPOOFED_CLAUSES | DATAGRAMS | {"detect-local.interface-name-prefix"},
    features={Feature.DETECT_LOCAL},
    profile=INTERFACE_PREFIX,
)

POD_ADDRESS_PAST_THE_BRIDGE = case(
    "detect-local.pod-address-past-the-bridge",
    "Where pods are detected by a bridge, a pod's address that does not come in by it is a client's outside.",
    Apply(NAMES),
    Probe(sender=spoofed("a1", via="a"), to=NAMES.cluster_ip, expect=FROM_EITHER),
    Probe(sender=pod("a1"), to=NAMES.cluster_ip, expect=ON_EITHER),
    clauses=POD_CLAUSES | SPOOFED_CLAUSES | DATAGRAMS | {"detect-local.bridge-interface"},
    features={Feature.DETECT_LOCAL},
    profile=BRIDGE_INTERFACE,
)

CASES: tuple[Case, ...] = (
    CLUSTER_CIDR_OF_ONE_FAMILY,
    CLUSTER_CIDR_OF_THE_OTHER_FAMILY,
    NODE_CIDR_DETECTS_PODS,
    PREFIX_DETECTS_PODS,
    BRIDGE_DETECTS_PODS,
    POD_ADDRESS_FROM_OUTSIDE,
    POD_ADDRESS_FROM_ANOTHER_NODE,
    POD_ADDRESS_BY_A_WRONG_INTERFACE,
    POD_ADDRESS_PAST_THE_BRIDGE,
)
