"""The metrics port, path by path; the formats are read back by other people's parsers."""

import gzip
import json
import re
from http import HTTPStatus

import pytest
import yaml
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from kproxy.model.api import Rejected, Service
from kproxy.model.network import Family
from kproxy.proxy.daemon.cluster.request_log import DurationHistogram, RequestStats
from kproxy.proxy.daemon.cluster.store import ClusterStore
from kproxy.proxy.daemon.config.configuration import Configuration
from kproxy.proxy.daemon.config.load import load_configuration
from kproxy.proxy.daemon.http.live_metrics import StateCollector
from kproxy.proxy.daemon.http.metrics import Metrics
from kproxy.proxy.daemon.http.metrics_endpoints import metrics_port
from kproxy.proxy.daemon.http.protocol import HttpRequest, HttpResponse
from kproxy.proxy.daemon.http.request_metrics import RequestCollector

HEAD = {"apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration"}
STARTED = 1_700_000_000.0  # 2023-11-14T22:13:20Z, a Tuesday


def get(
    path: str, config: Configuration | None = None, registry: CollectorRegistry | None = None, **headers: str
) -> HttpResponse:
    handler = metrics_port(config or Configuration(), registry or CollectorRegistry(), STARTED)
    path, _, query = path.partition("?")
    return handler(
        HttpRequest("GET", path, query, {name.replace("_", "-"): text for name, text in headers.items()})
    )


def test_the_port_has_a_health_of_its_own_that_is_always_well() -> None:
    answer = get("/healthz")
    assert (answer.status, answer.body) == (HTTPStatus.OK, b"ok")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/healthz/ping", b"ok"),
        ("/healthz?verbose", b"[+]ping ok\nhealthz check passed\n"),
        ("/healthz?verbose=0&timeout=3s", b"[+]ping ok\nhealthz check passed\n"),
        ("/healthz?timeout=3s", b"ok"),
    ],
)
def test_its_health_is_given_by_check_too(path: str, body: bytes) -> None:
    """Observed: kube-proxy 1.36 on a node."""
    answer = get(path)
    assert (answer.status, answer.body) == (HTTPStatus.OK, body)


@pytest.mark.parametrize("mode", ["iptables", "nftables"])
def test_the_mode_is_reported_as_plain_text(mode: str) -> None:
    answer = get("/proxyMode", Configuration(mode=mode))
    assert answer.body == mode.encode()
    assert answer.content_type == "text/plain; charset=utf-8"


def test_the_configuration_in_force_is_reported_with_all_defaults_and_can_be_loaded_again() -> None:
    given = {**HEAD, "mode": "nftables", "nftables": {"minSyncPeriod": "5s"}, "clusterCIDR": "10.0.0.0/8"}
    config = load_configuration(json.dumps(given)).config
    answer = get("/configz", config)
    assert answer.content_type == "application/json"
    body = json.loads(answer.body)
    assert list(body) == ["kubeproxy.config.k8s.io"]
    reported = body["kubeproxy.config.k8s.io"]
    assert reported["mode"] == "nftables"
    assert reported["nftables"] == {
        "masqueradeBit": 14,
        "masqueradeAll": False,
        "affinityClients": 131072,
        "syncPeriod": "30s",
        "minSyncPeriod": "5s",
    }
    assert reported["healthzBindAddress"] == "0.0.0.0:10256"
    again = load_configuration(yaml.safe_dump(reported))
    assert again.config == config
    assert again.warnings == ()


def test_metrics_are_in_the_text_format_that_scrapers_read_whatever_they_hold() -> None:
    registry, store = Metrics("iptables").registry, ClusterStore(lambda: 0.0)
    registry.register(StateCollector("iptables", store, (), lambda: 0.0))
    hostile = 'a"b\\c\nd{}= 1'
    store.apply(Service, [Rejected("Service", ("test", hostile), "no")])
    answer = get("/metrics", registry=registry)
    assert answer.content_type == "text/plain; version=0.0.4; charset=utf-8"
    found = {family.name: family for family in text_string_to_metric_families(answer.body.decode())}
    assert found["kubeproxy_sync_proxy_rules_duration_seconds"].type == "histogram"
    assert found["kubeproxy_sync_proxy_rules_service_changes"].type == "counter"
    (sample,) = found["kproxy_refused_object"].samples
    assert sample.labels["name"] == hostile


def test_bounds_of_buckets_are_written_as_go_writes_them() -> None:
    metrics, requests = Metrics("iptables"), RequestStats("server:6443")
    metrics.family(Family.IPV4)
    requests.durations["GET"] = DurationHistogram()
    metrics.registry.register(RequestCollector(requests))
    body = get("/metrics", registry=metrics.registry).body.decode()
    for name, bounds in (
        ("kubeproxy_network_programming_duration_seconds", ["0", "0.25", "1", "300", "+Inf"]),
        ("rest_client_request_duration_seconds", ["0.005", "1", "60", "+Inf"]),
    ):
        found = re.findall(rf'^{name}_bucket\{{.*le="(.*?)".*\}}', body, re.MULTILINE)
        assert set(bounds) <= set(found)
        assert not [bound for bound in found if bound.endswith(".0")]


def test_metrics_are_compressed_for_those_who_can_read_it_only() -> None:
    registry = Metrics("iptables").registry
    plain = get("/metrics", registry=registry)
    packed = get("/metrics", registry=registry, accept_encoding="deflate, gzip")
    assert "Content-Encoding" not in plain.headers
    assert packed.headers["Content-Encoding"] == "gzip"
    names = {line.split(" ")[0] for line in plain.body.decode().splitlines() if line[0] != "#"}
    assert names <= {line.split(" ")[0] for line in gzip.decompress(packed.body).decode().splitlines()}


def test_indicators_report_since_when_it_runs_as_kube_proxys_do() -> None:
    found = list(text_string_to_metric_families(get("/metrics/slis").body.decode()))
    (only,) = found
    assert (only.name, only.type) == ("process_start_time_seconds", "gauge")
    assert [sample.value for sample in only.samples] == [STARTED]


def test_other_paths_are_not_found() -> None:
    for path in ("/", "/livez", "/debug/pprof/profile", "/debug/flags/w"):
        assert get(path, Configuration(enable_profiling=True)).status == 404


def test_a_scrape_of_two_families_holds_both() -> None:
    metrics = Metrics("iptables")
    for family in Family:
        metrics.family(family).attempted(0.1, full=True)
    body = get("/metrics", registry=metrics.registry).body.decode()
    for family in Family:
        assert (
            f'kubeproxy_sync_full_proxy_rules_duration_seconds_count{{ip_family="{family.value}"}} 1.0'
            in body
        )
