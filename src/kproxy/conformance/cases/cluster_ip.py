"""Cases on cluster IPs: who reaches which endpoint, from where, and as a Service changes.

Only values; the vocabulary is `kproxy.conformance.case`.
"""

from __future__ import annotations

from kproxy.conformance.case import (
    DROPPED,
    MASQUERADED,
    REJECTED,
    SAME_ENDPOINT,
    UNTOUCHED,
    AddServiceCidr,
    Apply,
    Case,
    CaseEndpoint,
    Delete,
    Open,
    Port,
    Probe,
    Send,
    case,
    client,
    delivered_to,
    endpoint_target,
    host,
    pod,
    remote,
    service,
    unallocated,
)
from kproxy.conformance.cases import change
from kproxy.conformance.cases.common import FROM_BOTH, HOST_CLAUSES, POD_CLAUSES, SPREAD
from kproxy.model.network import Protocol

WEB = service("web", "a1", "b1")
DNS = service("dns", "a1", "b1", ports=(Port(number=53, protocol=Protocol.UDP),))
NEIGHBOUR = service("neighbour", "b2")
TWO_PORTS = service("two-ports", "a1", "b1", ports=(Port(name="a"), Port(name="b", number=81)))

OUTSIDE_CLAUSES = {
    "cluster-ip.reaches-ready-endpoint",
    "cluster-ip.from-outside.served",
    "masquerade.cluster-ip.outside-rewritten",
}

REACHED_FROM_EVERYWHERE = case(
    "cluster-ip.reached-from-everywhere",
    "Pods of both nodes, the nodes themselves and an endpoint of the Service reach every endpoint.",
    Apply(WEB),
    Probe(sender=pod("a2"), to=WEB.cluster_ip, expect=delivered_to("a1", "b1"), spread=True),
    Probe(sender=pod("b2"), to=WEB.cluster_ip, expect=delivered_to("a1", "b1"), spread=True),
    Probe(sender=host("a"), to=WEB.cluster_ip, expect=FROM_BOTH, spread=True),
    Probe(
        sender=pod("a1"),
        to=WEB.cluster_ip,
        expect=delivered_to("a1", source=MASQUERADED) | delivered_to("b1"),
        spread=True,
    ),
    clauses=POD_CLAUSES | HOST_CLAUSES | SPREAD | {"masquerade.hairpin.rewritten"},
    regressions={"R074"},
)

REACHED_FROM_EVERYWHERE_OVER_UDP = case(
    "cluster-ip.reached-from-everywhere-over-udp",
    "The same for datagrams, whose answers come from the cluster IP.",
    Apply(DNS),
    Probe(sender=pod("a2"), to=DNS.cluster_ip, expect=delivered_to("a1", "b1"), spread=True),
    Probe(sender=host("b"), to=DNS.cluster_ip, expect=FROM_BOTH, spread=True),
    Probe(sender=remote("a"), to=DNS.cluster_ip, expect=FROM_BOTH, spread=True),
    clauses=POD_CLAUSES | HOST_CLAUSES | OUTSIDE_CLAUSES | SPREAD | {"protocol.udp.served"},
)

OFF_CLUSTER_CLIENT_IS_REWRITTEN = case(
    "cluster-ip.off-cluster-client-is-rewritten",
    "A node serves cluster IPs to clients outside; endpoints see a node, so that answers come back through it.",
    Apply(WEB),
    Probe(sender=client("a"), to=WEB.cluster_ip, expect=FROM_BOTH, spread=True),
    Probe(sender=remote("b"), to=WEB.cluster_ip, expect=FROM_BOTH, spread=True),
    Probe(sender=pod("b2"), to=WEB.cluster_ip, expect=delivered_to("a1", "b1")),
    clauses=POD_CLAUSES | OUTSIDE_CLAUSES | SPREAD,
)

EVERY_ENDPOINT_OF_SIX = case(
    "cluster-ip.every-endpoint-of-six",
    "With six endpoints each of them is chosen, and direct traffic to a pod is left alone.",
    Apply(six := service("six", "a1", "a2", "a3", "b1", "b2", "b3")),
    Probe(
        sender=host("b"),
        to=six.cluster_ip,
        expect=delivered_to("a1", "a2", "a3", "b1", "b2", "b3", source=MASQUERADED),
        spread=True,
    ),
    Probe(sender=pod("a1"), to=endpoint_target(six, "b1"), expect=UNTOUCHED),
    clauses=HOST_CLAUSES | SPREAD | {"traffic.not-for-a-service.untouched"},
)

EACH_PORT_HAS_ITS_OWN_ENDPOINT_PORT = case(
    "cluster-ip.each-port-has-its-own-endpoint-port",
    "Two ports of one cluster IP lead to different ports of the same endpoints.",
    Apply(TWO_PORTS),
    Probe(sender=pod("a2"), to=TWO_PORTS.cluster_ip.at("a"), expect=delivered_to("a1", "b1"), spread=True),
    Probe(sender=pod("a2"), to=TWO_PORTS.cluster_ip.at("b"), expect=delivered_to("a1", "b1"), spread=True),
    clauses=POD_CLAUSES | SPREAD,
)

TARGET_PORT_MAY_DIFFER_PER_ENDPOINT = case(
    "cluster-ip.target-port-may-differ-per-endpoint",
    "A named target port is another number on another pod, even on the same pod twice.",
    Apply(
        mixed := service(
            "mixed",
            endpoints=(CaseEndpoint(on="a1"), CaseEndpoint(on="b1", shift=1), CaseEndpoint(on="a1", shift=1)),
        )
    ),
    Probe(
        sender=pod("b2"),
        to=mixed.cluster_ip,
        expect=delivered_to("a1") | delivered_to("a1", "b1", shift=1),
        spread=True,
    ),
    clauses=POD_CLAUSES | SPREAD | {"slices.target-port.per-endpoint", "slices.merged"},
)

SLICES_ARE_MERGED = case(
    "cluster-ip.slices-are-merged",
    "Endpoints of three slices answer together; one that is listed twice is one endpoint.",
    Apply(
        sliced := service(
            "sliced",
            endpoints=(
                CaseEndpoint(on="a1", slice=0),
                CaseEndpoint(on="b1", slice=1),
                CaseEndpoint(on="a1", slice=1),
                CaseEndpoint(on="b2", slice=2),
            ),
        )
    ),
    Probe(sender=pod("a2"), to=sliced.cluster_ip, expect=delivered_to("a1", "b1", "b2"), spread=True),
    clauses=POD_CLAUSES | SPREAD | {"slices.merged", "slices.duplicates-are-one-endpoint"},
)

PODS_MAY_BACK_SEVERAL_SERVICES = case(
    "cluster-ip.pods-may-back-several-services",
    "The same pods answer for two Services, each on its own cluster IP.",
    Apply(WEB, DNS),
    Probe(sender=pod("b2"), to=WEB.cluster_ip, expect=delivered_to("a1", "b1"), spread=True),
    Probe(sender=pod("b2"), to=DNS.cluster_ip, expect=delivered_to("a1", "b1"), spread=True),
    clauses=POD_CLAUSES | SPREAD | {"protocol.udp.served"},
)

HOST_NETWORK_ENDPOINTS = case(
    "cluster-ip.host-network-endpoints",
    "Nodes are endpoints like pods: the sender's own node, and the other.",
    Apply(daemons := service("daemons", "a", "b")),
    Probe(sender=pod("a1"), to=daemons.cluster_ip, expect=delivered_to("a", "b"), spread=True),
    Probe(
        sender=host("a"),
        to=daemons.cluster_ip,
        expect=delivered_to("a", "b", source=MASQUERADED),
        spread=True,
    ),
    clauses=POD_CLAUSES | HOST_CLAUSES | SPREAD | {"slices.endpoint.host-network.reached"},
    regressions={"R042"},
)

LARGE_PAYLOADS_PASS = case(
    "cluster-ip.large-payloads-pass",
    "Requests and answers of several packets pass, UDP fragments included, to an endpoint far or near.",
    Apply(WEB, DNS),
    Probe(
        sender=pod("a2"),
        to=WEB.cluster_ip,
        expect=delivered_to("a1", "b1"),
        spread=True,
        payload_bytes=9000,
        clauses=("payload.large.passes",),
    ),
    Probe(
        sender=pod("a2"),
        to=DNS.cluster_ip,
        expect=delivered_to("a1", "b1"),
        spread=True,
        payload_bytes=4000,
        clauses=("payload.large.passes",),
    ),
    Probe(
        sender=client("a"),
        to=DNS.cluster_ip,
        expect=FROM_BOTH,
        spread=True,
        payload_bytes=4000,
        clauses=("payload.large.passes",),
    ),
    clauses=POD_CLAUSES | OUTSIDE_CLAUSES | SPREAD | {"protocol.udp.served", "payload.large.passes"},
    regressions={"R124"},
)

OUTSIDE_THE_SERVICE_CIDR = case(
    "cluster-ip.outside-the-service-cidr",
    "A cluster IP of a range that no ServiceCIDR names is served like another.",
    Apply(foreign := service("foreign", "a1", "b1", outside_service_cidr=True), NEIGHBOUR),
    Probe(sender=pod("a2"), to=foreign.cluster_ip, expect=delivered_to("a1", "b1"), spread=True),
    Probe(sender=host("b"), to=foreign.cluster_ip, expect=FROM_BOTH, spread=True),
    Probe(sender=pod("a2"), to=NEIGHBOUR.cluster_ip, expect=delivered_to("b2")),
    clauses=POD_CLAUSES | HOST_CLAUSES | SPREAD | {"cluster-ip.any-range.served"},
)

SECOND_SERVICE_CIDR = case(
    "cluster-ip.second-service-cidr",
    "A ServiceCIDR that is added leaves Services in its range served, and may shut the addresses that no "
    "Service has.",
    Apply(early := service("early", "a1", "b1", in_second_service_cidr=True)),
    Probe(sender=pod("a2"), to=early.cluster_ip, expect=delivered_to("a1", "b1"), spread=True),
    AddServiceCidr(),
    Apply(late := service("late", "b2", in_second_service_cidr=True)),
    Probe(sender=pod("a2"), to=early.cluster_ip, expect=delivered_to("a1", "b1"), spread=True),
    Probe(sender=pod("a2"), to=late.cluster_ip, expect=delivered_to("b2")),
    Probe(sender=pod("a2"), to=unallocated(second_range=True), expect=DROPPED | UNTOUCHED),
    Probe(sender=host("b"), to=unallocated(second_range=True), expect=DROPPED | UNTOUCHED),
    clauses=POD_CLAUSES | SPREAD | {"cluster-ip.any-range.served", "cluster-ip.unallocated.not-served"},
)

ENDPOINTS_COME_AND_GO = case(
    "cluster-ip.endpoints-come-and-go",
    "An endpoint that is added answers; one that is removed does not any more, but keeps its connections.",
    Apply(one := service("web", "a1"), NEIGHBOUR),
    Open(flow="old", sender=pod("a2"), to=one.cluster_ip, expect=delivered_to("a1")),
    Apply(WEB),
    Probe(
        sender=pod("a2"),
        to=WEB.cluster_ip,
        expect=delivered_to("a1", "b1"),
        spread=True,
        clauses=(change.ENDPOINT_ADDED,),
    ),
    Send(flow="old", expect=SAME_ENDPOINT, clauses=("established.survives-endpoint-change",)),
    Apply(service("web", "b1")),
    Probe(
        sender=pod("a2"),
        to=WEB.cluster_ip,
        expect=delivered_to("b1"),
        count=12,
        clauses=(change.ENDPOINT_REMOVED,),
    ),
    Probe(sender=pod("b3"), to=NEIGHBOUR.cluster_ip, expect=delivered_to("b2")),
    Send(flow="old", expect=SAME_ENDPOINT, clauses=("established.survives-removal-of-its-endpoint",)),
    clauses=POD_CLAUSES
    | SPREAD
    | {
        "change.endpoint-added.used",
        "change.endpoint-removed.not-used",
        "established.survives-endpoint-change",
        "established.survives-removal-of-its-endpoint",
    },
    regressions={"R082", "R110"},
)

LAST_ENDPOINT_GOES_AND_RETURNS = case(
    "cluster-ip.last-endpoint-goes-and-returns",
    "When the last endpoint leaves, connections are refused at once; when one comes, they are served.",
    Apply(one, NEIGHBOUR),
    Probe(sender=pod("b2"), to=one.cluster_ip, expect=delivered_to("a1")),
    Apply(service("web")),
    Probe(sender=pod("b2"), to=one.cluster_ip, expect=REJECTED, clauses=(change.EMPTIED,)),
    Probe(sender=host("a"), to=one.cluster_ip, expect=REJECTED, clauses=(change.EMPTIED,)),
    Probe(sender=pod("b1"), to=NEIGHBOUR.cluster_ip, expect=delivered_to("b2")),
    Apply(service("web", "b3")),
    Probe(sender=pod("b2"), to=one.cluster_ip, expect=delivered_to("b3"), clauses=(change.ENDPOINT_ADDED,)),
    clauses=POD_CLAUSES
    | {"endpoints.none.rejected", "change.last-endpoint-removed.rejected", "change.endpoint-added.used"},
    regressions={"R103", "R105"},
)

DELETED_AND_CREATED_AGAIN = case(
    "cluster-ip.deleted-and-created-again",
    "A deleted Service is not served and its neighbours are; created again it is served again.",
    Apply(WEB, NEIGHBOUR),
    Probe(sender=pod("a2"), to=WEB.cluster_ip, expect=delivered_to("a1", "b1")),
    Open(flow="beside", sender=pod("a2"), to=NEIGHBOUR.cluster_ip, expect=delivered_to("b2")),
    Delete(WEB),
    Probe(sender=pod("a2"), to=WEB.cluster_ip, expect=DROPPED | UNTOUCHED, clauses=(change.SERVICE_DELETED,)),
    Probe(
        sender=pod("a2"),
        to=NEIGHBOUR.cluster_ip,
        expect=delivered_to("b2"),
        clauses=(change.OTHER_SERVICES,),
    ),
    Send(flow="beside", expect=SAME_ENDPOINT, clauses=("change.other-services.undisturbed",)),
    Apply(WEB),
    Probe(
        sender=pod("a2"),
        to=WEB.cluster_ip,
        expect=delivered_to("a1", "b1"),
        spread=True,
        clauses=(change.SERVICE_RECREATED,),
    ),
    clauses=POD_CLAUSES
    | SPREAD
    | {
        "cluster-ip.unallocated.not-served",
        "change.service-deleted.not-served",
        "change.service-recreated.served",
        "change.other-services.undisturbed",
    },
)

ADDRESS_IS_TAKEN_OVER = case(
    "cluster-ip.address-is-taken-over",
    "A new Service with the cluster IP of a deleted one leads to its own endpoints only.",
    Apply(first := service("first", "a1", "b1")),
    Probe(sender=pod("b2"), to=first.cluster_ip, expect=delivered_to("a1", "b1"), spread=True),
    Delete(first),
    Apply(heir := service("heir", "a3", "b3", same_cluster_ip_as="first")),
    Probe(
        sender=pod("b2"),
        to=heir.cluster_ip,
        expect=delivered_to("a3", "b3"),
        spread=True,
        clauses=(change.ADDRESS,),
    ),
    clauses=POD_CLAUSES | SPREAD | {"change.address.followed"},
)

ADDRESS_CHANGES = case(
    "cluster-ip.address-changes",
    "When a Service gets another cluster IP, the new one is served and the old one is not.",
    Apply(WEB),
    Probe(sender=pod("a2"), to=WEB.cluster_ip, expect=delivered_to("a1", "b1")),
    Apply(moved := WEB.replace(generation=1)),
    Probe(
        sender=pod("a2"),
        to=moved.cluster_ip,
        expect=delivered_to("a1", "b1"),
        spread=True,
        clauses=(change.ADDRESS,),
    ),
    Probe(sender=pod("a2"), to=WEB.cluster_ip, expect=DROPPED | UNTOUCHED, clauses=(change.ADDRESS,)),
    clauses=POD_CLAUSES | SPREAD | {"cluster-ip.unallocated.not-served", "change.address.followed"},
)

PORTS_COME_AND_GO = case(
    "cluster-ip.ports-come-and-go",
    "A port that is added is served, one that is removed is not; the other port's connections go on.",
    Apply(TWO_PORTS.replace(ports=TWO_PORTS.ports[1:])),
    Open(flow="b", sender=pod("a2"), to=TWO_PORTS.cluster_ip.at("b"), expect=delivered_to("a1", "b1")),
    Apply(TWO_PORTS),
    Probe(
        sender=pod("a2"),
        to=TWO_PORTS.cluster_ip.at("a"),
        expect=delivered_to("a1", "b1"),
        spread=True,
        clauses=(change.PORT_ADDED,),
    ),
    Send(flow="b", expect=SAME_ENDPOINT, clauses=("established.survives-port-change-elsewhere",)),
    Apply(TWO_PORTS.replace(ports=TWO_PORTS.ports[1:])),
    Probe(
        sender=pod("a2"),
        to=TWO_PORTS.cluster_ip.at("a"),
        expect=REJECTED | UNTOUCHED,
        clauses=(change.PORT_REMOVED,),
    ),
    Probe(sender=pod("a2"), to=TWO_PORTS.cluster_ip.at("b"), expect=delivered_to("a1", "b1"), spread=True),
    Send(flow="b", expect=SAME_ENDPOINT, clauses=("established.survives-port-change-elsewhere",)),
    clauses=POD_CLAUSES
    | SPREAD
    | {
        "cluster-ip.undefined-port.not-served",
        "change.port-added.served",
        "change.port-removed.not-served",
        "established.survives-port-change-elsewhere",
    },
)

CASES: tuple[Case, ...] = (
    REACHED_FROM_EVERYWHERE,
    REACHED_FROM_EVERYWHERE_OVER_UDP,
    OFF_CLUSTER_CLIENT_IS_REWRITTEN,
    EVERY_ENDPOINT_OF_SIX,
    EACH_PORT_HAS_ITS_OWN_ENDPOINT_PORT,
    TARGET_PORT_MAY_DIFFER_PER_ENDPOINT,
    SLICES_ARE_MERGED,
    PODS_MAY_BACK_SEVERAL_SERVICES,
    HOST_NETWORK_ENDPOINTS,
    LARGE_PAYLOADS_PASS,
    OUTSIDE_THE_SERVICE_CIDR,
    SECOND_SERVICE_CIDR,
    ENDPOINTS_COME_AND_GO,
    LAST_ENDPOINT_GOES_AND_RETURNS,
    DELETED_AND_CREATED_AGAIN,
    ADDRESS_IS_TAKEN_OVER,
    ADDRESS_CHANGES,
    PORTS_COME_AND_GO,
)
