"""The relay's thread: an event loop over listening sockets, connections and flows, brought to a table of ports.

The sync calls `LocalRelay.update` with all ports that are wanted; the relay opens and closes what differs.  A place that cannot be bound (a daemon
of the node has it) is logged once, tried again at the next update, and costs no other port.  Connections of a port that is
closed go on until one of their ends closes (``established.survives-removal-of-its-endpoint``); they end with this process.

At most `max_connections` are open at a time.  Beyond, clients wait in the backlogs of their ports, a line is logged every 10 s, and
`Counted.limited` grows.
"""

from __future__ import annotations

import logging
import select
import socket
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType

from kproxy.linux import descriptors
from kproxy.linux.descriptors import Purpose
from kproxy.model.network import Protocol
from kproxy.proxy.relay.choice import EndpointTurns
from kproxy.proxy.relay.datagrams import DatagramPort, SharedFlows, end_unserved, expire_left
from kproxy.proxy.relay.dialing import keep_alive, source_for
from kproxy.proxy.relay.loop import EventLoop
from kproxy.proxy.relay.streams import PipePool, Stream
from kproxy.proxy.relay.table import RelayEndpoint, RelayKey, RelayPort, TurnsKey, lost_frontends
from kproxy.proxy.relay.untracking import Untracker
from kproxy.proxy.relay.wire import Counted, FindSocket, FoundSocket

_BACKLOG = 1024
_ACCEPTS = 64
_EXPIRY_SECONDS = 5.0
_LOG_SECONDS = 10.0
_NO_NUMBERS: Mapping[RelayKey, int] = MappingProxyType({})
_NO_SOCKETS: Mapping[RelayKey, socket.socket] = MappingProxyType({})
_KINDS = {Protocol.TCP: socket.SOCK_STREAM, Protocol.UDP: socket.SOCK_DGRAM}

log = logging.getLogger(__name__)


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
        self.release().close()

    def release(self) -> socket.socket:
        """Give up the listening socket: clients in its backlog are its new owner's."""
        self.pause()
        return self._listener

    def accept_waiting(self) -> None:
        """Accept all clients that are in the backlog now, as far as the relay admits them."""
        for _round in range(_BACKLOG // _ACCEPTS):
            self._accept(0)

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

    def __init__(self, max_connections: int | None = None, first_turn: float = 0.0) -> None:
        """``max_connections`` None: a third of the descriptors that the process may have.

        ``first_turn``: part of a port's endpoints (0 to 1) that is passed over at first, so that workers begin at different ones.
        """
        self._first_turn = first_turn
        self.max_connections = max_connections or descriptors.descriptor_limit() // 3
        self.loop = EventLoop()
        self.counts = Counted()
        self._pool = PipePool()
        self._untracker = Untracker()
        self._turns: dict[TurnsKey, EndpointTurns] = {}
        self._served: dict[RelayKey, RelayPort] = {}
        self._shared: dict[str, SharedFlows] = {}
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

    def count(self) -> Counted:
        """Counts so far, and of what is open."""
        self.counts.open_connections = len(self._streams)
        return self.counts

    def update(self, ports: Iterable[RelayPort]) -> None:
        """Serve exactly these ports from now on, but those that cannot be opened."""
        wanted = tuple(ports)
        self.retain(wanted)
        self.serve(wanted)

    def open_missing(self, ports: Iterable[RelayPort]) -> Mapping[RelayKey, int]:
        """As `serve`, but ports that are open keep their endpoints."""
        return self.serve([self._served.get(port.key, port) for port in ports])

    def retain(self, ports: Iterable[RelayPort]) -> None:
        """Close all ports but these."""
        wanted = {port.key: port for port in ports}
        self.shut([key for key in self.numbers() if key not in wanted], wanted.values())

    def numbers(self) -> dict[RelayKey, int]:
        """The number of each port that is open."""
        with self._lock:
            return {key: port.number for key, port in self._ports.items()}

    def find(self, query: FindSocket) -> FoundSocket:
        """The socket at an address and number, and what becomes of a client's next connection there; changes nothing."""
        place = query.address, query.number, query.protocol
        with self._lock:
            for key, opened in self._ports.items():
                port = self._served[key]
                if (port.address, opened.number, port.protocol) == place:
                    return self._found(port, opened, query.client)
        return FoundSocket()

    def _found(self, port: RelayPort, opened: _StreamPort | DatagramPort, client: str) -> FoundSocket:
        turns = self._turns[port.turns]
        bound = turns.bound(client, self.loop.now())
        endpoint = bound or turns.coming
        if isinstance(opened, DatagramPort):
            chosen = opened.endpoints_of(client)
        else:
            streams = (one for one in self._streams if one.chooser is turns and one.peer[0] == client)
            chosen = [one.endpoint for one in streams if one.endpoint]
        found = FoundSocket(port, endpoint, bound is not None, open=list(Counter(chosen).items()))
        if endpoint is not None and client != endpoint[0]:
            kept = source_for((client, 0), endpoint, port, keeps_source=port.keeps_source)
            found.keeps_source = kept is not None
        return found

    def shut(self, keys: Sequence[RelayKey], others: Iterable[RelayPort] | None = None) -> None:
        """Close these ports, those of them that are open; clients in their backlogs are accepted first.

        ``others``: all that are served afterwards; None: those that are now.
        """
        with self._lock:
            for port in (self._ports.get(key) for key in keys):
                if isinstance(port, _StreamPort):
                    port.accept_waiting()
            closed = [self._served[key] for key in keys if key in self._served]
            if others is None:
                others = [port for key, port in self._served.items() if key not in set(keys)]
        self._doubt_flows(closed, others)
        for released in self.release(keys).values():
            released.close()

    def release(self, keys: Iterable[RelayKey]) -> dict[RelayKey, socket.socket]:
        """Give up these ports, but not their connections; returns their sockets, which go on to listen."""
        released: dict[RelayKey, socket.socket] = {}
        with self._lock:
            for key in keys:
                if (port := self._ports.pop(key, None)) is not None:
                    released[key] = port.release()
                    del self._served[key]
            used = {port.turns for port in self._served.values()}
            self._turns = {turns: found for turns, found in self._turns.items() if turns in used}
        self._wake_loop()
        return released

    def reset_kept_sources(self) -> None:
        """Reset the connections whose endpoints see the client's address: their answers find no way without the mode's rules."""
        with self._lock:
            for stream in [stream for stream in self._streams if stream.source is not None]:
                stream.abort()
        self._wake_loop()

    def serve(
        self,
        ports: Iterable[RelayPort],
        wanted: Mapping[RelayKey, int] = _NO_NUMBERS,
        sockets: Mapping[RelayKey, socket.socket] = _NO_SOCKETS,
    ) -> Mapping[RelayKey, int]:
        """Serve these ports too; returns the number of each that is open.  Others are logged, and tried again at the next call.

        ``wanted``: numbers for ports that leave theirs open.  ``sockets``: taken over from another relay.
        """
        numbers: dict[RelayKey, int] = {}
        failed: dict[RelayKey, str] = {}
        ports = tuple(ports)
        with self._lock:
            known = ((self._served.get(port.key), port) for port in ports)
            before = [was for was, port in known if was is not None and was.frontends and was != port]
            now = {**self._served, **{port.key: port for port in ports}} if before else {}
        self._doubt_flows(before, now.values())
        with self._lock:
            for port in ports:
                number = port.port or wanted.get(port.key, 0)
                reason = self._apply(port.key, port, number, sockets.get(port.key))
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
        self.end_left()
        return numbers

    def end_left(self) -> None:
        """End the flows of closed sockets whose endpoint no socket of their service port serves.

        An endpoint that serves again is one that clients have been moved off (``conntrack.udp.moves-off-removed-endpoint``).
        """
        with self._lock:
            left = {service: shared.left for service, shared in self._shared.items() if shared.left}
            serving: dict[str, set[RelayEndpoint]] = {service: set() for service in left}
            for port in self._served.values():
                if port.service in serving:
                    serving[port.service] |= port.serving
            for service, flows in left.items():
                end_unserved(flows, serving[service])
        self._wake_loop()

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
        self._untracker.close()
        with self._lock:
            for stream in list(self._streams):
                stream.abort()
            for port in self._ports.values():
                port.close()
            self._ports.clear()
            for shared in self._shared.values():
                expire_left(shared.left, float("inf"))
            self._pool.close()
            self.loop.close()
            self._wake.close()
            self._woken.close()

    def _apply(self, key: RelayKey, port: RelayPort, number: int, taken: socket.socket | None) -> str | None:
        if key in self._ports:
            if taken is not None:  # of one worker more than there are now
                taken.close()
            if self._served[key] != port:
                self._change(key, port)
            return None
        try:
            listener = taken or _listen(port, number)
        except OSError as error:
            descriptors.count_shortage(error, Purpose.LISTENER)
            return f"{error.strerror}{descriptors.shortage_hint(error)}"
        self._served[key] = port
        first = int(self._first_turn * len(port.endpoints))
        chooser = self._turns.setdefault(port.turns, EndpointTurns(port, first))
        chooser.port = port
        if port.protocol is Protocol.TCP:
            self._ports[key] = _StreamPort(listener, chooser, self, keeps_source=port.keeps_source)
        else:
            shared = self._shared.setdefault(port.service, SharedFlows())
            self._ports[key] = DatagramPort(
                listener, chooser, self.loop, shared, self._untracker, keeps_source=port.keeps_source
            )
        return None

    def _doubt_flows(self, before: Iterable[RelayPort], now: Iterable[RelayPort]) -> None:
        """Doubt the flows that came by frontends which lead nowhere any more; ``before``: the ports as they were.

        The lock is not held while connection tracking is queried, so clients are served meanwhile.
        """
        for key, lost in lost_frontends(before, now).items():
            with self._lock:
                opened = self._ports.get(key)
                clients = opened.clients if isinstance(opened, DatagramPort) else []
            if isinstance(opened, DatagramPort) and clients:
                came = opened.came_by(lost, clients)
                with self._lock:
                    opened.doubt_flows(came)

    def _change(self, key: RelayKey, port: RelayPort) -> None:
        """Serve an open port as this one."""
        lost = self._served[key].frontends - port.frontends
        self._served[key] = self._turns[port.turns].port = port
        opened = self._ports[key]
        opened.endpoints_changed()
        if lost and isinstance(opened, DatagramPort):
            opened.offer_flows()

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
        for service, shared in list(self._shared.items()):
            expire_left(shared.left, self.loop.now())
            if not shared.left and not any(port.service == service for port in self._served.values()):
                del self._shared[service]
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


def _listen(port: RelayPort, number: int) -> socket.socket:
    """The port's socket, at a number or, for 0, at one of the kernel's choice.

    Workers share the number of a TCP port (SO_REUSEPORT): the kernel spreads connections over them.  A number of UDP that the kernel
    chooses is not to be shared, since its choice would count a shared one as free (udp_lib_lport_inuse).
    """
    family = socket.AF_INET6 if ":" in port.address else socket.AF_INET
    made = socket.socket(family, _KINDS[port.protocol] | socket.SOCK_NONBLOCK)
    try:
        if port.protocol is Protocol.TCP or port.port:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if port.protocol is Protocol.TCP:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            keep_alive(made)
        made.bind((port.address, number))
        if port.protocol is Protocol.TCP:
            made.listen(_BACKLOG)
    except OSError:
        made.close()
        raise
    return made
