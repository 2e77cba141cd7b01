"""``/healthz`` and ``/livez``: whether the rules are up to date, and whether the node wants new traffic.

Beside the pipe: reads what `kproxy.server.sync` says of its progress and what `kproxy.server.store` knows of
the Node.  Behaviours ``hz.*``; https://kubernetes.io/docs/reference/networking/virtual-ips/ and KEP-3836.
"""

from __future__ import annotations

import http.server
import logging
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus

import msgspec

from kproxy.api import Node
from kproxy.net import Address, Family
from kproxy.server.sync import Progress

DELETION_TAINT = "ToBeDeletedByClusterAutoscaler"
BIND_RETRY_SECONDS = 5.0

_NEVER = "0001-01-01T00:00:00Z"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FamilyHealth:
    """One family: seconds since the kernel was last up to date (None: never), and since a change waits for it."""

    updated: float | None
    waiting: float | None


class _Status(msgspec.Struct, rename="camel"):
    last_updated: str
    healthy: bool


class _Payload(msgspec.Struct, rename="camel", omit_defaults=True):
    last_updated: str
    current_time: str
    healthy: bool
    status: dict[str, _Status]
    node_eligible: bool | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What a probe is told."""

    status: HTTPStatus
    body: bytes


def livez(families: Mapping[Family, FamilyHealth], patience: float, now: float) -> Answer:
    """Whether any change has waited for ``patience`` seconds (``hz.stale``); ``now`` is seconds since the epoch."""
    return _answer(_payload(families, patience, now))


def healthz(
    families: Mapping[Family, FamilyHealth], patience: float, now: float, node: Node | None
) -> Answer:
    """The same, and whether the node is there to stay (``hz.node-taint``)."""
    payload = _payload(families, patience, now)
    payload.node_eligible = eligible(node)
    payload.healthy = payload.healthy and payload.node_eligible
    return _answer(payload)


def eligible(node: Node | None) -> bool:
    """Whether load balancers may send the node new connections."""
    if node is None or node.metadata.deletion_timestamp is not None:
        return False
    return all(taint.key != DELETION_TAINT for taint in node.spec.taints or ())


def _payload(families: Mapping[Family, FamilyHealth], patience: float, now: float) -> _Payload:
    """``hz.payload``; a healthy proxy says it was updated just now (``hz.ok``), another when it last was."""
    status = {family.value: _status(state, patience, now) for family, state in families.items()}
    healthy = all(state.healthy for state in status.values())
    late = [state.last_updated for state in status.values() if not state.healthy]
    return _Payload(min(late, default=_timestamp(now)), _timestamp(now), healthy, status)


def _status(state: FamilyHealth, patience: float, now: float) -> _Status:
    if state.waiting is None or state.waiting < patience:
        return _Status(_timestamp(now), healthy=True)
    return _Status(_NEVER if state.updated is None else _timestamp(now - state.updated), healthy=False)


def _timestamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def _answer(payload: _Payload) -> Answer:
    status = HTTPStatus.OK if payload.healthy else HTTPStatus.SERVICE_UNAVAILABLE
    return Answer(status, msgspec.json.encode(payload))


@dataclass(frozen=True, slots=True)
class Health:
    """Answers probes from the progress of the families that run; ``clock`` is the one `Progress` is dated by."""

    families: Mapping[Family, Progress]
    patience: float
    node: Callable[[], Node | None]
    clock: Callable[[], float]

    def answer(self, path: str) -> Answer | None:
        """What is told at a path; None where there is nothing (404)."""
        match path.partition("?")[0]:
            case "/healthz":
                return healthz(self._states(), self.patience, time.time(), self.node())
            case "/livez":
                return livez(self._states(), self.patience, time.time())
            case _:
                return None

    def _states(self) -> dict[Family, FamilyHealth]:
        now = self.clock()
        return {
            family: FamilyHealth(_age(progress.updated, now), _age(progress.feed.waiting_since, now))
            for family, progress in self.families.items()
        }


def _age(since: float | None, now: float) -> float | None:
    return None if since is None else now - since


class HealthServer(http.server.ThreadingHTTPServer):
    """Serves a `Health`; each probe has a thread, so that a slow one holds nothing up."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, address: Address, port: int, health: Health) -> None:
        """Raises `OSError` when it cannot listen there.  A wildcard listens in both families, as in Go."""
        self.health = health
        self._both = address.is_unspecified and socket.has_dualstack_ipv6()
        self.address_family = socket.AF_INET6 if self._both or address.version == 6 else socket.AF_INET
        super().__init__(("::" if self._both else str(address), port), _Handler)

    def server_bind(self) -> None:
        """Bind, without the reverse DNS look-up of `http.server`."""
        if self._both:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        socketserver.TCPServer.server_bind(self)

    def handle_error(self, request: object, client_address: object) -> None:
        """A prober that hangs up is no event."""
        log.debug("health probe from %s broke off (%s)", client_address, request)


class _Handler(http.server.BaseHTTPRequestHandler):
    server: HealthServer
    server_version = "kproxy"
    sys_version = ""
    timeout = 10.0

    def do_GET(self) -> None:
        answer = self.server.health.answer(self.path)
        if answer is None:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        self.send_response(answer.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the standard library's name
        log.debug(format, *args)


def serve(address: Address, port: int, health: Health, *, hard_fail: bool) -> None:
    """Serve from a thread of its own.

    When the address cannot be had it is tried again every 5 s (``hz.bind-retry``), or `OSError` is raised
    if ``hard_fail``.
    """
    try:
        server: HealthServer | None = HealthServer(address, port, health)
    except OSError as error:
        if hard_fail:
            raise
        log.error("cannot serve health on %s port %d, trying on: %s", address, port, error)  # noqa: TRY400
        server = None
    threading.Thread(target=_serve, args=(server, address, port, health), name="health", daemon=True).start()


def _serve(server: HealthServer | None, address: Address, port: int, health: Health) -> None:
    while server is None:
        time.sleep(BIND_RETRY_SECONDS)
        try:
            server = HealthServer(address, port, health)
        except OSError as error:
            log.warning("cannot serve health yet: %s", error)
    server.serve_forever()
