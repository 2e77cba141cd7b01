"""Cases of the topic masquerade: the source address that an endpoint sees, hairpin included.

Only values; the vocabulary is `kproxy.conformance.case`.
"""

from __future__ import annotations

from kproxy.conformance.case import (
    MASQUERADED,
    SAME_ENDPOINT,
    UNTOUCHED,
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
    endpoint_target,
    host,
    pod,
    remote,
    service,
)
from kproxy.conformance.cases.common import (
    ANYWHERE,
    DATAGRAMS,
    FROM_B1,
    FROM_BOTH,
    HOST_CLAUSES,
    LOCAL_CLAUSES,
    NODE_PORT_CLAUSES,
    POD_CLAUSES,
    SPREAD,
    UDP_PORT,
)
from kproxy.conformance.cases.profiles import LIBERAL, MASQUERADE_ALL, NO_DETECTOR

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
    Probe(sender=pod("a2"), to=endpoint_target(WEB, "a1"), expect=UNTOUCHED),
    Probe(sender=pod("a2"), to=endpoint_target(WEB, "b1"), expect=UNTOUCHED),
    Probe(sender=pod("b2"), to=endpoint_target(DNS, "a1"), expect=UNTOUCHED),
    Probe(sender=host("a"), to=endpoint_target(WEB, "b1"), expect=UNTOUCHED),
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
    Probe(sender=pod("a2"), to=endpoint_target(WEB, "b1"), expect=UNTOUCHED),
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

# ------------------------------------------------------------------- marks and addresses of a node

FOREIGN_BIT = 0x100000
DEFAULT_BIT = 0x4000
"""The bit of masqueradeBit 14, which is another proxy's where this one has another."""

REMOTE = service("web", "b1", type=Type.NODE_PORT)
NAMES = service("names", "b1", ports=UDP_PORT)
KEPT, CLEARED = "masquerade.foreign-mark-bits.kept", "masquerade.own-mark.cleared"

MARKS_OF_OTHERS = case(
    "masquerade.marks-of-others",
    "A mark that a process of the node sets is on its packets when they leave rewritten, and the proxy's own is not.",
    Apply(REMOTE, NAMES),
    Probe(sender=host("a"), to=REMOTE.cluster_ip, expect=FROM_B1, mark=FOREIGN_BIT, clauses=(KEPT, CLEARED)),
    Probe(sender=host("a"), to=NAMES.cluster_ip, expect=FROM_B1, mark=FOREIGN_BIT, clauses=(KEPT, CLEARED)),
    Probe(
        sender=host("a"), to=REMOTE.node_port("a"), expect=FROM_B1, mark=FOREIGN_BIT, clauses=(KEPT, CLEARED)
    ),
    clauses=HOST_CLAUSES | NODE_PORT_CLAUSES | DATAGRAMS | {"node-port.every-node.served", KEPT, CLEARED},
    features={Feature.NODE_PORT},
    regressions={"R076", "R077"},
)

BIT_OF_ANOTHER_PROXY = case(
    "masquerade.bit-is-configured",
    "With another masqueradeBit, the usual one is a foreign bit like others.",
    Apply(REMOTE),
    Probe(
        sender=host("a"),
        to=REMOTE.cluster_ip,
        expect=FROM_B1,
        mark=FOREIGN_BIT | DEFAULT_BIT,
        clauses=(KEPT, CLEARED),
    ),
    clauses=HOST_CLAUSES | {KEPT, CLEARED},
    regressions={"R077"},
    profile=LIBERAL,
)

# ------------------------------------------------------------------- source ports

REMOTE_DNS = service("dns", "b1", type=Type.LOAD_BALANCER, ports=UDP_PORT, vips=(Vip(),))
APART = "masquerade.same-source-ports.kept-apart"

CLIENTS_WITH_ONE_SOURCE_PORT = case(
    "masquerade.clients-with-one-source-port",
    "Two clients outside that use one source port reach one endpoint through one node, and neither disturbs the other.",
    Apply(REMOTE, REMOTE_DNS),
    Open(
        flow="tcp-near",
        sender=client("a"),
        to=REMOTE.node_port("a"),
        expect=FROM_B1,
        from_port_of=REMOTE.node_port("a"),
    ),
    Open(
        flow="tcp-far",
        sender=remote("a"),
        to=REMOTE.node_port("a"),
        expect=FROM_B1,
        from_port_of=REMOTE.node_port("a"),
    ),
    Open(
        flow="udp-near",
        sender=client("a"),
        to=REMOTE_DNS.node_port("a"),
        expect=FROM_B1,
        from_port_of=REMOTE_DNS.node_port("a"),
    ),
    Open(
        flow="udp-far",
        sender=remote("a"),
        to=REMOTE_DNS.node_port("a"),
        expect=FROM_B1,
        from_port_of=REMOTE_DNS.node_port("a"),
    ),
    Send(flow="tcp-near", expect=SAME_ENDPOINT, clauses=(APART,)),
    Send(flow="tcp-far", expect=SAME_ENDPOINT, clauses=(APART,)),
    Send(flow="udp-near", expect=SAME_ENDPOINT, clauses=(APART,)),
    Send(flow="udp-far", expect=SAME_ENDPOINT, clauses=(APART,)),
    clauses=NODE_PORT_CLAUSES | ANYWHERE | DATAGRAMS | {APART},
    features={Feature.NODE_PORT, Feature.LOAD_BALANCER},
    regressions={"R017"},
)

SOURCE_PORTS_ARE_REDRAWN = case(
    "masquerade.source-ports-are-redrawn",
    "Endpoints see other source ports than the clients' own in connections that are rewritten.",
    Apply(REMOTE, REMOTE_DNS),
    Probe(
        sender=client("a"),
        to=REMOTE.node_port("a"),
        expect=FROM_B1,
        count=6,
        source_port_changed=True,
        clauses=("masquerade.source-ports.redrawn",),
    ),
    Probe(
        sender=remote("a"),
        to=REMOTE_DNS.node_port("a"),
        expect=FROM_B1,
        count=6,
        source_port_changed=True,
        clauses=("masquerade.source-ports.redrawn",),
    ),
    clauses=NODE_PORT_CLAUSES | ANYWHERE | DATAGRAMS | {"masquerade.source-ports.redrawn"},
    features={Feature.NODE_PORT, Feature.LOAD_BALANCER},
    regressions={"R017"},
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
    MARKS_OF_OTHERS,
    BIT_OF_ANOTHER_PROXY,
    CLIENTS_WITH_ONE_SOURCE_PORT,
    SOURCE_PORTS_ARE_REDRAWN,
)
