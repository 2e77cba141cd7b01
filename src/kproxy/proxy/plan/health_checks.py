"""Health check node ports that this node serves, and the number of endpoints that each reports."""

from __future__ import annotations

from kproxy.proxy import snapshot
from kproxy.proxy.plan.values import HealthCheck
from kproxy.proxy.snapshot import Snapshot


def health_checks(snapshot: Snapshot, node: str) -> tuple[HealthCheck, ...]:
    """A `HealthCheck` for each Service with a health check node port (type LoadBalancer, external policy Local), in snapshot order."""
    return tuple(
        HealthCheck(service.key, service.health_check_port, _local_ready(service, node))
        for service in snapshot.services.values()
        if service.health_check_port is not None
    )


def _local_ready(service: snapshot.ServiceInfo, node: str) -> int:
    """Distinct addresses of the Service's ready endpoints on ``node`` (``health-check.number.told``).

    A terminating endpoint counts as long as the slice calls it ready (publishNotReadyAddresses).
    """
    return sum(of == node for of, _ in service.health_check_endpoints)
