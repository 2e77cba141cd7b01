"""Cases on node ports: every node serves them, on the addresses it should, and no others.

Only values; the vocabulary is `kproxy.conformance.case`.  On every node a daemon listens on every node
port's number: what is not served by the proxy is seen to reach that daemon.
"""

from __future__ import annotations

from kproxy.conformance.case import (
    DROPPED,
    MASQUERADED,
    REJECTED,
    STILL,
    UNTOUCHED,
    Apply,
    Case,
    Feature,
    Hold,
    Port,
    Probe,
    Type,
    Use,
    case,
    client,
    delivered_to,
    host,
    loopback_daemon,
    pod,
    remote,
    service,
)
from kproxy.conformance.cases.profiles import (
    LOCALHOST_OFF,
    NO_DETECTOR,
    NODE_PORT_CIDR,
    PRIMARY_WITHOUT_EXTERNAL_IPS,
)
from kproxy.net import Family, Protocol

IPV4_ONLY = (Family.IPV4,)
IPV6_ONLY = (Family.IPV6,)

ON_A = service("on-a", "a1", type=Type.NODE_PORT)
WEB = service("web", "a1", "b1", type=Type.NODE_PORT)
DNS = service("dns", "a1", "b1", type=Type.NODE_PORT, ports=(Port(number=53, protocol=Protocol.UDP),))

FROM_A1 = delivered_to("a1", source=MASQUERADED)
FROM_BOTH = delivered_to("a1", "b1", source=MASQUERADED)

SERVED = {"node-port.reaches-ready-endpoint", "masquerade.external-policy-cluster.rewritten"}
SPREAD = {"balancing.every-endpoint-chosen"}
INSIDE = {"node-port.addresses.inside-configured.served"}
OUTSIDE = {"node-port.addresses.outside-configured.untouched"}

CLIENTS_OUTSIDE_ARE_REWRITTEN = case(
    "node-port.clients-outside-are-rewritten",
    "Clients on-link and routed reach endpoints near and far through either node, and are rewritten.",
    Apply(WEB),
    Probe(sender=client("a"), to=WEB.node_port("a"), expect=FROM_BOTH, spread=True),
    Probe(sender=client("b"), to=WEB.node_port("b"), expect=FROM_BOTH, spread=True),
    Probe(sender=remote("a"), to=WEB.node_port("a"), expect=FROM_BOTH, spread=True),
    Probe(sender=remote("b"), to=WEB.node_port("b"), expect=FROM_BOTH, spread=True),
    clauses=SERVED | SPREAD,
    features={Feature.NODE_PORT},
)

DATAGRAMS_TOO = case(
    "node-port.datagrams-too",
    "The same for UDP, from outside, from a pod and from the node; large datagrams pass.",
    Apply(DNS),
    Probe(sender=client("a"), to=DNS.node_port("a"), expect=FROM_BOTH, spread=True, oversize=4000),
    Probe(sender=remote("b"), to=DNS.node_port("b"), expect=FROM_BOTH, spread=True),
    Probe(sender=pod("a2"), to=DNS.node_port("a"), expect=FROM_BOTH, spread=True),
    Probe(sender=host("a"), to=DNS.node_port("a"), expect=FROM_BOTH, spread=True),
    clauses=SERVED | SPREAD | {"protocol.udp.served", "payload.large.passes"},
    features={Feature.NODE_PORT},
)

NODE_WITHOUT_ENDPOINT_SERVES = case(
    "node-port.node-without-endpoint-serves",
    "A node that has no endpoint of the Service serves its node port like one that has.",
    Apply(ON_A),
    Probe(sender=client("b"), to=ON_A.node_port("b"), expect=FROM_A1),
    Probe(sender=remote("b"), to=ON_A.node_port("b"), expect=FROM_A1),
    Probe(sender=pod("b1"), to=ON_A.node_port("b"), expect=FROM_A1),
    Probe(sender=host("b"), to=ON_A.node_port("b"), expect=FROM_A1),
    Probe(sender=client("a"), to=ON_A.node_port("a"), expect=FROM_A1),
    clauses=SERVED | {"node-port.every-node.served"},
    features={Feature.NODE_PORT},
)

FROM_INSIDE = case(
    "node-port.from-inside",
    "Pods and nodes reach node ports of their own node, and are rewritten.",
    Apply(WEB),
    Probe(sender=pod("a2"), to=WEB.node_port("a"), expect=FROM_BOTH, spread=True),
    Probe(sender=pod("a1"), to=WEB.node_port("a"), expect=FROM_BOTH, spread=True),
    Probe(sender=host("a"), to=WEB.node_port("a"), expect=FROM_BOTH, spread=True),
    clauses=SERVED | SPREAD | {"masquerade.hairpin.rewritten"},
    features={Feature.NODE_PORT},
    regressions={"R074"},
)

FROM_THE_OTHER_NODE = case(
    "node-port.from-the-other-node",
    "Pods and processes of one node reach the node port of another, which serves them.",
    Apply(ON_A),
    Probe(sender=pod("a2"), to=ON_A.node_port("b"), expect=FROM_A1),
    Probe(sender=pod("a1"), to=ON_A.node_port("b"), expect=FROM_A1),
    Probe(sender=host("a"), to=ON_A.node_port("b"), expect=FROM_A1),
    Probe(sender=pod("b1"), to=ON_A.node_port("a"), expect=FROM_A1),
    Probe(sender=host("b"), to=ON_A.node_port("a"), expect=FROM_A1),
    clauses=SERVED | {"node-port.every-node.served"},
    features={Feature.NODE_PORT},
)

HOST_NETWORK_ENDPOINT_OF_THE_OTHER_NODE = case(
    "node-port.host-network-endpoint-of-the-other-node",
    "A node port leads to a node's own address as it does to a pod's.",
    Apply(daemon := service("daemon", "b", type=Type.NODE_PORT)),
    Probe(sender=client("a"), to=daemon.node_port("a"), expect=delivered_to("b", source=MASQUERADED)),
    Probe(sender=pod("a1"), to=daemon.node_port("a"), expect=delivered_to("b", source=MASQUERADED)),
    clauses=SERVED | {"node-port.every-node.served", "slices.endpoint.host-network.reached"},
    features={Feature.NODE_PORT},
    regressions={"R042"},
)

EACH_PORT_ITS_OWN = case(
    "node-port.each-port-its-own",
    "Two ports of a Service have a node port each, and neither leads to the other's endpoint port.",
    Apply(
        two := service("two", "a1", type=Type.NODE_PORT, ports=(Port(name="a"), Port(name="b", number=81)))
    ),
    Probe(sender=client("a"), to=two.node_port("a").at("a"), expect=FROM_A1),
    Probe(sender=client("a"), to=two.node_port("a").at("b"), expect=FROM_A1),
    clauses=SERVED | {"slices.ports.matched-by-name-and-protocol"},
    features={Feature.NODE_PORT},
)

ONE_NUMBER_TWO_PROTOCOLS = case(
    "node-port.one-number-two-protocols",
    "A TCP and a UDP port may have the same node port; each leads to its own endpoint port.",
    Apply(
        twins := service(
            "twins",
            "a1",
            type=Type.NODE_PORT,
            ports=(Port(name="a"), Port(name="b", protocol=Protocol.UDP, same_node_port_as="a")),
        )
    ),
    Probe(sender=client("a"), to=twins.node_port("a").at("a"), expect=FROM_A1),
    Probe(sender=client("a"), to=twins.node_port("a").at("b"), expect=FROM_A1),
    Probe(sender=remote("b"), to=twins.node_port("b").at("b"), expect=FROM_A1),
    clauses=SERVED
    | {
        "node-port.every-node.served",
        "protocol.udp.served",
        "protocol.same-number.independent",
        "slices.ports.matched-by-name-and-protocol",
    },
    features={Feature.NODE_PORT},
)

OTHER_PROTOCOL_IS_UNTOUCHED = case(
    "node-port.other-protocol-is-untouched",
    "A node port of TCP only leaves datagrams to that number to the node's own daemons.",
    Apply(ON_A),
    Probe(sender=client("a"), to=ON_A.node_port("a").over(Protocol.UDP), expect=UNTOUCHED),
    Probe(sender=client("a"), to=ON_A.node_port("a"), expect=FROM_A1),
    clauses=SERVED | {"traffic.not-for-a-service.untouched"},
    features={Feature.NODE_PORT},
)

NUMBER_IS_NOT_SERVED_ON_THE_CLUSTER_IP = case(
    "node-port.number-is-not-served-on-the-cluster-ip",
    "The node port's number leads nowhere on the cluster IP, neither to an endpoint nor to a node's daemon.",
    Apply(WEB),
    Probe(sender=pod("a2"), to=WEB.cluster_ip.at_node_port_number(), expect=REJECTED | UNTOUCHED),
    Probe(sender=client("b"), to=WEB.cluster_ip.at_node_port_number(), expect=REJECTED | UNTOUCHED),
    Probe(sender=pod("a2"), to=WEB.cluster_ip, expect=delivered_to("a1", "b1")),
    clauses={
        "cluster-ip.reaches-ready-endpoint",
        "masquerade.cluster-ip.pod-source-preserved",
        "node-port.number-on-service-address.not-served",
    },
    features={Feature.NODE_PORT},
    regressions={"R052"},
)

MOVES_TO_ANOTHER_NUMBER = case(
    "node-port.moves-to-another-number",
    "When the node port changes, the new one is served and the old one is the node's again.",
    Apply(WEB),
    Probe(sender=client("a"), to=WEB.node_port("a"), expect=FROM_BOTH),
    Apply(moved := WEB.but(generation=1)),
    Probe(sender=client("a"), to=moved.node_port("a"), expect=FROM_BOTH, spread=True),
    Probe(sender=client("a"), to=WEB.node_port("a"), expect=UNTOUCHED),
    Probe(sender=host("a"), to=WEB.node_port("a"), expect=UNTOUCHED),
    clauses=SERVED | SPREAD | {"traffic.not-for-a-service.untouched", "change.address.followed"},
    features={Feature.NODE_PORT},
)

COMES_AND_GOES_WITH_THE_TYPE = case(
    "node-port.comes-and-goes-with-the-type",
    "A Service gains and loses its node port with its type; its cluster IP and connections stay.",
    Apply(WEB.but(type=Type.CLUSTER_IP)),
    Probe(sender=client("a"), to=WEB.node_port("a"), expect=UNTOUCHED),
    Hold(flow="cluster", sender=pod("a2"), to=WEB.cluster_ip, expect=delivered_to("a1", "b1")),
    Apply(WEB),
    Probe(sender=client("a"), to=WEB.node_port("a"), expect=FROM_BOTH, spread=True),
    Apply(WEB.but(type=Type.CLUSTER_IP)),
    Probe(sender=client("a"), to=WEB.node_port("a"), expect=UNTOUCHED),
    Probe(sender=pod("a2"), to=WEB.cluster_ip, expect=delivered_to("a1", "b1")),
    Use(flow="cluster", expect=STILL, clauses=("established.survives-port-change-elsewhere",)),
    clauses=SERVED
    | SPREAD
    | {
        "cluster-ip.reaches-ready-endpoint",
        "masquerade.cluster-ip.pod-source-preserved",
        "traffic.not-for-a-service.untouched",
        "established.survives-port-change-elsewhere",
        "change.type.followed",
    },
    features={Feature.NODE_PORT},
)

# ------------------------------------------------------------------- which addresses of a node

SECOND_ADDRESS_BY_DEFAULT = case(
    "node-port.second-address-by-default",
    "By default a node's second address may serve node ports or not; its first one does.",
    Apply(WEB),
    Probe(sender=client("a"), to=WEB.node_port("a", second=True), expect=FROM_BOTH | UNTOUCHED),
    Probe(sender=client("a"), to=WEB.node_port("a"), expect=FROM_BOTH, spread=True),
    clauses=SERVED | SPREAD | {"node-port.addresses.default-not-primary.either"},
    features={Feature.NODE_PORT},
    regressions={"R067"},
)

ONLY_CONFIGURED_ADDRESSES_SERVE = case(
    "node-port.only-configured-addresses-serve",
    "With a list of ranges the addresses inside serve, and those outside belong to the node's daemons.",
    Apply(WEB),
    Probe(sender=client("a"), to=WEB.node_port("a"), expect=FROM_BOTH, spread=True),
    Probe(sender=pod("a2"), to=WEB.node_port("a"), expect=FROM_BOTH, spread=True),
    Probe(sender=host("b"), to=WEB.node_port("a"), expect=FROM_BOTH),
    Probe(sender=client("a"), to=WEB.node_port("a", second=True), expect=UNTOUCHED),
    Probe(sender=host("a"), to=WEB.node_port("a", second=True), expect=UNTOUCHED),
    Probe(sender=pod("a2"), to=WEB.node_port("a", second=True), expect=UNTOUCHED),
    clauses=SERVED | SPREAD | INSIDE | OUTSIDE,
    features={Feature.NODE_PORT},
    profile=NODE_PORT_CIDR,
)

LOCALHOST_OUTSIDE_THE_LIST = case(
    "node-port.localhost-outside-the-list",
    "A list of ranges without loopback's leaves node ports on 127.0.0.1 to the node's daemons.",
    Apply(WEB),
    Probe(sender=host("a"), to=WEB.localhost("a"), expect=UNTOUCHED),
    Probe(sender=host("a"), to=WEB.node_port("a"), expect=FROM_BOTH),
    clauses=SERVED | INSIDE | OUTSIDE,
    features={Feature.NODE_PORT},
    profile=NODE_PORT_CIDR,
    families=IPV4_ONLY,
)

UNLISTED_ADDRESS_WITHOUT_ENDPOINT = case(
    "node-port.unlisted-address-without-endpoint",
    "Without endpoints a listed address refuses; one that is not listed may refuse as well, but serves nobody.",
    Apply(empty := service("empty", type=Type.NODE_PORT), WEB),
    Probe(sender=client("a"), to=empty.node_port("a"), expect=REJECTED),
    Probe(sender=client("a"), to=empty.node_port("a", second=True), expect=REJECTED | UNTOUCHED),
    Probe(sender=client("a"), to=WEB.node_port("a"), expect=FROM_BOTH),
    clauses=SERVED | INSIDE | {"endpoints.none.rejected", "node-port.addresses.reject-scope.either"},
    features={Feature.NODE_PORT},
    profile=NODE_PORT_CIDR,
)

ZERO_RANGE_TAKES_EVERY_ADDRESS = case(
    "node-port.zero-range-takes-every-address",
    "A /0 range takes in the second address too, whatever else is listed.",
    Apply(WEB),
    Probe(sender=client("a"), to=WEB.node_port("a"), expect=FROM_BOTH),
    Probe(sender=client("a"), to=WEB.node_port("a", second=True), expect=FROM_BOTH, spread=True),
    Probe(sender=pod("b2"), to=WEB.node_port("b", second=True), expect=FROM_BOTH, spread=True),
    clauses=SERVED | SPREAD | {"node-port.addresses.zero-range.served"},
    features={Feature.NODE_PORT},
    profile=LOCALHOST_OFF,
    families=IPV4_ONLY,
)

FAMILY_NOT_LISTED_TAKES_EVERY_ADDRESS = case(
    "node-port.family-not-listed-takes-every-address",
    "A list without a range of the family binds that family not at all.",
    Apply(WEB),
    Probe(sender=client("a"), to=WEB.node_port("a"), expect=FROM_BOTH),
    Probe(sender=client("a"), to=WEB.node_port("a", second=True), expect=FROM_BOTH, spread=True),
    clauses=SERVED | SPREAD | {"node-port.addresses.family-not-listed.served"},
    features={Feature.NODE_PORT},
    profile=LOCALHOST_OFF,
    families=IPV6_ONLY,
)

PRIMARY_MEANS_THE_NODE_OBJECTS_ADDRESS = case(
    "node-port.primary-means-the-node-objects-address",
    "With nodePortAddresses primary, the address of the Node object serves and no other does.",
    Apply(WEB),
    Probe(sender=client("a"), to=WEB.node_port("a"), expect=FROM_BOTH, spread=True),
    Probe(sender=client("a"), to=WEB.node_port("a", second=True), expect=UNTOUCHED),
    Probe(sender=host("a"), to=WEB.node_port("a", second=True), expect=UNTOUCHED),
    clauses=SERVED
    | SPREAD
    | {"node-port.addresses.primary.served", "node-port.addresses.not-primary.untouched"},
    features={Feature.NODE_PORT},
    profile=PRIMARY_WITHOUT_EXTERNAL_IPS,
)

# ------------------------------------------------------------------- loopback

LOCALHOST_BY_DEFAULT = case(
    "node-port.localhost-by-default",
    "By default 127.0.0.1 may serve node ports or not; the node's own address does.",
    Apply(WEB),
    Probe(sender=host("a"), to=WEB.localhost("a"), expect=FROM_BOTH | UNTOUCHED, count=8),
    Probe(sender=host("a"), to=WEB.node_port("a"), expect=FROM_BOTH, spread=True),
    clauses=SERVED | SPREAD | {"node-port.localhost.default.either"},
    features={Feature.NODE_PORT},
    regressions={"R064"},
    families=IPV4_ONLY,
)

LOCALHOST_SERVES_WHEN_ASKED_TO = case(
    "node-port.localhost-serves-when-asked-to",
    "With localhostNodePorts true the node reaches node ports on 127.0.0.1, endpoints near and far.",
    Apply(WEB),
    Probe(sender=host("a"), to=WEB.localhost("a"), expect=FROM_BOTH, spread=True),
    Probe(sender=host("a"), to=WEB.node_port("a"), expect=FROM_BOTH, spread=True),
    clauses=SERVED | SPREAD | {"node-port.localhost.enabled.served"},
    features={Feature.NODE_PORT, Feature.LOCALHOST_NODE_PORTS},
    regressions={"R064", "R066"},
    profile=NO_DETECTOR,
    families=IPV4_ONLY,
)

LOCALHOST_IS_LEFT_ALONE_WHEN_OFF = case(
    "node-port.localhost-is-left-alone-when-off",
    "With localhostNodePorts false 127.0.0.1 belongs to the node's daemons, though every address is listed.",
    Apply(WEB),
    Probe(sender=host("a"), to=WEB.localhost("a"), expect=UNTOUCHED),
    Probe(sender=host("b"), to=WEB.localhost("b"), expect=UNTOUCHED),
    Probe(sender=host("a"), to=WEB.node_port("a"), expect=FROM_BOTH, spread=True),
    clauses=SERVED
    | SPREAD
    | {"node-port.localhost.disabled.untouched", "node-port.addresses.zero-range.served"},
    features={Feature.NODE_PORT},
    profile=LOCALHOST_OFF,
    families=IPV4_ONLY,
)

IPV6_LOCALHOST_NEVER_SERVES = case(
    "node-port.ipv6-localhost-never-serves",
    "The address ::1 belongs to the node's daemons and does not hang.",
    Apply(WEB),
    Probe(sender=host("a"), to=WEB.localhost("a"), expect=UNTOUCHED),
    Probe(sender=host("a"), to=WEB.node_port("a"), expect=FROM_BOTH, spread=True),
    clauses=SERVED | SPREAD | {"node-port.localhost.ipv6.untouched"},
    features={Feature.NODE_PORT},
    regressions={"R064", "R065"},
    families=IPV6_ONLY,
)

LOOPBACK_DAEMONS_ARE_OUT_OF_REACH = case(
    "node-port.loopback-daemons-are-out-of-reach",
    "A neighbour who routes 127.0.0.1 to a node reaches nothing there; the node's own processes do.",
    Apply(WEB),
    Probe(sender=client("a"), to=loopback_daemon("a"), expect=DROPPED),
    Probe(sender=client("a"), to=loopback_daemon("a", Protocol.UDP), expect=DROPPED),
    Probe(sender=host("a"), to=loopback_daemon("a"), expect=UNTOUCHED),
    Probe(sender=host("a"), to=loopback_daemon("a", Protocol.UDP), expect=UNTOUCHED),
    Probe(sender=client("a"), to=WEB.node_port("a"), expect=FROM_BOTH, spread=True),
    clauses=SERVED | SPREAD | {"node-port.localhost.martian-dropped", "traffic.not-for-a-service.untouched"},
    features={Feature.NODE_PORT},
    regressions={"R063"},
    families=IPV4_ONLY,
)

LOOPBACK_DAEMONS_ARE_OUT_OF_REACH_WHEN_LOCALHOST_SERVES = case(
    "node-port.loopback-daemons-are-out-of-reach-when-localhost-serves",
    "The same on a node that was asked to serve node ports on 127.0.0.1, where the kernel lets martians in.",
    Apply(WEB),
    Probe(sender=client("a"), to=loopback_daemon("a"), expect=DROPPED),
    Probe(sender=client("a"), to=WEB.localhost("a"), expect=DROPPED),
    Probe(sender=host("a"), to=loopback_daemon("a"), expect=UNTOUCHED),
    Probe(sender=host("a"), to=WEB.localhost("a"), expect=FROM_BOTH, spread=True),
    clauses=SERVED
    | SPREAD
    | {
        "node-port.localhost.enabled.served",
        "node-port.localhost.martian-dropped",
        "traffic.not-for-a-service.untouched",
    },
    features={Feature.NODE_PORT, Feature.LOCALHOST_NODE_PORTS},
    regressions={"R063"},
    profile=NO_DETECTOR,
    families=IPV4_ONLY,
)

CASES: tuple[Case, ...] = (
    CLIENTS_OUTSIDE_ARE_REWRITTEN,
    DATAGRAMS_TOO,
    NODE_WITHOUT_ENDPOINT_SERVES,
    FROM_INSIDE,
    FROM_THE_OTHER_NODE,
    HOST_NETWORK_ENDPOINT_OF_THE_OTHER_NODE,
    EACH_PORT_ITS_OWN,
    ONE_NUMBER_TWO_PROTOCOLS,
    OTHER_PROTOCOL_IS_UNTOUCHED,
    NUMBER_IS_NOT_SERVED_ON_THE_CLUSTER_IP,
    MOVES_TO_ANOTHER_NUMBER,
    COMES_AND_GOES_WITH_THE_TYPE,
    SECOND_ADDRESS_BY_DEFAULT,
    ONLY_CONFIGURED_ADDRESSES_SERVE,
    LOCALHOST_OUTSIDE_THE_LIST,
    UNLISTED_ADDRESS_WITHOUT_ENDPOINT,
    ZERO_RANGE_TAKES_EVERY_ADDRESS,
    FAMILY_NOT_LISTED_TAKES_EVERY_ADDRESS,
    PRIMARY_MEANS_THE_NODE_OBJECTS_ADDRESS,
    LOCALHOST_BY_DEFAULT,
    LOCALHOST_SERVES_WHEN_ASKED_TO,
    LOCALHOST_IS_LEFT_ALONE_WHEN_OFF,
    IPV6_LOCALHOST_NEVER_SERVES,
    LOOPBACK_DAEMONS_ARE_OUT_OF_REACH,
    LOOPBACK_DAEMONS_ARE_OUT_OF_REACH_WHEN_LOCALHOST_SERVES,
)
