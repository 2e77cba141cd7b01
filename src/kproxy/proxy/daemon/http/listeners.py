"""Opens the daemon's ports: health, metrics, and health check node ports that follow the syncs.

Called once by `kproxy.proxy.daemon.startup`, before the syncs begin.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from kproxy.model.api import Key
from kproxy.proxy.backends import find_backend
from kproxy.proxy.daemon.config.configuration import split_host_port
from kproxy.proxy.daemon.http.health import Health
from kproxy.proxy.daemon.http.identity_metrics import IdentityCollector
from kproxy.proxy.daemon.http.live_metrics import StateCollector
from kproxy.proxy.daemon.http.metrics import Metrics
from kproxy.proxy.daemon.http.metrics_endpoints import metrics_port
from kproxy.proxy.daemon.http.ports import HttpServer, listen_with_retry
from kproxy.proxy.daemon.http.protocol import Handler
from kproxy.proxy.daemon.http.request_metrics import RequestCollector
from kproxy.proxy.daemon.http.service_health import ServiceHealthServer
from kproxy.proxy.daemon.lifecycle import DaemonContext, StartupError
from kproxy.proxy.daemon.sync.family_sync import FamilySync

HEALTH, METRICS = "health", "metrics"


class CannotListen(StartupError):
    """Address in use, with ``bindAddressHardFail`` set; ``what`` is `HEALTH` or `METRICS`."""

    def __init__(self, what: str, reason: OSError) -> None:
        super().__init__(str(reason))
        self.what = what


def open_ports(
    daemon: DaemonContext,
    syncs: Sequence[FamilySync],
    health_check_failed: Callable[[Key, str], None] = lambda _service, _why: None,
) -> None:
    """Open all ports; raises `CannotListen`.

    ``health_check_failed`` is called once, with the reason, when a Service's health check node port cannot be opened.
    """
    config, store = daemon.config, daemon.store
    ports, metrics = HttpServer(), Metrics(config.mode)
    packets = find_backend(config.mode).packet_counts
    metrics.registry.register(StateCollector(config.mode, store, syncs, time.monotonic, packets))
    metrics.registry.register(RequestCollector(daemon.requests))
    metrics.registry.register(IdentityCollector(config.feature_gates))
    health = Health(
        families={sync.family: sync.progress for sync in syncs},
        stale_after=2 * config.sync_section.sync_period.seconds,
        node=lambda: store.node(daemon.name),
        clock=time.monotonic,
        count=metrics.count_probe,
    )
    for sync in syncs:
        sync.observer = metrics.family(sync.family)
        sync.on_applied = ServiceHealthServer(
            sync.family, ports, health.up_to_date, health_check_failed
        ).update
    hard_fail = config.bind_address_hard_fail
    _open(ports, HEALTH, config.healthz_bind_address, health, hard_fail=hard_fail)
    handler = metrics_port(config, metrics.registry, time.time(), daemon.given)
    _open(ports, METRICS, config.metrics_bind_address, handler, hard_fail=hard_fail)
    ports.start()


def _open(ports: HttpServer, what: str, address: str, handler: Handler, *, hard_fail: bool) -> None:
    """Open a port; nothing is opened for an empty address (``cfg.metrics-cannot-disable``)."""
    place = split_host_port(address)
    if place is None:
        return
    try:
        listen_with_retry(ports, what, place, handler, hard_fail=hard_fail)
    except OSError as error:
        raise CannotListen(what, error) from error
