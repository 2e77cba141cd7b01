"""The daemon's end of the relay workers: finds or starts them, and brings each to its part of a table of ports.

A TCP port is every worker's, each with a socket of its own at the same number (SO_REUSEPORT), so connections are spread over processors and
over the processes' limits of descriptors.  A port with ClientIP affinity, or of UDP, is one worker's alone, chosen by the service port's name: which
endpoint a client has is known in one process.

A worker that fails is started again by its parent (`kproxy.proxy.relay.__main__`), or by another parent where that one has ended; a thread here
then gives it its ports at the numbers that they had, so no rule changes.  Workers of an earlier release give their sockets to the new ones, and end with their connections.
All failures are `kproxy.linux.host.HostError`.
"""

from __future__ import annotations

import logging
import threading
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress

from kproxy.linux.host import HostError, os_error
from kproxy.model.network import Family, Protocol
from kproxy.proxy.relay import wire
from kproxy.proxy.relay.connection import WorkerConnection
from kproxy.proxy.relay.fleet import earlier_workers, running_workers
from kproxy.proxy.relay.places import WorkerPlace
from kproxy.proxy.relay.table import RelayKey, RelayPort

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 10.0
"""Bounds in seconds of the doubling pauses between attempts to replace a worker that has ended."""

log = logging.getLogger(__name__)


class WorkerRelay:
    """The relay of one family, in workers."""

    def __init__(self, family: Family, count: int = 0, *, keep_sources: bool = True) -> None:
        """``count``: of workers; 0: those that run, or one for each processor, at most 8.

        Without ``keep_sources``, connections that an earlier daemon's workers made from clients' addresses are reset.
        """
        self._family, self._count, self._keep_sources = family, count, keep_sources
        self._lock = threading.Lock()
        self._workers: list[WorkerConnection] = []
        self._numbers: dict[RelayKey, int] = {}
        self._table: tuple[RelayPort, ...] | None = None
        self._behind = False
        self._took_over = False
        self._counted = wire.Counted()
        """The last counts."""

    def numbers(self) -> Mapping[RelayKey, int]:
        """The number of each port that is open, those that an earlier daemon opened too."""
        with self._at_work():
            return {key: number for worker in self._workers for key, number in worker.open.items()}

    def open_missing(self, ports: Iterable[RelayPort]) -> Mapping[RelayKey, int]:
        """Open those ports that are not open; returns the number of each that is.  Those that are keep their endpoints."""
        wanted = tuple(ports)
        with self._at_work():
            self._take_over(wanted)
            return self._serve(wanted, only_missing=True)

    def update(self, ports: Iterable[RelayPort]) -> None:
        """Serve exactly these ports from now on, but those that cannot be opened."""
        with self._at_work():
            first, self._table = self._table is None, tuple(ports)
            self._bring_up_to_date(self._table)
            if first and not self._keep_sources:
                for worker in self._workers:
                    worker.shut([], reset_kept_sources=True)

    def count(self) -> wire.Counted:
        """Counts of all workers together; of one that does not answer, none. The last ones while a sync works with the workers."""
        if not self._lock.acquire(blocking=False):
            return self._counted
        total = wire.Counted()
        try:
            for worker in self._workers:
                with suppress(OSError):
                    one = worker.count()
                    total.open_connections += one.open_connections
                    total.connections += one.connections
                    total.retries += one.retries
                    total.limited += one.limited
        finally:
            self._lock.release()
        self._counted = total
        return total

    def close(self) -> None:
        """Leave the workers, which go on with what they have."""
        with self._lock:
            self._leave()

    def _leave(self) -> None:
        self._table = None
        for worker in self._workers:
            worker.close()
        self._workers = []

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        """Alone, and with all workers connected."""
        with self._lock, self._all_connected():
            yield

    @contextmanager
    def _all_connected(self) -> Iterator[None]:
        try:
            self._connect()
            yield
        except OSError as error:
            raise os_error("reach the relay's workers", error) from error

    def _connect(self) -> None:
        """Have a connection to each worker; those of another release hand their ports over at the next `_serve`."""
        if not self._workers:
            with ExitStack() as connected:
                workers = [
                    connected.enter_context(closing(self._connected(place)))
                    for place in running_workers(self._count)
                ]
                connected.pop_all()
            self._workers = workers
        if any(worker.has_ended for worker in self._workers):
            running_workers(len(self._workers))
        for index, worker in enumerate(self._workers):
            if worker.has_ended:
                worker.close()
                log.warning("%s: relay worker %d is connected to again", self._family.value, index)
                self._workers[index] = self._connected(worker.place)
                self._behind = True
        for worker in self._workers:
            self._numbers |= worker.open

    def _bring_up_to_date(self, table: tuple[RelayPort, ...]) -> None:
        self._take_over(table)
        self._serve(table, only_missing=False)
        for worker in self._workers:
            wanted = {port.key for port in table if self._is_served_by(port, worker)}
            worker.shut([key for key in worker.open if key not in wanted])
        self._numbers = {key: number for worker in self._workers for key, number in worker.open.items()}
        self._behind = False

    def _serve(self, ports: tuple[RelayPort, ...], *, only_missing: bool) -> Mapping[RelayKey, int]:
        """First in the worker that chooses the number, then in the others."""
        for first in (True, False):
            for worker in self._workers:
                worker.serve(
                    (
                        port
                        for port in ports
                        if (self._first(port) == worker.place.index) is first
                        and self._is_served_by(port, worker)
                        and not (only_missing and port.key in worker.open)
                        and (first or port.key in self._numbers)
                    ),
                    self._numbers,
                )
                self._numbers |= worker.open
        known = {key for worker in self._workers for key in worker.open}
        for port in ports:
            if port.key not in known:  # its number is somebody else's now
                self._numbers.pop(port.key, None)
        return {port.key: self._numbers[port.key] for port in ports if port.key in self._numbers}

    def _first(self, port: RelayPort) -> int:
        return zlib.crc32(port.service.encode()) % len(self._workers)

    def _is_served_by(self, port: RelayPort, worker: WorkerConnection) -> bool:
        spread = port.protocol is Protocol.TCP and port.affinity_seconds is None
        return spread or self._first(port) == worker.place.index

    def _take_over(self, ports: tuple[RelayPort, ...]) -> None:
        """Take the ports of workers of another release, or number, once: each worker those of its like."""
        if self._took_over:
            return
        for old in earlier_workers(self._family, [worker.place for worker in self._workers]):
            for own in self._workers:
                own.take([port for port in ports if self._successor(port, old) is own], old)
                self._numbers |= own.open
            old.shut(list(old.open), reset_kept_sources=not self._keep_sources)
            old.close()
            log.info("%s: took over from the relay worker at %s", self._family.value, old.place.path)
        self._took_over = True

    def _successor(self, port: RelayPort, old: WorkerConnection) -> WorkerConnection:
        like = self._workers[old.place.index % len(self._workers)]
        return like if self._is_served_by(port, like) else self._workers[self._first(port)]

    def _watch(self, worker: WorkerConnection) -> None:
        """Give a worker that ended, and was started again, its ports."""
        worker.await_end()
        pause = FIRST_PAUSE
        while not self._is_replaced(worker):
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _is_replaced(self, worker: WorkerConnection) -> bool:
        """True once another connection has the worker's ports, or the workers were left: then none may be made."""
        with suppress(HostError), self._lock:
            if self._table is None:
                return True
            with self._all_connected():
                if self._behind:
                    self._bring_up_to_date(self._table)
            return worker not in self._workers
        return False

    def _connected(self, place: WorkerPlace) -> WorkerConnection:
        worker = WorkerConnection(place, self._family)
        threading.Thread(target=self._watch, args=(worker,), name="relay worker", daemon=True).start()
        return worker
