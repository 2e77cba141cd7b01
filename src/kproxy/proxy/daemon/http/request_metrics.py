"""client-go's metrics of requests to the API server, which dashboards and alerts expect of every component.

Beside `kproxy.proxy.daemon.http.metrics`: a Prometheus collector over `kproxy.proxy.daemon.cluster.request_log`.
Names, labels and buckets as kube-proxy 1.36 has them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric

from kproxy.proxy.daemon.cluster.request_log import BOUNDS, RequestStats


class RequestCollector:
    """Prometheus collector; a registry calls `collect` in the thread of the scrape."""

    def __init__(self, requests: RequestStats) -> None:
        self._requests = requests

    def collect(self) -> Iterator[Metric]:
        """Counts of responses and histogram of durations, read now."""
        yield self._answers()
        yield self._durations()

    def _answers(self) -> Metric:
        text = "[ALPHA] Requests to the API server by status, method and host"
        found = CounterMetricFamily("rest_client_requests", text, labels=["code", "method", "host"])
        for (method, status), count in tuple(self._requests.responses.items()):
            found.add_metric([status, method, self._requests.host], count)
        return found

    def _durations(self) -> Metric:
        text = "[ALPHA] Time until a request was answered as a whole, by verb and host; watches are not"
        found = HistogramMetricFamily("rest_client_request_duration_seconds", text, labels=["verb", "host"])
        for method, durations in tuple(self._requests.durations.items()):
            found.add_metric([method, self._requests.host], _buckets(durations.counts), durations.total)
        return found


def _buckets(counts: Sequence[int]) -> list[tuple[str, float]]:
    """Cumulative buckets, as Prometheus wants them."""
    bounds = [*map(str, BOUNDS), "+Inf"]
    return list(zip(bounds, map(float, accumulate(counts)), strict=True))
