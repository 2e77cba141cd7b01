"""What was asked of the API server, how it was answered, and how long that took.

Counted by `kproxy.proxy.daemon.cluster.client` from the first request on, told by `kproxy.proxy.daemon.http.request_metrics` when somebody asks; it
imports nothing that a start would have to wait for.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

BOUNDS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
"""Seconds, client-go's."""

NO_RESPONSE = "<error>"
"""In place of a status, as client-go says it."""


class DurationHistogram:
    """A histogram: how many fell below each of `BOUNDS` but not the one before, the last those above all; and their sum."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.total = 0.0

    def add(self, seconds: float) -> None:
        """One more."""
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds


class RequestStats:
    """Those to one API server; may be shared by threads."""

    def __init__(self, host: str) -> None:
        """``host`` with its port, as the URL has it."""
        self.host = host
        self.responses: Counter[tuple[str, str]] = Counter()
        """By method and status."""
        self.durations: dict[str, DurationHistogram] = {}
        """By method, of those that are answered as a whole: a watch has none."""
        self._lock = threading.Lock()

    def count_response(self, method: str, status: str) -> None:
        """A status came, or `NO_RESPONSE`."""
        with self._lock:
            self.responses[method, status] += 1

    @contextmanager
    def measure(self, method: str) -> Iterator[None]:
        """The body is a request and its answer, or its end without one."""
        begun = time.monotonic()
        try:
            yield
        finally:
            with self._lock:
                self.durations.setdefault(method, DurationHistogram()).add(time.monotonic() - begun)
