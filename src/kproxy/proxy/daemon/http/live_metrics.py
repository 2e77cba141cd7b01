"""Metrics that are read from the daemon's state at each scrape, so that the syncs need not maintain them.

Beside `kproxy.proxy.daemon.http.metrics`: a Prometheus collector over the store and the syncs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from kproxy.linux.descriptors import Purpose, shortages
from kproxy.model.api import Cluster, EndpointSlice, Key, Service
from kproxy.model.network import Family
from kproxy.proxy.backends import AffinityUse, find_backend
from kproxy.proxy.daemon.cluster.store import ClusterStore
from kproxy.proxy.daemon.http.metrics import OWN_PREFIX, PREFIX
from kproxy.proxy.daemon.sync.family_sync import FamilySync
from kproxy.proxy.daemon.sync.relaying import FamilyRelay, running_relays
from kproxy.proxy.plan import Exposure, Frontend, OnEmpty, Plan, PoolScope, ServicePortName
from kproxy.proxy.snapshot import changed_keys

_PACKETS = {
    "iptables_ct_state_invalid_dropped_packets_total": "Packets dropped as INVALID by connection tracking",
    "iptables_localhost_nodeports_accepted_packets_total": "Packets accepted at node ports of loopback addresses",
}


class StateCollector:
    """Prometheus collector; a registry calls `collect` in the thread of the scrape."""

    def __init__(
        self,
        mode: str,
        store: ClusterStore,
        syncs: Sequence[FamilySync],
        clock: Callable[[], float],
        packets: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        """``clock``: the one that dates the store's changes; ``packets``: packet counts of rules, by metric."""
        self._mode, self._store, self._syncs, self._clock = mode, store, syncs, clock
        self._packets = packets

    def collect(self) -> Iterator[Metric]:
        """All metrics of this collector, read now."""
        yield self._queued()
        yield from self._changes()
        yield self._no_local_endpoints()
        yield self._refused()
        yield _descriptor_shortages()
        yield from relay_metrics(running_relays())
        yield from affinity_metrics(find_backend(self._mode).affinity_use())
        for name, count in self._packets().items():
            yield CounterMetricFamily(PREFIX + name, f"[ALPHA] {_PACKETS[name]}", value=count)

    def _queued(self) -> Metric:
        """``met.sync_proxy_rules_last_queued_timestamp_seconds``: when a family's sync was last woken."""
        found = _gauge(
            "sync_proxy_rules_last_queued_timestamp_seconds", "When a sync was last wanted", "ip_family"
        )
        offset = time.time() - self._clock()
        for sync in self._syncs:
            woken = sync.progress.subscription.woken_at
            if woken is not None:
                found.add_metric([sync.family.value], woken + offset)
        return found

    def _changes(self) -> Iterator[Metric]:
        """Events and pending changes: Services count in each family, a slice in its own only."""
        cluster = self._store.cluster()
        services = [
            _differing(sync.progress.subscription.taken.services, cluster.services) for sync in self._syncs
        ]
        slices = [_differing_slices(sync, cluster) for sync in self._syncs]
        seen = self._store.events
        for name, pending, total in (
            ("service", services, seen[Service.__name__] * len(self._syncs)),
            ("endpoint", slices, seen[EndpointSlice.__name__]),
        ):
            gauge = _gauge(
                f"sync_proxy_rules_{name}_changes_pending", f"{name.title()} changes not yet taken up"
            )
            gauge.add_metric([], len(set().union(*pending)))
            yield gauge
            text = f"[ALPHA] {name.title()} changes seen"
            yield CounterMetricFamily(f"{PREFIX}sync_proxy_rules_{name}_changes_total", text, value=total)

    def _no_local_endpoints(self) -> Metric:
        found = _gauge(
            "sync_proxy_rules_no_local_endpoints_total",
            "Service ports (ipvs: Services) with a Local traffic policy, endpoints, and none on this node",
            "traffic_policy",
            "ip_family",
        )
        for sync in self._syncs:
            if sync.last_applied is not None:
                for policy, ports in without_local_endpoints(sync.last_applied).items():
                    services = {(port.namespace, port.name) for port in ports}
                    count = len(services if find_backend(self._mode).counts_services else ports)
                    found.add_metric([policy, sync.family.value], count)
        return found

    def _refused(self) -> Metric:
        """kproxy_refused_object (ours): each object that is not used as a whole, by name; the log line has the reason."""
        text = (
            "1 for each object of the API server of which a part, or all, could not be used and was set aside"
        )
        found = GaugeMetricFamily("kproxy_refused_object", text, labels=["kind", "namespace", "name"])
        refused = {(bad.kind, *bad.key) for bad in self._store.cluster().rejected}
        for sync in self._syncs:
            refused |= {(note.kind, *note.key) for note in sync.notes if note.refused}
        for one in sorted(refused):
            found.add_metric(one, 1)
        return found


def _descriptor_shortages() -> Metric:
    """Descriptor shortages by purpose (ours): zero where there was none, so that an alert can compare."""
    text = "Times there was no file descriptor left, by what it was wanted for"
    found = CounterMetricFamily("kproxy_descriptor_shortages", text, labels=["purpose"])
    for purpose in Purpose:
        found.add_metric([purpose.value], shortages.get(purpose, 0))
    return found


def relay_metrics(relays: Mapping[Family, FamilyRelay]) -> Iterator[Metric]:
    """Connections of the relays (ours); none without one."""
    if not relays:
        return
    labels, prefix = ["ip_family"], f"{OWN_PREFIX}relay_"
    still_open = GaugeMetricFamily(
        f"{prefix}open_connections", "TCP connections that are open", labels=labels
    )
    accepted = CounterMetricFamily(f"{prefix}connections", "TCP connections accepted", labels=labels)
    retries = CounterMetricFamily(
        f"{prefix}retries",
        "Attempts at endpoints that failed, after which the next one was tried",
        labels=labels,
    )
    limited = CounterMetricFamily(
        f"{prefix}limited",
        "Times that clients had to wait for the limit of connections or descriptors",
        labels=labels,
    )
    for family, relay in relays.items():
        counts = relay.count()
        still_open.add_metric([family.value], counts.open_connections)
        accepted.add_metric([family.value], counts.connections)
        retries.add_metric([family.value], counts.retries)
        limited.add_metric([family.value], counts.limited)
    yield from (still_open, accepted, retries, limited)


def affinity_metrics(found: Mapping[Family, AffinityUse]) -> Iterator[Metric]:
    """Clients under session affinity (ours); none in modes without a bound of all of them."""
    if not found:
        return
    labels = ["ip_family"]
    clients = GaugeMetricFamily(
        f"{OWN_PREFIX}affinity_clients", "Clients that session affinity remembers", labels=labels
    )
    limits = GaugeMetricFamily(
        f"{OWN_PREFIX}affinity_clients_limit",
        "The most clients that session affinity remembers; more are served without it",
        labels=labels,
    )
    for family, use in found.items():
        clients.add_metric([family.value], use.clients)
        limits.add_metric([family.value], use.limit)
    yield from (clients, limits)


def without_local_endpoints(plan: Plan) -> dict[str, list[ServicePortName]]:
    """Service ports by the policy that leaves them without endpoints here (``met.sync_proxy_rules_no_local...``).

    A port that has no endpoints anywhere is not among them, since that is no effect of a policy.
    """
    found: dict[str, list[ServicePortName]] = {"internal": [], "external": []}
    for service in plan.services:
        for policy in {_policy(f) for f in service.frontends if _has_only_remote_endpoints(f)}:
            found[policy].append(service.name)
    return found


def _policy(frontend: Frontend) -> str:
    return "internal" if frontend.exposure is Exposure.CLUSTER_IP else "external"


def _has_only_remote_endpoints(frontend: Frontend) -> bool:
    """True if the frontend drops for want of local endpoints while others exist (`OnEmpty`)."""
    return (
        frontend.pool.scope is PoolScope.LOCAL
        and not frontend.pool.endpoints
        and frontend.on_empty is OnEmpty.DROP
    )


def _differing(taken: Mapping[Key, object], now: Mapping[Key, object]) -> set[Key]:
    """Keys with different values; an object changed and changed back does not differ.

    Clause ``watch.changes-together.last-counts``.
    """
    return {key for key in changed_keys(taken, now) if taken.get(key) != now.get(key)}


def _differing_slices(sync: FamilySync, cluster: Cluster) -> set[Key]:
    """Keys of different slices of the sync's own family; those of the other do not wake it."""
    taken, now = sync.progress.subscription.taken.slices, cluster.slices
    return {
        key
        for key in _differing(taken, now)
        if sync.family.value in {found.address_type for found in (taken.get(key), now.get(key)) if found}
    }


def _gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(PREFIX + name, f"[ALPHA] {text}", labels=labels)
