"""Cases on what few clients send and all depend on: errors, pings, ports used again, one direction only.

Only values; the vocabulary is `kproxy.conformance.case`.
"""

from __future__ import annotations

from kproxy.conformance.case import (
    MASQUERADED,
    REJECTED,
    RESET,
    STILL,
    UNTOUCHED,
    Apply,
    Case,
    Deafen,
    Feature,
    Hold,
    OutOfWindow,
    Ping,
    Policy,
    Port,
    Probe,
    ReadSysctl,
    Reopen,
    Type,
    Use,
    Vip,
    backend_of,
    case,
    client,
    delivered_to,
    host,
    pod,
    remote,
    service,
)
from kproxy.conformance.cases.profiles import LIBERAL
from kproxy.net import Protocol

UDP_PORT = (Port(number=53, protocol=Protocol.UDP),)

WEB = service("web", "b1", type=Type.NODE_PORT)
DNS = service("dns", "b1", type=Type.LOAD_BALANCER, ports=UDP_PORT, vips=(Vip(),))
ON_B1 = delivered_to("b1")
FROM_B1 = delivered_to("b1", source=MASQUERADED)

POD_CLAUSES = {"cluster-ip.reaches-ready-endpoint", "masquerade.cluster-ip.pod-source-preserved"}
HOST_CLAUSES = {"cluster-ip.reaches-ready-endpoint", "masquerade.cluster-ip.host-rewritten"}
NODE_PORT_CLAUSES = {"node-port.reaches-ready-endpoint", "masquerade.external-policy-cluster.rewritten"}
LOCAL_CLAUSES = {
    "node-port.reaches-ready-endpoint",
    "external-policy.local.local-endpoints-source-preserved",
}
ANYWHERE = {"node-port.every-node.served"}
DATAGRAMS = {"protocol.udp.served"}
SPREAD = {"balancing.every-endpoint-chosen"}

# ------------------------------------------------------------------- errors

ERRORS = "icmp.errors.translated-back"

REFUSAL_BY_THE_ENDPOINT = case(
    "icmp.refusal-by-the-endpoint",
    "What an endpoint's own kernel refuses, the client hears of as from the address that it asked; at every address.",
    Apply(DNS, beside := service("beside", "b1", ports=UDP_PORT)),
    Hold(flow="pod", sender=pod("a2"), to=DNS.cluster_ip, expect=ON_B1),
    Hold(flow="node", sender=host("a"), to=DNS.cluster_ip, expect=FROM_B1),
    Hold(flow="outside", sender=client("a"), to=DNS.node_port("a"), expect=FROM_B1),
    Hold(flow="routed", sender=remote("a"), to=DNS.vip(), expect=FROM_B1),
    Hold(flow="beside", sender=pod("a2"), to=beside.cluster_ip, expect=ON_B1),
    Deafen(flow="pod"),
    Use(flow="pod", expect=REJECTED, clauses=(ERRORS,)),
    Use(flow="node", expect=REJECTED, clauses=(ERRORS,)),
    Use(flow="outside", expect=REJECTED, clauses=(ERRORS,)),
    Use(flow="routed", expect=REJECTED, clauses=(ERRORS,)),
    Use(flow="beside", expect=STILL),
    clauses=POD_CLAUSES
    | HOST_CLAUSES
    | NODE_PORT_CLAUSES
    | ANYWHERE
    | DATAGRAMS
    | {"load-balancer.reaches-ready-endpoint", ERRORS},
    features={Feature.NODE_PORT, Feature.LOAD_BALANCER},
)

LARGE_ANSWERS_OVER_A_NARROW_LINK = case(
    "icmp.large-answers-over-a-narrow-link",
    "When a router beyond the node finds answers too large, its error reaches the endpoint, rewritten or not: they pass.",
    Apply(
        wide := service("wide", "a1", "b1", type=Type.NODE_PORT),
        near := service("near", "a1", "b1", type=Type.NODE_PORT, external_policy=Policy.LOCAL),
    ),
    Probe(
        sender=remote("a"),
        to=wide.node_port("a"),
        expect=delivered_to("a1", "b1", source=MASQUERADED),
        spread=True,
        oversize=9000,
        clauses=(ERRORS,),
    ),
    Probe(
        sender=remote("a"),
        to=near.node_port("a"),
        expect=delivered_to("a1"),
        oversize=9000,
        clauses=(ERRORS,),
    ),
    clauses=NODE_PORT_CLAUSES | LOCAL_CLAUSES | SPREAD | {ERRORS, "payload.large.passes"},
    features={Feature.NODE_PORT, Feature.EXTERNAL_TRAFFIC_POLICY},
    regressions={"R123"},
)

PINGS = case(
    "icmp.pings",
    "A ping to an address of a Service is refused, or goes where routing takes it; the node does not answer it.",
    Apply(DNS, outer := service("outer", "b1", external_ips=1)),
    Ping(sender=client("a"), to=outer.external_ip(), expect=REJECTED | UNTOUCHED),
    Ping(sender=pod("a2"), to=DNS.cluster_ip, expect=REJECTED | UNTOUCHED),
    Ping(sender=host("a"), to=DNS.cluster_ip, expect=REJECTED | UNTOUCHED),
    Ping(sender=client("a"), to=DNS.cluster_ip, expect=REJECTED | UNTOUCHED),
    Ping(sender=pod("a2"), to=DNS.vip(), expect=REJECTED | UNTOUCHED),
    Ping(sender=client("b"), to=DNS.vip(), expect=REJECTED | UNTOUCHED),
    Probe(sender=pod("a2"), to=DNS.cluster_ip, expect=ON_B1),
    clauses=POD_CLAUSES | DATAGRAMS | {"icmp.ping.refused-or-routed"},
    features={Feature.LOAD_BALANCER, Feature.EXTERNAL_IPS},
    regressions={"R051"},
)

# ------------------------------------------------------------------- ports

APART = "masquerade.same-source-ports.kept-apart"

CLIENTS_WITH_ONE_SOURCE_PORT = case(
    "masquerade.clients-with-one-source-port",
    "Two clients outside that use one source port reach one endpoint through one node, and neither disturbs the other.",
    Apply(WEB, DNS),
    Hold(
        flow="tcp-near",
        sender=client("a"),
        to=WEB.node_port("a"),
        expect=FROM_B1,
        from_port_of=WEB.node_port("a"),
    ),
    Hold(
        flow="tcp-far",
        sender=remote("a"),
        to=WEB.node_port("a"),
        expect=FROM_B1,
        from_port_of=WEB.node_port("a"),
    ),
    Hold(
        flow="udp-near",
        sender=client("a"),
        to=DNS.node_port("a"),
        expect=FROM_B1,
        from_port_of=DNS.node_port("a"),
    ),
    Hold(
        flow="udp-far",
        sender=remote("a"),
        to=DNS.node_port("a"),
        expect=FROM_B1,
        from_port_of=DNS.node_port("a"),
    ),
    Use(flow="tcp-near", expect=STILL, clauses=(APART,)),
    Use(flow="tcp-far", expect=STILL, clauses=(APART,)),
    Use(flow="udp-near", expect=STILL, clauses=(APART,)),
    Use(flow="udp-far", expect=STILL, clauses=(APART,)),
    clauses=NODE_PORT_CLAUSES | ANYWHERE | DATAGRAMS | {APART},
    features={Feature.NODE_PORT, Feature.LOAD_BALANCER},
    regressions={"R017"},
)

SOURCE_PORTS_ARE_REDRAWN = case(
    "masquerade.source-ports-are-redrawn",
    "Endpoints see other source ports than the clients' own in connections that are rewritten.",
    Apply(WEB, DNS),
    Probe(
        sender=client("a"),
        to=WEB.node_port("a"),
        expect=FROM_B1,
        count=6,
        redrawn=True,
        clauses=("masquerade.source-ports.redrawn",),
    ),
    Probe(
        sender=remote("a"),
        to=DNS.node_port("a"),
        expect=FROM_B1,
        count=6,
        redrawn=True,
        clauses=("masquerade.source-ports.redrawn",),
    ),
    clauses=NODE_PORT_CLAUSES | ANYWHERE | DATAGRAMS | {"masquerade.source-ports.redrawn"},
    features={Feature.NODE_PORT, Feature.LOAD_BALANCER},
    regressions={"R017"},
)

OWN = "node-port.number-as-source.untouched"

NODE_SENDS_FROM_A_NODE_PORT = case(
    "node-port.node-sends-from-its-number",
    "A process of the node, and a pod, may send from the number of a node port, and get their answers.",
    Apply(WEB, DNS, direct := service("direct", "b2", ports=UDP_PORT)),
    Probe(
        sender=host("a"),
        to=backend_of(direct, "b2"),
        expect=UNTOUCHED,
        from_port_of=DNS.node_port("a"),
        clauses=(OWN,),
    ),
    Probe(
        sender=host("b"),
        to=backend_of(WEB, "b1"),
        expect=UNTOUCHED,
        from_port_of=WEB.node_port("b"),
        clauses=(OWN,),
    ),
    Probe(
        sender=pod("a2"),
        to=backend_of(WEB, "b1"),
        expect=UNTOUCHED,
        from_port_of=WEB.node_port("b"),
        clauses=(OWN,),
    ),
    Probe(sender=client("a"), to=WEB.node_port("a"), expect=FROM_B1),
    clauses=NODE_PORT_CLAUSES | ANYWHERE | {"traffic.not-for-a-service.untouched", OWN},
    features={Feature.NODE_PORT, Feature.LOAD_BALANCER},
    regressions={"R070"},
)

AGAIN = "established.port-used-again.follows"

PORT_IS_USED_AGAIN = case(
    "established.port-is-used-again",
    "Clients that connect again from the same port after their endpoint was replaced reach the new one.",
    Apply(old := service("web", "a1", type=Type.NODE_PORT), STAYING := service("staying", "b2")),
    Hold(flow="pod", sender=pod("b2"), to=old.cluster_ip, expect=delivered_to("a1")),
    Hold(flow="node", sender=host("a"), to=old.cluster_ip, expect=delivered_to("a1", source=MASQUERADED)),
    Hold(
        flow="outside",
        sender=client("a"),
        to=old.node_port("a"),
        expect=delivered_to("a1", source=MASQUERADED),
    ),
    Hold(flow="staying", sender=pod("a2"), to=STAYING.cluster_ip, expect=delivered_to("b2")),
    Apply(WEB),
    Reopen(flow="pod", expect=ON_B1, clauses=(AGAIN,)),
    Reopen(flow="node", expect=FROM_B1, clauses=(AGAIN,)),
    Reopen(flow="outside", expect=FROM_B1, clauses=(AGAIN,)),
    Reopen(flow="staying", expect=delivered_to("b2"), clauses=(AGAIN,)),
    Probe(sender=pod("b2"), to=WEB.cluster_ip, expect=ON_B1),
    clauses=POD_CLAUSES | HOST_CLAUSES | NODE_PORT_CLAUSES | {"change.endpoint-removed.not-used", AGAIN},
    features={Feature.NODE_PORT},
    regressions={"R083", "R087"},
)

DEAD_ENDPOINT_RESETS = case(
    "established.dead-endpoint-resets",
    "A connection to an endpoint that listens no more is reset, and not refused: the proxy knows nothing of it.",
    Apply(lone := service("lone", "b1", type=Type.NODE_PORT)),
    Hold(flow="pod", sender=pod("a2"), to=lone.cluster_ip, expect=ON_B1),
    Hold(flow="outside", sender=client("a"), to=lone.node_port("a"), expect=FROM_B1),
    Deafen(flow="pod"),
    Reopen(flow="pod", expect=RESET, clauses=(AGAIN,)),
    Reopen(flow="outside", expect=RESET, clauses=(AGAIN,)),
    clauses=POD_CLAUSES | NODE_PORT_CLAUSES | ANYWHERE | {AGAIN},
    features={Feature.NODE_PORT},
)

# ------------------------------------------------------------------- invalid, and one direction only

NOT_LEAKED = "conntrack.invalid-not-leaked"
LIBERAL_SET = "conntrack.liberal.set"
ONE_WAY = "conntrack.one-direction.passes"

INVALID_SEGMENT_TO_THE_NODE = case(
    "conntrack.invalid-segment-is-not-leaked-to-the-node",
    "A segment outside the window does not reach a process of the node untranslated: its connection lives on.",
    Apply(far := service("far", "b1"), near := service("near", "a1")),
    Hold(flow="far", sender=host("a"), to=far.cluster_ip, expect=FROM_B1),
    Hold(flow="near", sender=host("a"), to=near.cluster_ip, expect=delivered_to("a1", source=MASQUERADED)),
    OutOfWindow(flow="far"),
    OutOfWindow(flow="near"),
    Use(flow="far", expect=STILL, clauses=(NOT_LEAKED,)),
    Use(flow="near", expect=STILL, clauses=(NOT_LEAKED,)),
    clauses=HOST_CLAUSES | {NOT_LEAKED},
    regressions={"R014"},
)

LIBERAL_TRACKING = case(
    "conntrack.liberal-tracking",
    "With tcpBeLiberal a segment outside the window is translated, for pods, the node and clients outside.",
    Apply(far := service("far", "b1", type=Type.NODE_PORT), near := service("near", "a1")),
    ReadSysctl(node="a", name="netfilter/nf_conntrack_tcp_be_liberal", expect="1", clauses=(LIBERAL_SET,)),
    ReadSysctl(
        node="b",
        name="netfilter/nf_conntrack_tcp_timeout_close_wait",
        expect="3600",
        clauses=(LIBERAL_SET,),
    ),
    Hold(flow="far", sender=pod("a2"), to=far.cluster_ip, expect=ON_B1),
    Hold(flow="near", sender=pod("a2"), to=near.cluster_ip, expect=delivered_to("a1")),
    Hold(flow="node", sender=host("a"), to=far.cluster_ip, expect=FROM_B1),
    Hold(flow="outside", sender=client("a"), to=far.node_port("a"), expect=FROM_B1),
    OutOfWindow(flow="far"),
    OutOfWindow(flow="near"),
    OutOfWindow(flow="node"),
    OutOfWindow(flow="outside"),
    Use(flow="far", expect=STILL, clauses=(NOT_LEAKED,)),
    Use(flow="near", expect=STILL, clauses=(NOT_LEAKED,)),
    Use(flow="node", expect=STILL, clauses=(NOT_LEAKED,)),
    Use(flow="outside", expect=STILL, clauses=(NOT_LEAKED,)),
    clauses=POD_CLAUSES | HOST_CLAUSES | NODE_PORT_CLAUSES | ANYWHERE | {NOT_LEAKED, LIBERAL_SET},
    features={Feature.NODE_PORT, Feature.CONNTRACK_SETTINGS},
    regressions={"R013", "R014"},
    profile=LIBERAL,
)

ONE_DIRECTION = case(
    "conntrack.one-direction-of-a-connection",
    "With tcpBeLiberal a node passes on connections whose answers take another way.",
    Apply(far := service("far", "b1")),
    Hold(flow="astray", sender=client("a"), to=backend_of(far, "b1"), expect=UNTOUCHED),
    Use(flow="astray", expect=UNTOUCHED, clauses=(ONE_WAY,)),
    Probe(sender=pod("a2"), to=far.cluster_ip, expect=ON_B1),
    clauses=POD_CLAUSES | {"traffic.not-for-a-service.untouched", ONE_WAY},
    features={Feature.CONNTRACK_SETTINGS},
    regressions={"R015"},
    profile=LIBERAL,
)

ONE_DIRECTION_OF_DATAGRAMS = case(
    "conntrack.one-direction-of-datagrams",
    "A node passes on datagrams whose answers take another way, whatever becomes of Services meanwhile.",
    Apply(far := service("far", "b1", ports=UDP_PORT)),
    Hold(flow="astray", sender=client("a"), to=backend_of(far, "b1"), expect=UNTOUCHED),
    Apply(service("far", "b1", "b2", ports=UDP_PORT)),
    Use(flow="astray", expect=UNTOUCHED, clauses=(ONE_WAY,)),
    Probe(sender=pod("a2"), to=far.cluster_ip, expect=delivered_to("b1", "b2"), spread=True),
    clauses=POD_CLAUSES | DATAGRAMS | SPREAD | {"traffic.not-for-a-service.untouched", ONE_WAY},
    regressions={"R015"},
)

CASES: tuple[Case, ...] = (
    REFUSAL_BY_THE_ENDPOINT,
    LARGE_ANSWERS_OVER_A_NARROW_LINK,
    PINGS,
    CLIENTS_WITH_ONE_SOURCE_PORT,
    SOURCE_PORTS_ARE_REDRAWN,
    NODE_SENDS_FROM_A_NODE_PORT,
    PORT_IS_USED_AGAIN,
    DEAD_ENDPOINT_RESETS,
    INVALID_SEGMENT_TO_THE_NODE,
    LIBERAL_TRACKING,
    ONE_DIRECTION,
    ONE_DIRECTION_OF_DATAGRAMS,
)
