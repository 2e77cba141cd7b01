"""The relay's event loop: epoll and timers, run by one thread."""

from __future__ import annotations

import heapq
import select
import socket
import time
from collections.abc import Callable
from contextlib import AbstractContextManager


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
