"""Cases on objects: which Services are proxied, and which EndpointSlices are theirs, in which family.

Only values; the vocabulary is `kproxy.conformance.case`.
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
    case,
    client,
    delivered_to,
    host,
    pod,
    pods,
    service,
)
from kproxy.conformance.cases import change
from kproxy.conformance.cases.common import FROM_BOTH, POD_CLAUSES, SPREAD
from kproxy.conformance.cases.profiles import WITHOUT_IPV6
from kproxy.model.network import Family, Protocol

WEB = service("web", "a1", "b1")
NEIGHBOUR = service("neighbour", "b2")
ON_BOTH = delivered_to("a1", "b1")
ON_B2 = delivered_to("b2")
NO_SERVICE = DROPPED | UNTOUCHED
"""Lawful outcomes of a packet to a cluster IP that no proxied Service has."""

HIDDEN = {"cluster-ip.unallocated.not-served"}

HEADLESS_IS_LEFT_ALONE = case(
    "objects.headless-is-left-alone",
    "A headless Service is not proxied, not even at an external IP it lists; the Service beside it is.",
    Apply(
        headless := service("headless", "a1", headless=True, external_ips=1),
        beside := service("beside", "b2", external_ips=1),
    ),
    Probe(sender=client("a"), to=headless.external_ip(), expect=UNTOUCHED),
    Probe(sender=pod("a2"), to=headless.external_ip(), expect=UNTOUCHED),
    Probe(sender=client("a"), to=beside.external_ip(), expect=delivered_to("b2", source=MASQUERADED)),
    Probe(sender=pod("a2"), to=beside.cluster_ip, expect=ON_B2),
    clauses=POD_CLAUSES
    | {
        "objects.headless.untouched",
        "external-ip.reaches-ready-endpoint",
        "masquerade.external-policy-cluster.rewritten",
    },
    features={Feature.EXTERNAL_IPS},
)

EXTERNAL_NAME_IS_LEFT_ALONE = case(
    "objects.external-name-is-left-alone",
    "Turned into an ExternalName Service it is not served, though its cluster IP lingers; turned back it is.",
    Apply(WEB, NEIGHBOUR),
    Probe(sender=pod("a2"), to=WEB.cluster_ip, expect=ON_BOTH),
    Apply(WEB.replace(type=Type.EXTERNAL_NAME)),
    Probe(sender=pod("a2"), to=WEB.cluster_ip, expect=NO_SERVICE),
    Probe(sender=pod("a2"), to=NEIGHBOUR.cluster_ip, expect=ON_B2),
    Apply(WEB),
    Probe(sender=pod("a2"), to=WEB.cluster_ip, expect=ON_BOTH, spread=True, clauses=(change.TYPE,)),
    clauses=POD_CLAUSES | SPREAD | {"objects.external-name.untouched", "change.type.followed"} | HIDDEN,
)

ANOTHER_PROXYS_SERVICE = case(
    "objects.another-proxys-service",
    "The service-proxy-name label takes a live Service away from this proxy, whatever its value, and back.",
    Apply(WEB, NEIGHBOUR),
    Probe(sender=pod("a2"), to=WEB.cluster_ip, expect=ON_BOTH),
    Apply(WEB.replace(labels=(("service.kubernetes.io/service-proxy-name", "another-proxy"),))),
    Probe(sender=pod("a2"), to=WEB.cluster_ip, expect=NO_SERVICE, clauses=(change.LABELS,)),
    Probe(sender=pod("a2"), to=NEIGHBOUR.cluster_ip, expect=ON_B2),
    Apply(WEB),
    Probe(sender=pod("a2"), to=WEB.cluster_ip, expect=ON_BOTH, spread=True, clauses=(change.LABELS,)),
    clauses=POD_CLAUSES | SPREAD | {"objects.proxy-name-label.untouched", "change.labels.followed"} | HIDDEN,
)

HEADLESS_LABEL_HIDES_SLICES = case(
    "objects.headless-label-hides-slices",
    "The headless label takes a live Service's endpoints away; without it they are back.",
    Apply(WEB, NEIGHBOUR),
    Probe(sender=pod("a2"), to=WEB.cluster_ip, expect=ON_BOTH),
    Apply(WEB.replace(slice_labels=(("service.kubernetes.io/headless", ""),))),
    Probe(sender=pod("a2"), to=WEB.cluster_ip, expect=REJECTED, clauses=(change.LABELS,)),
    Probe(sender=pod("a2"), to=NEIGHBOUR.cluster_ip, expect=ON_B2),
    Apply(WEB),
    Probe(sender=pod("a2"), to=WEB.cluster_ip, expect=ON_BOTH, spread=True, clauses=(change.LABELS,)),
    clauses=POD_CLAUSES
    | SPREAD
    | {"slices.headless-label.ignored", "endpoints.none.rejected", "change.labels.followed"},
)

SLICE_WITHOUT_A_SERVICE_NAME = case(
    "objects.slice-without-a-service-name",
    "A slice that is named like the Service's but lacks the service-name label belongs to no Service.",
    Apply(orphan := WEB.replace(name="orphan", slice_owner=False), NEIGHBOUR),
    Probe(sender=pod("a2"), to=orphan.cluster_ip, expect=REJECTED),
    Probe(sender=pod("a2"), to=NEIGHBOUR.cluster_ip, expect=ON_B2),
    clauses=POD_CLAUSES | {"slices.without-service-name.ignored", "endpoints.none.rejected"},
)

NAMES_ARE_NO_ADDRESSES = case(
    "objects.names-are-no-addresses",
    "A Service whose only slice is of type FQDN has no endpoint.",
    Apply(named := WEB.replace(name="named", address_type="FQDN"), NEIGHBOUR),
    Probe(sender=pod("a2"), to=named.cluster_ip, expect=REJECTED),
    Probe(sender=pod("a2"), to=NEIGHBOUR.cluster_ip, expect=ON_B2),
    clauses=POD_CLAUSES | {"slices.fqdn.ignored", "endpoints.none.rejected"},
)

IPV6_SLICES_DO_NOT_ANSWER_IPV4 = case(
    "objects.ipv6-slices-do-not-answer-ipv4",
    "An IPv4 cluster IP is refused when all endpoints are IPv6.",
    Apply(crossed := WEB.replace(name="crossed", address_type=Family.IPV6.value), NEIGHBOUR),
    Probe(sender=pod("a2"), to=crossed.cluster_ip, expect=REJECTED),
    Probe(sender=host("a"), to=crossed.cluster_ip, expect=REJECTED),
    Probe(sender=pod("a2"), to=NEIGHBOUR.cluster_ip, expect=ON_B2),
    clauses=POD_CLAUSES | {"slices.other-family.ignored", "endpoints.none.rejected"},
    families=(Family.IPV4,),
)

IPV4_SLICES_DO_NOT_ANSWER_IPV6 = case(
    "objects.ipv4-slices-do-not-answer-ipv6",
    "An IPv6 cluster IP is refused when all endpoints are IPv4.",
    Apply(crossed_back := WEB.replace(name="crossed", address_type=Family.IPV4.value), NEIGHBOUR),
    Probe(sender=pod("a2"), to=crossed_back.cluster_ip, expect=REJECTED),
    Probe(sender=host("a"), to=crossed_back.cluster_ip, expect=REJECTED),
    Probe(sender=pod("a2"), to=NEIGHBOUR.cluster_ip, expect=ON_B2),
    clauses=POD_CLAUSES | {"slices.other-family.ignored", "endpoints.none.rejected"},
    families=(Family.IPV6,),
)

PORTS_ARE_MATCHED_BY_NAME_AND_PROTOCOL = case(
    "objects.ports-are-matched-by-name-and-protocol",
    "A service port whose name, or whose protocol under that name, no slice lists has no endpoint; "
    "the port beside it has.",
    Apply(
        strangers := service(
            "strangers",
            "a1",
            "b1",
            ports=(Port(name="a"), Port(name="b", number=81), Port(name="c", number=82)),
            slice_ports=(Port(name="b"), Port(name="c", protocol=Protocol.UDP)),
        )
    ),
    Probe(sender=pod("a2"), to=strangers.cluster_ip.at("a"), expect=REJECTED),
    Probe(sender=pod("a2"), to=strangers.cluster_ip.at("c"), expect=REJECTED),
    Probe(sender=pod("a2"), to=strangers.cluster_ip.at("b"), expect=ON_BOTH, spread=True),
    clauses=POD_CLAUSES | SPREAD | {"slices.ports.matched-by-name-and-protocol", "endpoints.none.rejected"},
)

DUAL_STACK = case(
    "objects.dual-stack",
    "A dual-stack Service answers in each family from endpoints of that family, whichever comes first, "
    "and has one node port for both.",
    Apply(dual := service("dual", "a1", "b1", type=Type.NODE_PORT, dual_stack=True), NEIGHBOUR),
    Probe(sender=pod("a2"), to=dual.cluster_ip, expect=ON_BOTH, spread=True),
    Probe(sender=client("a"), to=dual.node_port("a"), expect=FROM_BOTH, spread=True),
    Probe(sender=pod("a2"), to=NEIGHBOUR.cluster_ip, expect=ON_B2),
    clauses=POD_CLAUSES
    | SPREAD
    | {
        "slices.other-family.ignored",
        "node-port.reaches-ready-endpoint",
        "node-port.both-families.served",
        "masquerade.external-policy-cluster.rewritten",
    },
    features={Feature.NODE_PORT, Feature.IPV6},
    regressions={"R122"},
)

SECOND_FAMILY_COMES_AND_GOES = case(
    "objects.second-family-comes-and-goes",
    "A Service that gains and loses its second family serves the first throughout.",
    Apply(WEB),
    Open(flow="first", sender=pod("a2"), to=WEB.cluster_ip, expect=ON_BOTH),
    Apply(WEB.replace(dual_stack=True)),
    Probe(sender=pod("a2"), to=WEB.cluster_ip, expect=ON_BOTH, spread=True),
    Send(flow="first", expect=SAME_ENDPOINT, clauses=("established.survives-endpoint-change",)),
    Apply(WEB),
    Probe(sender=pod("a2"), to=WEB.cluster_ip, expect=ON_BOTH, spread=True),
    Send(flow="first", expect=SAME_ENDPOINT, clauses=("established.survives-endpoint-change",)),
    clauses=POD_CLAUSES | SPREAD | {"slices.other-family.ignored", "established.survives-endpoint-change"},
    features={Feature.IPV6},
)

NODES_WITHOUT_IPV6 = case(
    "objects.nodes-without-ipv6",
    "Nodes that have IPv6 switched off serve dual-stack Services and others in IPv4, and follow their changes.",
    Apply(dual, WEB),
    Probe(sender=pod("a2"), to=dual.cluster_ip, expect=ON_BOTH, spread=True),
    Probe(sender=client("a"), to=dual.node_port("a"), expect=FROM_BOTH),
    Probe(sender=pod("b2"), to=WEB.cluster_ip, expect=ON_BOTH, spread=True),
    Apply(dual.replace(endpoints=pods("b1"))),
    Probe(
        sender=pod("a2"),
        to=dual.cluster_ip,
        expect=delivered_to("b1"),
        count=8,
        clauses=(change.ENDPOINT_REMOVED,),
    ),
    clauses=POD_CLAUSES
    | SPREAD
    | {
        "slices.other-family.ignored",
        "node-port.reaches-ready-endpoint",
        "node-port.both-families.served",
        "masquerade.external-policy-cluster.rewritten",
        "objects.dual-stack.node-of-one-family.served",
        "change.endpoint-removed.not-used",
    },
    features={Feature.NODE_PORT},
    profile=WITHOUT_IPV6,
    families=(Family.IPV4,),
)

SLICES_MAY_COME_FIRST = case(
    "objects.slices-may-come-first",
    "A Service whose slices were there before it is served as soon as it is.",
    Apply(WEB),
    Probe(sender=pod("a2"), to=WEB.cluster_ip, expect=ON_BOTH),
    Delete(WEB, keep_slices=True),
    Probe(sender=pod("a2"), to=WEB.cluster_ip, expect=NO_SERVICE, clauses=(change.SERVICE_DELETED,)),
    Apply(service("web", endpoints=(*WEB.endpoints, CaseEndpoint(on="b3", slice=1)))),
    Probe(
        sender=pod("a2"),
        to=WEB.cluster_ip,
        expect=delivered_to("a1", "b1", "b3"),
        spread=True,
        clauses=(change.SERVICE_RECREATED, "change.order-of-arrival.irrelevant"),
    ),
    clauses=POD_CLAUSES
    | SPREAD
    | HIDDEN
    | {
        "slices.merged",
        "change.service-deleted.not-served",
        "change.service-recreated.served",
        "change.order-of-arrival.irrelevant",
    },
)

ENDPOINTS_MOVE_BETWEEN_SLICES = case(
    "objects.endpoints-move-between-slices",
    "Endpoints that move from one slice to another answer as before, and keep their connections.",
    Apply(
        low := service(
            "moving", endpoints=(CaseEndpoint(on="a1"), CaseEndpoint(on="b1"), CaseEndpoint(on="b2", slice=1))
        )
    ),
    Probe(sender=pod("a2"), to=low.cluster_ip, expect=delivered_to("a1", "b1", "b2"), spread=True),
    Open(flow="kept", sender=pod("a2"), to=low.cluster_ip, expect=delivered_to("a1", "b1", "b2")),
    Apply(
        high := service(
            "moving",
            endpoints=(
                CaseEndpoint(on="a1", slice=1),
                CaseEndpoint(on="b1", slice=1),
                CaseEndpoint(on="b2", slice=2),
            ),
        )
    ),
    Probe(
        sender=pod("a2"),
        to=high.cluster_ip,
        expect=delivered_to("a1", "b1", "b2"),
        spread=True,
        clauses=("change.endpoint-moved-between-slices.undisturbed",),
    ),
    Send(flow="kept", expect=SAME_ENDPOINT, clauses=("established.survives-endpoint-change",)),
    clauses=POD_CLAUSES
    | SPREAD
    | {
        "slices.merged",
        "change.endpoint-moved-between-slices.undisturbed",
        "established.survives-endpoint-change",
    },
)

LOCAL_BY_NAME_NOT_BY_ADDRESS = case(
    "objects.local-by-name-not-by-address",
    "An endpoint without a nodeName is on no node, wherever its address is.",
    Apply(
        nowhere := service(
            "nowhere",
            endpoints=(CaseEndpoint(on="a1", listed_node=""),),
            type=Type.NODE_PORT,
            external_policy=Policy.LOCAL,
        ),
        somewhere := service("somewhere", "a2", type=Type.NODE_PORT, external_policy=Policy.LOCAL),
    ),
    Probe(sender=client("a"), to=nowhere.node_port("a"), expect=DROPPED),
    Probe(sender=pod("a3"), to=nowhere.cluster_ip, expect=delivered_to("a1")),
    Probe(sender=client("a"), to=somewhere.node_port("a"), expect=delivered_to("a2")),
    clauses=POD_CLAUSES
    | {
        "slices.endpoint.on-node-by-name",
        "node-port.reaches-ready-endpoint",
        "external-policy.local.drop-without-local-endpoint",
        "external-policy.local.local-endpoints-source-preserved",
        "external-policy.cluster-ip-exempt",
    }
    | {"slices.endpoint.outside-cluster.reached"},
    features={Feature.NODE_PORT, Feature.EXTERNAL_TRAFFIC_POLICY},
)

CASES: tuple[Case, ...] = (
    HEADLESS_IS_LEFT_ALONE,
    EXTERNAL_NAME_IS_LEFT_ALONE,
    ANOTHER_PROXYS_SERVICE,
    HEADLESS_LABEL_HIDES_SLICES,
    SLICE_WITHOUT_A_SERVICE_NAME,
    NAMES_ARE_NO_ADDRESSES,
    IPV6_SLICES_DO_NOT_ANSWER_IPV4,
    IPV4_SLICES_DO_NOT_ANSWER_IPV6,
    PORTS_ARE_MATCHED_BY_NAME_AND_PROTOCOL,
    DUAL_STACK,
    SECOND_FAMILY_COMES_AND_GOES,
    NODES_WITHOUT_IPV6,
    SLICES_MAY_COME_FIRST,
    ENDPOINTS_MOVE_BETWEEN_SLICES,
    LOCAL_BY_NAME_NOT_BY_ADDRESS,
)
