"""Values of a plan: what this node must do, in terms of no backend."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

import msgspec

from kproxy.model.api import Key
from kproxy.model.network import Address, Family, Network, Protocol
from kproxy.proxy.plan.cache import PlanCache
from kproxy.proxy.snapshot import Note, ServicePortName


class Exposure(enum.Enum):
    """Kind of service address: the field of the Service that a frontend comes from."""

    CLUSTER_IP = "cluster IP"
    NODE_PORT = "node port"
    EXTERNAL_IP = "external IP"
    LOAD_BALANCER = "load balancer IP"


class MasqueradePolicy(enum.Enum):
    """Packets of a frontend that get the node's address as their source."""

    NEVER = enum.auto()
    OFF_CLUSTER = enum.auto()
    """All packets, except those that the plan's `LocalDetector` recognises as coming from a pod."""
    ALWAYS = enum.auto()


class OnEmpty(enum.Enum):
    """Reply of a frontend whose pool is empty."""

    REJECT = enum.auto()
    """ICMP port unreachable: no endpoint in the whole cluster."""
    DROP = enum.auto()
    """Silence: endpoints exist, but the policy allows none of them on this node."""


class PoolScope(enum.Enum):
    """Traffic policy that a pool was chosen by; names the pool within its service port."""

    CLUSTER = enum.auto()
    LOCAL = enum.auto()


class PoolEndpoint(msgspec.Struct, frozen=True, gc=False):
    """An endpoint of a pool; ``may_be_here``: on this node by nodeName (never by address), or without one.

    Such a pod may be sent to itself (``masquerade.hairpin.rewritten``).
    """

    address: Address
    port: int
    may_be_here: bool


class Pool(msgspec.Struct, frozen=True, gc=False):
    """The endpoints new connections are spread over, in stable order; may be empty."""

    scope: PoolScope
    endpoints: tuple[PoolEndpoint, ...]


class Frontend(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One address and port at which clients reach a service port.

    ``address`` is None for a node port: the plan's `NodePorts` list those addresses. ``pool`` serves packets
    from outside. ``shortcut``, where not None, serves packets of this node's pods (source preserved) and of
    the node itself (masqueraded) instead: external traffic policy Local does not bind those. ``sources`` None
    admits every source; otherwise others are dropped, before any endpoint is chosen; ``allow_hairpin_source``
    also admits packets whose source is ``address`` itself.
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


FrontendKey = tuple[Address | None, int, Protocol]
"""Address (None for a node port), port and protocol of a frontend: no two frontends of a plan have the same."""


class ServicePlan(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Plan of one service port in one family.

    ``affinity_seconds`` None means no ClientIP affinity. Two plans made from unchanged input are the *same
    object*, so a backend may cache by identity what it compiled. ``serving`` holds, for UDP, every endpoint
    that still serves, chosen or not and whatever node it is on: flows to these are left alone
    (``conntrack.udp.stays-with-serving-terminating-endpoint``, ``conntrack.udp.stays-on-policy-change``).
    ``relay_sockets``: the open sockets of a relay, for UDP, where these are the endpoints of the pools.
    """

    name: ServicePortName
    protocol: Protocol
    frontends: tuple[Frontend, ...]
    affinity_seconds: int | None
    serving: tuple[PoolEndpoint, ...] = ()
    relay_sockets: tuple[PoolEndpoint, ...] = ()


@dataclass(frozen=True, slots=True)
class DetectByCIDR:
    """Detects packets of local pods by their source in this network (ClusterCIDR, NodeCIDR)."""

    network: Network


@dataclass(frozen=True, slots=True)
class DetectByInterface:
    """Detects packets of local pods by the interface they came in by (BridgeInterface)."""

    name: str


@dataclass(frozen=True, slots=True)
class DetectByInterfacePrefix:
    """Detects packets of local pods by a prefix of that interface's name (InterfaceNamePrefix)."""

    prefix: str


LocalDetector = DetectByCIDR | DetectByInterface | DetectByInterfacePrefix | None
"""Detector of packets from this node's pods; None: no packet is taken for one."""


@dataclass(frozen=True, slots=True)
class NodePorts:
    """Local addresses that accept node ports.

    ``addresses`` None means every local address (but IPv6 loopback, which never does); otherwise exactly
    these, none of them a loopback address. ``localhost``: True if IPv4 loopback addresses do (where the mode
    can).
    """

    addresses: tuple[Address, ...] | None
    localhost: bool


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """Health check node port: load balancers query there whether this node has endpoints of the Service.

    ``endpoints`` counts the distinct addresses of its ready endpoints on this node, over all its ports
    (``health-check.local-endpoints.told``, ``health-check.number.told``).
    """

    service: Key
    port: int
    endpoints: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSettings:
    """The part of the configuration that decides policy, for one family.

    ``node`` is this node's name. ``node_addresses`` are the addresses of its interfaces now, ``node_ips`` its
    primary addresses by the Node object. ``node_port_cidrs``: None for all. ``service_cidrs`` are the
    networks that cluster IPs are allocated from, as far as the API server publishes them. ``notes``: parts of
    those objects that could not be used.
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
    """Plan of one node in one family.

    No two frontends of the plan have the same address (or None), port and protocol. Packets to addresses in
    ``service_cidrs`` that no Service has are dropped, in the modes that can (``cluster-ip.unallocated.not-served``).
    ``cluster_ip_masquerade``: packets to cluster IPs that are masqueraded; the settings decide it for all
    alike, so it is set even without Services.
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
