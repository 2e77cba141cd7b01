"""Cases on what few clients send and all depend on: errors, pings, ports used again.

Only values; the vocabulary is `kproxy.conformance.case`.
"""

from __future__ import annotations

from kproxy.conformance.case import (
    MASQUERADED,
    REJECTED,
    RESET,
    SAME_ENDPOINT,
    UNTOUCHED,
    Apply,
    Case,
    Feature,
    Open,
    Ping,
    Policy,
    Port,
    Probe,
    Reopen,
    Send,
    StopListening,
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
from kproxy.conformance.cases import changes
from kproxy.conformance.cases.profiles import FORWARD_DROP
from kproxy.model.network import Protocol

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
    Open(flow="pod", sender=pod("a2"), to=DNS.cluster_ip, expect=ON_B1),
    Open(flow="node", sender=host("a"), to=DNS.cluster_ip, expect=FROM_B1),
    Open(flow="outside", sender=client("a"), to=DNS.node_port("a"), expect=FROM_B1),
    Open(flow="routed", sender=remote("a"), to=DNS.vip(), expect=FROM_B1),
    Open(flow="beside", sender=pod("a2"), to=beside.cluster_ip, expect=ON_B1),
    StopListening(flow="pod"),
    Send(flow="pod", expect=REJECTED, clauses=(ERRORS,)),
    Send(flow="node", expect=REJECTED, clauses=(ERRORS,)),
    Send(flow="outside", expect=REJECTED, clauses=(ERRORS,)),
    Send(flow="routed", expect=REJECTED, clauses=(ERRORS,)),
    Send(flow="beside", expect=SAME_ENDPOINT, clauses=("cluster-ip.reaches-ready-endpoint",)),
    clauses=POD_CLAUSES
    | HOST_CLAUSES
    | NODE_PORT_CLAUSES
    | ANYWHERE
    | DATAGRAMS
    | {"load-balancer.reaches-ready-endpoint", ERRORS},
    features={Feature.NODE_PORT, Feature.LOAD_BALANCER},
)

FORWARDED = "node-port.forward-policy-drop.passes"

REFUSAL_WHERE_FORWARDING_IS_DROPPED = case(
    "icmp.refusal-where-forwarding-is-dropped",
    "A node that drops what it would forward lets errors pass that belong to what it serves.",
    Apply(DNS),
    Open(flow="outside", sender=client("a"), to=DNS.node_port("a"), expect=FROM_B1, clauses=(FORWARDED,)),
    StopListening(flow="outside"),
    Send(flow="outside", expect=REJECTED, clauses=(ERRORS, FORWARDED)),
    clauses=NODE_PORT_CLAUSES | ANYWHERE | DATAGRAMS | {ERRORS, FORWARDED},
    features={Feature.NODE_PORT, Feature.FORWARD_POLICY},
    profile=FORWARD_DROP,
)

LARGE = "payload.large.passes"

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
        payload_bytes=9000,
        clauses=(ERRORS, LARGE),
    ),
    Probe(
        sender=remote("a"),
        to=near.node_port("a"),
        expect=delivered_to("a1"),
        payload_bytes=9000,
        clauses=(ERRORS, LARGE),
    ),
    clauses=NODE_PORT_CLAUSES | LOCAL_CLAUSES | SPREAD | {ERRORS, LARGE},
    features={Feature.NODE_PORT, Feature.EXTERNAL_TRAFFIC_POLICY},
    regressions={"R123"},
)

PINGED = "icmp.ping.refused-or-routed"

PINGS = case(
    "icmp.pings",
    "A ping to an address of a Service is refused, or goes where routing takes it; the node does not answer it.",
    Apply(DNS, outer := service("outer", "b1", external_ips=1)),
    Ping(sender=client("a"), to=outer.external_ip(), expect=REJECTED | UNTOUCHED, clauses=(PINGED,)),
    Ping(sender=pod("a2"), to=DNS.cluster_ip, expect=REJECTED | UNTOUCHED, clauses=(PINGED,)),
    Ping(sender=host("a"), to=DNS.cluster_ip, expect=REJECTED | UNTOUCHED, clauses=(PINGED,)),
    Ping(sender=client("a"), to=DNS.cluster_ip, expect=REJECTED | UNTOUCHED, clauses=(PINGED,)),
    Ping(sender=pod("a2"), to=DNS.vip(), expect=REJECTED | UNTOUCHED, clauses=(PINGED,)),
    Ping(sender=client("b"), to=DNS.vip(), expect=REJECTED | UNTOUCHED, clauses=(PINGED,)),
    Probe(sender=pod("a2"), to=DNS.cluster_ip, expect=ON_B1),
    clauses=POD_CLAUSES | DATAGRAMS | {PINGED},
    features={Feature.LOAD_BALANCER, Feature.EXTERNAL_IPS},
    regressions={"R051"},
)

# ------------------------------------------------------------------- ports

APART = "masquerade.same-source-ports.kept-apart"

CLIENTS_WITH_ONE_SOURCE_PORT = case(
    "masquerade.clients-with-one-source-port",
    "Two clients outside that use one source port reach one endpoint through one node, and neither disturbs the other.",
    Apply(WEB, DNS),
    Open(
        flow="tcp-near",
        sender=client("a"),
        to=WEB.node_port("a"),
        expect=FROM_B1,
        from_port_of=WEB.node_port("a"),
    ),
    Open(
        flow="tcp-far",
        sender=remote("a"),
        to=WEB.node_port("a"),
        expect=FROM_B1,
        from_port_of=WEB.node_port("a"),
    ),
    Open(
        flow="udp-near",
        sender=client("a"),
        to=DNS.node_port("a"),
        expect=FROM_B1,
        from_port_of=DNS.node_port("a"),
    ),
    Open(
        flow="udp-far",
        sender=remote("a"),
        to=DNS.node_port("a"),
        expect=FROM_B1,
        from_port_of=DNS.node_port("a"),
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
    Apply(WEB, DNS),
    Probe(
        sender=client("a"),
        to=WEB.node_port("a"),
        expect=FROM_B1,
        count=6,
        source_port_changed=True,
        clauses=("masquerade.source-ports.redrawn",),
    ),
    Probe(
        sender=remote("a"),
        to=DNS.node_port("a"),
        expect=FROM_B1,
        count=6,
        source_port_changed=True,
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
        to=backend_target(direct, "b2"),
        expect=UNTOUCHED,
        from_port_of=DNS.node_port("a"),
        clauses=(OWN,),
    ),
    Probe(
        sender=host("b"),
        to=backend_target(WEB, "b1"),
        expect=UNTOUCHED,
        from_port_of=WEB.node_port("b"),
        clauses=(OWN,),
    ),
    Probe(
        sender=pod("a2"),
        to=backend_target(WEB, "b1"),
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
    Open(flow="pod", sender=pod("b2"), to=old.cluster_ip, expect=delivered_to("a1")),
    Open(flow="node", sender=host("a"), to=old.cluster_ip, expect=delivered_to("a1", source=MASQUERADED)),
    Open(
        flow="outside",
        sender=client("a"),
        to=old.node_port("a"),
        expect=delivered_to("a1", source=MASQUERADED),
    ),
    Open(flow="staying", sender=pod("a2"), to=STAYING.cluster_ip, expect=delivered_to("b2")),
    Apply(WEB),
    Reopen(flow="pod", expect=ON_B1, clauses=(AGAIN,)),
    Reopen(flow="node", expect=FROM_B1, clauses=(AGAIN,)),
    Reopen(flow="outside", expect=FROM_B1, clauses=(AGAIN,)),
    Reopen(flow="staying", expect=delivered_to("b2"), clauses=(AGAIN,)),
    Probe(sender=pod("b2"), to=WEB.cluster_ip, expect=ON_B1, clauses=(changes.ENDPOINT_REMOVED,)),
    clauses=POD_CLAUSES | HOST_CLAUSES | NODE_PORT_CLAUSES | {"change.endpoint-removed.not-used", AGAIN},
    features={Feature.NODE_PORT},
    regressions={"R083", "R087"},
)

DEAD_ENDPOINT_RESETS = case(
    "established.dead-endpoint-resets",
    "A connection to an endpoint that listens no more is reset, and not refused: the proxy knows nothing of it.",
    Apply(lone := service("lone", "b1", type=Type.NODE_PORT)),
    Open(flow="pod", sender=pod("a2"), to=lone.cluster_ip, expect=ON_B1),
    Open(flow="outside", sender=client("a"), to=lone.node_port("a"), expect=FROM_B1),
    StopListening(flow="pod"),
    Reopen(flow="pod", expect=RESET, clauses=(AGAIN,)),
    Reopen(flow="outside", expect=RESET, clauses=(AGAIN,)),
    clauses=POD_CLAUSES | NODE_PORT_CLAUSES | ANYWHERE | {AGAIN},
    features={Feature.NODE_PORT},
)

CASES: tuple[Case, ...] = (
    REFUSAL_BY_THE_ENDPOINT,
    REFUSAL_WHERE_FORWARDING_IS_DROPPED,
    LARGE_ANSWERS_OVER_A_NARROW_LINK,
    PINGS,
    CLIENTS_WITH_ONE_SOURCE_PORT,
    SOURCE_PORTS_ARE_REDRAWN,
    NODE_SENDS_FROM_A_NODE_PORT,
    PORT_IS_USED_AGAIN,
    DEAD_ENDPOINT_RESETS,
)
