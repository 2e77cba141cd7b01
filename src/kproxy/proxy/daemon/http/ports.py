"""The daemon's listening sockets: all are served by one thread, which never waits for a client.

Used for health, metrics and health check node ports; what is answered is the handlers' business.  The last are
open to the whole world, so a client can cost no thread, and no more than a place among `MAX_CONNECTIONS`.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import selectors
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NoReturn

from kproxy.linux import descriptors
from kproxy.linux.descriptors import Purpose
from kproxy.model.network import Address
from kproxy.proxy.daemon.http.protocol import (
    INTERNAL_ERROR,
    Handler,
    HttpRequest,
    HttpResponse,
    encode_response,
    parse_received,
)

BIND_RETRY_SECONDS = 5.0
"""``hz.bind-retry``, ``met.bind``."""

CLIENT_TIMEOUT_SECONDS = 10.0
"""What a client has from its first byte to our last."""

MAX_CONNECTIONS = 256
"""Connections; the oldest goes when one more comes."""

_SWEEP_SECONDS = 1.0
_BACKLOG = 128
_CHUNK = 1 << 16
_SHORTAGE_ERRNOS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_PAUSE_SECONDS = 0.01
"""After what cannot be accepted now, or an error that nobody foresaw."""

_LOG_INTERVAL_SECONDS = 10.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class ListeningPort:
    """A socket that listens; `HttpServer.close` ends that."""

    socket: socket.socket
    handler: Handler

    @property
    def port(self) -> int:
        """Its number, also where 0 was asked for."""
        number: int = self.socket.getsockname()[1]
        return number


@dataclass(slots=True, eq=False)
class _HttpConnection:
    socket: socket.socket
    handler: Handler
    deadline: float
    received: bytearray = field(default_factory=bytearray)
    answer: memoryview | None = None


class HttpServer:
    """Listening sockets and the conversations at them; `listen` and `close` may be called by any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock`` gives monotonic seconds."""
        self._clock = clock
        self._selector = selectors.DefaultSelector()
        self._lock = threading.Lock()
        self._connections: dict[_HttpConnection, None] = {}
        self._next_log_at = 0.0

    def start(self) -> None:
        """Serve from a thread of its own."""
        threading.Thread(target=self.run, name="ports", daemon=True).start()

    def run(self) -> NoReturn:
        """Serve for ever."""
        while True:
            try:
                self.poll()
            except Exception:  # this thread answers all ports of the daemon: it must not end
                log.exception("a round of the ports failed")
                time.sleep(_PAUSE_SECONDS)

    def listen(self, address: Address, port: int, handler: Handler, *, both: bool = False) -> ListeningPort:
        """Listen there from now on; raises `OSError`.  ``both``: a wildcard is one of both families."""
        listener = ListeningPort(_bound(address, port, both=both), handler)
        self._register(listener.socket, listener)
        return listener

    def close(self, listener: ListeningPort) -> None:
        """Stop listening; the port is free when this returns.  Conversations go on to their end."""
        with self._lock:
            self._selector.unregister(listener.socket)
        listener.socket.close()

    def poll(self, seconds: float | None = None) -> None:
        """One round of whatever there is to do; waits for it, at most so long."""
        if seconds is None and self._connections:
            seconds = _SWEEP_SECONDS
        for key, _ in self._selector.select(seconds):
            if isinstance(key.data, ListeningPort):
                self._accept(key.data)
            else:
                self._handle_io(key.data)
        now = self._clock()
        for late in [each for each in self._connections if each.deadline <= now]:
            self._close_connection(late)

    def _accept(self, listener: ListeningPort) -> None:
        try:
            accepted, _ = listener.socket.accept()
        except OSError as error:
            if error.errno in _SHORTAGE_ERRNOS:
                self._handle_shortage(error)
            return  # it hung up again, or the listener was closed meanwhile
        accepted.setblocking(False)
        conversation = _HttpConnection(accepted, listener.handler, self._clock() + CLIENT_TIMEOUT_SECONDS)
        few = descriptors.is_reserved(accepted.fileno(), Purpose.CONNECTION)
        if few or len(self._connections) >= MAX_CONNECTIONS:
            self._close_oldest()
        self._register(accepted, conversation)
        self._connections[conversation] = None

    def _register(self, made: socket.socket, what: ListeningPort | _HttpConnection) -> None:
        """Have a socket served; it is closed where that cannot be."""
        try:
            with self._lock:
                self._selector.register(made, selectors.EVENT_READ, what)
        except OSError:
            made.close()
            raise

    def _handle_shortage(self, error: OSError) -> None:
        """The client stays in the listener's queue, and is accepted when there is room again."""
        descriptors.count_shortage(error, Purpose.CONNECTION)
        now = self._clock()
        if now >= self._next_log_at:
            self._next_log_at = now + _LOG_INTERVAL_SECONDS
            log.warning("cannot accept a connection: %s%s", error, descriptors.shortage_hint(error))
        self._close_oldest()
        time.sleep(_PAUSE_SECONDS)

    def _handle_io(self, conversation: _HttpConnection) -> None:
        if conversation not in self._connections:
            return
        try:
            ended = _read(conversation) if conversation.answer is None else False
            if conversation.answer is not None:
                ended = self._write(conversation)
        except BlockingIOError:
            return
        except OSError as error:
            log.debug("a client hung up: %s", error)
            ended = True
        if ended:
            self._close_connection(conversation)

    def _write(self, conversation: _HttpConnection) -> bool:
        """Send what the socket takes; whether that was all."""
        assert conversation.answer is not None
        sent = conversation.socket.send(conversation.answer)
        conversation.answer = conversation.answer[sent:]
        if not conversation.answer:
            return True
        with self._lock:
            self._selector.modify(conversation.socket, selectors.EVENT_WRITE, conversation)
        return False

    def _close_oldest(self) -> None:
        oldest = next(iter(self._connections), None)
        if oldest is not None:
            self._close_connection(oldest)

    def _close_connection(self, conversation: _HttpConnection) -> None:
        del self._connections[conversation]
        with self._lock:
            self._selector.unregister(conversation.socket)
        with contextlib.suppress(OSError):
            conversation.socket.shutdown(socket.SHUT_WR)
        conversation.socket.close()


def listen_with_retry(
    ports: HttpServer, what: str, address: tuple[Address, int], handler: Handler, *, hard_fail: bool
) -> None:
    """Listen at the ``address`` (address, port), in both families where it is a wildcard, as in Go.

    When it cannot be had it is tried again every 5 s, or `OSError` is raised if ``hard_fail`` (``hz.bind-retry``).
    """
    try:
        ports.listen(*address, handler, both=True)
    except OSError as error:
        if hard_fail:
            raise OSError(
                error.errno, f"cannot serve {what} on {address[0]} port {address[1]}: {error}"
            ) from error
        log.error("cannot serve %s on %s port %d, trying on: %s", what, *address, error)  # noqa: TRY400
        threading.Thread(
            target=_retry_listen, args=(ports, what, address, handler), name=what, daemon=True
        ).start()


def _retry_listen(ports: HttpServer, what: str, place: tuple[Address, int], handler: Handler) -> None:
    while True:
        time.sleep(BIND_RETRY_SECONDS)
        try:
            ports.listen(*place, handler, both=True)
        except OSError as error:
            log.warning("cannot serve %s yet: %s", what, error)
        else:
            return


def _bound(address: Address, port: int, *, both: bool) -> socket.socket:
    both = both and address.is_unspecified and socket.has_dualstack_ipv6()
    six = both or address.version == 6
    bound = socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if six:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, not both)
        bound.bind(("::" if both else str(address), port))
        bound.listen(_BACKLOG)
        bound.setblocking(False)
    except OSError:
        bound.close()
        raise
    return bound


def _read(conversation: _HttpConnection) -> bool:
    """Take what came, and make the answer when the request is complete; whether the client is gone."""
    chunk = conversation.socket.recv(_CHUNK)
    if not chunk:
        return True
    conversation.received += chunk
    match parse_received(bytes(conversation.received)):
        case HttpRequest() as request:
            answer = _answer(conversation.handler, request)
            conversation.answer = memoryview(encode_response(answer, request, time.time()))
        case HttpResponse() as refusal:
            conversation.answer = memoryview(encode_response(refusal, None, time.time()))
        case None:
            pass
    return False


def _answer(handler: Handler, request: HttpRequest) -> HttpResponse:
    try:
        return handler(request)
    except Exception:  # whatever one request does, the port must answer the next
        log.exception("cannot answer %s", request.path)
        return INTERNAL_ERROR
