"""Values of a snapshot: Services of one family with typed fields and merged endpoints.

They are facts of the cluster, no node's point of view. Anything that could not be used is absent here and
described in a `Note`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from kproxy.model import api
from kproxy.model.api import Cluster, Key
from kproxy.model.network import Address, Family, Network, Protocol


@dataclass(frozen=True, slots=True)
class Note:
    """Remark for the operator on an object: its kind and key, and the text.

    ``refused``: a part of the object, or all, is set aside.
    """

    kind: str
    key: Key
    text: str
    refused: bool = True

    @property
    def subject(self) -> str:
        """``Service namespace/name``."""
        return f"{self.kind} {'/'.join(filter(None, self.key))}"


class ServicePortName(msgspec.Struct, frozen=True, order=True, gc=False):
    """Identity of a service port; ``str()`` is kube-proxy's text of it: ``namespace/name:port``.

    ``protocol`` is the value of a `Protocol`: the API wants names to differ, but objects may have two ports of one name.
    """

    namespace: str
    name: str
    port: str = ""
    protocol: str = "TCP"

    def __str__(self) -> str:
        """``namespace/name:port``, without the colon for an unnamed port."""
        suffix = f":{self.port}" if self.port else ""
        return f"{self.namespace}/{self.name}{suffix}"


class TrafficPolicy(enum.Enum):
    """``internalTrafficPolicy`` or ``externalTrafficPolicy``; the value is the API's."""

    CLUSTER = "Cluster"
    LOCAL = "Local"


class EndpointInfo(msgspec.Struct, frozen=True, gc=False):
    """One address and port behind a service port, from the EndpointSlices.

    ``node`` is the name of the node it runs on, None when the slice names none. The conditions have the API's
    defaults filled in (clause ``endpoints.conditions.missing-means-ready``). ``zones`` and ``nodes`` are the hints.
    """

    address: Address
    port: int
    node: str | None
    ready: bool
    serving: bool
    terminating: bool
    zones: frozenset[str]
    nodes: frozenset[str]


class ServicePortInfo(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One port of a Service with its endpoints, sorted by address and port, each once.

    ``node_port`` is None when none is allocated.
    """

    name: ServicePortName
    protocol: Protocol
    port: int
    node_port: int | None
    endpoints: tuple[EndpointInfo, ...]


class ServiceInfo(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A Service that is proxied in the snapshot's family; all addresses and ranges are of that family.

    ``source_ranges`` None admits every source. ``affinity_seconds`` None means no ClientIP affinity.
    ``health_check_port`` is None unless the Service has one (clause ``health-check.local-endpoints.told``);
    ``health_check_endpoints``: node and address of each endpoint that it counts, empty without one.
    """

    key: Key
    cluster_ip: Address
    external_ips: tuple[Address, ...]
    load_balancer_ips: tuple[Address, ...]
    source_ranges: tuple[Network, ...] | None
    internal_policy: TrafficPolicy
    external_policy: TrafficPolicy
    affinity_seconds: int | None
    health_check_port: int | None
    health_check_endpoints: frozenset[tuple[str | None, Address]]
    ports: tuple[ServicePortInfo, ...]


@dataclass(frozen=True, slots=True)
class SnapshotCache:
    """Input of the last `normalise`, for the next to compare with: the source, its slices by Service, the notes by Service."""

    source: Cluster
    slices: Mapping[Key, tuple[api.EndpointSlice, ...]]
    notes: Mapping[Key, tuple[Note, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All proxied Services of one family, by (namespace, name) in that order."""

    family: Family
    services: Mapping[Key, ServiceInfo]
    notes: tuple[Note, ...]
    cache: SnapshotCache = field(compare=False, repr=False)
