"""HTTP server of the daemon: all listening sockets and connections, served by one thread.

Used for health, metrics and health check node ports; handlers make the responses. Theory of operation:

Health check node ports are open to the whole world, on every node, and there may be a thousand of them. So a client
must cost no thread and no unbounded memory, and a slow or hostile one must not delay others. One thread runs a
selector over all sockets, non-blocking:

- A readable listening socket: `_accept` takes one connection and gives it `CLIENT_TIMEOUT_SECONDS` for everything.
- A readable connection: `_read` appends to its buffer, until `protocol.parse_received` returns a request or an error
  response (heads and bodies are bounded).  The handler is called in this thread: handlers must not block.
- Then the response is written as the socket takes it, if need be over several rounds, and the connection closed:
  one request per connection.

At most `MAX_CONNECTIONS` are open. One more closes the oldest, as does a connection that would use one of the
reserved descriptors (`kproxy.linux.descriptors`), so clients cannot exhaust the descriptors that syncs need. When the
process has none left at all, the client waits in the listener's backlog, and a warning is logged every 10 s.

Other threads (the syncs) call `listen` and `close`; a lock guards changes of the selector's set. An exception in a
handler becomes a 500, one elsewhere is logged: the thread never ends.
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
"""Seconds between attempts to bind an address (``hz.bind-retry``, ``met.bind``)."""

CLIENT_TIMEOUT_SECONDS = 10.0
"""Seconds from accepting a connection to the last byte of its response."""

MAX_CONNECTIONS = 256
"""Connections at a time; one more closes the oldest."""

_SWEEP_SECONDS = 1.0
_BACKLOG = 128
_CHUNK = 1 << 16
_SHORTAGE_ERRNOS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_PAUSE_SECONDS = 0.01
"""Pause after a failed accept or an unexpected error, so that it does not repeat in a busy loop."""

_LOG_INTERVAL_SECONDS = 10.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class ListeningPort:
    """Listening socket with its handler; `HttpServer.close` closes it."""

    socket: socket.socket
    handler: Handler

    @property
    def port(self) -> int:
        """Port number, the kernel's choice where 0 was given."""
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
    """Listening sockets and their connections; `listen` and `close` may be called by any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock`` returns monotonic seconds."""
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
            except Exception:  # this thread serves all ports of the daemon: it must not end
                log.exception("a round of the ports failed")
                time.sleep(_PAUSE_SECONDS)

    def listen(self, address: Address, port: int, handler: Handler, *, both: bool = False) -> ListeningPort:
        """Open a listening socket; raises `OSError`. ``both``: a wildcard address listens in both families."""
        listener = ListeningPort(_bound(address, port, both=both), handler)
        self._register(listener.socket, listener)
        return listener

    def close(self, listener: ListeningPort) -> None:
        """Close a listening socket; the port is free on return. Open connections are served to their end."""
        with self._lock:
            self._selector.unregister(listener.socket)
        listener.socket.close()

    def poll(self, seconds: float | None = None) -> None:
        """Serve all sockets that are ready; waits for one, at most ``seconds``."""
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
            return  # the client closed already, or the listener was closed meanwhile
        accepted.setblocking(False)
        conversation = _HttpConnection(accepted, listener.handler, self._clock() + CLIENT_TIMEOUT_SECONDS)
        few = descriptors.is_reserved(accepted.fileno(), Purpose.CONNECTION)
        if few or len(self._connections) >= MAX_CONNECTIONS:
            self._close_oldest()
        self._register(accepted, conversation)
        self._connections[conversation] = None

    def _register(self, made: socket.socket, what: ListeningPort | _HttpConnection) -> None:
        """Add a socket to the selector; close it if that fails."""
        try:
            with self._lock:
                self._selector.register(made, selectors.EVENT_READ, what)
        except OSError:
            made.close()
            raise

    def _handle_shortage(self, error: OSError) -> None:
        """Make room after a shortage: the client stays in the listener's backlog until a descriptor is free."""
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
        """Send as much as the socket takes; True if that was all."""
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
    """Listen at ``address`` (address, port), in both families if it is a wildcard, as Go does.

    On failure it retries every 5 s in a thread, or raises `OSError` if ``hard_fail`` (``hz.bind-retry``).
    """
    try:
        ports.listen(*address, handler, both=True)
    except OSError as error:
        if hard_fail:
            raise OSError(
                error.errno, f"cannot serve {what} on {address[0]} port {address[1]}: {error}"
            ) from error
        log.error("cannot serve %s on %s port %d, retrying: %s", what, *address, error)  # noqa: TRY400
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
    """Receive, and make the response when the request is complete; True if the client has closed."""
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
    except Exception:  # a failing request must not keep the port from serving the next
        log.exception("cannot answer %s", request.path)
        return INTERNAL_ERROR
