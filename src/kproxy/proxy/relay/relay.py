"""The relay's thread: an event loop over listening sockets, connections and flows, brought to a table of ports.

The sync calls `LocalRelay.update` with all ports that are wanted; the relay opens and closes what differs.  A place that cannot be bound (a daemon
of the node has it) is logged once, tried again at the next update, and costs no other port.  Connections of a port that is
closed go on until one of their ends closes (``established.survives-removal-of-its-endpoint``); they end with this process.

At most `max_connections` are open at a time.  Beyond, clients wait in the backlogs of their ports, a line is logged every 10 s, and
`Counts.limited` grows.
"""

from __future__ import annotations

import heapq
import logging
import select
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass

from kproxy.linux import descriptors
from kproxy.linux.descriptors import Purpose
from kproxy.model.network import Protocol
from kproxy.proxy.relay.choice import EndpointTurns
from kproxy.proxy.relay.datagrams import DatagramPort, LeftFlows, expire_left
from kproxy.proxy.relay.streams import PipePool, Stream
from kproxy.proxy.relay.table import RelayKey, RelayPort, TurnsKey

_BACKLOG = 1024
_ACCEPTS = 64
_EXPIRY_SECONDS = 5.0
_LOG_SECONDS = 10.0
_KINDS = {Protocol.TCP: socket.SOCK_STREAM, Protocol.UDP: socket.SOCK_DGRAM}

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Counts:
    """Counts of events since the start.

    ``retries``: attempts at endpoints that failed.  ``limited``: times that clients had to wait for one of the limits.
    """

    connections: int = 0
    retries: int = 0
    limited: int = 0


class EventLoop:
    """epoll and timers (`kproxy.proxy.relay.streams.Loop`); `run_once` is to be called for ever, by one thread."""

    def __init__(self) -> None:
        """Open epoll."""
        self._epoll = select.epoll()
        self._ready: dict[int, Callable[[int], None]] = {}
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._timers_made = 0
        self._fresh: set[int] = set()
        """Numbers registered since the last round: an event may be of a socket that had the number before."""

    def now(self) -> float:
        """Seconds on the monotonic clock."""
        return time.monotonic()

    def watch(self, sock: socket.socket, mask: int, ready: Callable[[int], None]) -> None:
        """Call ``ready`` when events of the mask hold."""
        number = sock.fileno()
        if number in self._ready:
            self._epoll.modify(number, mask)
        else:
            self._epoll.register(number, mask)
            self._fresh.add(number)
        self._ready[number] = ready

    def unwatch(self, sock: socket.socket) -> None:
        """Forget the socket; no effect where it is not watched."""
        if self._ready.pop(sock.fileno(), None) is not None:
            self._epoll.unregister(sock.fileno())

    def call_at(self, when: float, act: Callable[[], None]) -> None:
        """Call once at that time."""
        self._timers_made += 1
        heapq.heappush(self._timers, (when, self._timers_made, act))

    def run_once(self, lock: AbstractContextManager[object]) -> None:
        """Wait for events or the next timer, and call what is due under the lock."""
        wait = max(0.0, self._timers[0][0] - self.now()) if self._timers else None
        happened = self._epoll.poll(wait)
        with lock:
            for number, events in happened:
                ready = self._ready.get(number)  # an earlier one of this round may have closed it
                if ready is not None and number not in self._fresh:
                    ready(events)
            self._fresh.clear()
            while self._timers and self._timers[0][0] <= self.now():
                heapq.heappop(self._timers)[2]()

    def close(self) -> None:
        """Close epoll."""
        self._epoll.close()


class _StreamPort:
    """A listening TCP socket, which it owns."""

    def __init__(
        self, listener: socket.socket, chooser: EndpointTurns, relay: LocalRelay, *, keeps_source: bool
    ) -> None:
        self._listener, self._chooser, self._relay = listener, chooser, relay
        self._keeps_source = keeps_source
        self.number: int = listener.getsockname()[1]
        self.resume()

    def pause(self) -> None:
        self._relay.loop.unwatch(self._listener)

    def resume(self) -> None:
        self._relay.loop.watch(self._listener, select.EPOLLIN, self._accept)

    def endpoints_changed(self) -> None:
        """Connections stay where they are."""

    def expire(self) -> None:
        """Connections do not expire."""

    def close(self) -> None:
        self.pause()
        self._listener.close()

    def _accept(self, _: int) -> None:
        for _round in range(_ACCEPTS):
            if not self._relay.admits():
                return
            try:
                client, _address = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                descriptors.count_shortage(error, Purpose.CONNECTION)
                if descriptors.is_shortage(error):
                    self._relay.hold(str(error))
                return
            client.setblocking(False)
            self._relay.accepted(client, self._chooser, keeps_source=self._keeps_source)


class LocalRelay:
    """All ports of one process.  `update` and `close` may be called by any thread; all else is the relay's own thread's."""

    def __init__(self, max_connections: int | None = None) -> None:
        """``max_connections`` None: a third of the descriptors that the process may have."""
        self.max_connections = max_connections or descriptors.descriptor_limit() // 3
        self.loop = EventLoop()
        self.counts = Counts()
        self._pool = PipePool()
        self._turns: dict[TurnsKey, EndpointTurns] = {}
        self._served: dict[RelayKey, RelayPort] = {}
        self._left: dict[str, LeftFlows] = {}
        self._ports: dict[RelayKey, _StreamPort | DatagramPort] = {}
        self._streams: set[Stream] = set()
        self._failed: dict[RelayKey, str] = {}
        self._held = False
        self._logged_at = float("-inf")
        self._lock = threading.Lock()
        self._wake, self._woken = socket.socketpair()
        self._woken.setblocking(False)
        self._wake.setblocking(False)
        self._closing = False
        self._thread: threading.Thread | None = None
        self.loop.watch(self._woken, select.EPOLLIN, self._wake_up)
        self._expire()

    def start(self) -> None:
        """Start the thread, which does not keep the process alive."""
        self._thread = threading.Thread(target=self._run, name="relay", daemon=True)
        self._thread.start()

    @property
    def open_connections(self) -> int:
        """Number of open TCP connections."""
        return len(self._streams)

    def update(self, ports: Collection[RelayPort]) -> None:
        """Serve exactly these ports from now on, but those that cannot be opened."""
        self.retain(ports)
        self.serve(ports)

    def open_missing(self, ports: Iterable[RelayPort]) -> Mapping[RelayKey, int]:
        """As `serve`, but ports that are open keep their endpoints."""
        return self.serve([self._served.get(port.key, port) for port in ports])

    def retain(self, ports: Iterable[RelayPort]) -> None:
        """Close all ports but these."""
        wanted = {port.key for port in ports}
        with self._lock:
            for key in [key for key in self._ports if key not in wanted]:
                self._ports.pop(key).close()
                del self._served[key]
            used = {port.turns for port in self._served.values()}
            self._turns = {turns: found for turns, found in self._turns.items() if turns in used}
        self._wake_loop()

    def serve(self, ports: Iterable[RelayPort]) -> Mapping[RelayKey, int]:
        """Serve these ports too; returns the number of each that is open.  Others are logged, and tried again at the next call."""
        numbers: dict[RelayKey, int] = {}
        failed: dict[RelayKey, str] = {}
        with self._lock:
            for port in ports:
                reason = self._apply(port.key, port)
                if reason is None:
                    numbers[port.key] = self._ports[port.key].number
                else:
                    failed[port.key] = reason
            for key in failed.keys() - self._failed.keys():
                (service, protocol, _), address, number, _ = key
                log.warning(
                    "%s: no relay at %s:%d/%s: %s", service, address, number, protocol.value, failed[key]
                )
            self._failed = failed
        self._wake_loop()
        return numbers

    def _wake_loop(self) -> None:
        """Let the thread see new timers; a full buffer wakes it too."""
        with suppress(BlockingIOError):
            self._wake.send(b".")

    def close(self) -> None:
        """End the thread and close everything; connections are reset."""
        self._closing = True
        self._wake.send(b".")
        if self._thread is not None:
            self._thread.join()
        with self._lock:
            for stream in list(self._streams):
                stream.abort()
            for port in self._ports.values():
                port.close()
            self._ports.clear()
            for left in self._left.values():
                expire_left(left, float("inf"))
            self._pool.close()
            self.loop.close()
            self._wake.close()
            self._woken.close()

    def _apply(self, key: RelayKey, port: RelayPort) -> str | None:
        if key in self._ports:
            if self._served[key] != port:
                self._served[key] = self._turns[port.turns].port = port
                self._ports[key].endpoints_changed()
            return None
        try:
            listener = _listen(port)
        except OSError as error:
            descriptors.count_shortage(error, Purpose.LISTENER)
            return f"{error.strerror}{descriptors.shortage_hint(error)}"
        self._served[key] = port
        chooser = self._turns.setdefault(port.turns, EndpointTurns(port))
        chooser.port = port
        if port.protocol is Protocol.TCP:
            self._ports[key] = _StreamPort(listener, chooser, self, keeps_source=port.keeps_source)
        else:
            left = self._left.setdefault(port.service, {})
            self._ports[key] = DatagramPort(
                listener, chooser, self.loop, left, keeps_source=port.keeps_source
            )
        return None

    # ------------------------------------------------------------------ the relay's thread

    def admits(self) -> bool:
        """True if one more connection may be accepted; else ports wait until one ends."""
        if len(self._streams) < self.max_connections:
            return True
        self.hold(f"{self.max_connections} connections are open")
        return False

    def hold(self, why: str) -> None:
        """Accept nothing until a connection ends; clients wait in the backlogs."""
        self.counts.limited += 1
        now = self.loop.now()
        if now - self._logged_at >= _LOG_SECONDS:
            self._logged_at = now
            log.warning("relay: clients wait: %s", why)
        if not self._held:
            self._held = True
            for port in self._ports.values():
                if isinstance(port, _StreamPort):
                    port.pause()
            self.loop.call_at(now + 1.0, self._release)

    def _release(self) -> None:
        if self._held:
            self._held = False
            for port in self._ports.values():
                if isinstance(port, _StreamPort):
                    port.resume()

    def accepted(self, client: socket.socket, chooser: EndpointTurns, *, keeps_source: bool) -> None:
        """Relay a connection."""
        self.counts.connections += 1
        try:
            stream = Stream(client, chooser, self.loop, self._pool, self._ended, keeps_source=keeps_source)
        except OSError:  # the client has gone already
            client.close()
            return
        if stream.alive:
            self._streams.add(stream)

    def _ended(self, stream: Stream) -> None:
        self._streams.discard(stream)
        self.counts.retries += stream.retries
        self._release()

    def _expire(self) -> None:
        for port in self._ports.values():
            port.expire()
        for service, left in list(self._left.items()):
            expire_left(left, self.loop.now())
            if not left and not any(port.service == service for port in self._served.values()):
                del self._left[service]
        self.loop.call_at(self.loop.now() + _EXPIRY_SECONDS, self._expire)

    def _wake_up(self, _: int) -> None:
        self._woken.recv(1 << 12)

    def _run(self) -> None:
        while not self._closing:
            self._woken_or_ready()

    def _woken_or_ready(self) -> None:
        try:
            self.loop.run_once(self._lock)
        except Exception:
            log.exception("relay: a connection failed")


def _listen(port: RelayPort) -> socket.socket:
    """The port's socket, which others of the same user may share: a process that takes over binds before this one ends."""
    family = socket.AF_INET6 if ":" in port.address else socket.AF_INET
    made = socket.socket(family, _KINDS[port.protocol] | socket.SOCK_NONBLOCK)
    try:
        if port.port:  # the kernel's choice is free: nobody is to share it
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if port.protocol is Protocol.TCP:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((port.address, port.port))
        if port.protocol is Protocol.TCP:
            made.listen(_BACKLOG)
    except OSError:
        made.close()
        raise
    return made
