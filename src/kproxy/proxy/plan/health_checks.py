"""Which health check node ports a node answers, and how many endpoints it answers for."""

from __future__ import annotations

from kproxy.proxy import snapshot
from kproxy.proxy.plan.values import HealthCheck
from kproxy.proxy.snapshot import Snapshot


def health_checks(snapshot: Snapshot, node: str) -> tuple[HealthCheck, ...]:
    """One for each Service that is due one, in the order of the snapshot."""
    return tuple(
        HealthCheck(service.key, service.health_check_port, _local_ready(service, node))
        for service in snapshot.services.values()
        if service.health_check_port is not None
    )


def _local_ready(service: snapshot.ServiceInfo, node: str) -> int:
    """``hcnp.count-ips``: one that terminates counts as long as it is called ready (publishNotReadyAddresses)."""
    addresses = {
        endpoint.address
        for port in service.ports
        for endpoint in port.endpoints
        if endpoint.node == node and endpoint.ready
    }
    return len(addresses)
