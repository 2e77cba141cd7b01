"""Cases of the topic masquerade: the source address that an endpoint sees, hairpin included.

Only values; the vocabulary is `kproxy.conformance.case`.
"""

from __future__ import annotations

from kproxy.conformance.case import (
    MASQUERADED,
    UNTOUCHED,
    Apply,
    Case,
    Feature,
    Policy,
    Probe,
    Type,
    Vip,
    backend_target,
    case,
    client,
    delivered_to,
    host,
    pod,
    remote,
    service,
)
from kproxy.conformance.cases.common import FROM_B1, FROM_BOTH, LOCAL_CLAUSES, POD_CLAUSES, SPREAD, UDP_PORT
from kproxy.conformance.cases.profiles import (
    MASQUERADE_ALL,
    NO_DETECTOR,
)

LOCAL = Policy.LOCAL
DETECT = {Feature.DETECT_LOCAL}
EXTERNAL = {Feature.NODE_PORT, Feature.EXTERNAL_TRAFFIC_POLICY}


EVERY_KIND = {
    "cluster-ip.reaches-ready-endpoint",
    "node-port.reaches-ready-endpoint",
    "load-balancer.reaches-ready-endpoint",
    "external-ip.reaches-ready-endpoint",
}

HAIRPIN = {"masquerade.hairpin.rewritten"}
SELF = delivered_to("a1", source=MASQUERADED)
SELF_OR_OTHER = SELF | delivered_to("b1")
WEB = service("web", "a1", "b1")
DNS = service("dns", "a1", "b1", ports=UDP_PORT)
OPEN = service("open", "a1", type=Type.LOAD_BALANCER, vips=(Vip(),), external_ips=1)
BOTH_LOCAL = service("both", "a1", "b1", type=Type.LOAD_BALANCER, external_policy=LOCAL, vips=(Vip(),))

HAIRPIN_AT_EVERY_ADDRESS = case(
    "masquerade.hairpin-at-every-address",
    "The only endpoint reaches itself at every address of its Service, and sees another source than its own.",
    Apply(OPEN, names := service("names", "a1", ports=UDP_PORT)),
    Probe(sender=pod("a1"), to=OPEN.cluster_ip, expect=SELF),
    Probe(sender=pod("a1"), to=OPEN.node_port("a"), expect=SELF),
    Probe(sender=pod("a1"), to=OPEN.vip(), expect=SELF),
    Probe(sender=pod("a1"), to=OPEN.external_ip(), expect=SELF),
    Probe(sender=pod("a1"), to=names.cluster_ip, expect=SELF),
    Probe(sender=pod("a2"), to=OPEN.cluster_ip, expect=delivered_to("a1")),
    clauses=EVERY_KIND
    | HAIRPIN
    | {
        "protocol.udp.served",
        "masquerade.cluster-ip.pod-source-preserved",
        "masquerade.external-policy-cluster.rewritten",
    },
    features={Feature.NODE_PORT, Feature.LOAD_BALANCER, Feature.EXTERNAL_IPS},
    regressions={"R074"},
)

HAIRPIN_ONLY_TO_ITSELF = case(
    "masquerade.hairpin-only-to-itself",
    "An endpoint that reaches another one is not rewritten, one that reaches itself is.",
    Apply(WEB, DNS),
    Probe(sender=pod("a1"), to=WEB.cluster_ip, expect=SELF_OR_OTHER, spread=True),
    Probe(sender=pod("b1"), to=DNS.cluster_ip, expect=delivered_to("a1") | FROM_B1, spread=True),
    clauses=POD_CLAUSES | HAIRPIN | SPREAD | {"protocol.udp.served"},
    regressions={"R074"},
)

HAIRPIN_UNDER_LOCAL_POLICY = case(
    "masquerade.hairpin-under-local-policy",
    "An endpoint that reaches itself is rewritten under external policy Local, which keeps pods' sources.",
    Apply(BOTH_LOCAL),
    Probe(sender=pod("a1"), to=BOTH_LOCAL.vip(), expect=SELF_OR_OTHER, spread=True),
    Probe(sender=pod("a1"), to=BOTH_LOCAL.node_port("a"), expect=SELF_OR_OTHER, spread=True),
    Probe(sender=pod("a2"), to=BOTH_LOCAL.vip(), expect=delivered_to("a1", "b1"), spread=True),
    clauses=HAIRPIN
    | SPREAD
    | {
        "node-port.reaches-ready-endpoint",
        "load-balancer.reaches-ready-endpoint",
        "external-policy.local.pods-reach-all-endpoints",
    },
    features=EXTERNAL | {Feature.LOAD_BALANCER},
    regressions={"R074"},
)

DIRECT_TRAFFIC_KEEPS_ITS_SOURCE = case(
    "masquerade.direct-traffic-keeps-its-source",
    "What goes to a pod's own address is not rewritten, though the pod is an endpoint.",
    Apply(WEB, DNS),
    Probe(sender=pod("a2"), to=backend_target(WEB, "a1"), expect=UNTOUCHED),
    Probe(sender=pod("a2"), to=backend_target(WEB, "b1"), expect=UNTOUCHED),
    Probe(sender=pod("b2"), to=backend_target(DNS, "a1"), expect=UNTOUCHED),
    Probe(sender=host("a"), to=backend_target(WEB, "b1"), expect=UNTOUCHED),
    Probe(sender=pod("a2"), to=WEB.cluster_ip, expect=delivered_to("a1", "b1"), spread=True),
    clauses=POD_CLAUSES | SPREAD | {"traffic.not-for-a-service.untouched"},
)

ALL_REWRITES_CLUSTER_IPS = case(
    "masquerade.all-rewrites-cluster-ips",
    "With masqueradeAll every client of a cluster IP is rewritten, pods included.",
    Apply(WEB, DNS),
    Probe(sender=pod("a2"), to=WEB.cluster_ip, expect=FROM_BOTH, spread=True),
    Probe(sender=pod("b2"), to=DNS.cluster_ip, expect=FROM_BOTH, spread=True),
    Probe(sender=host("a"), to=WEB.cluster_ip, expect=FROM_BOTH, spread=True),
    Probe(sender=client("b"), to=WEB.cluster_ip, expect=FROM_BOTH, spread=True),
    Probe(sender=pod("a2"), to=backend_target(WEB, "b1"), expect=UNTOUCHED),
    clauses=SPREAD
    | {
        "cluster-ip.reaches-ready-endpoint",
        "cluster-ip.from-outside.served",
        "protocol.udp.served",
        "masquerade.all.cluster-ip-rewritten",
        "traffic.not-for-a-service.untouched",
    },
    features={Feature.MASQUERADE_ALL},
    profile=MASQUERADE_ALL,
)

ALL_SPARES_LOCAL_POLICY = case(
    "masquerade.all-spares-external-policy-local",
    "What external policy Local keeps, masqueradeAll does not rewrite.",
    Apply(BOTH_LOCAL),
    Probe(sender=client("a"), to=BOTH_LOCAL.node_port("a"), expect=delivered_to("a1"), count=6),
    Probe(sender=remote("b"), to=BOTH_LOCAL.vip(), expect=delivered_to("b1"), count=6),
    Probe(sender=pod("a2"), to=BOTH_LOCAL.vip(), expect=delivered_to("a1", "b1"), spread=True),
    clauses=LOCAL_CLAUSES
    | SPREAD
    | {
        "load-balancer.reaches-ready-endpoint",
        "external-policy.local.pods-reach-all-endpoints",
        "masquerade.all.external-local-exempt",
    },
    features=EXTERNAL | {Feature.LOAD_BALANCER, Feature.MASQUERADE_ALL},
    profile=MASQUERADE_ALL,
)

KEPT_OR_REWRITTEN = delivered_to("a1", "b1") | FROM_BOTH

NOBODY_IS_REWRITTEN_WITHOUT_DETECTOR = case(
    "masquerade.cluster-ip-unchanged-where-pods-are-unknown",
    "Where pods cannot be detected, cluster IP traffic keeps its source if the node itself does not send "
    "it; a hairpin is rewritten still.",
    Apply(WEB, near := service("near", "a1", "a2")),
    Probe(sender=pod("a2"), to=WEB.cluster_ip, expect=delivered_to("a1", "b1"), spread=True),
    Probe(sender=pod("a1"), to=WEB.cluster_ip, expect=SELF_OR_OTHER, spread=True),
    Probe(sender=host("a"), to=WEB.cluster_ip, expect=KEPT_OR_REWRITTEN, spread=True),
    Probe(sender=client("a"), to=near.cluster_ip, expect=delivered_to("a1", "a2"), spread=True),
    Probe(sender=remote("a"), to=near.cluster_ip, expect=delivered_to("a1", "a2"), spread=True),
    clauses=HAIRPIN
    | SPREAD
    | {
        "cluster-ip.reaches-ready-endpoint",
        "cluster-ip.from-outside.served",
        "masquerade.cluster-ip.no-detector.preserved",
        "masquerade.cluster-ip.no-detector.host.either",
    },
    features=DETECT,
    profile=NO_DETECTOR,
)

EXTERNAL_ADDRESSES_WITHOUT_DETECTOR = case(
    "masquerade.external-policy-needs-no-detector",
    "Under external policy Cluster every client is rewritten, whether or not pods can be detected.",
    Apply(wide := service("wide", "a1", "b1", type=Type.NODE_PORT)),
    Probe(sender=client("a"), to=wide.node_port("a"), expect=FROM_BOTH, spread=True),
    Probe(sender=pod("b2"), to=wide.node_port("b"), expect=FROM_BOTH, spread=True),
    clauses=SPREAD | {"node-port.reaches-ready-endpoint", "masquerade.external-policy-cluster.rewritten"},
    features=DETECT | {Feature.NODE_PORT},
    profile=NO_DETECTOR,
)

CASES: tuple[Case, ...] = (
    HAIRPIN_AT_EVERY_ADDRESS,
    HAIRPIN_ONLY_TO_ITSELF,
    HAIRPIN_UNDER_LOCAL_POLICY,
    DIRECT_TRAFFIC_KEEPS_ITS_SOURCE,
    ALL_REWRITES_CLUSTER_IPS,
    ALL_SPARES_LOCAL_POLICY,
    NOBODY_IS_REWRITTEN_WITHOUT_DETECTOR,
    EXTERNAL_ADDRESSES_WITHOUT_DETECTOR,
)
