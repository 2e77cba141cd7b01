"""Cases on objects that are written oddly: fields missing, doubled, misspelt, or of no bearing.

Only values; the vocabulary is `kproxy.conformance.case`.
"""

from __future__ import annotations

from kproxy.conformance.case import (
    MASQUERADED,
    REJECTED,
    SAME_ENDPOINT,
    UNTOUCHED,
    Apply,
    Case,
    CaseEndpoint,
    Feature,
    Open,
    Port,
    Probe,
    Send,
    SourceRange,
    Type,
    Vip,
    case,
    client,
    delivered_to,
    host,
    pod,
    service,
)
from kproxy.conformance.cases import change
from kproxy.conformance.cases.common import FROM_BOTH, NODE_PORT_CLAUSES, POD_CLAUSES, SPREAD
from kproxy.model.network import Family

NEIGHBOUR = service("neighbour", "b2")
ON_BOTH = delivered_to("a1", "b1")


PENDING = service("pending", "a1", "b1", type=Type.NODE_PORT, external_ips=1, without_cluster_ip=True)

WAITS_FOR_ITS_CLUSTER_IP = case(
    "objects.waits-for-its-cluster-ip",
    "A Service that has no cluster IP yet is served nowhere, though it has a node port; with one it is.",
    Apply(PENDING, NEIGHBOUR),
    Probe(sender=client("a"), to=PENDING.node_port("a"), expect=UNTOUCHED),
    Probe(sender=host("a"), to=PENDING.node_port("a"), expect=UNTOUCHED),
    Probe(sender=client("b"), to=PENDING.external_ip(), expect=UNTOUCHED),
    Probe(sender=pod("a2"), to=NEIGHBOUR.cluster_ip, expect=delivered_to("b2")),
    Apply(PENDING.replace(without_cluster_ip=False)),
    Probe(
        sender=client("a"),
        to=PENDING.node_port("a"),
        expect=FROM_BOTH,
        spread=True,
        clauses=(change.ADDRESS,),
    ),
    Probe(
        sender=client("b"),
        to=PENDING.external_ip(),
        expect=FROM_BOTH,
        spread=True,
        clauses=(change.ADDRESS,),
    ),
    Probe(sender=pod("a2"), to=PENDING.cluster_ip, expect=ON_BOTH, spread=True, clauses=(change.ADDRESS,)),
    clauses=POD_CLAUSES
    | NODE_PORT_CLAUSES
    | SPREAD
    | {
        "external-ip.reaches-ready-endpoint",
        "objects.without-cluster-ip.untouched",
        "change.address.followed",
    },
    features={Feature.NODE_PORT, Feature.EXTERNAL_IPS},
)

OF_ONE_FAMILY = case(
    "objects.of-one-family",
    "The node port of a Service of one family belongs to the node's daemons in the other family.",
    Apply(web := service("web", "a1", "b1", type=Type.NODE_PORT)),
    Probe(sender=client("a"), to=web.node_port("a").in_other_family(), expect=UNTOUCHED),
    Probe(sender=pod("a2"), to=web.node_port("a").in_other_family(), expect=UNTOUCHED),
    Probe(sender=host("b"), to=web.node_port("b").in_other_family(), expect=UNTOUCHED),
    Probe(sender=client("a"), to=web.node_port("a"), expect=FROM_BOTH, spread=True),
    clauses=NODE_PORT_CLAUSES | SPREAD | {"objects.single-family.other-family-untouched"},
    features={Feature.NODE_PORT, Feature.IPV6},
)

SEVERAL_ADDRESSES_IN_AN_ENDPOINT = case(
    "objects.several-addresses-in-an-endpoint",
    "An endpoint that lists several addresses is reached at the first, whatever the others are.",
    Apply(
        listed := service(
            "listed", endpoints=(CaseEndpoint(on="a1", also=("a2", "b2")), CaseEndpoint(on="b1"))
        ),
    ),
    Probe(sender=pod("a3"), to=listed.cluster_ip, expect=ON_BOTH, spread=True),
    Probe(
        sender=host("b"),
        to=listed.cluster_ip,
        expect=FROM_BOTH,
        spread=True,
    ),
    clauses=POD_CLAUSES
    | SPREAD
    | {"masquerade.cluster-ip.host-rewritten", "slices.endpoint.first-address-only"},
)

INCOMPLETE_PORTS = case(
    "objects.incomplete-endpoint-ports",
    "Endpoint ports without a name, without a number and of number 0 disturb the whole one beside them no way.",
    Apply(
        odd := service("odd", "a1", "b1", incomplete_slice_ports=True),
        NEIGHBOUR,
    ),
    Probe(sender=pod("a2"), to=odd.cluster_ip, expect=ON_BOTH, spread=True),
    Probe(sender=pod("a2"), to=NEIGHBOUR.cluster_ip, expect=delivered_to("b2")),
    clauses=POD_CLAUSES | SPREAD | {"slices.ports.without-name-or-number.skipped"},
    features={Feature.INCOMPLETE_ENDPOINT_PORTS},  # a proxy that they end takes its whole lab with it
    regressions={"R060"},
)

LEADING_ZEROS = case(
    "objects.leading-zeros-are-decimal",
    "Octets of an endpoint's address with leading zeros are decimal: the pod is reached, and once only.",
    Apply(
        padded := service(
            "padded",
            endpoints=(
                CaseEndpoint(on="a1", leading_zeros=True),
                CaseEndpoint(on="a1", slice=1),
                CaseEndpoint(on="b1", leading_zeros=True),
            ),
        ),
        NEIGHBOUR,
    ),
    Probe(sender=pod("a2"), to=padded.cluster_ip, expect=ON_BOTH, spread=True),
    Probe(sender=pod("a2"), to=NEIGHBOUR.cluster_ip, expect=delivered_to("b2")),
    clauses=POD_CLAUSES
    | SPREAD
    | {
        "objects.addresses.leading-zeros-decimal",
        "slices.duplicates-are-one-endpoint",
        "slices.merged",
    },
    families=(Family.IPV4,),
)

LEGACY_ENDPOINTS = case(
    "objects.legacy-endpoints-are-not-read",
    "Pods that only an Endpoints object lists are no endpoints; beside slices they add nothing.",
    Apply(
        old := service("old", legacy_endpoints=("a1",)),
        mixed := service("mixed", "b1", legacy_endpoints=("a1",)),
    ),
    Probe(
        sender=pod("a2"),
        to=old.cluster_ip,
        expect=REJECTED,
        clauses=("change.fields-without-bearing.undisturbed",),
    ),
    Probe(
        sender=pod("a2"),
        to=mixed.cluster_ip,
        expect=delivered_to("b1"),
        count=12,
        clauses=("change.fields-without-bearing.undisturbed",),
    ),
    clauses=POD_CLAUSES | {"endpoints.none.rejected", "change.fields-without-bearing.undisturbed"},
)

BALANCED = service("balanced", "a1", "b1", type=Type.LOAD_BALANCER, vips=(Vip(),))

FIELDS_WITHOUT_BEARING = case(
    "objects.fields-without-bearing",
    "An application protocol, a wish for distribution, labels and an old annotation for source ranges change nothing.",
    Apply(BALANCED),
    Open(flow="inside", sender=pod("a2"), to=BALANCED.cluster_ip, expect=ON_BOTH),
    Open(flow="outside", sender=client("a"), to=BALANCED.vip(), expect=FROM_BOTH),
    Apply(
        BALANCED.replace(
            ports=(Port(app_protocol="kubernetes.io/h2c"),),
            traffic_distribution="PreferSameZone",
            labels=(("app", "web"),),
            annotations=(("service.beta.kubernetes.io/load-balancer-source-ranges", "192.0.2.128/25"),),
        )
    ),
    Probe(sender=pod("a2"), to=BALANCED.cluster_ip, expect=ON_BOTH, spread=True),
    Probe(sender=client("a"), to=BALANCED.vip(), expect=FROM_BOTH, spread=True),
    Send(flow="inside", expect=SAME_ENDPOINT, clauses=("change.fields-without-bearing.undisturbed",)),
    Send(flow="outside", expect=SAME_ENDPOINT, clauses=("change.fields-without-bearing.undisturbed",)),
    clauses=POD_CLAUSES
    | SPREAD
    | {
        "load-balancer.reaches-ready-endpoint",
        "masquerade.external-policy-cluster.rewritten",
        "change.fields-without-bearing.undisturbed",
    },
    features={Feature.LOAD_BALANCER},
)

ONE_BAD_OBJECT = case(
    "objects.one-bad-object-costs-no-other",
    "Source ranges that are none shut no other client out, and a Service with them disturbs none beside it.",
    Apply(
        bad := service(
            "bad",
            "a1",
            type=Type.LOAD_BALANCER,
            vips=(Vip(),),
            literal_source_ranges=("not-a-range", "10.0.0.0/33"),
            source_ranges=(SourceRange.NODE_NETWORK,),
        ),
        BALANCED,
    ),
    Probe(
        sender=client("a"),
        to=BALANCED.vip(),
        expect=FROM_BOTH,
        spread=True,
        clauses=(change.OTHER_SERVICES,),
    ),
    Probe(sender=client("a"), to=bad.vip(), expect=delivered_to("a1", source=MASQUERADED)),
    Probe(sender=pod("a2"), to=bad.cluster_ip, expect=delivered_to("a1")),
    clauses=POD_CLAUSES
    | SPREAD
    | {
        "load-balancer.reaches-ready-endpoint",
        "masquerade.external-policy-cluster.rewritten",
        "source-ranges.inside-allowed",
        "source-ranges.cluster-ip-exempt",
        "change.other-services.undisturbed",
    },
    features={Feature.LOAD_BALANCER, Feature.SOURCE_RANGES},
    regressions={"R060"},
)

CASES: tuple[Case, ...] = (
    WAITS_FOR_ITS_CLUSTER_IP,
    OF_ONE_FAMILY,
    SEVERAL_ADDRESSES_IN_AN_ENDPOINT,
    INCOMPLETE_PORTS,
    LEADING_ZEROS,
    LEGACY_ENDPOINTS,
    FIELDS_WITHOUT_BEARING,
    ONE_BAD_OBJECT,
)
