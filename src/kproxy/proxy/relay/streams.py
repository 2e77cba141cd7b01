"""TCP connections of the relay: dialling with retries, and two directions of bytes moved by splice(2).

Theory of operation
-------------------
A connection has two sockets, the client's and, once an endpoint accepted, the endpoint's.  While it dials, nothing is read from the client: what it
sent waits in the kernel.  An attempt that is refused, or not answered in time, is followed by one at the next endpoint
(`kproxy.proxy.relay.choice`), which the client cannot notice.

Each direction moves bytes from its source into a pipe and from there to its target; they never enter this process.  A
pipe is lent from a pool only while bytes are in it, so an idle connection costs two descriptors.  A target that takes no more
stops the reading of its source (backpressure): the loop then waits for the target to be writable.  The end of a
source is passed on by shutdown(2) of the target's writing side once the pipe is empty, and the other direction goes on (half-close).
An error of either socket resets the other, as without a relay.

Called by `kproxy.proxy.relay.relay` in its thread only; blocks nowhere.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import socket
import struct
from collections.abc import Callable
from functools import partial
from typing import Protocol as Interface

from kproxy.linux.descriptors import is_shortage
from kproxy.proxy.relay.choice import EndpointTurns, attempts, dial_seconds
from kproxy.proxy.relay.dialing import Source, dial, source_for
from kproxy.proxy.relay.table import RelayEndpoint

CHUNK = 1 << 18
"""Bytes that one splice may move, and the capacity that is asked for each pipe."""

_ROUNDS = 8
"""Chunks that one direction may move before others get their turn."""

_POOLED = 64
_FLAGS = os.SPLICE_F_MOVE | os.SPLICE_F_NONBLOCK
_F_SETPIPE_SZ = 1031
_RESET = struct.pack("ii", 1, 0)
_ENDED = select.EPOLLHUP | select.EPOLLERR


class Loop(Interface):
    """Event loop, as connections and flows need it."""

    def watch(self, sock: socket.socket, mask: int, ready: Callable[[int], None]) -> None:
        """Call ``ready`` with the events when some of the mask (EPOLL...) hold; replaces an earlier watch of the socket."""

    def unwatch(self, sock: socket.socket) -> None:
        """Call nothing for the socket any more."""

    def call_at(self, when: float, act: Callable[[], None]) -> None:
        """Call once at a time of `now`, or a little later."""

    def now(self) -> float:
        """Seconds on a steady clock."""


class PipePool:
    """Pipes that are lent while bytes are in them."""

    def __init__(self) -> None:
        """Start empty: pipes are made when they are needed."""
        self._free: list[tuple[int, int]] = []

    def lend(self) -> tuple[int, int]:
        """An empty pipe, its reading end first; OSError when there are no descriptors."""
        if self._free:
            return self._free.pop()
        pipe = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        with contextlib.suppress(OSError):  # a user's share of pipe pages is used up: it works with less
            fcntl.fcntl(pipe[0], _F_SETPIPE_SZ, CHUNK)
        return pipe

    def give_back(self, pipe: tuple[int, int], *, empty: bool) -> None:
        """Take a pipe back; one that is not empty is closed."""
        if empty and len(self._free) < _POOLED:
            self._free.append(pipe)
        else:
            os.close(pipe[0])
            os.close(pipe[1])

    def close(self) -> None:
        """Close all pipes that are not lent."""
        while self._free:
            self.give_back(self._free.pop(), empty=False)


class _Direction:
    """Bytes of one direction, with the pipe that holds those that the target has not taken yet."""

    __slots__ = ("_pipe", "_pool", "_source", "_target", "done", "held", "source_ended")

    def __init__(self, source: socket.socket, target: socket.socket, pool: PipePool) -> None:
        self._source, self._target, self._pool = source, target, pool
        self._pipe: tuple[int, int] | None = None
        self.held = 0
        self.source_ended = self.done = False

    def move(self) -> int:
        """Move what can be moved now, and pass the source's end on; returns the bytes delivered.  OSError: broken."""
        delivered = 0
        for _ in range(_ROUNDS):
            if not self.held and not self._fill():
                break
            sent = self._drain()
            delivered += sent
            if self.held:
                break
        if self.source_ended and not self.held and not self.done:
            self.done = True
            self._target.shutdown(socket.SHUT_WR)
        return delivered

    def _fill(self) -> bool:
        """Take bytes from the source into a pipe; False if there are none now."""
        if self.source_ended:
            return False
        pipe = self._pipe = self._pipe or self._pool.lend()
        try:
            count = os.splice(self._source.fileno(), pipe[1], CHUNK, flags=_FLAGS)
        except BlockingIOError:
            count = -1
        if count > 0:
            self.held = count
            return True
        self.source_ended = count == 0
        self._release()
        return False

    def _drain(self) -> int:
        assert self._pipe is not None
        try:
            count = os.splice(self._pipe[0], self._target.fileno(), self.held, flags=_FLAGS)
        except BlockingIOError:
            return 0
        self.held -= count
        if not self.held:
            self._release()
        return count

    def _release(self) -> None:
        if self._pipe is not None:
            self._pool.give_back(self._pipe, empty=not self.held)
            self._pipe = None

    def close(self) -> None:
        """Give up what is held."""
        self._release()


class Stream:
    """One client's connection, from its acceptance to its end; ``closed`` is called then, once."""

    def __init__(
        self,
        client: socket.socket,
        chooser: EndpointTurns,
        loop: Loop,
        pool: PipePool,
        closed: Callable[[Stream], None],
        *,
        keeps_source: bool = False,
    ) -> None:
        """Start to dial."""
        self._client, self.chooser, self._loop, self._pool, self._closed = (
            client,
            chooser,
            loop,
            pool,
            closed,
        )
        peer = client.getpeername()
        self._who: str = peer[0]
        self.peer: Source = peer[0], peer[1]
        self._keeps_source = keeps_source
        self._server: socket.socket | None = None
        self.endpoint: RelayEndpoint | None = None
        self.source: Source | None = None
        self._ways: tuple[_Direction, _Direction] | None = None
        self._masks: dict[socket.socket, int] = {}
        self._attempt = 0
        self._tried: tuple[RelayEndpoint, ...] = ()
        self.retries = 0
        self.alive = True
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._dial()

    def _dial(self) -> None:
        """Try the next endpoint; resets the client after the last one."""
        while self.alive:
            if self._attempt >= attempts(len(self.chooser.port.endpoints)):
                self.abort()
                return
            endpoint = self.endpoint = self.chooser.choose(self._who, self._loop.now(), self._tried)
            attempt, self._attempt = self._attempt, self._attempt + 1
            keeps = self._keeps_source
            self.source = source_for(self.peer, endpoint, self.chooser.port, keeps_source=keeps)
            try:
                server = self._server = dial(endpoint, socket.SOCK_STREAM, self.source)
            except OSError as error:
                if is_shortage(error):
                    self.abort()
                    return
                self._failed()
                continue
            server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._loop.watch(server, select.EPOLLOUT, self._answered)
            self._loop.call_at(self._loop.now() + dial_seconds(attempt), partial(self._expired, server))
            return

    def _answered(self, _: int) -> None:
        assert self._server is not None
        if self._server.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._next_endpoint()
        else:
            self._join(self._server)

    def _expired(self, server: socket.socket) -> None:
        if self.alive and self._ways is None and self._server is server:
            self._next_endpoint()

    def _next_endpoint(self) -> None:
        self._drop_server()
        self._dial()

    def _drop_server(self) -> None:
        assert self._server is not None
        self._loop.unwatch(self._server)
        self._server.close()
        self._server = None
        self._failed()

    def _failed(self) -> None:
        """The attempt failed: the client's affinity ends too."""
        assert self.endpoint is not None
        self.retries += 1
        self._tried += (self.endpoint,)
        self.chooser.failed(self._who, self.endpoint)

    def _join(self, server: socket.socket) -> None:
        self._ways = (
            _Direction(self._client, server, self._pool),
            _Direction(server, self._client, self._pool),
        )
        self._move(0)

    def _move(self, events: int) -> None:
        assert self._ways is not None
        try:
            for way in self._ways:
                way.move()
            if all(way.done for way in self._ways):
                self._close()
            elif events & _ENDED and self._broken():
                self.abort()
            else:
                self._watch_both()
        except OSError:
            self.abort()

    def _broken(self) -> bool:
        """True if a socket has an error: both ends closed alone is no error, and is found by reading."""
        assert self._server is not None
        return any(
            sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) for sock in (self._client, self._server)
        )

    def _watch_both(self) -> None:
        """Wait for each source that may be read, and for each target that has not taken all."""
        assert self._ways is not None
        assert self._server is not None
        to_server, to_client = self._ways
        for sock, reading, writing in (
            (self._client, to_server, to_client),
            (self._server, to_client, to_server),
        ):
            read = 0 if reading.held or reading.source_ended else select.EPOLLIN
            mask = read | (select.EPOLLOUT if writing.held else 0)
            if self._masks.get(sock) != mask:
                self._masks[sock] = mask
                if mask:
                    self._loop.watch(sock, mask, self._move)
                else:
                    self._loop.unwatch(sock)  # a socket that hung up would be reported without end

    def abort(self) -> None:
        """End both connections by a reset."""
        if self.alive:
            for sock in (self._client, self._server):
                if sock is not None:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self._close()

    def _close(self) -> None:
        self.alive = False
        for way in self._ways or ():
            way.close()
        for sock in (self._client, self._server):
            if sock is not None:
                self._loop.unwatch(sock)
                sock.close()
        self._closed(self)
