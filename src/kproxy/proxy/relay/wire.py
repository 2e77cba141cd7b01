"""Messages between the daemon and a relay worker, on a Unix socket: a request, then its reply, each with sockets beside it (unix(7), SCM_RIGHTS).

A message is a header (length of the body, number of sockets) and the body in MessagePack.  Both ends are of the same release, but for
`SelectFamily`, `ReleasePorts`, `ShutPorts` and `EndWorker`, which a release must understand of those before it.
"""

from __future__ import annotations

import socket
import struct

import msgspec

from kproxy.model.network import Family
from kproxy.proxy.relay.table import RelayKey, RelayPort

MOST_SOCKETS = 250
"""Sockets that one message may have (SCM_MAX_FD is 253)."""

_HEADER = struct.Struct("!II")


class SelectFamily(msgspec.Struct, tag=True):
    """The first request: of this family are all that follow.  Reply: `Ports`, those that are open."""

    family: Family


class ServePorts(msgspec.Struct, tag=True):
    """Serve these ports too, each at its number (0: any), or by its socket if there are sockets.  Reply: `Ports`."""

    ports: list[tuple[RelayPort, int]]


class ShutPorts(msgspec.Struct, tag=True):
    """Close these ports, not their connections; ``reset_kept_sources``: of those, the ones from clients' addresses.  Reply: `Ports`."""

    keys: list[RelayKey]
    reset_kept_sources: bool = False


class ReleasePorts(msgspec.Struct, tag=True):
    """Give up these ports, at most `MOST_SOCKETS`.  Reply: `Ports`, with their sockets in that order."""

    keys: list[RelayKey]


class Count(msgspec.Struct, tag=True):
    """Reply: `Counted`."""


class EndWorker(msgspec.Struct, tag=True):
    """End the process, connections too.  No reply."""


Request = SelectFamily | ServePorts | ShutPorts | ReleasePorts | Count | EndWorker


class Ports(msgspec.Struct, tag=True):
    """Ports that a request was about: numbers of those that are open, reasons of those that could not be opened."""

    numbers: list[tuple[RelayKey, int]]
    failed: list[tuple[RelayKey, str]] = []


class Counted(msgspec.Struct, tag=True):
    """Connections of one family that are open now, and counts of events since the start.

    ``retries``: attempts at endpoints that failed.  ``limited``: times that clients had to wait for one of the limits.
    """

    open_connections: int = 0
    connections: int = 0
    retries: int = 0
    limited: int = 0


Reply = Ports | Counted

_decode_request = msgspec.msgpack.Decoder(Request).decode
_decode_reply = msgspec.msgpack.Decoder(Reply).decode
_encode = msgspec.msgpack.Encoder().encode


def send(to: socket.socket, message: Request | Reply, sockets: list[socket.socket] | None = None) -> None:
    """Send a message; OSError where the other end has gone."""
    body, numbers = _encode(message), [each.fileno() for each in sockets or ()]
    socket.send_fds(to, [_HEADER.pack(len(body), len(numbers))], numbers)
    to.sendall(body)


def receive_request(of: socket.socket) -> tuple[Request, list[socket.socket]]:
    """The next request; EOFError at the end, msgspec.MsgspecError for one of another release."""
    body, sockets = _receive(of)
    return _decode_request(body), sockets


def receive_reply(of: socket.socket) -> tuple[Reply, list[socket.socket]]:
    """The next reply; EOFError, msgspec.MsgspecError."""
    body, sockets = _receive(of)
    return _decode_reply(body), sockets


def _receive(of: socket.socket) -> tuple[bytes, list[socket.socket]]:
    head, numbers, _, _ = socket.recv_fds(of, _HEADER.size, MOST_SOCKETS)
    sockets = [socket.socket(fileno=number) for number in numbers]
    head += _exactly(of, _HEADER.size - len(head))
    return _exactly(of, _HEADER.unpack(head)[0]), sockets


def _exactly(of: socket.socket, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        part = of.recv(count - len(parts))
        if not part:
            raise EOFError
        parts += part
    return bytes(parts)
