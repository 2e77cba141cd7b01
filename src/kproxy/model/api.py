"""Kubernetes objects as frozen values, decoded from JSON by msgspec; only the fields we read.

Sits between the API server's bytes and `kproxy.proxy.snapshot` (the proxy) or `kproxy.spec` (the
specification), which both start from these values and share nothing else. It keeps the API server's values:
no merging, no defaults beyond the API's own, no policy. It may open nothing, log nothing and read no clock. A
document that does not decode is data too: see `Rejected`.

Field meanings: https://kubernetes.io/docs/reference/kubernetes-api/service-resources/
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

SERVICE_NAME_LABEL = "kubernetes.io/service-name"
PROXY_NAME_LABEL = "service.kubernetes.io/service-proxy-name"
HEADLESS_LABEL = "service.kubernetes.io/headless"
ZONE_LABEL = "topology.kubernetes.io/zone"


class _Object(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """Base of the decoded values: immutable, unknown fields ignored."""


MAX_NAME_LENGTH = 253
"""Characters of a name or a namespace: DNS subdomains, as the API server has them."""

_NAME = rf"[a-z0-9](?:[a-z0-9.-]{{0,{MAX_NAME_LENGTH - 2}}}[a-z0-9])?"
_NAMES = re.compile(rf"(?:{_NAME}\n)*+")


class Metadata(_Object, frozen=True):
    """ObjectMeta: identity and labels.  See `has_valid_names`."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    deletion_timestamp: str | None = None


class ServicePort(_Object, frozen=True):
    """One entry of Service ``spec.ports``; ``node_port`` is 0 when none is allocated."""

    name: str | None = ""
    protocol: str = "TCP"
    port: int = 0
    node_port: int = 0


class ClientIPConfig(_Object, frozen=True):
    """``spec.sessionAffinityConfig.clientIP``; seconds, None means the API's default of 10800."""

    timeout_seconds: int | None = None


class SessionAffinityConfig(_Object, frozen=True):
    """``spec.sessionAffinityConfig``."""

    client_ip: ClientIPConfig | None = msgspec.field(name="clientIP", default=None)


class ServiceSpec(_Object, frozen=True):
    """Service ``spec``."""

    type: str = "ClusterIP"
    ports: list[ServicePort] | None = None
    cluster_ip: str = msgspec.field(name="clusterIP", default="")
    cluster_ips: list[str] | None = msgspec.field(name="clusterIPs", default=None)
    external_ips: list[str] | None = msgspec.field(name="externalIPs", default=None)
    load_balancer_source_ranges: list[str] | None = None
    external_traffic_policy: str = ""
    internal_traffic_policy: str | None = None
    session_affinity: str = "None"
    session_affinity_config: SessionAffinityConfig | None = None
    health_check_node_port: int = 0


class LoadBalancerIngress(_Object, frozen=True):
    """One entry of Service ``status.loadBalancer.ingress``; ``ip_mode`` None means VIP."""

    ip: str = ""
    hostname: str = ""
    ip_mode: str | None = msgspec.field(name="ipMode", default=None)


class LoadBalancerStatus(_Object, frozen=True):
    """Service ``status.loadBalancer``."""

    ingress: list[LoadBalancerIngress] | None = None


class ServiceStatus(_Object, frozen=True):
    """Service ``status``."""

    load_balancer: LoadBalancerStatus = LoadBalancerStatus()


class Service(_Object, frozen=True):
    """A Service (core/v1)."""

    metadata: Metadata
    spec: ServiceSpec = ServiceSpec()
    status: ServiceStatus = ServiceStatus()


class EndpointConditions(_Object, frozen=True):
    """Endpoint ``conditions``; None means the API's default (ready, serving, not terminating)."""

    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None


class ForZone(_Object, frozen=True):
    """One entry of Endpoint ``hints.forZones``."""

    name: str = ""


class ForNode(_Object, frozen=True):
    """One entry of Endpoint ``hints.forNodes``."""

    name: str = ""


class EndpointHints(_Object, frozen=True):
    """Endpoint ``hints``."""

    for_zones: list[ForZone] | None = None
    for_nodes: list[ForNode] | None = None


class Endpoint(_Object, frozen=True):
    """One entry of EndpointSlice ``endpoints``; only ``addresses[0]`` has meaning to a proxy."""

    addresses: list[str] | None = None
    conditions: EndpointConditions | None = None
    hints: EndpointHints | None = None
    node_name: str | None = None
    zone: str | None = None


class EndpointPort(_Object, frozen=True):
    """One entry of EndpointSlice ``ports``."""

    name: str | None = None
    protocol: str | None = "TCP"
    port: int | None = None


class EndpointSlice(_Object, frozen=True):
    """An EndpointSlice (discovery.k8s.io/v1)."""

    metadata: Metadata
    address_type: str = "IPv4"
    endpoints: list[Endpoint] | None = None
    ports: list[EndpointPort] | None = None


class Taint(_Object, frozen=True):
    """One entry of Node ``spec.taints``."""

    key: str = ""
    effect: str = ""


class NodeSpec(_Object, frozen=True):
    """Node ``spec``."""

    pod_cidr: str = msgspec.field(name="podCIDR", default="")
    pod_cidrs: list[str] | None = msgspec.field(name="podCIDRs", default=None)
    taints: list[Taint] | None = None


class NodeAddress(_Object, frozen=True):
    """One entry of Node ``status.addresses``; ``type`` is InternalIP, ExternalIP or Hostname."""

    type: str = ""
    address: str = ""


class NodeStatus(_Object, frozen=True):
    """Node ``status``."""

    addresses: list[NodeAddress] | None = None


class Node(_Object, frozen=True):
    """A Node (core/v1)."""

    metadata: Metadata
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class ServiceCIDRSpec(_Object, frozen=True):
    """ServiceCIDR ``spec``."""

    cidrs: list[str] | None = None


class ServiceCIDR(_Object, frozen=True):
    """A ServiceCIDR (networking.k8s.io/v1)."""

    metadata: Metadata
    spec: ServiceCIDRSpec = ServiceCIDRSpec()


Object = Service | EndpointSlice | Node | ServiceCIDR
T = TypeVar("T", bound=Object)
Key = tuple[str, str]
"""(namespace, name); the namespace of a cluster-scoped object is empty."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """Object that was set aside: its kind and key, and the reason, with the path of the bad field."""

    kind: str
    key: Key
    reason: str


def key_of(item: Object) -> Key:
    """The (namespace, name) of an object."""
    return (item.metadata.namespace, item.metadata.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Objects of the API server by (namespace, name); Nodes and ServiceCIDRs have an empty namespace.

    Immutable by convention: a change makes a new `Cluster` that shares the unchanged objects.
    """

    services: Mapping[Key, Service] = field(default_factory=dict)
    slices: Mapping[Key, EndpointSlice] = field(default_factory=dict)
    nodes: Mapping[Key, Node] = field(default_factory=dict)
    service_cidrs: Mapping[Key, ServiceCIDR] = field(default_factory=dict)
    rejected: tuple[Rejected, ...] = ()

    def node(self, name: str) -> Node | None:
        """The Node of that name, if the API server knows it."""
        return self.nodes.get(("", name))


KINDS: Mapping[str, type[Service | EndpointSlice | Node | ServiceCIDR]] = {
    "Service": Service,
    "EndpointSlice": EndpointSlice,
    "Node": Node,
    "ServiceCIDR": ServiceCIDR,
}

_FIELDS: Mapping[str, str] = {
    "Service": "services",
    "EndpointSlice": "slices",
    "Node": "nodes",
    "ServiceCIDR": "service_cidrs",
}


_NO_TEXT = msgspec.Raw(b'""')


class _Identity(_Object, frozen=True):
    name: msgspec.Raw = _NO_TEXT
    namespace: msgspec.Raw = _NO_TEXT


class _Header(_Object, frozen=True):
    kind: str = ""
    metadata: _Identity = _Identity()


def has_valid_names(items: Collection[Object]) -> bool:
    """True if all names, and all namespaces that are set, are DNS subdomains.

    They become parts of rules, so an object that no API server would accept must not be decoded at all. Names
    are checked as one text, with one match, since a cluster has many.
    """
    names = [item.metadata.name for item in items]
    names += {item.metadata.namespace for item in items if item.metadata.namespace}
    joined = "\n".join((*names, ""))
    return joined.count("\n") == len(names) and _NAMES.fullmatch(joined) is not None


def decode_object(raw: bytes | msgspec.Raw, kind: type[T]) -> T | Rejected:
    """One object of a known kind from its JSON; `Rejected` when a field has the wrong type, or it is not `has_valid_names`."""
    try:
        item = msgspec.json.decode(raw, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return Rejected(kind.__name__, _key_of_undecodable(raw), str(error))
    if not has_valid_names((item,)):
        reason = f"metadata.name and namespace must be DNS subdomains of at most {MAX_NAME_LENGTH} characters"
        return Rejected(kind.__name__, _key_of_undecodable(raw), reason)
    return item


def _key_of_undecodable(raw: bytes | msgspec.Raw) -> Key:
    """Key of a document that does not decode, from its name and namespace as far as these can be read."""
    try:
        identity = msgspec.json.decode(raw, type=_Header).metadata
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ("", "")
    return (_any_text(identity.namespace), _any_text(identity.name))


def _any_text(raw: msgspec.Raw) -> str:
    """Text of a JSON string; any other JSON value in brackets.

    Never another object's name: names have no brackets, and a text that is cut is longer than a name may be.
    """
    written = bytes(raw).decode(errors="replace")
    try:
        text = msgspec.json.decode(written, type=str)
    except msgspec.DecodeError:
        text = f"({written})"
    return text[: MAX_NAME_LENGTH + 1]


class _List(msgspec.Struct, gc=False):
    kind: str = ""
    items: list[msgspec.Raw] = []


def parse_cluster(raw: bytes) -> Cluster:
    """`Cluster` from one JSON object or a ``List`` of them (the output of ``kubectl get -o json``).

    Kinds we do not read are skipped. An object that does not decode goes to ``Cluster.rejected`` with its
    reason, and all others are decoded.

    Raises `msgspec.DecodeError` when the whole is not JSON.
    """
    listing = msgspec.json.decode(raw, type=_List)
    items = listing.items if listing.kind.endswith("List") else [msgspec.Raw(raw)]
    found: dict[str, dict[Key, Object]] = {name: {} for name in _FIELDS.values()}
    rejected: list[Rejected] = []
    for item in items:
        kind = _kind_of(item, listing.kind)
        if kind not in KINDS:
            continue
        match decode_object(item, KINDS[kind]):
            case Rejected() as reason:
                rejected.append(reason)
            case value:
                found[_FIELDS[kind]][key_of(value)] = value
    return Cluster(**found, rejected=tuple(rejected))  # type: ignore[arg-type]


def _kind_of(item: msgspec.Raw, list_kind: str) -> str:
    """An item's own ``kind``, or the one that the list's kind implies (``ServiceList``)."""
    try:
        own = msgspec.json.decode(item, type=_Header).kind
    except (msgspec.DecodeError, UnicodeDecodeError):
        own = ""
    return own or list_kind.removesuffix("List")
