"""The oracle of health ports: what a node's proxy answers to those who decide whether traffic comes to the node.

Part of the specification, for `kproxy.universes`. One state of the cluster in, one HTTP status out.
"""

from __future__ import annotations

from collections.abc import Iterator

from kproxy.model import api
from kproxy.model.network import Address, parse_address
from kproxy.spec.candidates import own_slices
from kproxy.spec.clauses import clause
from kproxy.spec.outcome import ClauseId

REFUSED: int | None = None
"""In place of a status: nothing listens."""
OK, UNAVAILABLE = 200, 503
LEAVING_TAINT = "ToBeDeletedByClusterAutoscaler"


def node_port_status(cluster: api.Cluster, hostname: str, service: tuple[str, str]) -> int | None:
    """Status of a Service's health check node port on a node; ``service``: namespace and name."""
    found = cluster.services.get(service)
    if found is None or not _has_health_check(found):
        return REFUSED
    return OK if any(_ready_here(cluster, found, hostname)) else UNAVAILABLE


def _has_health_check(service: api.Service) -> bool:
    spec = service.spec
    local = spec.type == "LoadBalancer" and spec.external_traffic_policy == "Local"
    return local and bool(spec.health_check_node_port)


def _ready_here(cluster: api.Cluster, service: api.Service, hostname: str) -> Iterator[Address]:
    """Addresses of ready endpoints on a node; no proxy watches slices with the headless label."""
    for piece in own_slices(cluster, service):
        if api.HEADLESS_LABEL in piece.metadata.labels:
            continue
        for endpoint in piece.endpoints or []:
            conditions = endpoint.conditions or api.EndpointConditions()
            address = parse_address((endpoint.addresses or [""])[0])
            if endpoint.node_name == hostname and conditions.ready is not False and address is not None:
                yield address


def proxy_status(cluster: api.Cluster, hostname: str) -> int:
    """Status of ``/healthz`` of a node's proxy that keeps up with changes."""
    node = cluster.node(hostname)
    if node is None:
        return OK
    leaving = node.metadata.deletion_timestamp is not None or any(
        taint.key == LEAVING_TAINT for taint in node.spec.taints or []
    )
    return UNAVAILABLE if leaving else OK


def node_port_clauses() -> tuple[ClauseId, ...]:
    """Clauses of `node_port_status`."""
    return (clause("health-check.local-endpoints.told"), clause("health-check.ready-flag-trusted"))


def proxy_clauses() -> tuple[ClauseId, ...]:
    """Clauses of `proxy_status`."""
    return (clause("proxy-health.told"), clause("proxy-health.leaving-node.told"))
