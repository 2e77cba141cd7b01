"""docs/daemon.md says which test holds what; this says whether that is so."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "daemon.md").read_text(encoding="utf-8")
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")

BEHAVIOURS = {
    "hcnp": {
        "scope", "200", "proxy-unhealthy", "payload", "headers", "count-ips", "any-path", "ports-lifecycle",
        "listen-addrs", "bind-fail", "firewall-accept", "no-taint", "sync-order",
    },
    "hz": {
        "ports", "ok", "stale", "idle-healthy", "start-healthy", "node-taint", "node-delete", "payload", "counters",
        "drain-contract", "bind-retry", "metrics-port-healthz",
    },
    "met": {"planned", "nfacct-optional", "proxymode", "configz", "slis", "bind"},
}  # fmt: skip
"""Groups 15 to 17 of the catalogue of behaviours, but for the metrics, which have rows of their own."""

METRICS = {
    "sync_proxy_rules_duration_seconds", "sync_full_proxy_rules_duration_seconds",
    "sync_partial_proxy_rules_duration_seconds", "sync_proxy_rules_last_timestamp_seconds",
    "sync_proxy_rules_last_queued_timestamp_seconds", "network_programming_duration_seconds",
    "sync_proxy_rules_endpoint_changes_pending", "sync_proxy_rules_endpoint_changes_total",
    "sync_proxy_rules_service_changes_pending", "sync_proxy_rules_service_changes_total",
    "sync_proxy_rules_no_local_endpoints_total", "sync_proxy_rules_iptables_total",
    "sync_proxy_rules_iptables_last", "sync_proxy_rules_iptables_restore_failures_total",
    "sync_proxy_rules_iptables_partial_restore_failures_total",
    "iptables_ct_state_invalid_dropped_packets_total",
    "iptables_localhost_nodeports_accepted_packets_total", "sync_proxy_rules_nftables_sync_failures_total",
    "sync_proxy_rules_nftables_cleanup_failures_total", "conntrack_reconciler_sync_duration_seconds",
    "conntrack_reconciler_deleted_entries_total", "proxy_healthz_total", "proxy_livez_total",
}  # fmt: skip


def rows() -> list[list[str]]:
    lines = [line for line in PAGE.splitlines() if line.startswith("| ") and "---" not in line]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_every_test_that_is_named_exists() -> None:
    named = TEST.findall(PAGE)
    assert len(named) > 50
    missing = [
        f"{path}::{test}"
        for path, test in named
        if not re.search(rf"^def {test}\(", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert not missing, f"docs/daemon.md names tests that do not exist: {missing}"


def test_every_behaviour_has_a_place() -> None:
    missing = [
        f"{group}.{name}"
        for group, names in BEHAVIOURS.items()
        for name in names
        if f"`{group}.{name}`" not in PAGE
    ]
    assert not missing


def test_every_metric_has_a_row() -> None:
    first = {row[0] for row in rows()}
    assert not {name for name in METRICS if f"`kubeproxy_{name}`" not in first}


def test_a_row_without_a_test_says_why() -> None:
    promises = [
        row for row in rows() if "held by" not in row and len(row) > 2 and "BindAddress" not in row[0]
    ]
    silent = [row[0] for row in promises if not TEST.search(" ".join(row)) and not row[-1]]
    assert not silent
