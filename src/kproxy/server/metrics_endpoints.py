"""What the metrics port answers, path by path (``met.*``; 127.0.0.1:10249 unless configured).

Served by `kproxy.server.ports`.  Profiling is there only when enabled, and it is Python's: the stacks of all
threads under the name that Go's tools give theirs, and no profile in pprof's own format.
"""

from __future__ import annotations

import gzip
import platform
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from http import HTTPStatus

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.exposition import generate_latest

from kproxy import __version__
from kproxy.server.config import Configuration
from kproxy.server.ports_http import NOT_FOUND, Answer, Handler, Request, text
from kproxy.server.write import document

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Prometheus' text format, which every scraper takes and kube-proxy sends."""

CONFIG_NAME = "kubeproxy.config.k8s.io"
"""The key of ``/configz``: the API group of the configuration."""

STATUSZ_JSON = ("g=config.k8s.io", "as=Statusz")
"""Parameters of the ``Accept`` header that asks for ``/statusz`` as JSON."""

_WARNING = (
    "Warning: This endpoint is not meant to be machine parseable, "
    "has no formatting compatibility guarantees and is for debugging purposes only."
)


def metrics_port(config: Configuration, registry: CollectorRegistry, started: float) -> Handler:
    """The handler of the port; ``started`` is when the daemon did, in seconds since the epoch."""
    checks = Checks()
    paths: dict[str, Handler] = {
        "/healthz": checks.healthz,
        "/metrics": lambda request: exposition(registry, request),
        "/metrics/slis": lambda request: exposition(checks.registry, request),
        "/proxyMode": lambda _: text(config.mode),
        "/configz": lambda _: configz(config),
    }
    if config.enable_profiling:
        paths |= PROFILING
    paths["/statusz"] = statusz(started, (*paths, "/statusz"))
    return router(paths)


def router(paths: Mapping[str, Handler]) -> Handler:
    """One handler of several paths; all others are not found."""

    def handle(request: Request) -> Answer:
        handler = paths.get(request.path)
        return NOT_FOUND if handler is None else handler(request)

    return handle


class Checks:
    """The port's own ``/healthz``, which says that it answers (``hz.metrics-port-healthz``), and its count."""

    def __init__(self) -> None:
        """Nobody asked yet."""
        self.registry = CollectorRegistry()
        self._last = Gauge(
            "kubernetes_healthcheck", "Result of one check", ("name", "type"), registry=self.registry
        )
        self._all = Counter(
            "kubernetes_healthchecks_total",
            "Results of all checks",
            ("name", "type", "status"),
            registry=self.registry,
        )

    def healthz(self, _: Request) -> Answer:
        """Always well."""
        self._last.labels("ping", "healthz").set(1)
        self._all.labels("ping", "healthz", "success").inc()
        return text("ok")


def exposition(registry: CollectorRegistry, request: Request) -> Answer:
    """All metrics of a registry, compressed for those who can read it."""
    body = generate_latest(registry)
    if "gzip" not in request.headers.get("accept-encoding", ""):
        return Answer(HTTPStatus.OK, body, METRICS_TYPE)
    return Answer(HTTPStatus.OK, gzip.compress(body, 1), METRICS_TYPE, {"Content-Encoding": "gzip"})


def configz(config: Configuration) -> Answer:
    """``met.configz``: what is in force, defaults filled in."""
    return Answer(HTTPStatus.OK, msgspec.json.encode({CONFIG_NAME: document(config)}))


def statusz(started: float, paths: tuple[str, ...]) -> Handler:
    """KEP-4827: who this is and since when, as text or, if asked for by name, JSON."""
    listed = sorted(paths)
    begun = datetime.fromtimestamp(started, UTC)

    def handle(request: Request) -> Answer:
        seconds = int(time.time() - started)
        if all(parameter in request.headers.get("accept", "") for parameter in STATUSZ_JSON):
            return Answer(HTTPStatus.OK, msgspec.json.encode(_structured(begun, seconds, listed)))
        minutes, rest = divmod(seconds, 60)
        lines = (
            "",
            "kube-proxy statusz",
            _WARNING,
            "",
            f"Started: {begun:%a %b %d %H:%M:%S UTC %Y}",
            f"Up: {minutes // 60} hr {minutes % 60:02} min {rest:02} sec",
            f"Python version: {platform.python_version()}",
            f"Binary version: kproxy {__version__}",
            f"Paths: {' '.join(listed)}",
            "",
        )
        return text("\n".join(lines))

    return handle


def _structured(begun: datetime, seconds: int, paths: list[str]) -> dict[str, object]:
    return {
        "kind": "Statusz",
        "apiVersion": "config.k8s.io/v1alpha1",
        "metadata": {"name": "kube-proxy"},
        "startTime": begun.isoformat(timespec="seconds").replace("+00:00", "Z"),
        "uptimeSeconds": seconds,
        "binaryVersion": __version__,
        "paths": paths,
    }


def thread_stacks(_: Request) -> Answer:
    """Where each thread is."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    frames = sys._current_frames()  # noqa: SLF001 - the documented way to another thread's stack
    stacks = (
        f"thread {names.get(ident, '?')} ({ident}):\n{''.join(traceback.format_stack(frame))}"
        for ident, frame in frames.items()
    )
    return text("\n".join(stacks))


def command_line(_: Request) -> Answer:
    """The process's arguments, a zero byte between them, as Go's pprof has it."""
    return text("\0".join(sys.argv))


def profiling_index(_: Request) -> Answer:
    """What there is."""
    return text("".join(f"{path}\n" for path in PROFILING))


PROFILING: dict[str, Callable[[Request], Answer]] = {
    "/debug/pprof/": profiling_index,
    "/debug/pprof/cmdline": command_line,
    "/debug/pprof/goroutine": thread_stacks,
}
"""With ``enableProfiling`` only.  There is no ``profile``, ``heap``, ``trace`` or ``symbol``."""
