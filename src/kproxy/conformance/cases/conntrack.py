"""Cases on flows that connection tracking remembers: UDP that must move, TCP and neighbours that must not.

Only values; the vocabulary is `kproxy.conformance.case`.  A held UDP flow keeps its source port: only
a cleaned table lets it see what has changed.  Endpoints that left go on answering clients that still come.
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
    CaseEndpoint,
    Delete,
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
    DATAGRAMS,
    FROM_B1,
    MOVES,
    NONE_LEFT,
    POD_CLAUSES,
    STARTS,
    UDP_PORT,
    UNRELATED,
)
from kproxy.model.network import Protocol

LOCAL = Policy.LOCAL
EXPOSED = {Feature.NODE_PORT, Feature.LOAD_BALANCER, Feature.EXTERNAL_IPS}

EVERY_KIND = {
    "node-port.reaches-ready-endpoint",
    "load-balancer.reaches-ready-endpoint",
    "external-ip.reaches-ready-endpoint",
    "masquerade.external-policy-cluster.rewritten",
}
DNS = service("dns", "a1", ports=UDP_PORT)
MOVED = service("dns", "b1", ports=UDP_PORT)
ON_A = delivered_to("a1", source=MASQUERADED)

UDP_LEAVES_A_REMOVED_ENDPOINT = case(
    "conntrack.udp-leaves-a-removed-endpoint",
    "UDP flows of pods, a node and a client outside move when their endpoint is replaced.",
    Apply(DNS),
    Open(flow="beside", sender=pod("a2"), to=DNS.cluster_ip, expect=delivered_to("a1")),
    Open(flow="afar", sender=pod("b2"), to=DNS.cluster_ip, expect=delivered_to("a1")),
    Open(flow="node", sender=host("a"), to=DNS.cluster_ip, expect=ON_A),
    Open(flow="outside", sender=remote("a"), to=DNS.cluster_ip, expect=ON_A),
    Apply(MOVED),
    Probe(sender=pod("a2"), to=DNS.cluster_ip, expect=delivered_to("b1"), clauses=(change.ENDPOINT_REMOVED,)),
    Send(flow="beside", expect=delivered_to("b1"), clauses=(MOVES,)),
    Send(flow="afar", expect=delivered_to("b1"), clauses=(MOVES,)),
    Send(flow="node", expect=FROM_B1, clauses=(MOVES,)),
    Send(flow="outside", expect=FROM_B1, clauses=(MOVES,)),
    clauses=POD_CLAUSES
    | DATAGRAMS
    | {
        "masquerade.cluster-ip.host-rewritten",
        "masquerade.cluster-ip.outside-rewritten",
        "cluster-ip.from-outside.served",
        "change.endpoint-removed.not-used",
        MOVES,
    },
    regressions={"R001"},
)

OPEN = service("open", "a1", type=Type.LOAD_BALANCER, ports=UDP_PORT, vips=(Vip(),), external_ips=1)
OPEN_MOVED = OPEN.replace(endpoints=MOVED.endpoints)

UDP_LEAVES_IT_AT_EXTERNAL_ADDRESSES = case(
    "conntrack.udp-leaves-it-at-external-addresses",
    "UDP flows by node port, load balancer IP and external IP move when their endpoint is replaced.",
    Apply(OPEN),
    Open(flow="node-port", sender=client("a"), to=OPEN.node_port("a"), expect=ON_A),
    Open(flow="far-node-port", sender=client("b"), to=OPEN.node_port("b"), expect=ON_A),
    Open(flow="vip", sender=remote("b"), to=OPEN.vip(), expect=ON_A),
    Open(flow="external", sender=pod("a2"), to=OPEN.external_ip(), expect=ON_A),
    Apply(OPEN_MOVED),
    Probe(sender=client("a"), to=OPEN.node_port("a"), expect=FROM_B1, clauses=(change.ENDPOINT_REMOVED,)),
    Send(flow="node-port", expect=FROM_B1, clauses=(MOVES,)),
    Send(flow="far-node-port", expect=FROM_B1, clauses=(MOVES,)),
    Send(flow="vip", expect=FROM_B1, clauses=(MOVES,)),
    Send(flow="external", expect=FROM_B1, clauses=(MOVES,)),
    clauses=EVERY_KIND
    | DATAGRAMS
    | {"node-port.every-node.served", "change.endpoint-removed.not-used", MOVES},
    features=EXPOSED,
    regressions={"R001", "R005"},
)

UDP_LEAVES_IT_UNDER_LOCAL_POLICIES = case(
    "conntrack.udp-leaves-it-under-local-policies",
    "UDP flows under policy Local move from a removed endpoint of the node to another of its own.",
    Apply(
        inner := service("inner", "a1", ports=UDP_PORT, internal_policy=LOCAL),
        outer := service("outer", "a1", ports=UDP_PORT, type=Type.NODE_PORT, external_policy=LOCAL),
    ),
    Open(flow="inner", sender=pod("a2"), to=inner.cluster_ip, expect=delivered_to("a1")),
    Open(flow="outer", sender=client("a"), to=outer.node_port("a"), expect=delivered_to("a1")),
    Apply(
        service("inner", "a3", ports=UDP_PORT, internal_policy=LOCAL),
        service("outer", "a3", ports=UDP_PORT, type=Type.NODE_PORT, external_policy=LOCAL),
    ),
    Send(flow="inner", expect=delivered_to("a3"), clauses=(MOVES,)),
    Send(flow="outer", expect=delivered_to("a3"), clauses=(MOVES,)),
    clauses=POD_CLAUSES
    | DATAGRAMS
    | {
        "node-port.reaches-ready-endpoint",
        "internal-policy.local.same-node",
        "external-policy.local.local-endpoints-source-preserved",
        MOVES,
    },
    features={Feature.NODE_PORT, Feature.INTERNAL_TRAFFIC_POLICY, Feature.EXTERNAL_TRAFFIC_POLICY},
)

UDP_FOLLOWS_THE_TARGET_PORT = case(
    "conntrack.udp-follows-the-target-port",
    "UDP flows follow when the endpoint answers on another port.",
    Apply(named := DNS.replace(type=Type.NODE_PORT)),
    Open(flow="inside", sender=pod("b2"), to=named.cluster_ip, expect=delivered_to("a1")),
    Open(flow="outside", sender=client("a"), to=named.node_port("a"), expect=ON_A),
    Apply(named.replace(endpoints=(CaseEndpoint(on="a1", shift=1),))),
    Probe(sender=pod("b2"), to=named.cluster_ip, expect=delivered_to("a1", shift=1)),
    Send(
        flow="inside",
        expect=delivered_to("a1", shift=1),
        clauses=("conntrack.udp.moves-off-old-target-port",),
    ),
    Send(
        flow="outside",
        expect=delivered_to("a1", source=MASQUERADED, shift=1),
        clauses=("conntrack.udp.moves-off-old-target-port",),
    ),
    clauses=POD_CLAUSES
    | DATAGRAMS
    | {
        "node-port.reaches-ready-endpoint",
        "masquerade.external-policy-cluster.rewritten",
        "conntrack.udp.moves-off-old-target-port",
    },
    features={Feature.NODE_PORT},
)

EMPTY = OPEN.replace(endpoints=())

UDP_IS_SERVED_AFTER_REFUSAL = case(
    "conntrack.udp-is-served-after-refusal",
    "A flow that was refused while there was no endpoint is served once there is one.",
    Apply(EMPTY),
    Open(flow="inside", sender=pod("b2"), to=OPEN.cluster_ip, expect=REJECTED),
    Open(flow="node-port", sender=client("a"), to=OPEN.node_port("a"), expect=REJECTED),
    Open(flow="vip", sender=client("b"), to=OPEN.vip(), expect=REJECTED),
    Apply(OPEN),
    Probe(sender=pod("b2"), to=OPEN.cluster_ip, expect=delivered_to("a1"), clauses=(change.ENDPOINT_ADDED,)),
    Send(flow="inside", expect=delivered_to("a1"), clauses=(STARTS,)),
    Send(flow="node-port", expect=ON_A, clauses=(STARTS,)),
    Send(flow="vip", expect=ON_A, clauses=(STARTS,)),
    clauses=POD_CLAUSES | DATAGRAMS | {"endpoints.none.rejected", "change.endpoint-added.used", STARTS},
    features=EXPOSED,
    regressions={"R002"},
)

UDP_IS_SERVED_AFTER_GOING_ASTRAY = case(
    "conntrack.udp-is-served-after-going-astray",
    "Flows that went elsewhere before there was a Service are served when it comes with an endpoint.",
    Open(flow="inside", sender=pod("b2"), to=OPEN.cluster_ip, expect=DROPPED | UNTOUCHED),
    Open(flow="node-port", sender=client("a"), to=OPEN.node_port("a"), expect=UNTOUCHED),
    Open(flow="vip", sender=client("b"), to=OPEN.vip(), expect=UNTOUCHED),
    Open(flow="external", sender=remote("a"), to=OPEN.external_ip(), expect=UNTOUCHED),
    Apply(OPEN),
    Probe(sender=pod("b2"), to=OPEN.cluster_ip, expect=delivered_to("a1"), clauses=(change.ENDPOINT_ADDED,)),
    Send(flow="inside", expect=delivered_to("a1"), clauses=(STARTS,)),
    Send(flow="node-port", expect=ON_A, clauses=(STARTS,)),
    Send(flow="vip", expect=ON_A, clauses=(STARTS,)),
    Send(flow="external", expect=ON_A, clauses=(STARTS,)),
    clauses=POD_CLAUSES
    | DATAGRAMS
    | {
        "cluster-ip.unallocated.not-served",
        "traffic.not-for-a-service.untouched",
        "change.endpoint-added.used",
        STARTS,
    },
    features=EXPOSED,
    regressions={"R002", "R007"},
)

PLAIN = service("plain", "a1", ports=UDP_PORT, external_ips=1)

UDP_IS_SERVED_WITHOUT_A_NODE_PORT = case(
    "conntrack.udp-is-served-without-a-node-port",
    "Flows that went elsewhere before there was a Service are served when it comes, at an external IP too of one without node ports.",
    Open(flow="inside", sender=pod("b2"), to=PLAIN.cluster_ip, expect=DROPPED | UNTOUCHED),
    Open(flow="outside", sender=remote("a"), to=PLAIN.external_ip(), expect=UNTOUCHED),
    Open(flow="external", sender=pod("a2"), to=PLAIN.external_ip(), expect=UNTOUCHED),
    Apply(PLAIN),
    Probe(sender=pod("b2"), to=PLAIN.cluster_ip, expect=delivered_to("a1"), clauses=(change.ENDPOINT_ADDED,)),
    Send(flow="inside", expect=delivered_to("a1"), clauses=(STARTS,)),
    Send(flow="outside", expect=ON_A, clauses=(STARTS,)),
    Send(flow="external", expect=ON_A, clauses=(STARTS,)),
    clauses=POD_CLAUSES
    | DATAGRAMS
    | {
        "cluster-ip.unallocated.not-served",
        "traffic.not-for-a-service.untouched",
        "change.endpoint-added.used",
        STARTS,
    },
    features={Feature.EXTERNAL_IPS},
    regressions={"R007"},
)

WAITING = OPEN.replace(endpoints=(CaseEndpoint(on="a1", ready=False, serving=False),))

UDP_IS_SERVED_WHEN_ITS_ENDPOINT_GETS_READY = case(
    "conntrack.udp-is-served-when-its-endpoint-gets-ready",
    "Flows that went elsewhere while only the EndpointSlice was there, of an endpoint that is not ready, are served when the Service is back and it is.",
    Apply(WAITING),
    Probe(sender=pod("b2"), to=OPEN.cluster_ip, expect=REJECTED),
    Delete(WAITING, keep_slices=True),
    Open(flow="node-port", sender=client("a"), to=OPEN.node_port("a"), expect=UNTOUCHED),
    Open(flow="vip", sender=client("b"), to=OPEN.vip(), expect=UNTOUCHED),
    Open(flow="external", sender=remote("a"), to=OPEN.external_ip(), expect=UNTOUCHED),
    Apply(WAITING),
    Probe(sender=pod("b2"), to=OPEN.cluster_ip, expect=REJECTED),
    Apply(OPEN),
    Probe(sender=pod("b2"), to=OPEN.cluster_ip, expect=delivered_to("a1"), clauses=(change.READINESS,)),
    Send(flow="node-port", expect=ON_A, clauses=(STARTS,)),
    Send(flow="vip", expect=ON_A, clauses=(STARTS,)),
    Send(flow="external", expect=ON_A, clauses=(STARTS,)),
    clauses=POD_CLAUSES
    | DATAGRAMS
    | {
        "traffic.not-for-a-service.untouched",
        "endpoints.none.rejected",
        "endpoints.not-serving.never-used",
        change.READINESS,
        STARTS,
    },
    features=EXPOSED,
    regressions={"R007"},
)

UDP_IS_SERVED_WHEN_ITS_SERVICE_RETURNS = case(
    "conntrack.udp-is-served-when-its-service-returns",
    "Flows that went elsewhere while only the EndpointSlice was there are served when the Service is again.",
    Apply(OPEN),
    Probe(sender=pod("b2"), to=OPEN.cluster_ip, expect=delivered_to("a1")),
    Delete(OPEN, keep_slices=True),
    Open(flow="node-port", sender=client("a"), to=OPEN.node_port("a"), expect=UNTOUCHED),
    Open(flow="vip", sender=client("b"), to=OPEN.vip(), expect=UNTOUCHED),
    Open(flow="external", sender=remote("a"), to=OPEN.external_ip(), expect=UNTOUCHED),
    Apply(OPEN),
    Probe(
        sender=pod("b2"), to=OPEN.cluster_ip, expect=delivered_to("a1"), clauses=(change.SERVICE_RECREATED,)
    ),
    Send(flow="node-port", expect=ON_A, clauses=(STARTS,)),
    Send(flow="vip", expect=ON_A, clauses=(STARTS,)),
    Send(flow="external", expect=ON_A, clauses=(STARTS,)),
    clauses=POD_CLAUSES
    | DATAGRAMS
    | {
        "traffic.not-for-a-service.untouched",
        "change.service-recreated.served",
        STARTS,
    },
    features=EXPOSED,
    regressions={"R007"},
)

UDP_IS_REFUSED_WHEN_NOBODY_IS_LEFT = case(
    "conntrack.udp-is-refused-when-nobody-is-left",
    "When the last endpoint leaves, flows to it are refused like new ones.",
    Apply(DNS.replace(type=Type.NODE_PORT)),
    Open(flow="inside", sender=pod("b2"), to=DNS.cluster_ip, expect=delivered_to("a1")),
    Open(flow="outside", sender=client("a"), to=DNS.node_port("a"), expect=ON_A),
    Apply(DNS.replace(type=Type.NODE_PORT, endpoints=())),
    Probe(sender=pod("b2"), to=DNS.cluster_ip, expect=REJECTED, clauses=(change.EMPTIED,)),
    Send(flow="inside", expect=REJECTED, clauses=(NONE_LEFT,)),
    Send(flow="outside", expect=REJECTED, clauses=(NONE_LEFT,)),
    clauses=POD_CLAUSES
    | DATAGRAMS
    | {
        "node-port.reaches-ready-endpoint",
        "masquerade.external-policy-cluster.rewritten",
        "endpoints.none.rejected",
        "change.last-endpoint-removed.rejected",
        NONE_LEFT,
    },
    features={Feature.NODE_PORT},
    regressions={"R003"},
)

DELETED = "conntrack.udp.not-to-endpoint-of-deleted-service"

UDP_LEAVES_A_DELETED_SERVICE = case(
    "conntrack.udp-leaves-a-deleted-service",
    "When a Service is deleted its flows do not reach its endpoints any more; a neighbour's do.",
    Apply(DNS, beside := service("beside", "a1", ports=UDP_PORT)),
    Open(flow="inside", sender=pod("a2"), to=DNS.cluster_ip, expect=delivered_to("a1")),
    Open(flow="beside", sender=pod("a2"), to=beside.cluster_ip, expect=delivered_to("a1")),
    Delete(DNS),
    Probe(sender=pod("a2"), to=DNS.cluster_ip, expect=DROPPED | UNTOUCHED, clauses=(change.SERVICE_DELETED,)),
    Send(flow="inside", expect=DROPPED | UNTOUCHED, clauses=(DELETED,)),
    Send(flow="beside", expect=SAME_ENDPOINT, clauses=(UNRELATED,)),
    clauses=POD_CLAUSES
    | DATAGRAMS
    | {"cluster-ip.unallocated.not-served", "change.service-deleted.not-served", DELETED, UNRELATED},
    regressions={"R004"},
)

ENTRIES_OF_OTHERS_STAY = case(
    "conntrack.entries-of-others-stay",
    "One Service's flow moves off a pod; others that end at that pod, or beside it, do not.",
    Apply(
        DNS,
        other := service("other", "a1", ports=UDP_PORT),
        both := service(
            "both", "b1", ports=(Port(name="a", protocol=Protocol.UDP), Port(name="b", number=81))
        ),
    ),
    Open(flow="moving", sender=pod("a2"), to=DNS.cluster_ip, expect=delivered_to("a1")),
    Open(flow="other-service", sender=pod("a2"), to=other.cluster_ip, expect=delivered_to("a1")),
    Open(flow="same-service", sender=pod("a2"), to=both.cluster_ip.at("a"), expect=delivered_to("b1")),
    Open(flow="tcp", sender=pod("a2"), to=both.cluster_ip.at("b"), expect=delivered_to("b1")),
    Apply(MOVED, both.replace(endpoints=(*both.endpoints, CaseEndpoint(on="a1")))),
    Send(flow="moving", expect=delivered_to("b1"), clauses=(MOVES,)),
    Send(flow="other-service", expect=SAME_ENDPOINT, clauses=(UNRELATED,)),
    Send(flow="same-service", expect=SAME_ENDPOINT, clauses=(UNRELATED,)),
    Send(flow="tcp", expect=SAME_ENDPOINT, clauses=(UNRELATED,)),
    Probe(sender=pod("a2"), to=both.cluster_ip.at("a"), expect=delivered_to("a1", "b1"), spread=True),
    Apply(both),
    Send(flow="same-service", expect=SAME_ENDPOINT, clauses=(UNRELATED,)),
    Send(flow="tcp", expect=SAME_ENDPOINT, clauses=(UNRELATED,)),
    clauses=POD_CLAUSES | DATAGRAMS | {"balancing.every-endpoint-chosen", MOVES, UNRELATED},
    regressions={"R009"},
)

SAME_POD = DNS.replace(name="dns-too", same_target_ports_as="dns")
NOT_ALONE = SAME_POD.replace(endpoints=tuple(CaseEndpoint(on=on) for on in ("a1", "b2", "b3")))
"""So a flow that is forgotten is most likely led elsewhere."""

UDP_OF_ANOTHER_SERVICE_STAYS = case(
    "conntrack.udp-of-another-service-of-the-pod-stays",
    "When an endpoint leaves one of two Services, flows to it by the other stay, and move when it leaves that too.",
    Apply(DNS, SAME_POD),
    Open(flow="one", sender=pod("b2"), to=DNS.cluster_ip, expect=delivered_to("a1")),
    Open(flow="other", sender=pod("b2"), to=SAME_POD.cluster_ip, expect=delivered_to("a1")),
    Apply(MOVED, NOT_ALONE),
    Probe(sender=pod("b2"), to=DNS.cluster_ip, expect=delivered_to("b1"), clauses=(change.ENDPOINT_REMOVED,)),
    Send(flow="one", expect=delivered_to("b1"), clauses=(MOVES,)),
    Send(flow="other", expect=SAME_ENDPOINT, clauses=(UNRELATED,)),
    Apply(SAME_POD.replace(endpoints=MOVED.endpoints)),
    Send(flow="one", expect=delivered_to("b1"), clauses=(UNRELATED,)),
    Send(flow="other", expect=delivered_to("b1"), clauses=(MOVES,)),
    clauses=POD_CLAUSES | DATAGRAMS | {change.ENDPOINT_REMOVED, MOVES, UNRELATED},
)

TCP_OF_THE_SAME_NUMBER_STAYS = case(
    "conntrack.tcp-of-the-same-number-stays",
    "When both twins of a number lose their endpoint the datagrams move and the connection stays.",
    Apply(
        twins := service(
            "twins",
            "a1",
            type=Type.NODE_PORT,
            ports=(Port(name="a"), Port(name="b", protocol=Protocol.UDP, same_node_port_as="a")),
        )
    ),
    Open(flow="tcp", sender=client("a"), to=twins.node_port("a").at("a"), expect=ON_A),
    Open(flow="udp", sender=client("a"), to=twins.node_port("a").at("b"), expect=ON_A),
    Apply(twins.replace(endpoints=MOVED.endpoints)),
    Send(flow="udp", expect=FROM_B1, clauses=(MOVES,)),
    Send(
        flow="tcp", expect=SAME_ENDPOINT, clauses=("established.survives-removal-of-its-endpoint", UNRELATED)
    ),
    clauses=DATAGRAMS
    | {
        "node-port.reaches-ready-endpoint",
        "masquerade.external-policy-cluster.rewritten",
        "protocol.same-number.independent",
        "established.survives-removal-of-its-endpoint",
        MOVES,
        UNRELATED,
    },
    features={Feature.NODE_PORT},
    regressions={"R012"},
)

CASES: tuple[Case, ...] = (
    UDP_LEAVES_A_REMOVED_ENDPOINT,
    UDP_LEAVES_IT_AT_EXTERNAL_ADDRESSES,
    UDP_LEAVES_IT_UNDER_LOCAL_POLICIES,
    UDP_FOLLOWS_THE_TARGET_PORT,
    UDP_IS_SERVED_AFTER_REFUSAL,
    UDP_IS_SERVED_AFTER_GOING_ASTRAY,
    UDP_IS_SERVED_WITHOUT_A_NODE_PORT,
    UDP_IS_SERVED_WHEN_ITS_ENDPOINT_GETS_READY,
    UDP_IS_SERVED_WHEN_ITS_SERVICE_RETURNS,
    UDP_IS_REFUSED_WHEN_NOBODY_IS_LEFT,
    UDP_LEAVES_A_DELETED_SERVICE,
    ENTRIES_OF_OTHERS_STAY,
    UDP_OF_ANOTHER_SERVICE_STAYS,
    TCP_OF_THE_SAME_NUMBER_STAYS,
)
