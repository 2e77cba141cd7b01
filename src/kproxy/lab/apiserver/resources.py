"""Resources of the lab's API server, as a table: one row, one resource; one kind, one store.

A kind of object may be served under two API versions (Event): it is stored in one form, and a row converts between
that and the form it serves. Pure data; imports nothing of the server.

Names and scopes: https://kubernetes.io/docs/reference/kubernetes-api/
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kproxy.lab.apiserver.events import from_core_event, to_core_event

Document = dict[str, Any]
"""JSON object, decoded."""

FieldPath = tuple[str, ...]


class ResourceKind(enum.Enum):
    """Kind of an object; the value is the object's ``kind``."""

    SERVICE = "Service"
    ENDPOINT_SLICE = "EndpointSlice"
    ENDPOINTS = "Endpoints"
    NODE = "Node"
    SERVICE_CIDR = "ServiceCIDR"
    EVENT = "Event"
    NAMESPACE = "Namespace"
    LEASE = "Lease"
    POD = "Pod"
    NETWORK_POLICY = "NetworkPolicy"


ALL_KINDS = frozenset(ResourceKind)


def _same(document: Document) -> Document:
    return document


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiResource:
    """A kind under one group, version and plural name; ``to_served`` and ``to_stored`` convert its form."""

    kind: ResourceKind
    group: str
    version: str
    plural: str
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    to_served: Callable[[Document], Document] = _same
    to_stored: Callable[[Document], Document] = _same

    @property
    def api_version(self) -> str:
        """``apiVersion`` of its objects: ``v1``, ``discovery.k8s.io/v1``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def shown_as_stored(self) -> bool:
        """True if stored bytes can be sent as they are."""
        return self.to_served is _same


RESOURCES = (
    ApiResource(kind=ResourceKind.SERVICE, group="", version="v1", plural="services", short_names=("svc",)),
    ApiResource(kind=ResourceKind.ENDPOINTS, group="", version="v1", plural="endpoints", short_names=("ep",)),
    ApiResource(
        kind=ResourceKind.NODE, group="", version="v1", plural="nodes", namespaced=False, short_names=("no",)
    ),
    ApiResource(
        kind=ResourceKind.NAMESPACE,
        group="",
        version="v1",
        plural="namespaces",
        namespaced=False,
        short_names=("ns",),
    ),
    ApiResource(
        kind=ResourceKind.EVENT,
        group="",
        version="v1",
        plural="events",
        short_names=("ev",),
        to_served=to_core_event,
        to_stored=from_core_event,
    ),
    ApiResource(
        kind=ResourceKind.ENDPOINT_SLICE, group="discovery.k8s.io", version="v1", plural="endpointslices"
    ),
    ApiResource(
        kind=ResourceKind.SERVICE_CIDR,
        group="networking.k8s.io",
        version="v1",
        plural="servicecidrs",
        namespaced=False,
    ),
    ApiResource(
        kind=ResourceKind.EVENT, group="events.k8s.io", version="v1", plural="events", short_names=("ev",)
    ),
    ApiResource(kind=ResourceKind.LEASE, group="coordination.k8s.io", version="v1", plural="leases"),
    # Empty here, but proxies that also guard pods list and watch them before they serve anything.
    ApiResource(kind=ResourceKind.POD, group="", version="v1", plural="pods", short_names=("po",)),
    ApiResource(
        kind=ResourceKind.NETWORK_POLICY,
        group="networking.k8s.io",
        version="v1",
        plural="networkpolicies",
        short_names=("netpol",),
    ),
)

NAMESPACED = frozenset(resource.kind for resource in RESOURCES if resource.namespaced)

_COMMON_FIELDS: dict[str, FieldPath] = {
    "metadata.name": ("metadata", "name"),
    "metadata.namespace": ("metadata", "namespace"),
}

_EVENT_FIELDS: dict[str, FieldPath] = {
    "reason": ("reason",),
    "type": ("type",),
    "reportingController": ("reportingController",),
    "reportingComponent": ("reportingController",),
    "source": ("deprecatedSource", "component"),
} | {
    f"{reference}.{field}": ("regarding", field)
    for reference in ("regarding", "involvedObject")
    for field in ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
}

_OWN_FIELDS: dict[ResourceKind, dict[str, FieldPath]] = {
    ResourceKind.SERVICE: {"spec.clusterIP": ("spec", "clusterIP"), "spec.type": ("spec", "type")},
    ResourceKind.NAMESPACE: {"status.phase": ("status", "phase")},
    ResourceKind.EVENT: _EVENT_FIELDS,
}

FIELDS: Mapping[ResourceKind, Mapping[str, FieldPath]] = {
    kind: _COMMON_FIELDS | _OWN_FIELDS.get(kind, {}) for kind in ResourceKind
}
"""Field labels that each kind can be selected by, and their paths in its stored form."""


def find_resource(group: str, version: str, plural: str) -> ApiResource | None:
    """Resource of these names; None when it is not served."""
    for resource in RESOURCES:
        if (resource.group, resource.version, resource.plural) == (group, version, plural):
            return resource
    return None
