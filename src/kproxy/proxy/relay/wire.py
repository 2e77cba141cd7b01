"""Messages between the daemon and a relay worker, on a Unix socket: a request, then its reply, each with sockets beside it (unix(7), SCM_RIGHTS).

A message is a header (length of the body, number of sockets) and the body in MessagePack.  Both ends are of the same release, but for
`SelectFamily`, `ReleasePorts`, `ShutPorts` and `EndWorker`, which a release must understand of those before it.
"""

from __future__ import annotations

import socket
import struct

import msgspec

from kproxy.linux.sockets import receive_exactly
from kproxy.model.network import Family, Protocol
from kproxy.proxy.relay.table import RelayEndpoint, RelayKey, RelayPort

MOST_QUERY_BYTES = 4096
"""Length of the longest query that a process which is not trusted may send."""

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


class FindSocket(msgspec.Struct, tag=True):
    """A client's packet at an address and number of this node; no family need be selected.  Reply: `FoundSocket`."""

    address: str
    number: int
    protocol: Protocol
    client: str


class EndWorker(msgspec.Struct, tag=True):
    """End the process, connections too.  No reply."""


Request = SelectFamily | ServePorts | ShutPorts | ReleasePorts | Count | FindSocket | EndWorker


class Ports(msgspec.Struct, tag=True):
    """Numbers of the ports that a request was about, and that are open; a worker logs why others are not."""

    numbers: list[tuple[RelayKey, int]]


class Counted(msgspec.Struct, tag=True):
    """Connections of one family that are open now, and counts of events since the start.

    ``retries``: attempts at endpoints that failed.  ``limited``: times that clients had to wait for one of the limits.
    """

    open_connections: int = 0
    connections: int = 0
    retries: int = 0
    limited: int = 0


class FoundSocket(msgspec.Struct, tag=True):
    """The socket that a packet comes to; ``port`` None where this process has none there.

    ``endpoint``: that of the client's next connection, by its affinity if ``bound``, else the next in turn;
    ``keeps_source``: it sees the client's address.  ``open``: endpoints of the client's connections and flows, with their number.
    """

    port: RelayPort | None = None
    endpoint: RelayEndpoint | None = None
    bound: bool = False
    keeps_source: bool = False
    open: list[tuple[RelayEndpoint, int]] = []


Reply = Ports | Counted | FoundSocket

_decode_request = msgspec.msgpack.Decoder(Request).decode
_decode_reply = msgspec.msgpack.Decoder(Reply).decode
_decode_query = msgspec.msgpack.Decoder(FindSocket).decode
_encode = msgspec.msgpack.Encoder().encode


def send(to: socket.socket, message: Request | Reply, sockets: list[socket.socket] | None = None) -> None:
    """Send a message; OSError where the other end has gone."""
    body, numbers = _encode(message), [each.fileno() for each in sockets or ()]
    socket.send_fds(to, [_HEADER.pack(len(body), len(numbers))], numbers)
    to.sendall(body)


def receive_request(of: socket.socket) -> tuple[Request, list[socket.socket]]:
    """The next request; ConnectionError at the end, msgspec.MsgspecError for one of another release."""
    body, sockets = _receive(of)
    return _decode_request(body), sockets


def receive_query(of: socket.socket) -> FindSocket:
    """The next query of a process that is not trusted; OSError at the end, msgspec.MsgspecError."""
    body, sockets = _receive(of, MOST_QUERY_BYTES)
    for each in sockets:
        each.close()
    return _decode_query(body)


def receive_reply(of: socket.socket) -> tuple[Reply, list[socket.socket]]:
    """The next reply; ConnectionError at the end, msgspec.MsgspecError."""
    body, sockets = _receive(of)
    return _decode_reply(body), sockets


def _receive(of: socket.socket, most: int = 1 << 32) -> tuple[bytes, list[socket.socket]]:
    head, numbers, _, _ = socket.recv_fds(of, _HEADER.size, MOST_SOCKETS)
    sockets = [socket.socket(fileno=number) for number in numbers]
    head += receive_exactly(of, _HEADER.size - len(head))
    length = _HEADER.unpack(head)[0]
    if length > most:
        raise ConnectionError(f"a message of {length} bytes")
    return receive_exactly(of, length), sockets
