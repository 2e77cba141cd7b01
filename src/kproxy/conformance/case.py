"""A conformance case: a value that says what is done and what may be seen, in names only.

No address, no sleep, no loop, no backend and no proxy's name occurs in a case.  The author writes
the lawful answers by hand; a unit test asks the oracle the same questions (double entry).
`kproxy.conformance.bind` gives the names addresses; a testbed carries the steps out.

Every case runs once in each of its ``families``, with Services of its own, beside all others.
Pods, nodes and clients are those of `kproxy.lab.topology`: pods ``a1 a2 a3`` on node ``a``,
``b1 b2 b3`` on node ``b``, an on-link client, a routed one.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, replace

from kproxy.net import Family, Protocol
from kproxy.spec.outcome import Failure, Source

# --------------------------------------------------------------------------- what is declared


class Policy(enum.Enum):
    """A traffic policy."""

    CLUSTER = "Cluster"
    LOCAL = "Local"


class Type(enum.Enum):
    """Service ``spec.type``."""

    CLUSTER_IP = "ClusterIP"
    NODE_PORT = "NodePort"
    LOAD_BALANCER = "LoadBalancer"
    EXTERNAL_NAME = "ExternalName"


class Place(enum.Enum):
    """A source-range entry in names; an endpoint or vantage name is also allowed where a `Range` is."""

    EVERYWHERE = "0.0.0.0/0 or ::/0"
    LOWER_HALF = "0.0.0.0/1 or ::/1"
    UPPER_HALF = "128.0.0.0/1 or 8000::/1"
    CLUSTER_CIDR = "the pods of all nodes"
    NODE_NETWORK = "the nodes' network, the on-link client included"
    REMOTE_NETWORK = "the routed client's network"
    NOWHERE = "a network nobody is in (192.0.2.128/25, 2001:db8:ffff::/64)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """A service port.

    Its endpoints listen on a target port that the binder picks (never the service port).
    ``node_port``: allocate one (only matters for NodePort and LoadBalancer Services).
    ``number`` fixes the service port; two ports of one Service may share a number if their
    protocols differ.  ``same_node_port_as`` names another port of the Service whose node port it shares.
    """

    name: str = ""
    number: int = 80
    protocol: Protocol = Protocol.TCP
    node_port: bool = True
    same_node_port_as: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """An endpoint: a pod (``a1``) or a node (``a``: a host-network pod).

    Conditions and hints are written to the EndpointSlice as given; None leaves the field out.
    ``slice`` numbers the EndpointSlice it is in.  ``shift`` moves its target port, as a named
    target port may.  ``listed_node``: nodeName to write; "" leaves it out; None its own node.
    """

    on: str
    ready: bool | None = True
    serving: bool | None = None
    terminating: bool | None = None
    zones: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    slice: int = 0
    shift: int = 0
    listed_node: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Vip:
    """A load balancer ingress address; ``hostname_only`` writes a hostname instead of an address."""

    ip_mode: str | None = None
    hostname_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A Service with its EndpointSlices, in names.  Build with `service`."""

    name: str
    type: Type = Type.CLUSTER_IP
    ports: tuple[Port, ...] = (Port(),)
    backends: tuple[Backend, ...] = ()
    headless: bool = False
    internal_policy: Policy | None = None
    external_policy: Policy | None = None
    external_ips: int = 0
    raw_external_ips: tuple[str, ...] = ()
    """More externalIPs, as literal text (for bad ones)."""
    vips: tuple[Vip, ...] = ()
    source_ranges: tuple[Place | str, ...] = ()
    """Places, or names of pods, nodes, ``client``, ``remote`` (their single address)."""
    raw_source_ranges: tuple[str, ...] = ()
    affinity_seconds: int | None = None
    labels: tuple[tuple[str, str], ...] = ()
    slice_labels: tuple[tuple[str, str], ...] = ()
    slice_owner: bool = True
    """Whether slices carry the ``kubernetes.io/service-name`` label."""
    address_type: str | None = None
    """EndpointSlice addressType; None: the family's own."""
    dual_stack: bool = False
    """Whether it has a cluster IP and slices of the other family too, after those of the case's own."""
    outside_service_cidr: bool = False
    """Whether its cluster IP is of a range that no ServiceCIDR names."""
    share_cluster_ip_of: str | None = None
    """Name of a Service (maybe deleted) of this case whose cluster IP this one has."""
    share_vip_of: str | None = None
    """Name of a Service of this case whose load balancer IPs (and external IPs) this one has."""
    generation: int = 0
    """A different number gives the same name other cluster, external and load balancer IPs and node ports."""

    def but(self, **changes: object) -> Service:
        """The same Service with some fields changed."""
        return replace(self, **changes)  # type: ignore[arg-type]

    @property
    def cluster_ip(self) -> Target:
        """Its cluster IP, first port."""
        return Target(TargetKind.CLUSTER_IP, self.name, self.generation)

    def node_port(self, node: str, *, second: bool = False) -> Target:
        """Its node port on a node's primary address (or on the one of its second interface)."""
        kind = TargetKind.NODE_PORT_SECOND if second else TargetKind.NODE_PORT
        return Target(kind, self.name, self.generation, node=node)

    def localhost(self, node: str) -> Target:
        """Its node port on 127.0.0.1 (or ::1), for the host of that node."""
        return Target(TargetKind.NODE_PORT_LOCALHOST, self.name, self.generation, node=node)

    def external_ip(self, index: int = 0) -> Target:
        """One of its externalIPs, first port."""
        return Target(TargetKind.EXTERNAL_IP, self.name, self.generation, index=index)

    def vip(self, index: int = 0) -> Target:
        """One of its load balancer IPs, first port."""
        return Target(TargetKind.VIP, self.name, self.generation, index=index)


def pods(*names: str) -> tuple[Backend, ...]:
    """Ready endpoints on these pods (or nodes)."""
    return tuple(Backend(on=name) for name in names)


def service(name: str, *on: str, **fields: object) -> Service:
    """A Service whose ready endpoints are on the pods named; other fields as in `Service`."""
    backends = pods(*on) if on else fields.pop("backends", ())
    return Service(name=name, backends=backends, **fields)  # type: ignore[arg-type]


# --------------------------------------------------------------------------- who asks, and whom


class VantageKind(enum.Enum):
    """Where a probe is sent from."""

    POD = enum.auto()
    HOST = enum.auto()
    ON_LINK = enum.auto()
    ROUTED = enum.auto()


@dataclass(frozen=True, slots=True)
class Vantage:
    """A sender; ``node``: its node, or the node an outside client's packets go through."""

    kind: VantageKind
    node: str
    name: str

    def __str__(self) -> str:
        """How tables name it."""
        match self.kind:
            case VantageKind.POD:
                return f"pod {self.name}"
            case VantageKind.HOST:
                return f"host {self.node}"
            case _:
                return f"{self.name} via {self.node}"


def pod(name: str) -> Vantage:
    """A process in a pod."""
    return Vantage(VantageKind.POD, name[0], name)


def host(node: str) -> Vantage:
    """A process in a node's own network namespace."""
    return Vantage(VantageKind.HOST, node, node)


def client(via: str) -> Vantage:
    """The on-link client outside; service addresses it asks for go through node ``via``."""
    return Vantage(VantageKind.ON_LINK, via, "client")


def remote(via: str) -> Vantage:
    """The routed client outside; service addresses it asks for go through node ``via``."""
    return Vantage(VantageKind.ROUTED, via, "remote")


class TargetKind(enum.Enum):
    """What a probe is sent to."""

    CLUSTER_IP = enum.auto()
    NODE_PORT = enum.auto()
    NODE_PORT_SECOND = enum.auto()
    NODE_PORT_LOCALHOST = enum.auto()
    EXTERNAL_IP = enum.auto()
    VIP = enum.auto()
    BACKEND = enum.auto()
    """A pod's own address and target port, not through any Service."""
    LOOPBACK_DAEMON = enum.auto()
    """A daemon of a node that listens on its loopback address only; from outside: a martian packet."""
    UNALLOCATED = enum.auto()
    """A cluster IP of the ServiceCIDR that no Service has."""


@dataclass(frozen=True, slots=True)
class Target:
    """An address to ask for, in names.

    ``port`` names the service port ("" is the Service's first).  ``undefined`` asks for a port
    number that the Service does not have; ``protocol`` overrides the port's own;
    ``node_port_number`` asks a cluster IP, external IP or VIP for the node port's number instead.
    """

    kind: TargetKind
    service: str = ""
    generation: int = 0
    node: str = ""
    index: int = 0
    port: str = ""
    undefined: bool = False
    node_port_number: bool = False
    protocol: Protocol | None = None

    def at(self, port: str) -> Target:
        """The same address, another named port."""
        return replace(self, port=port)

    def at_undefined_port(self) -> Target:
        """The same address, a port no Service has there."""
        return replace(self, undefined=True)

    def at_node_port_number(self) -> Target:
        """The same address, the port's node port number."""
        return replace(self, node_port_number=True)

    def over(self, protocol: Protocol) -> Target:
        """The same address and port number, another protocol."""
        return replace(self, protocol=protocol)


def backend_of(web: Service, on: str) -> Target:
    """The pod's own address and the target port it has for that Service."""
    return Target(TargetKind.BACKEND, web.name, web.generation, node=on)


def loopback_daemon(node: str, protocol: Protocol = Protocol.TCP) -> Target:
    """A daemon of that node that listens on its loopback address only."""
    return Target(TargetKind.LOOPBACK_DAEMON, node=node, protocol=protocol)


def unallocated(protocol: Protocol = Protocol.TCP) -> Target:
    """A cluster IP that no Service has."""
    return Target(TargetKind.UNALLOCATED, protocol=protocol)


# --------------------------------------------------------------------------- what may be seen


@dataclass(frozen=True, slots=True)
class ReachedBackend:
    """The symbolic twin of `kproxy.spec.outcome.Delivered`: which pod (or node), source kept or not."""

    on: str
    source: Source
    shift: int = 0


Seen = ReachedBackend | Failure
Lawful = frozenset[Seen]

PRESERVED = Source.PRESERVED
MASQUERADED = Source.MASQUERADED
REJECTED: Lawful = frozenset({Failure.REJECTED})
DROPPED: Lawful = frozenset({Failure.DROPPED})
UNTOUCHED: Lawful = frozenset({Failure.UNTOUCHED})
RESET: Lawful = frozenset({Failure.RESET})


def delivered_to(*on: str, source: Source = PRESERVED, shift: int = 0) -> Lawful:
    """Delivered to one of these pods (or nodes), which sees the client's own address or the node's."""
    return frozenset(ReachedBackend(name, source, shift) for name in on)


# --------------------------------------------------------------------------- what is done


@dataclass(frozen=True)
class Apply:
    """Create or change these Services (with their EndpointSlices; slices no longer named are deleted)."""

    services: tuple[Service, ...]

    def __init__(self, *services: Service) -> None:
        object.__setattr__(self, "services", services)


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete these Services; with ``keep_slices`` only the Service object."""

    service: Service
    keep_slices: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """New connections (or datagrams from new sockets), judged one by one.

    Every one must be lawful.  With ``spread`` enough are sent that each backend of ``expect`` must
    have been seen (wrong alarm below one in a million), otherwise ``count``.  Probes of one vantage and
    the same ``sticks`` name must all reach one backend.  ``source_port`` fixes the first one's port.
    ``oversize``: send this many bytes and have them all echoed.
    """

    sender: Vantage
    to: Target
    expect: Lawful
    clauses: tuple[str, ...] = ()
    spread: bool = False
    count: int = 1
    sticks: str = ""
    oversize: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """Open a TCP connection (or a UDP socket that keeps its port), exchange once, keep it by name."""

    flow: str
    sender: Vantage
    to: Target
    expect: Lawful


class Still(enum.Enum):
    """The flow is where it was."""

    STILL = "the same endpoint as before"


STILL = Still.STILL


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """Exchange on a held flow again.

    `STILL`: the endpoint it had answers.  Otherwise one of these outcomes (a UDP flow may move).
    """

    flow: str
    expect: Lawful | Still
    clauses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OutOfWindow:
    """The endpoint of a held TCP flow sends a segment far outside the window (conntrack: INVALID)."""

    flow: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Let time pass; only what is about time (timeouts) may."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Relabel:
    """Give a node's topology zone label another value ("" removes it); for profiles of one case."""

    node: str
    zone: str


@dataclass(frozen=True, slots=True)
class Restart:
    """Kill the node's proxy (SIGKILL) and start it again; ``meanwhile`` happens while it is down."""

    node: str
    meanwhile: Apply | Delete | None = None


Step = Apply | Delete | Probe | Hold | Use | OutOfWindow | Wait | Relabel | Restart


class Feature(enum.Enum):
    """Something a subject may leave out; its absence is a claim, not a failure."""

    NODE_PORT = "NodePort"
    EXTERNAL_IPS = "externalIPs"
    LOAD_BALANCER = "LoadBalancer"
    SOURCE_RANGES = "loadBalancerSourceRanges"
    INTERNAL_TRAFFIC_POLICY = "internalTrafficPolicy"
    EXTERNAL_TRAFFIC_POLICY = "externalTrafficPolicy"
    SESSION_AFFINITY = "sessionAffinity"
    TOPOLOGY_HINTS = "topologyHints"
    TERMINATING_ENDPOINTS = "terminatingEndpoints"
    IPV6 = "IPv6"
    SCTP = "SCTP"
    LOCALHOST_NODE_PORTS = "localhostNodePorts"
    DETECT_LOCAL = "detectLocalMode"
    MASQUERADE_ALL = "masqueradeAll"
    RESTART = "restart"


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A proxy configuration that cases share; each profile is one lab.

    Fields are those of KubeProxyConfiguration; addresses are those of `kproxy.lab.topology`.
    ``detect`` None: mode ClusterCIDR without a CIDR (no detector).
    """

    name: str
    detect: str | None = "ClusterCIDR"
    detect_interface: str = ""
    masquerade_all: bool = False
    masquerade_bit: int = 14
    node_port_addresses: tuple[str, ...] = ()
    localhost_node_ports: bool | None = None
    allow_external_ips: bool = True
    alone: bool = False
    """Its cases disturb one another (restart, relabel): they still run in parallel, in this lab only."""


DEFAULT = Profile(name="default")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One question to a service proxy.  ``clauses``: exactly those that its steps hold it to."""

    id: str
    about: str
    clauses: frozenset[str]
    steps: tuple[Step, ...]
    features: frozenset[Feature] = frozenset()
    regressions: frozenset[str] = frozenset()
    profile: Profile = DEFAULT
    families: tuple[Family, ...] = (Family.IPV4, Family.IPV6)
    slow: bool = False
    """Left out of the default set: it must wait for real time to pass."""
    notes: str = field(default="")


def case(id: str, about: str, *steps: Step, clauses: set[str], **fields: object) -> Case:
    """Shorthand: a `Case` from its steps."""
    for name in ("features", "regressions"):
        if name in fields:
            fields[name] = frozenset(fields[name])  # type: ignore[call-overload]
    return Case(id=id, about=about, steps=steps, clauses=frozenset(clauses), **fields)  # type: ignore[arg-type]


