"""Cases on externalIPs: served though no interface has them, on the ports of their Service only.

Only values; the vocabulary is `kproxy.conformance.case`.  Whatever a node does not serve of these
addresses goes on to the lab's elsewhere, which answers: being left alone is seen, not guessed.
"""

from __future__ import annotations

from kproxy.conformance.case import (
    MASQUERADED,
    REJECTED,
    SAME_ENDPOINT,
    UNTOUCHED,
    Apply,
    Case,
    Delete,
    Feature,
    Open,
    Port,
    Probe,
    Send,
    Type,
    case,
    client,
    delivered_to,
    endpoint_target,
    host,
    pod,
    remote,
    service,
)
from kproxy.conformance.cases import change
from kproxy.conformance.cases.common import FROM_BOTH, POD_CLAUSES, SPREAD
from kproxy.conformance.cases.profiles import FORWARD_DROP, NODE_PORT_CIDR, PRIMARY_WITHOUT_EXTERNAL_IPS
from kproxy.model.network import Protocol

WEB = service("web", "a1", "b1", external_ips=1)
FROM_B2 = delivered_to("b2", source=MASQUERADED)
FROM_OTHER = delivered_to("b2", source=MASQUERADED, service="other")

SERVED = {"external-ip.reaches-ready-endpoint", "masquerade.external-policy-cluster.rewritten"}
NOT_SERVED = {"external-address.undefined-port.not-served"}
LEFT_ALONE = {"traffic.not-for-a-service.untouched"}

REACHED_FROM_EVERYWHERE = case(
    "external-ip.reached-from-everywhere",
    "Clients on-link and routed, pods and nodes reach every endpoint, and are rewritten.",
    Apply(WEB),
    Probe(sender=client("a"), to=WEB.external_ip(), expect=FROM_BOTH, spread=True),
    Probe(sender=remote("b"), to=WEB.external_ip(), expect=FROM_BOTH, spread=True),
    Probe(sender=pod("a2"), to=WEB.external_ip(), expect=FROM_BOTH, spread=True),
    Probe(sender=host("b"), to=WEB.external_ip(), expect=FROM_BOTH, spread=True),
    clauses=SERVED | SPREAD,
    features={Feature.EXTERNAL_IPS},
)

DATAGRAMS_TOO = case(
    "external-ip.datagrams-too",
    "The same for UDP, from an endpoint of the Service as well.",
    Apply(dns := service("dns", "a1", "b1", external_ips=1, ports=(Port(number=53, protocol=Protocol.UDP),))),
    Probe(sender=client("b"), to=dns.external_ip(), expect=FROM_BOTH, spread=True),
    Probe(sender=pod("a1"), to=dns.external_ip(), expect=FROM_BOTH, spread=True),
    clauses=SERVED | SPREAD | {"protocol.udp.served"},
    features={Feature.EXTERNAL_IPS},
)

SEVERAL_ADDRESSES = case(
    "external-ip.several-addresses",
    "Each of two external IPs of a node port Service is served, on the service port; "
    "the node port's number is not.",
    Apply(two := service("two", "a1", "b1", type=Type.NODE_PORT, external_ips=2)),
    Probe(sender=client("a"), to=two.external_ip(0), expect=FROM_BOTH, spread=True),
    Probe(sender=client("a"), to=two.external_ip(1), expect=FROM_BOTH, spread=True),
    Probe(
        sender=client("a"),
        to=two.external_ip(0).at_node_port_number(),
        expect=REJECTED | UNTOUCHED,
    ),
    Probe(
        sender=pod("a2"),
        to=two.external_ip(1).at_node_port_number(),
        expect=REJECTED | UNTOUCHED,
    ),
    clauses=SERVED | SPREAD | {"node-port.number-on-service-address.not-served"},
    features={Feature.EXTERNAL_IPS, Feature.NODE_PORT},
)

OTHER_PORTS_LEAD_NOWHERE = case(
    "external-ip.other-ports-lead-nowhere",
    "A port the Service does not have leads to no endpoint, nor does its number over another protocol.",
    Apply(WEB),
    Probe(sender=client("a"), to=WEB.external_ip().at_undefined_port(), expect=REJECTED | UNTOUCHED),
    Probe(sender=pod("a2"), to=WEB.external_ip().at_undefined_port(), expect=REJECTED | UNTOUCHED),
    Probe(sender=client("a"), to=WEB.external_ip().over(Protocol.UDP), expect=REJECTED | UNTOUCHED),
    Probe(sender=client("a"), to=WEB.external_ip(), expect=FROM_BOTH),
    clauses=SERVED | NOT_SERVED,
    features={Feature.EXTERNAL_IPS},
    regressions={"R051"},
)

REFUSED_BY_THE_GATE = case(
    "external-ip.refused-by-the-gate",
    "With external IPs switched off no packet is translated: all go where routing takes them.",
    Apply(WEB),
    Probe(sender=client("a"), to=WEB.external_ip(), expect=UNTOUCHED),
    Probe(sender=pod("a2"), to=WEB.external_ip(), expect=UNTOUCHED),
    Probe(sender=host("b"), to=WEB.external_ip(), expect=UNTOUCHED),
    Probe(sender=pod("a2"), to=WEB.cluster_ip, expect=delivered_to("a1", "b1")),
    clauses=POD_CLAUSES | {"external-ip.disabled.untouched"},
    features={Feature.EXTERNAL_IPS},
    regressions={"R061"},
    profile=PRIMARY_WITHOUT_EXTERNAL_IPS,
)

BAD_TEXT_IS_PASSED_OVER = case(
    "external-ip.bad-text-is-passed-over",
    "Addresses of both families and texts that are none stand before a good address, which is served; so "
    "are the cluster IP and the neighbour.",
    Apply(
        poisoned := service(
            "poisoned",
            "a1",
            "b1",
            external_ips=1,
            literal_external_ips=("203.0.113.77", "2001:db8:77::1", "not-an-address", "203.0.113.300", ""),
        ),
        neighbour := service("neighbour", "b2", external_ips=1),
    ),
    Probe(sender=client("a"), to=poisoned.external_ip(), expect=FROM_BOTH, spread=True),
    Probe(sender=pod("a2"), to=poisoned.cluster_ip, expect=delivered_to("a1", "b1")),
    Probe(sender=client("a"), to=neighbour.external_ip(), expect=FROM_B2, clauses=(change.OTHER_SERVICES,)),
    clauses=SERVED
    | POD_CLAUSES
    | SPREAD
    | {"external-ip.bad-text.skipped", "change.other-services.undisturbed"},
    features={Feature.EXTERNAL_IPS},
    regressions={"R060"},
)

SHARED_BY_TWO_SERVICES = case(
    "external-ip.shared-by-two-services",
    "Two Services have one external IP on different ports; when one is deleted the other is still served.",
    Apply(
        WEB,
        mail := service("mail", "b2", external_ips=1, same_vip_as="web", ports=(Port(number=25),)),
    ),
    Probe(sender=client("a"), to=WEB.external_ip(), expect=FROM_BOTH, spread=True),
    Probe(sender=client("a"), to=mail.external_ip(), expect=FROM_B2),
    Open(flow="mail", sender=client("a"), to=mail.external_ip(), expect=FROM_B2),
    Delete(WEB),
    Probe(sender=client("a"), to=mail.external_ip(), expect=FROM_B2),
    Probe(
        sender=client("a"),
        to=WEB.external_ip(),
        expect=REJECTED | UNTOUCHED,
        clauses=(change.SERVICE_DELETED,),
    ),
    Send(flow="mail", expect=SAME_ENDPOINT, clauses=("change.other-services.undisturbed",)),
    clauses=SERVED
    | SPREAD
    | NOT_SERVED
    | {"change.service-deleted.not-served", "change.other-services.undisturbed"},
    features={Feature.EXTERNAL_IPS},
    regressions={"R053"},
)

CLAIMED_BY_TWO_SERVICES = case(
    "external-ip.claimed-by-two-services",
    "Of two Services that list one external IP and port either may answer, and no other; both keep their "
    "own addresses.",
    Apply(
        WEB,
        other := service("other", "b2", external_ips=1, same_vip_as="web"),
    ),
    Probe(sender=client("a"), to=WEB.external_ip(), expect=FROM_BOTH | FROM_OTHER, count=12),
    Probe(sender=pod("a2"), to=WEB.external_ip(), expect=FROM_BOTH | FROM_OTHER, count=12),
    Probe(sender=pod("a2"), to=WEB.cluster_ip, expect=delivered_to("a1", "b1"), spread=True),
    Probe(sender=pod("a2"), to=other.cluster_ip, expect=delivered_to("b2")),
    clauses=SERVED
    | SPREAD
    | {
        "cluster-ip.reaches-ready-endpoint",
        "masquerade.cluster-ip.pod-source-preserved",
        "traffic.two-services-one-address.either",
    },
    features={Feature.EXTERNAL_IPS},
    regressions={"R055"},
)

ADDRESSES_COME_AND_GO = case(
    "external-ip.addresses-come-and-go",
    "An external IP that is added is served; one that is taken away is left to routing.",
    Apply(WEB),
    Probe(sender=client("a"), to=WEB.external_ip(0), expect=FROM_BOTH),
    Apply(pair := WEB.replace(external_ips=2)),
    Probe(
        sender=client("a"), to=pair.external_ip(1), expect=FROM_BOTH, spread=True, clauses=(change.ADDRESS,)
    ),
    Apply(WEB),
    Probe(sender=client("a"), to=pair.external_ip(1), expect=UNTOUCHED, clauses=(change.ADDRESS,)),
    Probe(sender=pod("a2"), to=pair.external_ip(1), expect=UNTOUCHED, clauses=(change.ADDRESS,)),
    Probe(sender=client("a"), to=WEB.external_ip(0), expect=FROM_BOTH, spread=True),
    clauses=SERVED | SPREAD | LEFT_ALONE | {"change.address.followed"},
    features={Feature.EXTERNAL_IPS},
)

# ------------------------------------------------------------------- addresses of a node

REWRITTEN = {"masquerade.external-policy-cluster.rewritten"}
IN_REACH = "external-ip.node-address.node-in-reach"

EXTERNAL_IP_OF_A_NODE = case(
    "external-ip.address-of-a-node",
    "An external IP that is a node's own address takes its port there and elsewhere, and nothing else of that node.",
    Apply(
        shared := service("shared", "a1", "b1", external_ips=1, external_ips_of=("b",)),
        direct := service("direct", "b"),
    ),
    Probe(sender=pod("a2"), to=shared.external_ip(), expect=FROM_BOTH),
    Probe(sender=host("a"), to=shared.external_ip(), expect=FROM_BOTH),
    Probe(sender=client("b"), to=shared.external_ip(), expect=FROM_BOTH),
    Probe(sender=host("a"), to=endpoint_target(direct, "b"), expect=UNTOUCHED, clauses=(IN_REACH,)),
    Probe(sender=pod("a2"), to=endpoint_target(direct, "b"), expect=UNTOUCHED, clauses=(IN_REACH,)),
    clauses=REWRITTEN | {"external-ip.reaches-ready-endpoint", IN_REACH},
    features={Feature.EXTERNAL_IPS, Feature.EXTERNAL_IPS_OF_NODES},
    regressions={"R056"},
    profile=FORWARD_DROP,
)

OWN = WEB.replace(name="own", type=Type.NODE_PORT, external_ips_of=("b",), external_ips_second=True)

EXTERNAL_IP_OF_THE_NODE_ITSELF = case(
    "external-ip.address-of-the-node-itself",
    "An external IP that is an address of the node that serves it takes its port there; at other ports the node's own programs answer.",
    Apply(OWN),
    *(
        Probe(sender=one, to=OWN.external_ip(), expect=FROM_BOTH, spread=True)
        for one in (pod("b2"), host("b"))
    ),
    *(
        Probe(sender=one, to=OWN.node_port("b", second=True), expect=UNTOUCHED)
        for one in (pod("b2"), host("b"))
    ),
    Probe(sender=client("b"), to=OWN.node_port("b"), expect=FROM_BOTH),
    clauses=SERVED
    | SPREAD
    | {
        "node-port.reaches-ready-endpoint",
        "node-port.addresses.inside-configured.served",
        "node-port.addresses.outside-configured.untouched",
    },
    features={Feature.EXTERNAL_IPS, Feature.NODE_PORT},
    regressions={"R056"},
    profile=NODE_PORT_CIDR,
)

CASES: tuple[Case, ...] = (
    REACHED_FROM_EVERYWHERE,
    DATAGRAMS_TOO,
    SEVERAL_ADDRESSES,
    OTHER_PORTS_LEAD_NOWHERE,
    REFUSED_BY_THE_GATE,
    BAD_TEXT_IS_PASSED_OVER,
    SHARED_BY_TWO_SERVICES,
    CLAIMED_BY_TWO_SERVICES,
    ADDRESSES_COME_AND_GO,
    EXTERNAL_IP_OF_A_NODE,
    EXTERNAL_IP_OF_THE_NODE_ITSELF,
)
