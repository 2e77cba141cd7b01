"""Cases on load balancer IPs: which are served by nodes, on which ports, and as a Service changes.

Only values; the vocabulary is `kproxy.conformance.case`.  Whatever a node does not serve of these
addresses goes on to the lab's elsewhere, which answers as the load balancer would.
"""

from __future__ import annotations

from kproxy.conformance.case import (
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
)
from kproxy.conformance.cases import change
from kproxy.conformance.cases.common import FROM_B1, FROM_BOTH, POD_CLAUSES, SPREAD
from kproxy.conformance.cases.profiles import FORWARD_DROP
from kproxy.model.network import Protocol

BALANCED = Type.LOAD_BALANCER
WEB = service("web", "a1", "b1", type=BALANCED, vips=(Vip(),))
FROM_B2 = delivered_to("b2", source=MASQUERADED)

SERVED = {"load-balancer.reaches-ready-endpoint", "masquerade.external-policy-cluster.rewritten"}
NODE_PORT_SERVED = {"node-port.reaches-ready-endpoint"}
NOT_SERVED = {"external-address.undefined-port.not-served"}
LEFT_ALONE = {"traffic.not-for-a-service.untouched"}
FEATURES = {Feature.LOAD_BALANCER}
WITH_NODE_PORT = {Feature.LOAD_BALANCER, Feature.NODE_PORT}

REACHED_FROM_EVERYWHERE = case(
    "load-balancer.reached-from-everywhere",
    "Clients on-link and routed, pods and nodes reach every endpoint, and are rewritten.",
    Apply(WEB),
    Probe(sender=client("a"), to=WEB.vip(), expect=FROM_BOTH, spread=True),
    Probe(sender=remote("b"), to=WEB.vip(), expect=FROM_BOTH, spread=True),
    Probe(sender=pod("b2"), to=WEB.vip(), expect=FROM_BOTH, spread=True),
    Probe(sender=pod("a1"), to=WEB.vip(), expect=FROM_BOTH, spread=True),
    Probe(sender=host("a"), to=WEB.vip(), expect=FROM_BOTH, spread=True),
    clauses=SERVED | SPREAD,
    features=FEATURES,
    regressions={"R058"},
)

DATAGRAMS_AND_CONNECTIONS_ON_ONE_ADDRESS = case(
    "load-balancer.datagrams-and-connections-on-one-address",
    "One load balancer IP and port number serve TCP and UDP side by side.",
    Apply(
        dns := service(
            "dns",
            "a1",
            "b1",
            type=BALANCED,
            vips=(Vip(),),
            ports=(Port(name="a", number=53), Port(name="b", number=53, protocol=Protocol.UDP)),
        )
    ),
    Probe(sender=client("a"), to=dns.vip().at("a"), expect=FROM_BOTH, spread=True),
    Probe(sender=client("a"), to=dns.vip().at("b"), expect=FROM_BOTH, spread=True),
    Probe(sender=pod("b2"), to=dns.vip().at("b"), expect=FROM_BOTH, spread=True),
    clauses=SERVED | SPREAD | {"protocol.udp.served", "protocol.same-number.independent"},
    features=FEATURES,
)

OTHER_FAMILY = "load-balancer.other-family.skipped"

SEVERAL_ADDRESSES_OF_BOTH_MODES = case(
    "load-balancer.several-addresses-of-both-modes",
    "Addresses without a mode and of mode VIP are served by nodes; one of mode Proxy and a mere "
    "hostname are not, and disturb nothing.",
    Apply(
        many := service(
            "many",
            "a1",
            "b1",
            type=BALANCED,
            vips=(Vip(ip_mode="Proxy"), Vip(hostname_only=True), Vip(), Vip(ip_mode="VIP")),
        )
    ),
    Probe(sender=client("a"), to=many.vip(2), expect=FROM_BOTH, spread=True),
    Probe(sender=pod("a2"), to=many.vip(2), expect=FROM_BOTH, spread=True),
    Probe(sender=client("a"), to=many.vip(3), expect=FROM_BOTH, spread=True),
    Probe(sender=client("a"), to=many.vip(0), expect=UNTOUCHED),
    Probe(sender=pod("a2"), to=many.vip(0), expect=UNTOUCHED),
    Probe(sender=host("b"), to=many.vip(0), expect=UNTOUCHED),
    Probe(sender=client("a"), to=many.node_port("a"), expect=FROM_BOTH, spread=True),
    clauses=SERVED
    | NODE_PORT_SERVED
    | SPREAD
    | {
        "load-balancer.every-ip.served",
        "load-balancer.ip-mode-proxy.untouched",
        "load-balancer.hostname-only.ignored",
    },
    features=WITH_NODE_PORT,
    regressions={"R058"},
)

ADDRESSES_OF_BOTH_FAMILIES = case(
    "load-balancer.addresses-of-both-families",
    "A Service of one family has load balancer IPs of both: those of its own are served, and other Services too.",
    Apply(
        mixed := service(
            "mixed",
            "a1",
            "b1",
            type=BALANCED,
            vips=(Vip(),),
            raw_vips=("203.0.113.78", "2001:db8:78::1"),
        ),
        neighbour := service("neighbour", "b1", type=BALANCED, vips=(Vip(),)),
    ),
    Probe(sender=client("a"), to=mixed.vip(), expect=FROM_BOTH, spread=True, clauses=(OTHER_FAMILY,)),
    Probe(sender=client("a"), to=neighbour.vip(), expect=FROM_B1, clauses=(OTHER_FAMILY,)),
    clauses=SERVED | SPREAD | {"load-balancer.every-ip.served", OTHER_FAMILY},
    features=FEATURES,
)

ONE_SOURCE_PORT_TO_TWO_ADDRESSES = case(
    "load-balancer.one-source-port-to-two-addresses",
    "A client's connections from one source port to two addresses of a Service are two, even with one endpoint.",
    Apply(two := service("two", "b1", type=BALANCED, vips=(Vip(), Vip()))),
    Open(flow="first", sender=client("a"), to=two.vip(0), expect=FROM_B1),
    Open(flow="second", sender=client("a"), to=two.vip(1), expect=FROM_B1, same_port_as="first"),
    Send(flow="first", expect=SAME_ENDPOINT, clauses=("load-balancer.every-ip.served",)),
    Send(flow="second", expect=SAME_ENDPOINT, clauses=("load-balancer.every-ip.served",)),
    clauses=SERVED | {"load-balancer.every-ip.served"},
    features=FEATURES | {Feature.SHARED_SOURCE_PORT},
)

ONLY_A_HOSTNAME = case(
    "load-balancer.only-a-hostname",
    "A load balancer known by a hostname alone leaves node port and cluster IP as they are.",
    Apply(
        named := service("named", "a1", "b1", type=BALANCED, vips=(Vip(hostname_only=True),)),
    ),
    Probe(sender=client("a"), to=named.node_port("a"), expect=FROM_BOTH, spread=True),
    Probe(sender=pod("a2"), to=named.cluster_ip, expect=delivered_to("a1", "b1"), spread=True),
    clauses=NODE_PORT_SERVED
    | POD_CLAUSES
    | SPREAD
    | {"load-balancer.hostname-only.ignored", "masquerade.external-policy-cluster.rewritten"},
    features=WITH_NODE_PORT,
)

WITHOUT_NODE_PORT = case(
    "load-balancer.without-node-port",
    "A Service without node ports is served on its load balancer IP; the number is the node's own.",
    Apply(bare := service("bare", "a1", "b1", type=BALANCED, vips=(Vip(),), ports=(Port(node_port=False),))),
    Probe(sender=client("a"), to=bare.vip(), expect=FROM_BOTH, spread=True),
    Probe(sender=pod("b2"), to=bare.vip(), expect=FROM_BOTH, spread=True),
    Probe(sender=client("a"), to=bare.node_port("a"), expect=UNTOUCHED),
    clauses=SERVED | SPREAD | LEFT_ALONE | {"load-balancer.without-node-port.served"},
    features=WITH_NODE_PORT,
)

OTHER_PORTS_LEAD_NOWHERE = case(
    "load-balancer.other-ports-lead-nowhere",
    "Neither an undefined port nor the node port's number leads to an endpoint on a load balancer IP.",
    Apply(WEB),
    Probe(sender=client("a"), to=WEB.vip().at_undefined_port(), expect=REJECTED | UNTOUCHED),
    Probe(sender=pod("a2"), to=WEB.vip().at_undefined_port(), expect=REJECTED | UNTOUCHED),
    Probe(sender=client("a"), to=WEB.vip().at_node_port_number(), expect=REJECTED | UNTOUCHED),
    Probe(sender=pod("b2"), to=WEB.vip().at_node_port_number(), expect=REJECTED | UNTOUCHED),
    Probe(sender=client("a"), to=WEB.vip(), expect=FROM_BOTH),
    clauses=SERVED | NOT_SERVED | {"node-port.number-on-service-address.not-served"},
    features=WITH_NODE_PORT,
    regressions={"R050", "R051"},
)

SHARED_BY_TWO_SERVICES = case(
    "load-balancer.shared-by-two-services",
    "Two Services share a load balancer IP on different ports; when one loses a port, "
    "the other and the remaining port are still served.",
    Apply(
        site := service(
            "site",
            "a1",
            "b1",
            type=BALANCED,
            vips=(Vip(),),
            ports=(Port(name="a"), Port(name="b", number=443)),
        ),
        mail := service(
            "mail", "b2", type=BALANCED, vips=(Vip(),), same_vip_as="site", ports=(Port(number=25),)
        ),
    ),
    Probe(sender=client("a"), to=site.vip().at("a"), expect=FROM_BOTH),
    Probe(sender=client("a"), to=site.vip().at("b"), expect=FROM_BOTH),
    Open(flow="mail", sender=client("a"), to=mail.vip(), expect=FROM_B2),
    Apply(site.replace(ports=site.ports[:1])),
    Probe(sender=client("a"), to=site.vip().at("a"), expect=FROM_BOTH, spread=True),
    Probe(
        sender=client("a"),
        to=site.vip().at("b"),
        expect=REJECTED | UNTOUCHED,
        clauses=(change.PORT_REMOVED,),
    ),
    Probe(sender=client("a"), to=mail.vip(), expect=FROM_B2),
    Send(flow="mail", expect=SAME_ENDPOINT, clauses=("change.other-services.undisturbed",)),
    clauses=SERVED
    | SPREAD
    | NOT_SERVED
    | {"change.port-removed.not-served", "change.other-services.undisturbed"},
    features=FEATURES,
    regressions={"R053", "R054"},
)

STATUS_COMES_AND_GOES = case(
    "load-balancer.status-comes-and-goes",
    "An address is served from when it stands in the status until it is taken out; the node port always.",
    Apply(WEB.replace(vips=())),
    Probe(sender=client("a"), to=WEB.vip(), expect=UNTOUCHED),
    Probe(sender=client("a"), to=WEB.node_port("a"), expect=FROM_BOTH),
    Apply(WEB),
    Probe(sender=client("a"), to=WEB.vip(), expect=FROM_BOTH, spread=True, clauses=(change.ADDRESS,)),
    Probe(sender=pod("b2"), to=WEB.vip(), expect=FROM_BOTH, clauses=(change.ADDRESS,)),
    Apply(WEB.replace(vips=())),
    Probe(sender=client("a"), to=WEB.vip(), expect=UNTOUCHED, clauses=(change.ADDRESS,)),
    Probe(sender=pod("b2"), to=WEB.vip(), expect=UNTOUCHED, clauses=(change.ADDRESS,)),
    Probe(sender=client("a"), to=WEB.node_port("a"), expect=FROM_BOTH, spread=True),
    clauses=SERVED | NODE_PORT_SERVED | SPREAD | LEFT_ALONE | {"change.address.followed"},
    features=WITH_NODE_PORT,
)

MODE_CHANGES = case(
    "load-balancer.mode-changes",
    "An address that turns from mode VIP to Proxy is the load balancer's; turned back it is the nodes' again.",
    Apply(WEB),
    Probe(sender=pod("a2"), to=WEB.vip(), expect=FROM_BOTH),
    Apply(WEB.replace(vips=(Vip(ip_mode="Proxy"),))),
    Probe(sender=pod("a2"), to=WEB.vip(), expect=UNTOUCHED, clauses=(change.ADDRESS,)),
    Probe(sender=client("b"), to=WEB.vip(), expect=UNTOUCHED, clauses=(change.ADDRESS,)),
    Probe(sender=pod("a2"), to=WEB.cluster_ip, expect=delivered_to("a1", "b1")),
    Apply(WEB.replace(vips=(Vip(ip_mode="VIP"),))),
    Probe(sender=pod("a2"), to=WEB.vip(), expect=FROM_BOTH, spread=True, clauses=(change.ADDRESS,)),
    Probe(sender=client("b"), to=WEB.vip(), expect=FROM_BOTH, spread=True, clauses=(change.ADDRESS,)),
    clauses=SERVED
    | POD_CLAUSES
    | SPREAD
    | {"load-balancer.ip-mode-proxy.untouched", "change.address.followed"},
    features=FEATURES,
    regressions={"R058"},
)

PROXY_MODE_UNDER_LOCAL_POLICY = case(
    "load-balancer.proxy-mode-under-policy-local",
    "An address of mode Proxy is the load balancer's under external policy Local too, for pods and the node as well.",
    Apply(behind := WEB.replace(vips=(Vip(ip_mode="Proxy"),), external_policy=Policy.LOCAL)),
    Probe(sender=pod("a2"), to=behind.vip(), expect=UNTOUCHED),
    Probe(sender=host("a"), to=behind.vip(), expect=UNTOUCHED),
    Probe(sender=client("b"), to=behind.vip(), expect=UNTOUCHED),
    Probe(sender=client("a"), to=behind.node_port("a"), expect=delivered_to("a1"), count=8),
    clauses=NODE_PORT_SERVED
    | {
        "load-balancer.ip-mode-proxy.untouched",
        "external-policy.local.local-endpoints-source-preserved",
    },
    features=WITH_NODE_PORT | {Feature.EXTERNAL_TRAFFIC_POLICY},
    regressions={"R058"},
)

TYPE_CHANGES = case(
    "load-balancer.type-changes",
    "Turned into a node port Service and on into a cluster IP Service, "
    "it loses one kind of address each time, and no more.",
    Apply(WEB),
    Probe(sender=client("a"), to=WEB.vip(), expect=FROM_BOTH),
    Apply(WEB.replace(type=Type.NODE_PORT, vips=())),
    Probe(sender=client("a"), to=WEB.vip(), expect=UNTOUCHED, clauses=(change.TYPE,)),
    Probe(sender=client("a"), to=WEB.node_port("a"), expect=FROM_BOTH, spread=True, clauses=(change.TYPE,)),
    Apply(WEB.replace(type=Type.CLUSTER_IP, vips=())),
    Probe(sender=client("a"), to=WEB.vip(), expect=UNTOUCHED, clauses=(change.TYPE,)),
    Probe(sender=client("a"), to=WEB.node_port("a"), expect=UNTOUCHED, clauses=(change.TYPE,)),
    Probe(
        sender=pod("a2"),
        to=WEB.cluster_ip,
        expect=delivered_to("a1", "b1"),
        spread=True,
        clauses=(change.TYPE,),
    ),
    clauses=SERVED | NODE_PORT_SERVED | POD_CLAUSES | SPREAD | LEFT_ALONE | {"change.type.followed"},
    features=WITH_NODE_PORT,
)

# ------------------------------------------------------------------- addresses of a node

REWRITTEN = {"masquerade.external-policy-cluster.rewritten"}
NODE_PORT_CLAUSES = REWRITTEN | {"node-port.reaches-ready-endpoint"}
IN_REACH = "external-ip.node-address.node-in-reach"


LOAD_BALANCER_IP_OF_A_NODE = case(
    "load-balancer.address-of-a-node",
    "Node ports go on at an address of a node that is a load balancer IP too.",
    Apply(shared := service("shared", "a1", "b1", type=Type.LOAD_BALANCER, vips=(Vip(node="a"),))),
    Probe(sender=client("a"), to=shared.vip(), expect=FROM_BOTH),
    Probe(sender=pod("b2"), to=shared.vip(), expect=FROM_BOTH),
    Probe(sender=client("a"), to=shared.node_port("a"), expect=FROM_BOTH, clauses=(IN_REACH,)),
    Probe(sender=pod("b2"), to=shared.node_port("a"), expect=FROM_BOTH, clauses=(IN_REACH,)),
    clauses=NODE_PORT_CLAUSES
    | {"load-balancer.reaches-ready-endpoint", "node-port.other-node.untouched", IN_REACH},
    features={Feature.LOAD_BALANCER, Feature.NODE_PORT, Feature.EXTERNAL_IPS_OF_NODES},
    regressions={"R057"},
    profile=FORWARD_DROP,
)

CASES: tuple[Case, ...] = (
    REACHED_FROM_EVERYWHERE,
    DATAGRAMS_AND_CONNECTIONS_ON_ONE_ADDRESS,
    SEVERAL_ADDRESSES_OF_BOTH_MODES,
    ADDRESSES_OF_BOTH_FAMILIES,
    ONE_SOURCE_PORT_TO_TWO_ADDRESSES,
    ONLY_A_HOSTNAME,
    WITHOUT_NODE_PORT,
    OTHER_PORTS_LEAD_NOWHERE,
    SHARED_BY_TWO_SERVICES,
    STATUS_COMES_AND_GOES,
    MODE_CHANGES,
    PROXY_MODE_UNDER_LOCAL_POLICY,
    TYPE_CHANGES,
    LOAD_BALANCER_IP_OF_A_NODE,
)
