"""Counts and durations of requests to the API server, by method and status.

Counted by `kproxy.proxy.daemon.cluster.client` from the first request on, exported by
`kproxy.proxy.daemon.http.request_metrics` at a scrape; it imports nothing that would delay the start.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

BOUNDS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
"""Upper bounds of the histogram in seconds, those of client-go."""

NO_RESPONSE = "<error>"
"""Status of a request without a response, as in client-go."""


class DurationHistogram:
    """Histogram: in ``counts`` the number of values for each of `BOUNDS` (not cumulative), the last above all; ``total``: their sum."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.total = 0.0

    def add(self, seconds: float) -> None:
        """Add one value."""
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds


class RequestStats:
    """Requests to one API server; may be shared by threads."""

    def __init__(self, host: str) -> None:
        """``host``: host and port, as in the URL."""
        self.host = host
        self.responses: Counter[tuple[str, str]] = Counter()
        """Number of responses by method and status."""
        self.durations: dict[str, DurationHistogram] = {}
        """Durations by method, of requests with a whole response: watches are not measured."""
        self._lock = threading.Lock()

    def count_response(self, method: str, status: str) -> None:
        """Count a response, or `NO_RESPONSE`."""
        with self._lock:
            self.responses[method, status] += 1

    @contextmanager
    def measure(self, method: str) -> Iterator[None]:
        """Measure the body of the context: a request until its response or failure."""
        begun = time.monotonic()
        try:
            yield
        finally:
            with self._lock:
                self.durations.setdefault(method, DurationHistogram()).add(time.monotonic() - begun)
