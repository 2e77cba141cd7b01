"""Paths of the metrics port and their handlers (``met.*``; 127.0.0.1:10249 unless configured).

Served by `kproxy.proxy.daemon.http.ports`. Pages that have modules of their own: `kproxy.proxy.daemon.http.zpages`,
`kproxy.proxy.daemon.http.profiling`.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Mapping
from functools import partial
from http import HTTPStatus
from urllib.parse import parse_qs

import msgspec
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from kproxy.proxy.daemon.config.configuration import Configuration
from kproxy.proxy.daemon.config.feature_gates import gate_enabled
from kproxy.proxy.daemon.config.flag_values import flag_values
from kproxy.proxy.daemon.config.flags import ParsedFlags
from kproxy.proxy.daemon.config.write import configuration_document
from kproxy.proxy.daemon.http.profiling import PROFILING
from kproxy.proxy.daemon.http.protocol import NOT_FOUND, Handler, HttpRequest, HttpResponse, text_response
from kproxy.proxy.daemon.http.zpages import flagz, statusz

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Content type of Prometheus' text format, which every scraper accepts and kube-proxy sends."""

CONFIG_NAME = "kubeproxy.config.k8s.io"
"""Key of ``/configz``: the API group of the configuration."""


def metrics_port(
    config: Configuration, registry: CollectorRegistry, started: float, given: ParsedFlags | None = None
) -> Handler:
    """Handler of the port; ``started``: start of the daemon in seconds since the epoch, ``given``: its flags."""
    paths: dict[str, Handler] = {
        "/healthz": port_health,
        "/metrics": partial(exposition, registry),
        "/metrics/slis": partial(exposition, indicators(started)),
        "/proxyMode": lambda _: text_response(config.mode),
        "/configz": lambda _: configz(config),
    }
    if config.enable_profiling:
        paths |= PROFILING
    if gate_enabled(config.feature_gates, "ComponentFlagz"):
        paths["/flagz"] = flagz(partial(flag_values, given or ParsedFlags()))
    if gate_enabled(config.feature_gates, "ComponentStatusz"):
        paths["/statusz"] = statusz(started, (*paths, "/statusz"))
    return router({**paths, "/healthz/ping": lambda _: text_response("ok")})  # statusz does not list it


def router(paths: Mapping[str, Handler]) -> Handler:
    """Handler that dispatches by path; 404 for all others."""

    def handle(request: HttpRequest) -> HttpResponse:
        handler = paths.get(request.path)
        return NOT_FOUND if handler is None else handler(request)

    return handle


def port_health(request: HttpRequest) -> HttpResponse:
    """Health of the port itself, always well; with ``verbose`` by check, of which ``ping`` is the only one, as in kube-proxy."""
    verbose = "verbose" in parse_qs(request.query, keep_blank_values=True)
    return text_response("[+]ping ok\nhealthz check passed\n" if verbose else "ok")


def indicators(started: float) -> CollectorRegistry:
    """KEP-3466's service level indicators, as kube-proxy has them: the start time only, since it registers no check."""
    registry = CollectorRegistry()
    name, text = "process_start_time_seconds", "[ALPHA] When the process began, seconds since the epoch"
    Gauge(name, text, registry=registry).set(started)
    return registry


def exposition(registry: CollectorRegistry, request: HttpRequest) -> HttpResponse:
    """All metrics of a registry, gzip-compressed if the client accepts that."""
    body = generate_latest(_GoBuckets(registry))
    if "gzip" not in request.headers.get("accept-encoding", ""):
        return HttpResponse(HTTPStatus.OK, body, METRICS_TYPE)
    return HttpResponse(HTTPStatus.OK, gzip.compress(body, 1), METRICS_TYPE, {"Content-Encoding": "gzip"})


class _GoBuckets(Collector):
    """Metrics of a registry, with the bounds of buckets as Go writes them: 1, where prometheus_client has 1.0."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        for family in self._registry.collect():
            if family.type == "histogram":
                family.samples = [_with_go_bound(sample) for sample in family.samples]
            yield family


def _with_go_bound(sample: Sample) -> Sample:
    bound = sample.labels.get("le", "")
    return sample._replace(labels={**sample.labels, "le": bound.removesuffix(".0")}) if bound else sample


def configz(config: Configuration) -> HttpResponse:
    """``/configz`` (``met.configz``): the configuration in force, defaults filled in."""
    return HttpResponse(HTTPStatus.OK, msgspec.json.encode({CONFIG_NAME: configuration_document(config)}))
