"""The daemon's connection to one relay worker, for one family, with what that worker has.  Failures are OSError."""

from __future__ import annotations

import select
import socket
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress

import msgspec

from kproxy.model.network import Family
from kproxy.proxy.relay import wire
from kproxy.proxy.relay.places import WorkerPlace
from kproxy.proxy.relay.table import RelayKey, RelayPort

_ANSWER_SECONDS = 10.0
"""Time for a reply; without one the connection is closed."""


class WorkerConnection:
    """A connection to one worker, for one family, and what that worker has."""

    def __init__(self, place: WorkerPlace, family: Family) -> None:
        """Connect; raises OSError where there is no worker."""
        self.place = place
        self.sent: dict[RelayKey, RelayPort] = {}
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(_ANSWER_SECONDS)
        try:
            self._socket.connect(str(place.path))
            self.open = dict(self._ports(wire.SelectFamily(family))[0].numbers)
        except OSError:
            self._socket.close()
            raise

    def close(self) -> None:
        """Close the connection; the worker goes on."""
        with suppress(OSError):  # who waits for its end returns
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    @property
    def has_ended(self) -> bool:
        """True if one of the ends has closed: the other one sends nothing unasked."""
        return self._ends_within(0)

    def await_end(self) -> None:
        """Return when one of the ends has closed."""
        self._ends_within(None)

    def _ends_within(self, milliseconds: int | None) -> bool:
        if self._socket.fileno() < 0:
            return True
        poll = select.poll()
        poll.register(self._socket, select.POLLRDHUP)
        return bool(poll.poll(milliseconds))

    def serve(self, ports: Iterable[RelayPort], numbers: Mapping[RelayKey, int]) -> None:
        """Serve ports, of which those that it has as they are cost nothing."""
        changed = [port for port in ports if self.sent.get(port.key) is not port]
        if changed:
            self._serve([(port, numbers.get(port.key, 0)) for port in changed], [])

    def take(self, ports: Collection[RelayPort], of: WorkerConnection) -> None:
        """Serve ports by the sockets of another worker, which has them no longer."""
        there = [port for port in ports if port.key in of.open]
        for start in range(0, len(there), wire.MOST_SOCKETS):
            some = there[start : start + wire.MOST_SOCKETS]
            found, sockets = of._ports(wire.ReleasePorts([port.key for port in some]))
            named = {port.key: port for port in some}
            self._serve([(named[key], number) for key, number in found.numbers], sockets)
            for each in sockets:
                each.close()

    def _serve(self, ports: list[tuple[RelayPort, int]], sockets: list[socket.socket]) -> None:
        answer, _ = self._ports(wire.ServePorts(ports), sockets)
        self.open |= dict(answer.numbers)
        self.sent |= {port.key: port for port, _ in ports if port.key in self.open}

    def shut(self, keys: list[RelayKey], *, reset_kept_sources: bool = False) -> None:
        """Close these ports; ``reset_kept_sources``: and connections from clients' addresses."""
        if keys or reset_kept_sources:
            self._ports(wire.ShutPorts(keys, reset_kept_sources))
        for key in keys:
            self.open.pop(key, None)
            self.sent.pop(key, None)

    def count(self) -> wire.Counted:
        """The worker's counts."""
        answer, _ = self._query(wire.Count())
        assert isinstance(answer, wire.Counted)
        return answer

    def end(self) -> None:
        """End the process; returns when it has closed its sockets."""
        wire.send(self._socket, wire.EndWorker())
        with suppress(OSError):
            wire.receive_reply(self._socket)

    def _ports(
        self, request: wire.Request, sockets: list[socket.socket] | None = None
    ) -> tuple[wire.Ports, list[socket.socket]]:
        answer, given = self._query(request, sockets)
        assert isinstance(answer, wire.Ports)
        return answer, given

    def _query(
        self, request: wire.Request, sockets: list[socket.socket] | None = None
    ) -> tuple[wire.Reply, list[socket.socket]]:
        try:
            wire.send(self._socket, request, sockets)
            return wire.receive_reply(self._socket)
        except TimeoutError as error:
            self.close()  # the reply may still come, and would be taken for that to the next request
            raise TimeoutError(
                f"relay worker {self.place.index} did not answer for {_ANSWER_SECONDS:g} s"
            ) from error
        except (ConnectionError, msgspec.MsgspecError) as error:
            raise ConnectionResetError(f"relay worker {self.place.index} has ended: {error}") from error
