"""The values of a plan: what this node must do, in no backend's words."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

import msgspec

from kproxy.model.api import Key
from kproxy.model.network import Address, Family, Network, Protocol
from kproxy.proxy.plan.cache import PlanCache
from kproxy.proxy.snapshot import Note, ServicePortName


class Exposure(enum.Enum):
    """By which kind of address a client asks for the service."""

    CLUSTER_IP = "cluster IP"
    NODE_PORT = "node port"
    EXTERNAL_IP = "external IP"
    LOAD_BALANCER = "load balancer IP"


class MasqueradePolicy(enum.Enum):
    """Whose packets get the node's address as their source."""

    NEVER = enum.auto()
    OFF_CLUSTER = enum.auto()
    """All but those that the plan's `LocalDetector` knows as coming from a pod."""
    ALWAYS = enum.auto()


class OnEmpty(enum.Enum):
    """What a client gets from a frontend whose pool is empty."""

    REJECT = enum.auto()
    """ICMP port unreachable: no endpoint in the whole cluster."""
    DROP = enum.auto()
    """Silence: endpoints exist, none of them allowed here."""


class PoolScope(enum.Enum):
    """Which endpoints a pool was chosen from; names the pool within its service port."""

    CLUSTER = enum.auto()
    LOCAL = enum.auto()


class PoolEndpoint(msgspec.Struct, frozen=True, gc=False):
    """A backend of a service port; ``local`` means on this node (by nodeName, never by address)."""

    address: Address
    port: int
    local: bool


class Pool(msgspec.Struct, frozen=True, gc=False):
    """The endpoints new connections are spread over, in stable order; may be empty."""

    scope: PoolScope
    endpoints: tuple[PoolEndpoint, ...]


class Frontend(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One address a client may use.

    ``address`` is None for a node port: the plan's `NodePorts` say which addresses those are.
    ``pool`` serves what comes from elsewhere.  ``shortcut``, where not None, serves packets of this
    node's pods (source preserved) and of the node itself (masqueraded) instead: external traffic
    policy Local does not bind those.  ``sources`` None admits everybody; otherwise others are dropped,
    before any endpoint is chosen; ``allow_hairpin_source`` also admits packets whose source is ``address`` itself.
    """

    exposure: Exposure
    address: Address | None
    port: int
    pool: Pool
    on_empty: OnEmpty
    masquerade: MasqueradePolicy
    shortcut: Pool | None = None
    sources: tuple[Network, ...] | None = None
    allow_hairpin_source: bool = False


class ServicePlan(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """All that this node does for one service port in one family.

    ``affinity_seconds`` None means no ClientIP affinity.  Two plans made from unchanged input
    are the *same object*, so a backend may remember by identity what it compiled.
    ``serving`` holds, for UDP, every endpoint that still serves, chosen or not and whatever node it is on:
    flows to these are left alone (``term.udp-keeps-serving``, ``ct.udp.policy-change``).
    """

    name: ServicePortName
    protocol: Protocol
    frontends: tuple[Frontend, ...]
    affinity_seconds: int | None
    serving: tuple[PoolEndpoint, ...] = ()


@dataclass(frozen=True, slots=True)
class DetectByCIDR:
    """A packet is a local pod's when its source is in this network (ClusterCIDR, NodeCIDR)."""

    network: Network


@dataclass(frozen=True, slots=True)
class DetectByInterface:
    """A packet is a local pod's when it came in by this interface (BridgeInterface)."""

    name: str


@dataclass(frozen=True, slots=True)
class DetectByInterfacePrefix:
    """A packet is a local pod's when its interface's name starts so (InterfaceNamePrefix)."""

    prefix: str


LocalDetector = DetectByCIDR | DetectByInterface | DetectByInterfacePrefix | None
"""How to know a packet of this node's pods; None: no way, nothing is taken for one."""


@dataclass(frozen=True, slots=True)
class NodePorts:
    """Which local addresses accept node ports.

    ``addresses`` None means every local address (but IPv6 loopback, which never does); otherwise
    exactly these, none of them a loopback address.  ``localhost`` says whether IPv4 loopback addresses do
    (where the mode can).
    """

    addresses: tuple[Address, ...] | None
    localhost: bool


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """A health check node port: load balancers ask there whether this node has endpoints of the Service.

    ``endpoints`` counts the distinct addresses of its ready endpoints on this node, over all its ports
    (``hcnp.scope``, ``hcnp.count-ips``).
    """

    service: Key
    port: int
    endpoints: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSettings:
    """The part of the configuration that decides policy, one family's view of it.

    ``node`` is this node's name.  ``node_addresses`` are the addresses of its interfaces now,
    ``node_ips`` its primary addresses by the Node object.  ``node_port_cidrs``: None for all.
    ``service_cidrs`` are the networks that cluster IPs are taken from, as far as the API server tells.
    ``notes``: what of those objects could not be used.
    """

    family: Family
    node: str
    zone: str = ""
    node_ips: tuple[Address, ...] = ()
    node_addresses: tuple[Address, ...] = ()
    detector: LocalDetector = None
    masquerade_all: bool = False
    node_port_cidrs: tuple[Network, ...] | None = None
    localhost_node_ports: bool = True
    allow_external_ips: bool = True
    service_cidrs: tuple[Network, ...] = ()
    notes: tuple[Note, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What one node must do in one family.

    No two frontends of the plan have the same address (or None), port and protocol.  Addresses in ``service_cidrs``
    that no Service has lead nowhere (``undef.unallocated``).  ``cluster_ip_masquerade``: whose packets to cluster IPs are
    masqueraded; the settings decide it for all alike, so it holds before there is a Service, too.
    """

    family: Family
    services: tuple[ServicePlan, ...]
    node_ports: NodePorts
    detector: LocalDetector
    cluster_ip_masquerade: MasqueradePolicy
    service_cidrs: tuple[Network, ...] = ()
    health_checks: tuple[HealthCheck, ...] = ()
    notes: tuple[Note, ...] = ()
    cache: PlanCache = field(default_factory=PlanCache, compare=False, repr=False)
