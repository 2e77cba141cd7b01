"""Metrics that the daemon counts and times, under kube-proxy's names: one table, and the observer that fills it.

`Metrics` has the instruments; `FamilyMetrics` is the `kproxy.proxy.daemon.sync.family_sync.Observer` of one family.
What can be read from the daemon's state at a scrape is not counted here: see `kproxy.proxy.daemon.http.live_metrics`.
Behaviours ``met.*``; https://kubernetes.io/docs/reference/instrumentation/metrics/
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.metrics import disable_created_metrics

from kproxy.model.network import Family
from kproxy.proxy.backends import Applied, find_backend

PREFIX = "kubeproxy_"
OWN_PREFIX = "kproxy_"
"""Prefix of metrics that kube-proxy does not have."""

SYNC_BUCKETS = tuple(0.001 * 2**n for n in range(15))
"""Buckets in seconds: 1 ms to 16 s."""

PROGRAMMING_BUCKETS = (
    0.0,
    0.25,
    0.5,
    *(float(n) for n in range(1, 60)),
    *(float(n) for n in range(60, 120, 5)),
    *(float(n) for n in range(120, 301, 30)),
)
"""Buckets of ``met.network_programming_duration_seconds``, in seconds."""

Instrument = Counter | Gauge | Histogram


@dataclass(frozen=True, slots=True)
class Metric:
    """One instrument: name without prefix, help text, labels, modes it belongs to, buckets."""

    kind: type[Counter | Gauge | Histogram]
    name: str
    help: str
    labels: tuple[str, ...] = ("ip_family",)
    of_some_modes: bool = False
    buckets: tuple[float, ...] = ()
    prefix: str = PREFIX


TABLE = (
    Metric(Histogram, "sync_proxy_rules_duration_seconds", "Time one sync took", buckets=SYNC_BUCKETS),
    Metric(
        Histogram,
        "sync_full_proxy_rules_duration_seconds",
        "Time one sync took that wrote everything",
        of_some_modes=True,
        buckets=SYNC_BUCKETS,
    ),
    Metric(
        Histogram,
        "sync_partial_proxy_rules_duration_seconds",
        "Time one sync took that wrote what differs",
        of_some_modes=True,
        buckets=SYNC_BUCKETS,
    ),
    Metric(
        Histogram,
        "network_programming_duration_seconds",
        "Time from the change of a Service or pod until the kernel knew of it",
        buckets=PROGRAMMING_BUCKETS,
    ),
    Metric(
        Gauge,
        "sync_proxy_rules_last_timestamp_seconds",
        "When a sync last succeeded, seconds since the epoch",
    ),
    Metric(
        Gauge,
        "sync_proxy_rules_iptables_total",
        "Rules of ours in the kernel",
        labels=("table", "ip_family"),
        of_some_modes=True,
    ),
    Metric(
        Gauge,
        "sync_proxy_rules_iptables_last",
        "Rules written by the last sync",
        labels=("table", "ip_family"),
        of_some_modes=True,
    ),
    Metric(
        Counter,
        "sync_proxy_rules_iptables_restore_failures_total",
        "Times iptables-restore failed",
        of_some_modes=True,
    ),
    Metric(
        Counter,
        "sync_proxy_rules_iptables_partial_restore_failures_total",
        "Times iptables-restore failed on what differs",
        of_some_modes=True,
    ),
    Metric(
        Counter,
        "sync_proxy_rules_nftables_sync_failures_total",
        "Transactions the kernel refused",
        of_some_modes=True,
    ),
    Metric(
        Counter,
        "sync_proxy_rules_nftables_cleanup_failures_total",
        "Failures to remove what is no longer used; none here, for that is part of the transaction",
        of_some_modes=True,
    ),
    Metric(
        Histogram,
        "conntrack_reconciler_sync_duration_seconds",
        "Time one look for stale connections took",
        buckets=SYNC_BUCKETS,
    ),
    Metric(Counter, "conntrack_reconciler_deleted_entries_total", "Stale connections removed"),
    Metric(
        Counter,
        "foreign_rule_changes_total",
        "Times another program was found to have changed the rules of this proxy, which were then written again",
        prefix=OWN_PREFIX,
    ),
    Metric(Counter, "proxy_healthz_total", "Answers of /healthz", labels=("code",)),
    Metric(Counter, "proxy_livez_total", "Answers of /livez", labels=("code",)),
)
"""All metrics except those of `kproxy.proxy.daemon.http.live_metrics`."""


class Metrics:
    """Instruments of one mode; those of other modes do not exist."""

    def __init__(self, mode: str) -> None:
        """Make all instruments, at zero."""
        names = find_backend(mode).metrics
        disable_created_metrics()  # type: ignore[no-untyped-call]  # kube-proxy has no `_created` series
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._instruments = {
            each.name: _make(each, self.registry)
            for each in TABLE
            if each.name in names or not each.of_some_modes
        }

    def count_probe(self, path: str, status: HTTPStatus) -> None:
        """Count a health probe (``hz.counters``); ``path`` is ``/healthz`` or ``/livez``."""
        self.add(f"proxy_{path.removeprefix('/')}_total", 1, code=str(status.value))

    def family(self, family: Family) -> FamilyMetrics:
        """Observer of a family that is served; its counters exist at zero from now on, not from their first event."""
        for each in TABLE:
            if each.kind is not Gauge and each.labels == ("ip_family",) and each.name in self._instruments:
                self._instruments[each.name].labels(family.value)
        return FamilyMetrics(self, family)

    def add(self, name: str, amount: float, **labels: str) -> None:
        """Add to a counter, if the mode has it."""
        counter = self._instruments.get(name)
        if isinstance(counter, Counter):
            counter.labels(**labels).inc(amount)

    def set(self, name: str, value: float, **labels: str) -> None:
        """Set a gauge, if the mode has it."""
        gauge = self._instruments.get(name)
        if isinstance(gauge, Gauge):
            gauge.labels(**labels).set(value)

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Add a value to a histogram, if the mode has it."""
        histogram = self._instruments.get(name)
        if isinstance(histogram, Histogram):
            histogram.labels(**labels).observe(value)


@dataclass(frozen=True, slots=True)
class FamilyMetrics:
    """Counts of one family's sync (`kproxy.proxy.daemon.sync.family_sync.Observer`)."""

    metrics: Metrics
    family: Family

    def attempted(self, seconds: float, *, full: bool) -> None:
        """Count a sync that ended, successful or not."""
        self._observe("sync_proxy_rules_duration_seconds", seconds)
        extent = "full" if full else "partial"
        self._observe(f"sync_{extent}_proxy_rules_duration_seconds", seconds)

    def refused(self, *, full: bool) -> None:
        """Count a sync that the kernel refused."""
        self._add("sync_proxy_rules_iptables_restore_failures_total", 1)
        self._add("sync_proxy_rules_iptables_partial_restore_failures_total", not full)
        self._add("sync_proxy_rules_nftables_sync_failures_total", 1)

    def applied(self, written: Applied | None, triggers: Sequence[float]) -> None:
        """Record a successful sync."""
        now = time.time()
        self.metrics.set("sync_proxy_rules_last_timestamp_seconds", now, ip_family=self.family.value)
        for trigger in triggers:
            self._observe("network_programming_duration_seconds", max(0.0, now - trigger))
        if written is not None:
            self._written(written)

    def cleaned(self, seconds: float, removed: int) -> None:
        """Count a removal of stale conntrack entries."""
        self._observe("conntrack_reconciler_sync_duration_seconds", seconds)
        self._add("conntrack_reconciler_deleted_entries_total", removed)

    def drifted(self) -> None:
        """Count a change of our rules by another process."""
        self._add("foreign_rule_changes_total", 1)

    def _written(self, written: Applied) -> None:
        if written.refused is not None:
            self._add("sync_proxy_rules_nftables_sync_failures_total", 1)
        for table, rules in written.rules.items():
            where = {"table": table, "ip_family": self.family.value}
            self.metrics.set("sync_proxy_rules_iptables_total", rules.total, **where)
            self.metrics.set("sync_proxy_rules_iptables_last", rules.written, **where)

    def _add(self, name: str, amount: float) -> None:
        self.metrics.add(name, amount, ip_family=self.family.value)

    def _observe(self, name: str, value: float) -> None:
        self.metrics.observe(name, value, ip_family=self.family.value)


def _make(metric: Metric, registry: CollectorRegistry) -> Instrument:
    """Instrument of a table row; each help text begins with kube-proxy's stability level, ALPHA."""
    name, text = metric.prefix + metric.name, f"[ALPHA] {metric.help}"
    if metric.kind is Histogram:
        return Histogram(name, text, metric.labels, registry=registry, buckets=metric.buckets)
    return metric.kind(name, text, metric.labels, registry=registry)
