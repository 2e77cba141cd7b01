"""Requests to the API server, counted and timed by client-go's names (observed: kube-proxy 1.36 on a node)."""

from __future__ import annotations

import math

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from kproxy.linux import host
from kproxy.proxy.daemon.cluster.client import ApiClient, ApiError
from kproxy.proxy.daemon.cluster.credentials import Authorizer
from kproxy.proxy.daemon.cluster.kubeconfig import ClientConfig
from kproxy.proxy.daemon.cluster.request_log import DurationHistogram, RequestStats
from kproxy.proxy.daemon.http.request_metrics import RequestCollector
from tests.support.scripted_apiserver import Answer, serving, status

ANSWERS, DURATION = "rest_client_requests_total", "rest_client_request_duration_seconds"
BOUNDS = (0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60, math.inf)


def reported(requests: RequestStats) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """As a scraper reads it."""
    registry = CollectorRegistry()
    registry.register(RequestCollector(requests))
    families = text_string_to_metric_families(generate_latest(registry).decode())
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def labels(**given: str) -> frozenset[tuple[str, str]]:
    return frozenset(given.items())


def client(url: str) -> ApiClient:
    return ApiClient(ClientConfig(server=url), Authorizer(None, host.run_tool))


def test_each_answer_is_counted_by_status_method_and_host_and_timed_if_it_is_whole() -> None:
    with serving(Answer([b"ok"]), Answer([b"ok"]), status(429), Answer([b"ok"])) as script:
        subject = client(script.url)
        subject.get("/", {})
        subject.get("/", {})
        with pytest.raises(ApiError):
            subject.get("/", {})
        with subject.stream("/", {}, 5.0):
            pass
    at = script.url.removeprefix("http://")
    found = reported(subject.requests)
    assert found[ANSWERS, labels(code="200", method="GET", host=at)] == 3
    assert found[ANSWERS, labels(code="429", method="GET", host=at)] == 1
    assert found[f"{DURATION}_count", labels(verb="GET", host=at)] == 3


def test_a_server_that_does_not_answer_is_counted_as_an_error() -> None:
    with serving(Answer([b"ok"])) as script:
        subject = client(script.url)
    with pytest.raises(OSError, match="refused"):
        subject.get("/", {})
    assert list(subject.requests.responses.items()) == [(("GET", "<error>"), 1)]


def test_durations_fall_into_client_gos_buckets() -> None:
    requests = RequestStats("server:6443")
    requests.durations["POST"] = durations = DurationHistogram()
    for seconds in (0.005, 0.006, 3.0, 61.0):
        durations.add(seconds)
    found = reported(requests)
    buckets = {
        float(dict(given)["le"]): value
        for (name, given), value in found.items()
        if name == f"{DURATION}_bucket"
    }
    assert tuple(buckets) == BOUNDS
    assert [buckets[bound] for bound in (0.005, 0.025, 2, 4, 60, math.inf)] == [1, 2, 2, 3, 3, 4]
    assert found[f"{DURATION}_sum", labels(verb="POST", host="server:6443")] == pytest.approx(64.011)
