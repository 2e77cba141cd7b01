"""Reading from stream sockets."""

from __future__ import annotations

import socket


def receive_exactly(of: socket.socket, count: int) -> bytes:
    """The next ``count`` bytes; ConnectionError if the other end closes before."""
    parts = bytearray()
    while len(parts) < count:
        part = of.recv(count - len(parts))
        if not part:
            raise ConnectionError("it closed the connection")
        parts += part
    return bytes(parts)
