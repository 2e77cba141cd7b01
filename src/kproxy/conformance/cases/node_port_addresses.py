"""Cases on the addresses of a node: which serve node ports, and what becomes of loopback.

Only values; the vocabulary is `kproxy.conformance.case`.  On every node a daemon listens on every node
port's number: what is not served by the proxy is seen to reach that daemon.
"""

from __future__ import annotations

from kproxy.conformance.case import (
    DROPPED,
    MASQUERADED,
    REJECTED,
    UNTOUCHED,
    AddNodeAddress,
    Apply,
    Case,
    Feature,
    Policy,
    Port,
    Probe,
    Type,
    Vip,
    case,
    client,
    delivered_to,
    host,
    loopback_daemon,
    pod,
    service,
)
from kproxy.conformance.cases.common import FROM_BOTH, NODE_PORT_CLAUSES, SPREAD
from kproxy.conformance.cases.profiles import (
    LOCALHOST_OFF,
    NO_DETECTOR,
    NODE_PORT_CIDR,
    PRIMARY_WITHOUT_EXTERNAL_IPS,
)
from kproxy.model.network import Family, Protocol

IPV4_ONLY = (Family.IPV4,)
IPV6_ONLY = (Family.IPV6,)

WEB = service("web", "a1", "b1", type=Type.NODE_PORT)


INSIDE = {"node-port.addresses.inside-configured.served"}
OUTSIDE = {"node-port.addresses.outside-configured.untouched"}

# ------------------------------------------------------------------- which addresses of a node

SECOND_ADDRESS_BY_DEFAULT = case(
    "node-port.second-address-by-default",
    "By default a node's second address may serve node ports or not; its first one does.",
    Apply(WEB),
    Probe(sender=client("a"), to=WEB.node_port("a", second=True), expect=FROM_BOTH | UNTOUCHED),
    Probe(sender=client("a"), to=WEB.node_port("a"), expect=FROM_BOTH, spread=True),
    clauses=NODE_PORT_CLAUSES | SPREAD | {"node-port.addresses.default-not-primary.either"},
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
    clauses=NODE_PORT_CLAUSES | SPREAD | INSIDE | OUTSIDE | {"node-port.other-node.untouched"},
    features={Feature.NODE_PORT},
    profile=NODE_PORT_CIDR,
)

LOCALHOST_OUTSIDE_THE_LIST = case(
    "node-port.localhost-outside-the-list",
    "A list of ranges without loopback's leaves node ports on 127.0.0.1 to the node's daemons.",
    Apply(WEB),
    Probe(sender=host("a"), to=WEB.localhost("a"), expect=UNTOUCHED),
    Probe(sender=host("a"), to=WEB.node_port("a"), expect=FROM_BOTH),
    clauses=NODE_PORT_CLAUSES | INSIDE | OUTSIDE,
    features={Feature.NODE_PORT},
    profile=NODE_PORT_CIDR,
    families=IPV4_ONLY,
)

UNLISTED_ADDRESS_WITHOUT_ENDPOINT = case(
    "node-port.unlisted-address-without-endpoint",
    "Without endpoints a listed address refuses; one that is not listed may refuse as well, but does not "
    "serve.",
    Apply(empty := service("empty", type=Type.NODE_PORT), WEB),
    Probe(sender=client("a"), to=empty.node_port("a"), expect=REJECTED),
    Probe(sender=client("a"), to=empty.node_port("a", second=True), expect=REJECTED | UNTOUCHED),
    Probe(sender=client("a"), to=WEB.node_port("a"), expect=FROM_BOTH),
    clauses=NODE_PORT_CLAUSES
    | INSIDE
    | {"endpoints.none.rejected", "node-port.addresses.reject-scope.either"}
    | OUTSIDE,
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
    clauses=NODE_PORT_CLAUSES | SPREAD | {"node-port.addresses.zero-range.served"},
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
    clauses=NODE_PORT_CLAUSES | SPREAD | {"node-port.addresses.family-not-listed.served"},
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
    clauses=NODE_PORT_CLAUSES
    | SPREAD
    | {"node-port.addresses.primary.served", "node-port.addresses.not-primary.untouched"},
    features={Feature.NODE_PORT},
    profile=PRIMARY_WITHOUT_EXTERNAL_IPS,
)

NEW_ADDRESS_IS_NOT_PRIMARY = case(
    "node-port.new-address-is-not-primary",
    "With nodePortAddresses primary, an address of the same network that the node gets later does not serve.",
    Apply(WEB),
    Probe(sender=client("a"), to=WEB.node_port("a"), expect=FROM_BOTH, spread=True),
    AddNodeAddress("a"),
    Apply(later := service("later", "b2", type=Type.NODE_PORT)),
    Probe(sender=client("a"), to=later.node_port("a"), expect=delivered_to("b2", source=MASQUERADED)),
    Probe(sender=client("a"), to=later.node_port_at_added_address("a"), expect=UNTOUCHED),
    Probe(sender=client("a"), to=WEB.node_port_at_added_address("a"), expect=UNTOUCHED),
    Probe(sender=pod("a2"), to=WEB.node_port_at_added_address("a"), expect=UNTOUCHED),
    Probe(sender=host("a"), to=WEB.node_port_at_added_address("a"), expect=UNTOUCHED),
    clauses=NODE_PORT_CLAUSES
    | SPREAD
    | {
        "node-port.every-node.served",
        "node-port.addresses.primary.served",
        "node-port.addresses.not-primary.untouched",
    },
    features={Feature.NODE_PORT},
    profile=PRIMARY_WITHOUT_EXTERNAL_IPS,
)

NEW_ADDRESS_SERVES = case(
    "node-port.new-address-serves",
    "Where every address serves, one that the node gets later does so too, for clients outside and inside.",
    Apply(WEB),
    Probe(sender=client("a"), to=WEB.node_port("a"), expect=FROM_BOTH, spread=True),
    AddNodeAddress("a"),
    Probe(sender=client("a"), to=WEB.node_port_at_added_address("a"), expect=FROM_BOTH, spread=True),
    Probe(sender=pod("a2"), to=WEB.node_port_at_added_address("a"), expect=FROM_BOTH, spread=True),
    Probe(sender=host("a"), to=WEB.node_port_at_added_address("a"), expect=FROM_BOTH, spread=True),
    clauses=NODE_PORT_CLAUSES
    | SPREAD
    | {
        "node-port.addresses.gained.served",
        "node-port.addresses.zero-range.served",
        "node-port.addresses.family-not-listed.served",
    },
    features={Feature.NODE_PORT},
    profile=LOCALHOST_OFF,
)

OPEN = service("open", "a1", "b1", type=Type.LOAD_BALANCER, vips=(Vip(),), external_ips=1)
OPEN_UDP = OPEN.replace(name="open-udp", ports=(Port(number=53, protocol=Protocol.UDP),))
NOWHERE_NEAR = {"node-port.number-on-service-address.not-served"}

NUMBER_WHERE_EVERY_ADDRESS_SERVES = case(
    "node-port.number-where-every-address-serves",
    "That every address of a node serves node ports makes no node port of that number at a Service's own addresses.",
    Apply(OPEN, OPEN_UDP),
    *(
        Probe(
            sender=sender, to=to.at_node_port_number(), expect=REJECTED | UNTOUCHED, clauses=(*NOWHERE_NEAR,)
        )
        for to in (OPEN.vip(), OPEN.external_ip(), OPEN.cluster_ip, OPEN_UDP.vip(), OPEN_UDP.cluster_ip)
        for sender in (client("a"), pod("b2"), host("a"))
    ),
    Probe(sender=client("a"), to=OPEN.node_port("a"), expect=FROM_BOTH),
    Probe(sender=client("a"), to=OPEN.node_port("a", second=True), expect=FROM_BOTH),
    Probe(sender=client("a"), to=OPEN_UDP.node_port("a", second=True), expect=FROM_BOTH),
    clauses=NODE_PORT_CLAUSES
    | NOWHERE_NEAR
    | {
        "protocol.udp.served",
        "node-port.addresses.zero-range.served",
        "node-port.addresses.family-not-listed.served",
    },
    features={Feature.NODE_PORT, Feature.LOAD_BALANCER, Feature.EXTERNAL_IPS},
    regressions={"R050"},
    profile=LOCALHOST_OFF,
)

# ------------------------------------------------------------------- loopback

LOCALHOST_BY_DEFAULT = case(
    "node-port.localhost-by-default",
    "By default 127.0.0.1 may serve node ports or not; the node's own address does.",
    Apply(WEB),
    Probe(sender=host("a"), to=WEB.localhost("a"), expect=FROM_BOTH | UNTOUCHED, count=8),
    Probe(sender=host("a"), to=WEB.node_port("a"), expect=FROM_BOTH, spread=True),
    clauses=NODE_PORT_CLAUSES | SPREAD | {"node-port.localhost.default.either"},
    features={Feature.NODE_PORT},
    regressions={"R064"},
    families=IPV4_ONLY,
)

LOCALHOST_SERVES_WHEN_ENABLED = case(
    "node-port.localhost-serves-when-asked-to",
    "With localhostNodePorts true the node reaches node ports on 127.0.0.1, endpoints near and far.",
    Apply(WEB),
    Probe(sender=host("a"), to=WEB.localhost("a"), expect=FROM_BOTH, spread=True),
    Probe(sender=host("a"), to=WEB.node_port("a"), expect=FROM_BOTH, spread=True),
    clauses=NODE_PORT_CLAUSES | SPREAD | {"node-port.localhost.enabled.served"},
    features={Feature.NODE_PORT, Feature.LOCALHOST_NODE_PORTS},
    regressions={"R064", "R066"},
    profile=NO_DETECTOR,
    families=IPV4_ONLY,
)

LOCALHOST_UNDER_POLICY_LOCAL = case(
    "node-port.localhost-under-policy-local",
    "Under external policy Local the node reaches endpoints near and far on 127.0.0.1 too, rewritten.",
    Apply(local := WEB.replace(external_policy=Policy.LOCAL)),
    Probe(sender=host("a"), to=local.localhost("a"), expect=FROM_BOTH, spread=True),
    clauses=SPREAD
    | {
        "node-port.reaches-ready-endpoint",
        "node-port.localhost.enabled.served",
        "external-policy.local.host-reaches-all-endpoints",
    },
    features={Feature.NODE_PORT, Feature.LOCALHOST_NODE_PORTS, Feature.EXTERNAL_TRAFFIC_POLICY},
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
    clauses=NODE_PORT_CLAUSES
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
    clauses=NODE_PORT_CLAUSES | SPREAD | {"node-port.localhost.ipv6.untouched"},
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
    clauses=NODE_PORT_CLAUSES
    | SPREAD
    | {"node-port.localhost.martian-dropped", "traffic.not-for-a-service.untouched"},
    features={Feature.NODE_PORT},
    regressions={"R063"},
    families=IPV4_ONLY,
)

LOOPBACK_DAEMONS_ARE_OUT_OF_REACH_WHEN_LOCALHOST_SERVES = case(
    "node-port.loopback-daemons-are-out-of-reach-when-localhost-serves",
    "The same on a node that is configured to serve node ports on 127.0.0.1, where the kernel lets martians "
    "in.",
    Apply(WEB),
    Probe(sender=client("a"), to=loopback_daemon("a"), expect=DROPPED),
    Probe(sender=host("a"), to=loopback_daemon("a"), expect=UNTOUCHED),
    Probe(sender=host("a"), to=WEB.localhost("a"), expect=FROM_BOTH, spread=True),
    clauses=NODE_PORT_CLAUSES
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
    SECOND_ADDRESS_BY_DEFAULT,
    ONLY_CONFIGURED_ADDRESSES_SERVE,
    LOCALHOST_OUTSIDE_THE_LIST,
    UNLISTED_ADDRESS_WITHOUT_ENDPOINT,
    ZERO_RANGE_TAKES_EVERY_ADDRESS,
    FAMILY_NOT_LISTED_TAKES_EVERY_ADDRESS,
    PRIMARY_MEANS_THE_NODE_OBJECTS_ADDRESS,
    NEW_ADDRESS_IS_NOT_PRIMARY,
    NEW_ADDRESS_SERVES,
    NUMBER_WHERE_EVERY_ADDRESS_SERVES,
    LOCALHOST_BY_DEFAULT,
    LOCALHOST_SERVES_WHEN_ENABLED,
    LOCALHOST_UNDER_POLICY_LOCAL,
    LOCALHOST_IS_LEFT_ALONE_WHEN_OFF,
    IPV6_LOCALHOST_NEVER_SERVES,
    LOOPBACK_DAEMONS_ARE_OUT_OF_REACH,
    LOOPBACK_DAEMONS_ARE_OUT_OF_REACH_WHEN_LOCALHOST_SERVES,
)
