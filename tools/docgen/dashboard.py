"""The Grafana dashboard ``deploy/grafana/dashboard.json``: panels of a service proxy's metrics, kproxy's and kube-proxy's alike.

Its queries use names that both have; `tests/deploy/test_prometheus.py` has a real Prometheus answer each on a real scrape.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FILE = Path(__file__).parents[2] / "deploy/grafana/dashboard.json"
_WIDTH, _HEIGHT = 12, 8
_WHERE = '{instance=~"$instance"}'


def _rate(name: str, by: str) -> str:
    return f"sum by ({by}) (rate(kubeproxy_{name}{_WHERE}[$__rate_interval]))"


def _quantile(share: float, name: str) -> str:
    return f"histogram_quantile({share}, {_rate(f'{name}_bucket', 'instance, ip_family, le')})"


PANELS = (
    (
        "Seconds from a change to the kernel, 99 of 100",
        "s",
        (_quantile(0.99, "network_programming_duration_seconds"),),
        "From the change of a Service or pod until the node has its rules.",
    ),
    (
        "Seconds of a sync, 99 of 100",
        "s",
        (_quantile(0.99, "sync_proxy_rules_duration_seconds"),),
        "One writing of rules, whatever the mode.",
    ),
    (
        "Seconds since the last sync that succeeded",
        "s",
        (f"time() - kubeproxy_sync_proxy_rules_last_timestamp_seconds{_WHERE}",),
        "It grows while nothing changes; it matters when changes wait.",
    ),
    (
        "Changes that wait",
        "short",
        (
            f"kubeproxy_sync_proxy_rules_service_changes_pending{_WHERE}",
            f"kubeproxy_sync_proxy_rules_endpoint_changes_pending{_WHERE}",
        ),
        "Changes of Services and of endpoints that no sync has taken yet.",
    ),
    (
        "Changes a second",
        "short",
        (
            _rate("sync_proxy_rules_service_changes_total", "instance"),
            _rate("sync_proxy_rules_endpoint_changes_total", "instance"),
        ),
        "Of Services, and of endpoints.",
    ),
    (
        "Writes that the kernel refused, a second",
        "short",
        (
            " or ".join(
                _rate(f"sync_proxy_rules_{name}_failures_total", "instance, ip_family")
                for name in ("iptables_restore", "nftables_sync")
            ),
        ),
        "Of the mode that the proxy runs in.",
    ),
    (
        "Ports without local endpoints",
        "short",
        (f"kubeproxy_sync_proxy_rules_no_local_endpoints_total{_WHERE}",),
        "Policy Local, endpoints elsewhere, none here: clients of this node are dropped.",
    ),
    (
        "Health probes a second, by status",
        "short",
        (_rate("proxy_healthz_total", "instance, code"), _rate("proxy_livez_total", "instance, code")),
        "/healthz, which load balancers read, and /livez, which the kubelet does.",
    ),
)
"""Title, unit, queries and description of each panel."""


def dashboard() -> str:
    """The dashboard as JSON, to be imported or provisioned; its data source is a variable."""
    document = {
        "title": "Service proxy",
        "uid": "kproxy-service-proxy",
        "tags": ["kubernetes", "kube-proxy", "kproxy"],
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [_data_source(), _instances()]},
        "panels": [_panel(number, *panel) for number, panel in enumerate(PANELS)],
    }
    return json.dumps(document, indent=2) + "\n"


def _data_source() -> dict[str, Any]:
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}


def _instances() -> dict[str, Any]:
    query = "label_values(kubeproxy_sync_proxy_rules_last_timestamp_seconds, instance)"
    return {
        "name": "instance",
        "label": "Node",
        "type": "query",
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "query": query,
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _panel(number: int, title: str, unit: str, queries: tuple[str, ...], about: str) -> dict[str, Any]:
    return {
        "id": number + 1,
        "title": title,
        "description": about,
        "type": "timeseries",
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "gridPos": {
            "x": number % 2 * _WIDTH,
            "y": number // 2 * _HEIGHT,
            "w": _WIDTH,
            "h": _HEIGHT,
        },
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "targets": [{"refId": chr(ord("A") + place), "expr": query} for place, query in enumerate(queries)],
    }
