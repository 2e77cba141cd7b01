"""Every metric of the topic metrics by name, type, labels, buckets and mode, and what moves each.

The expected tables are written by hand from the catalogue of behaviours, not taken from our own table.
"""

import math
import time
from http import HTTPStatus

import pytest
from prometheus_client import Metric

from kproxy.model.network import Family
from kproxy.proxy.backends import Applied, RuleCounts
from kproxy.proxy.daemon.http.metrics import Metrics

SYNC_BUCKETS = [
    0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192, 16.384,
]  # fmt: skip
PROGRAMMING_BUCKETS = [
    0.0, 0.25, 0.5, *range(1, 60), *range(60, 116, 5), 120, 150, 180, 210, 240, 270, 300,
]  # fmt: skip

EVERYWHERE = {
    "kubeproxy_sync_proxy_rules_duration_seconds": ("histogram", {"ip_family"}),
    "kubeproxy_network_programming_duration_seconds": ("histogram", {"ip_family"}),
    "kubeproxy_sync_proxy_rules_last_timestamp_seconds": ("gauge", {"ip_family"}),
    "kubeproxy_conntrack_reconciler_sync_duration_seconds": ("histogram", {"ip_family"}),
    "kubeproxy_conntrack_reconciler_deleted_entries": ("counter", {"ip_family"}),
    "kubeproxy_proxy_healthz": ("counter", {"code"}),
    "kubeproxy_proxy_livez": ("counter", {"code"}),
    "kproxy_foreign_rule_changes": ("counter", {"ip_family"}),
}
PARTIAL = {
    "kubeproxy_sync_full_proxy_rules_duration_seconds": ("histogram", {"ip_family"}),
    "kubeproxy_sync_partial_proxy_rules_duration_seconds": ("histogram", {"ip_family"}),
}
RESTORE = {"kubeproxy_sync_proxy_rules_iptables_restore_failures": ("counter", {"ip_family"})}
IPTABLES = {
    "kubeproxy_sync_proxy_rules_iptables_total": ("gauge", {"table", "ip_family"}),
    "kubeproxy_sync_proxy_rules_iptables_last": ("gauge", {"table", "ip_family"}),
    "kubeproxy_sync_proxy_rules_iptables_partial_restore_failures": ("counter", {"ip_family"}),
}
NFTABLES = {
    "kubeproxy_sync_proxy_rules_nftables_sync_failures": ("counter", {"ip_family"}),
    "kubeproxy_sync_proxy_rules_nftables_cleanup_failures": ("counter", {"ip_family"}),
}
BY_MODE = {
    "iptables": EVERYWHERE | PARTIAL | RESTORE | IPTABLES,
    "nftables": EVERYWHERE | PARTIAL | NFTABLES,
    "ipvs": EVERYWHERE | RESTORE,
}


def exercised(mode: str) -> Metrics:
    """One to which everything happened, so that every series exists."""
    metrics = Metrics(mode)
    for family in Family:
        one = metrics.family(family)
        one.attempted(0.003, full=True)
        one.attempted(0.003, full=False)
        one.refused(full=False)
        one.applied(
            Applied(rules={"filter": RuleCounts(1, 2), "nat": RuleCounts(3, 4)}), (time.time() - 7.5,)
        )
        one.cleaned(0.01, 2)
        one.drifted()
    for path in ("/healthz", "/livez"):
        metrics.count_probe(path, HTTPStatus.OK)
        metrics.count_probe(path, HTTPStatus.SERVICE_UNAVAILABLE)
    return metrics


def families_of(metrics: Metrics) -> dict[str, Metric]:
    return {m.name: m for m in metrics.registry.collect() if m.name.startswith(("kubeproxy_", "kproxy_"))}


@pytest.mark.parametrize("mode", BY_MODE)
def test_a_mode_has_its_metrics_by_name_type_and_labels_and_none_of_the_others(mode: str) -> None:
    found = families_of(exercised(mode))
    shown = {
        name: (metric.type, {label for sample in metric.samples for label in sample.labels} - {"le"})
        for name, metric in found.items()
    }
    assert shown == BY_MODE[mode]


@pytest.mark.parametrize("mode", BY_MODE)
def test_histograms_have_the_buckets_that_dashboards_expect(mode: str) -> None:
    for name, metric in families_of(exercised(mode)).items():
        if metric.type == "histogram":
            wanted = PROGRAMMING_BUCKETS if "network_programming" in name else SYNC_BUCKETS
            bounds = sorted(
                {float(sample.labels["le"]) for sample in metric.samples if "le" in sample.labels}
            )
            assert bounds == [*wanted, math.inf], name


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"kubeproxy_{name}", labels or {"ip_family": "IPv4"})


def test_a_sync_is_timed_as_what_it_was() -> None:
    metrics = Metrics("iptables")
    four = metrics.family(Family.IPV4)
    four.attempted(0.5, full=True)
    four.attempted(0.25, full=False)
    four.attempted(0.25, full=False)
    assert value(metrics, "sync_proxy_rules_duration_seconds_count") == 3
    assert value(metrics, "sync_proxy_rules_duration_seconds_sum") == 1.0
    assert value(metrics, "sync_full_proxy_rules_duration_seconds_count") == 1
    assert value(metrics, "sync_partial_proxy_rules_duration_seconds_count") == 2


def test_a_success_is_dated() -> None:
    metrics = Metrics("iptables")
    four = metrics.family(Family.IPV4)
    assert value(metrics, "sync_proxy_rules_last_timestamp_seconds") is None
    four.applied(None, ())
    assert value(metrics, "sync_proxy_rules_last_timestamp_seconds") == pytest.approx(time.time(), abs=5)


def test_programming_takes_as_long_as_from_the_change_until_now() -> None:
    metrics = Metrics("nftables")
    metrics.family(Family.IPV4).applied(None, (time.time() - 7.5, time.time() + 60))
    name = "network_programming_duration_seconds"
    assert value(metrics, f"{name}_count") == 2
    assert value(metrics, f"{name}_bucket", ip_family="IPv4", le="7.0") == 1
    assert value(metrics, f"{name}_bucket", ip_family="IPv4", le="10.0") == 2
    assert value(metrics, f"{name}_sum") == pytest.approx(7.5, abs=1)


def test_rules_are_counted_by_table() -> None:
    metrics = Metrics("iptables")
    metrics.family(Family.IPV6).applied(
        Applied(rules={"filter": RuleCounts(1, 2), "nat": RuleCounts(3, 4)}), ()
    )
    last, total = "sync_proxy_rules_iptables_last", "sync_proxy_rules_iptables_total"
    assert value(metrics, last, table="filter", ip_family="IPv6") == 1
    assert value(metrics, total, table="filter", ip_family="IPv6") == 2
    assert value(metrics, last, table="nat", ip_family="IPv6") == 3
    assert value(metrics, total, table="nat", ip_family="IPv6") == 4


def test_a_refused_restore_is_a_failure_and_a_partial_one_too_if_it_was_partial() -> None:
    metrics = Metrics("iptables")
    four = metrics.family(Family.IPV4)
    names = ("iptables_restore_failures_total", "iptables_partial_restore_failures_total")
    seen = []
    for full in (None, True, False):
        if full is not None:
            four.refused(full=full)
        seen.append([value(metrics, f"sync_proxy_rules_{name}") for name in names])
    assert seen == [[0, 0], [1, 0], [2, 1]]


def test_a_refused_transaction_is_a_failure_also_when_a_rewrite_saved_it() -> None:
    metrics = Metrics("nftables")
    four = metrics.family(Family.IPV4)
    four.applied(Applied(), ())
    assert value(metrics, "sync_proxy_rules_nftables_sync_failures_total") == 0
    four.applied(Applied(refused="no"), ())
    four.refused(full=True)
    assert value(metrics, "sync_proxy_rules_nftables_sync_failures_total") == 2


def test_stale_connections_are_counted_and_the_search_timed() -> None:
    metrics = Metrics("iptables")
    four = metrics.family(Family.IPV4)
    four.cleaned(0.5, 3)
    four.cleaned(0.5, 0)
    assert value(metrics, "conntrack_reconciler_sync_duration_seconds_count") == 2
    assert value(metrics, "conntrack_reconciler_deleted_entries_total") == 3


def test_changes_of_another_program_are_counted() -> None:
    metrics = Metrics("nftables")
    metrics.family(Family.IPV4).drifted()
    counted = [
        metrics.registry.get_sample_value("kproxy_foreign_rule_changes_total", {"ip_family": family.value})
        for family in Family
    ]
    assert counted == [1, None]


def test_probes_are_counted_by_code() -> None:
    metrics = Metrics("iptables")
    metrics.count_probe("/healthz", HTTPStatus.OK)
    metrics.count_probe("/healthz", HTTPStatus.SERVICE_UNAVAILABLE)
    metrics.count_probe("/livez", HTTPStatus.OK)
    assert value(metrics, "proxy_healthz_total", code="200") == 1
    assert value(metrics, "proxy_healthz_total", code="503") == 1
    assert value(metrics, "proxy_livez_total", code="200") == 1
    assert value(metrics, "proxy_livez_total", code="503") is None


def test_counters_begin_at_zero_for_the_families_that_are_served() -> None:
    metrics = Metrics("iptables")
    metrics.family(Family.IPV4)
    name = "sync_proxy_rules_iptables_restore_failures_total"
    assert value(metrics, name) == 0
    assert value(metrics, name, ip_family="IPv6") is None


def test_no_series_has_the_start_of_another() -> None:
    samples = {s.name for m in exercised("iptables").registry.collect() for s in m.samples}
    assert not {name for name in samples if name.endswith("_created")}
    assert "process_resident_memory_bytes" in samples
