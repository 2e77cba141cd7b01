"""Services with their endpoints, as a case declares them, in names. Pure."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

from kproxy.conformance.case.targets import Target, TargetKind
from kproxy.model.network import Protocol


class Policy(enum.Enum):
    """Traffic policy of a Service."""

    CLUSTER = "Cluster"
    LOCAL = "Local"


class Type(enum.Enum):
    """Service ``spec.type``."""

    CLUSTER_IP = "ClusterIP"
    NODE_PORT = "NodePort"
    LOAD_BALANCER = "LoadBalancer"
    EXTERNAL_NAME = "ExternalName"


class SourceRange(enum.Enum):
    """Source range in names; `CaseService.source_ranges` also takes names of single addresses."""

    EVERYWHERE = "0.0.0.0/0 or ::/0"
    LOWER_HALF = "0.0.0.0/1 or ::/1"
    UPPER_HALF = "128.0.0.0/1 or 8000::/1"
    CLUSTER_CIDR = "the pods of all nodes"
    NODE_NETWORK = "the nodes' network, the on-link client included"
    REMOTE_NETWORK = "the routed client's network"
    NOWHERE = "a network without a client (192.0.2.128/25, 2001:db8:ffff::/64)"


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
    app_protocol: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseEndpoint:
    """An endpoint: a pod (``a1``) or a node (``a``: a host-network pod).

    Conditions and hints are written to the EndpointSlice as given; None leaves the field out.
    ``also``: pods whose addresses the endpoint lists after its own.  ``leading_zeros``: its IPv4 address is
    written with some.  ``slice`` numbers the EndpointSlice it is in.  ``shift`` moves its target port, as a named
    target port may.  ``listed_node``: nodeName to write; "" leaves it out; None its own node.
    ``many``: that many endpoints instead, at addresses of the pod's range (`kproxy.lab.topology`) from number ``first`` on.
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
    also: tuple[str, ...] = ()
    leading_zeros: bool = False
    first: int = 0
    many: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Vip:
    """A load balancer ingress address; ``hostname_only`` writes a hostname instead of an address.

    ``node``: the node whose own address it is, the one of its second interface if ``second``.
    """

    ip_mode: str | None = None
    hostname_only: bool = False
    node: str = ""
    second: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseService:
    """A Service with its EndpointSlices, in names.  Build with `service`."""

    name: str
    type: Type = Type.CLUSTER_IP
    ports: tuple[Port, ...] = (Port(),)
    endpoints: tuple[CaseEndpoint, ...] = ()
    headless: bool = False
    without_cluster_ip: bool = False
    """True if its cluster IP is not allocated yet."""
    internal_policy: Policy | None = None
    external_policy: Policy | None = None
    external_ips: int = 0
    external_ips_of: tuple[str, ...] = ()
    """Nodes whose own addresses are the first of its externalIPs."""
    external_ips_second: bool = False
    """These are the addresses of the nodes' second interfaces."""
    literal_external_ips: tuple[str, ...] = ()
    """More externalIPs, as literal text (for bad ones)."""
    vips: tuple[Vip, ...] = ()
    raw_vips: tuple[str, ...] = ()
    """More load balancer IPs before them, as literal text (of either family)."""
    source_ranges: tuple[SourceRange | str, ...] = ()
    """Places, or names of pods, nodes, ``client``, ``remote`` (their single address)."""
    literal_source_ranges: tuple[str, ...] = ()
    affinity_seconds: int | None = None
    labels: tuple[tuple[str, str], ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()
    slice_labels: tuple[tuple[str, str], ...] = ()
    slice_owner: bool = True
    """True if its slices carry the ``kubernetes.io/service-name`` label."""
    slice_ports: tuple[Port, ...] | None = None
    """Ports that its slices list, by name and protocol; None: those of the Service."""
    incomplete_slice_ports: bool = False
    """True if its slices also list a port without a name, one without a number and one of number 0."""
    unnumbered_slice_port: bool = False
    """True if its slices also list a port of another name without a number, as the API has it for other uses than Services."""
    legacy_endpoints: tuple[str, ...] = ()
    """Pods that an Endpoints object of its name lists: the API before EndpointSlice; no controller mirrors it here."""
    address_type: str | None = None
    """EndpointSlice addressType; None: the family's own."""
    dual_stack: bool = False
    """True if it has a cluster IP and slices of the other family too, after those of the case's own."""
    slices_of_one_family: bool = False
    """True if a dual-stack Service has slices of the case's own family only."""
    outside_service_cidr: bool = False
    """True if its cluster IP is in a range that no ServiceCIDR has."""
    in_second_service_cidr: bool = False
    """True if its cluster IP is in the range that only `AddServiceCidr` adds to the ServiceCIDRs."""
    traffic_distribution: str = ""
    same_cluster_ip_as: str | None = None
    """Name of a Service (maybe deleted) of this case whose cluster IP this one has."""
    same_vip_as: str | None = None
    """Name of a Service of this case whose load balancer IPs (and external IPs) this one has."""
    same_target_ports_as: str | None = None
    """Name of a Service of this case whose target ports this one has: by port name, so that a pod behind both is one endpoint."""
    generation: int = 0
    """Generation: a different number gives the same name other cluster, external and load balancer IPs and node ports."""

    def replace(self, **changes: object) -> CaseService:
        """Same Service with some fields changed."""
        return replace(self, **changes)  # type: ignore[arg-type]

    @property
    def cluster_ip(self) -> Target:
        """Target: its cluster IP, first port."""
        return Target(TargetKind.CLUSTER_IP, self.name, self.generation)

    def node_port(self, node: str, *, second: bool = False) -> Target:
        """Target: its node port on a node's primary address (or on the one of its second interface)."""
        kind = TargetKind.NODE_PORT_SECOND if second else TargetKind.NODE_PORT
        return Target(kind, self.name, self.generation, node=node)

    def node_port_at_added_address(self, node: str) -> Target:
        """Target: its node port on the address that `AddNodeAddress` adds to the node."""
        return Target(TargetKind.NODE_PORT_ADDED_ADDRESS, self.name, self.generation, node=node)

    def health_check(self, node: str, *, second: bool = False) -> Target:
        """Target: its health check node port on a node's primary address (or on the one of its second interface)."""
        kind = TargetKind.HEALTH_CHECK_SECOND if second else TargetKind.HEALTH_CHECK
        return Target(kind, self.name, self.generation, node=node)

    @property
    def health_check_at_cluster_ip(self) -> Target:
        """Target: the number of its health check node port at its cluster IP, where nothing should listen."""
        return Target(TargetKind.HEALTH_CHECK_CLUSTER_IP, self.name, self.generation)

    def localhost(self, node: str) -> Target:
        """Target: its node port on 127.0.0.1 (or ::1), for the host of that node."""
        return Target(TargetKind.NODE_PORT_LOCALHOST, self.name, self.generation, node=node)

    def external_ip(self, index: int = 0) -> Target:
        """Target: one of its externalIPs, first port."""
        return Target(TargetKind.EXTERNAL_IP, self.name, self.generation, index=index)

    def vip(self, index: int = 0) -> Target:
        """Target: one of its load balancer IPs, first port."""
        return Target(TargetKind.VIP, self.name, self.generation, index=index)


def pods(*names: str) -> tuple[CaseEndpoint, ...]:
    """Ready endpoints on these pods (or nodes)."""
    return tuple(CaseEndpoint(on=name) for name in names)


def service(name: str, *on: str, **fields: object) -> CaseService:
    """Service whose ready endpoints are on the given pods; other fields as in `CaseService`."""
    endpoints = pods(*on) if on else fields.pop("endpoints", ())
    return CaseService(name=name, endpoints=endpoints, **fields)  # type: ignore[arg-type]


def endpoint_target(service: CaseService, on: str) -> Target:
    """Target: the pod's own address and the target port it has for that Service."""
    return Target(TargetKind.ENDPOINT, service.name, service.generation, node=on)
