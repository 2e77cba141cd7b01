"""Stream sockets: exact reads, and who has the other end."""

from __future__ import annotations

import socket
import struct

_CREDENTIALS = struct.Struct("3i")
"""``struct ucred``: process, user, group."""


def receive_exactly(of: socket.socket, count: int) -> bytes:
    """The next ``count`` bytes; ConnectionError if the other end closes before."""
    parts = bytearray()
    while len(parts) < count:
        part = of.recv(count - len(parts))
        if not part:
            raise ConnectionError("it closed the connection")
        parts += part
    return bytes(parts)


def user_of_peer(client: socket.socket) -> int:
    """User of the process that connected a Unix socket, as this user namespace numbers it (SO_PEERCRED in unix(7))."""
    credentials = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(credentials)[1])
