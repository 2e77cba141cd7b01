"""One relay worker: a process that serves ports, and outlives the daemon that named them.

Theory of operation.  The daemon (`kproxy.proxy.relay.workers`) connects to the worker's Unix socket, once for each family, and sends what
is to be served.  When it is gone, by whatever end, the worker goes on with the ports that it has: clients notice nothing.  The next daemon connects,
is sent which ports are open, and corrects the difference.  So there is nothing to hand over at a restart.  Requests for a family are carried
out one after the other: one that a daemon left behind, when it was killed, must not undo what the next daemon wants.

A worker that no daemon comes back to does not stay: after `LEASE_SECONDS` it closes its ports, and once its connections
have ended, at the latest after `DRAIN_SECONDS`, the process ends.  A worker of another release gives its sockets to the new ones,
one whose mode is another now has them closed by the daemon, and both end the same way.
"""

from __future__ import annotations

import errno
import logging
import os
import signal
import socket
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import FrameType

import msgspec

from kproxy.linux import descriptors
from kproxy.model.network import Family
from kproxy.proxy.relay import wire
from kproxy.proxy.relay.queries import find_socket
from kproxy.proxy.relay.relay import LocalRelay

LEASE_SECONDS = 600.0
"""Seconds without a daemon after which ports are closed."""

DRAIN_SECONDS = 600.0
"""Seconds that connections have to end after that."""

UNUSED_SECONDS = 60.0
"""Seconds without daemon, ports and connections after which the process ends."""

_LOOK_SECONDS = 0.5

log = logging.getLogger(__name__)


class Worker:
    """A worker's control socket and relays; `run` returns when it is to end."""

    def __init__(self, path: Path, lease_seconds: float = LEASE_SECONDS, first_turn: float = 0.0) -> None:
        """Listen at a path, whose folder nobody else may enter."""
        self._first_turn = first_turn
        self._path, self._lease = path, lease_seconds
        self._relays: dict[Family, LocalRelay] = {}
        self._in_turn = {family: threading.Lock() for family in Family}
        self._attached: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._ended = threading.Event()
        path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._listener.settimeout(_LOOK_SECONDS)

    def run(self) -> None:
        """Serve daemons until there is no use for the process any more."""
        attended = served = time.monotonic()
        while not self._ended.is_set():
            with suppress(TimeoutError):
                controller, _ = self._listener.accept()
                self._attached.add(controller)
                threading.Thread(target=partial(self._control, controller), daemon=True).start()
            now = time.monotonic()
            if any(relay.numbers() for relay in self.relays):
                served = now
            if self._attached:
                attended = now
            elif self._is_done(now - attended, now - served):
                break
        for relay in self._relays.values():
            relay.close()
        self._listener.close()
        self._path.unlink(missing_ok=True)

    @property
    def relays(self) -> tuple[LocalRelay, ...]:
        """Relays of the families that a daemon has named."""
        return tuple(self._relays.values())

    def end(self, *_: object) -> None:
        """Let `run` return."""
        self._ended.set()

    def stop_accepting(self, _number: int = 0, _frame: FrameType | None = None) -> None:
        """Close all ports, as at the end of the lease."""
        self._lease = 0.0

    def _is_done(self, alone_seconds: float, unused_seconds: float) -> bool:
        """True if the process may end; closes the ports when no daemon has come for too long.

        ``unused_seconds``: without ports.  Looks by the daemon of another mode do not prolong the time that connections have.
        """
        relays = self.relays
        if alone_seconds >= self._lease:
            for relay in relays:
                relay.retain(())
        if any(relay.numbers() for relay in relays):
            return False
        if any(relay.open_connections for relay in relays):
            return unused_seconds >= DRAIN_SECONDS
        return alone_seconds >= min(UNUSED_SECONDS, self._lease)

    def _control(self, controller: socket.socket) -> None:
        """Serve one daemon, for one family; of two daemons, the last request counts."""
        family: Family | None = None
        with controller, suppress(OSError):
            while not self._ended.is_set():
                try:
                    request, sockets = wire.receive_request(controller)
                except msgspec.MsgspecError as error:
                    log.warning("relay: a daemon of another release: %s", error)
                    break
                if isinstance(request, wire.SelectFamily):
                    family = request.family
                if isinstance(request, wire.EndWorker):
                    self.end()
                    break
                if isinstance(request, wire.FindSocket):
                    wire.send(controller, find_socket(self.relays, request))
                elif family is not None:
                    with self._in_turn[family]:
                        reply, given = self._answer(self._relay(family), request, sockets)
                    wire.send(controller, reply, given)
                    for each in given:
                        each.close()
        self._attached.discard(controller)

    def _relay(self, family: Family) -> LocalRelay:
        with self._lock:
            if family not in self._relays:
                relay = self._relays[family] = LocalRelay(first_turn=self._first_turn)
                relay.start()
            return self._relays[family]

    def _answer(
        self, relay: LocalRelay, request: wire.Request, sockets: list[socket.socket]
    ) -> tuple[wire.Reply, list[socket.socket]]:
        match request:
            case wire.ServePorts(ports):
                taken = {port.key: found for (port, _), found in zip(ports, sockets, strict=False) if sockets}
                wanted = {port.key: number for port, number in ports}
                numbers = relay.serve([port for port, _ in ports], wanted, taken)
                return wire.Ports(list(numbers.items())), []
            case wire.ReleasePorts(keys):
                released = relay.release(keys)
                found = [(key, each.getsockname()[1]) for key, each in released.items()]
                return wire.Ports(found), list(released.values())
            case wire.ShutPorts(keys, reset_kept_sources):
                relay.shut(keys)
                relay.end_left()
                if reset_kept_sources:
                    relay.reset_kept_sources()
            case wire.Count():
                return relay.count(), []
            case _:
                pass
        return wire.Ports(list(relay.numbers().items())), []


def run_worker(path: Path, first_turn: float) -> None:
    """Be a worker until there is no use for it; on SIGTERM it accepts no more, and ends with its last connection.

    Returns at once where a process of another parent is the worker of that place: an abstract socket is bound as long as it runs,
    by the number of the folder, whose path is another container's too.
    """
    folder = path.parent.stat()
    with socket.socket(socket.AF_UNIX) as claim:
        try:
            claim.bind(f"\0kproxy-worker-{folder.st_dev}-{folder.st_ino}-{path.name}")
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return
            raise
        descriptors.raise_limit()
        worker = Worker(path, first_turn=first_turn)
        signal.signal(signal.SIGTERM, worker.stop_accepting)
        log.info("relay worker %d at %s", os.getpid(), path)
        worker.run()
