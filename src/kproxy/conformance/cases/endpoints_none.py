"""Cases on Services without usable endpoints, and on addresses and ports that no Service has.

Only values; the vocabulary is `kproxy.conformance.case`.  A refusal is an ICMP error at once; where a
packet is left to routing, the node's own daemon or the lab's elsewhere answers, and is recognised.
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
    unallocated,
)
from kproxy.conformance.cases import change
from kproxy.conformance.cases.common import POD_CLAUSES
from kproxy.model.network import Protocol

LOCAL = Policy.LOCAL
UDP, SCTP = Protocol.UDP, Protocol.SCTP
UDP_PORT = (Port(number=53, protocol=UDP),)
EXPOSED = {Feature.NODE_PORT, Feature.LOAD_BALANCER, Feature.EXTERNAL_IPS}

REFUSED = {"endpoints.none.rejected"}
MAY_LEAVE = {"endpoints.none.host-to-external-address.either"}

EMPTY = service("empty")
EMPTY_UDP = service("empty-udp", ports=UDP_PORT)
NEIGHBOUR = service("neighbour", "b2")
EMPTY_OPEN = service("open", type=Type.LOAD_BALANCER, vips=(Vip(),), external_ips=1)
EMPTY_OPEN_UDP = EMPTY_OPEN.replace(name="open-udp", ports=UDP_PORT)

CLUSTER_IP_IS_REFUSED = case(
    "no-endpoints.cluster-ip-is-refused",
    "A cluster IP without endpoints is refused at once, to pods, nodes and clients outside.",
    Apply(EMPTY, NEIGHBOUR),
    Probe(sender=pod("a1"), to=EMPTY.cluster_ip, expect=REJECTED),
    Probe(sender=pod("b1"), to=EMPTY.cluster_ip, expect=REJECTED),
    Probe(sender=host("a"), to=EMPTY.cluster_ip, expect=REJECTED),
    Probe(sender=client("a"), to=EMPTY.cluster_ip, expect=REJECTED),
    Probe(sender=remote("b"), to=EMPTY.cluster_ip, expect=REJECTED),
    Probe(sender=pod("a1"), to=NEIGHBOUR.cluster_ip, expect=delivered_to("b2")),
    clauses=POD_CLAUSES | REFUSED,
    regressions={"R105"},
)

DATAGRAMS_ARE_REFUSED = case(
    "no-endpoints.datagrams-are-refused",
    "Datagrams are refused like connections, at the cluster IP and at the node port.",
    Apply(EMPTY_UDP.replace(type=Type.NODE_PORT), NEIGHBOUR),
    Probe(sender=pod("a1"), to=EMPTY_UDP.cluster_ip, expect=REJECTED),
    Probe(sender=host("a"), to=EMPTY_UDP.cluster_ip, expect=REJECTED),
    Probe(sender=client("a"), to=EMPTY_UDP.cluster_ip, expect=REJECTED),
    Probe(sender=client("a"), to=EMPTY_UDP.node_port("a"), expect=REJECTED),
    Probe(sender=remote("b"), to=EMPTY_UDP.node_port("b"), expect=REJECTED),
    Probe(sender=pod("a1"), to=EMPTY_UDP.node_port("a"), expect=REJECTED),
    Probe(sender=host("a"), to=EMPTY_UDP.node_port("a"), expect=REJECTED),
    Probe(sender=pod("a1"), to=NEIGHBOUR.cluster_ip, expect=delivered_to("b2")),
    clauses=POD_CLAUSES | REFUSED,
    features={Feature.NODE_PORT},
    regressions={"R105"},
)

NODE_PORT_IS_REFUSED = case(
    "no-endpoints.node-port-is-refused",
    "A node port without endpoints is refused on every node; the node's own daemon of that number gets no "
    "packet.",
    Apply(
        service("empty", type=Type.NODE_PORT),
        beside := service("beside", "b2", type=Type.NODE_PORT),
    ),
    Probe(sender=client("a"), to=EMPTY.node_port("a"), expect=REJECTED),
    Probe(sender=remote("a"), to=EMPTY.node_port("a"), expect=REJECTED),
    Probe(sender=client("b"), to=EMPTY.node_port("b"), expect=REJECTED),
    Probe(sender=pod("a1"), to=EMPTY.node_port("a"), expect=REJECTED),
    Probe(sender=pod("a1"), to=EMPTY.node_port("b"), expect=REJECTED),
    Probe(sender=host("a"), to=EMPTY.node_port("a"), expect=REJECTED),
    Probe(sender=client("a"), to=beside.node_port("a"), expect=delivered_to("b2", source=MASQUERADED)),
    clauses=REFUSED
    | {
        "node-port.reaches-ready-endpoint",
        "node-port.every-node.served",
        "masquerade.external-policy-cluster.rewritten",
        "node-port.other-node.untouched",
    },
    features={Feature.NODE_PORT},
    regressions={"R105"},
)

EXTERNAL_ADDRESSES_ARE_REFUSED = case(
    "no-endpoints.external-addresses-are-refused",
    "Load balancer IPs and external IPs without endpoints are refused to clients outside and to pods.",
    Apply(EMPTY_OPEN, EMPTY_OPEN_UDP, NEIGHBOUR),
    Probe(sender=client("a"), to=EMPTY_OPEN.vip(), expect=REJECTED),
    Probe(sender=remote("b"), to=EMPTY_OPEN.vip(), expect=REJECTED),
    Probe(sender=pod("a1"), to=EMPTY_OPEN.vip(), expect=REJECTED),
    Probe(sender=client("a"), to=EMPTY_OPEN.external_ip(), expect=REJECTED),
    Probe(sender=pod("b1"), to=EMPTY_OPEN.external_ip(), expect=REJECTED),
    Probe(sender=client("a"), to=EMPTY_OPEN_UDP.vip(), expect=REJECTED),
    Probe(sender=pod("a1"), to=EMPTY_OPEN_UDP.external_ip(), expect=REJECTED),
    Probe(sender=host("a"), to=EMPTY_OPEN.vip(), expect=REJECTED | UNTOUCHED),
    Probe(sender=host("b"), to=EMPTY_OPEN_UDP.external_ip(), expect=REJECTED | UNTOUCHED),
    Probe(sender=pod("a1"), to=NEIGHBOUR.cluster_ip, expect=delivered_to("b2")),
    clauses=POD_CLAUSES | REFUSED | MAY_LEAVE,
    features=EXPOSED,
    regressions={"R105"},
)

SCTP_IS_REFUSED = case(
    "no-endpoints.sctp-is-refused",
    "SCTP without endpoints is refused as TCP is, at cluster IP and node port.",
    Apply(
        service("empty", type=Type.NODE_PORT, ports=(Port(protocol=SCTP),)),
        signalling := service("signalling", "b2", ports=(Port(protocol=SCTP),)),
    ),
    Probe(sender=pod("a1"), to=EMPTY.cluster_ip, expect=REJECTED),
    Probe(sender=client("a"), to=EMPTY.node_port("a"), expect=REJECTED),
    Probe(sender=pod("a1"), to=signalling.cluster_ip, expect=delivered_to("b2")),
    clauses=POD_CLAUSES | REFUSED | {"protocol.sctp.served"},
    features={Feature.SCTP, Feature.NODE_PORT},
)

REFUSED_OR_SILENT = case(
    "no-endpoints.refused-nowhere-silent-elsewhere",
    "Under policy Local a Service without any endpoint is refused; one with endpoints elsewhere is silent.",
    Apply(
        none := EMPTY_OPEN.replace(name="none", internal_policy=LOCAL, external_policy=LOCAL),
        away := service(
            "away",
            "b1",
            type=Type.LOAD_BALANCER,
            vips=(Vip(),),
            external_ips=1,
            internal_policy=LOCAL,
            external_policy=LOCAL,
        ),
    ),
    Probe(sender=client("a"), to=none.node_port("a"), expect=REJECTED),
    Probe(sender=client("a"), to=away.node_port("a"), expect=DROPPED),
    Probe(sender=client("a"), to=none.vip(), expect=REJECTED),
    Probe(sender=client("a"), to=away.vip(), expect=DROPPED),
    Probe(sender=pod("a1"), to=none.cluster_ip, expect=REJECTED),
    Probe(sender=pod("a1"), to=away.cluster_ip, expect=DROPPED),
    Probe(sender=host("a"), to=none.cluster_ip, expect=REJECTED),
    Probe(sender=host("a"), to=away.cluster_ip, expect=DROPPED),
    Probe(sender=pod("b2"), to=away.cluster_ip, expect=delivered_to("b1")),
    Probe(sender=client("b"), to=away.vip(), expect=delivered_to("b1")),
    clauses=POD_CLAUSES
    | REFUSED
    | {
        "load-balancer.reaches-ready-endpoint",
        "masquerade.cluster-ip.host-rewritten",
        "internal-policy.local.same-node",
        "internal-policy.local.drop-without-local-endpoint",
        "internal-policy.external-addresses-exempt",
        "external-policy.cluster-ip-exempt",
        "external-policy.local.drop-without-local-endpoint",
        "external-policy.local.local-endpoints-source-preserved",
    },
    features=EXPOSED | {Feature.INTERNAL_TRAFFIC_POLICY, Feature.EXTERNAL_TRAFFIC_POLICY},
    regressions={"R026", "R032"},
)

FULL = service("web", "a1", type=Type.LOAD_BALANCER, vips=(Vip(),))

EMPTIED_AND_FILLED = case(
    "no-endpoints.emptied-and-filled-again",
    "When the last endpoint leaves every address is refused, though open connections go on; then all is back.",
    Apply(FULL),
    Open(
        flow="open", sender=client("b"), to=FULL.node_port("b"), expect=delivered_to("a1", source=MASQUERADED)
    ),
    Apply(FULL.replace(endpoints=())),
    Probe(sender=client("a"), to=FULL.node_port("a"), expect=REJECTED, clauses=(change.EMPTIED,)),
    Probe(sender=client("a"), to=FULL.vip(), expect=REJECTED, clauses=(change.EMPTIED,)),
    Probe(sender=pod("a2"), to=FULL.cluster_ip, expect=REJECTED, clauses=(change.EMPTIED,)),
    Send(flow="open", expect=SAME_ENDPOINT, clauses=("established.survives-removal-of-its-endpoint",)),
    Apply(FULL),
    Probe(
        sender=client("a"),
        to=FULL.node_port("a"),
        expect=delivered_to("a1", source=MASQUERADED),
        clauses=(change.ENDPOINT_ADDED,),
    ),
    Probe(
        sender=client("a"),
        to=FULL.vip(),
        expect=delivered_to("a1", source=MASQUERADED),
        clauses=(change.ENDPOINT_ADDED,),
    ),
    Probe(sender=pod("a2"), to=FULL.cluster_ip, expect=delivered_to("a1"), clauses=(change.ENDPOINT_ADDED,)),
    clauses=POD_CLAUSES
    | REFUSED
    | {
        "node-port.reaches-ready-endpoint",
        "node-port.every-node.served",
        "load-balancer.reaches-ready-endpoint",
        "masquerade.external-policy-cluster.rewritten",
        "change.last-endpoint-removed.rejected",
        "change.endpoint-added.used",
        "established.survives-removal-of-its-endpoint",
    },
    features={Feature.NODE_PORT, Feature.LOAD_BALANCER},
    regressions={"R103"},
)

UNDEFINED_PORT = case(
    "no-endpoints.undefined-port-leads-nowhere",
    "A port that a Service does not define reaches neither an endpoint nor a node's daemon.",
    Apply(
        served := service("served", "a1", "b1", type=Type.LOAD_BALANCER, vips=(Vip(),), external_ips=1),
        EMPTY,
    ),
    Probe(sender=pod("a2"), to=served.cluster_ip.at_undefined_port(), expect=REJECTED | UNTOUCHED),
    Probe(sender=host("a"), to=served.cluster_ip.at_undefined_port(), expect=REJECTED | UNTOUCHED),
    Probe(sender=client("a"), to=served.cluster_ip.at_undefined_port(), expect=REJECTED | UNTOUCHED),
    Probe(sender=client("a"), to=served.vip().at_undefined_port(), expect=REJECTED | UNTOUCHED),
    Probe(sender=pod("a2"), to=served.external_ip().at_undefined_port(), expect=REJECTED | UNTOUCHED),
    Probe(sender=pod("a2"), to=EMPTY.cluster_ip.at_undefined_port(), expect=REJECTED | UNTOUCHED),
    Probe(sender=pod("a2"), to=served.cluster_ip, expect=delivered_to("a1", "b1")),
    clauses=POD_CLAUSES
    | {"cluster-ip.undefined-port.not-served", "external-address.undefined-port.not-served"},
    features=EXPOSED,
    regressions={"R051", "R052"},
)

UNDEFINED_PROTOCOL = case(
    "no-endpoints.undefined-protocol-leads-nowhere",
    "A port of TCP only is nothing to UDP, and the other way round.",
    Apply(
        tcp := service("tcp", "a1"),
        udp := service("udp", "a1", ports=UDP_PORT),
    ),
    Probe(sender=pod("a2"), to=tcp.cluster_ip.over(UDP), expect=REJECTED | UNTOUCHED),
    Probe(sender=pod("a2"), to=udp.cluster_ip.over(Protocol.TCP), expect=REJECTED | UNTOUCHED),
    Probe(sender=host("b"), to=tcp.cluster_ip.over(UDP), expect=REJECTED | UNTOUCHED),
    Probe(sender=pod("a2"), to=tcp.cluster_ip, expect=delivered_to("a1")),
    Probe(sender=pod("a2"), to=udp.cluster_ip, expect=delivered_to("a1")),
    clauses=POD_CLAUSES | {"protocol.udp.served", "cluster-ip.undefined-protocol.not-served"},
)

UNALLOCATED_ADDRESS = case(
    "no-endpoints.unallocated-address-leads-nowhere",
    "A cluster IP that no Service has reaches no endpoint.",
    Apply(NEIGHBOUR),
    Probe(sender=pod("a1"), to=unallocated(), expect=DROPPED | UNTOUCHED),
    Probe(sender=host("a"), to=unallocated(), expect=DROPPED | UNTOUCHED),
    Probe(sender=client("a"), to=unallocated(UDP), expect=DROPPED | UNTOUCHED),
    Probe(sender=pod("a1"), to=NEIGHBOUR.cluster_ip, expect=delivered_to("b2")),
    clauses=POD_CLAUSES | {"cluster-ip.unallocated.not-served"},
)

CASES: tuple[Case, ...] = (
    CLUSTER_IP_IS_REFUSED,
    DATAGRAMS_ARE_REFUSED,
    NODE_PORT_IS_REFUSED,
    EXTERNAL_ADDRESSES_ARE_REFUSED,
    SCTP_IS_REFUSED,
    REFUSED_OR_SILENT,
    EMPTIED_AND_FILLED,
    UNDEFINED_PORT,
    UNDEFINED_PROTOCOL,
    UNALLOCATED_ADDRESS,
)
