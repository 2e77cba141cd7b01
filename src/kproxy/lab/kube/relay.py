"""Relay of connections from a listening socket in one namespace to a port in another."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress

from kproxy.lab.namespaces import Namespace

_PIECE = 1 << 16


class Relay:
    """Copies bytes both ways; the far end is loopback in ``namespace``."""

    def __init__(self, namespace: Namespace, port: int) -> None:
        self._namespace, self._port = namespace, port
        self._servers: list[asyncio.Server] = []
        self._writers: set[asyncio.StreamWriter] = set()

    async def listen(self, listening: socket.socket) -> None:
        """Accept connections on a socket, and own it afterwards."""
        self._servers.append(await asyncio.start_server(self._accept, sock=listening))

    async def close(self) -> None:
        """Close the listening sockets and reset open connections."""
        for server in self._servers:
            server.close()
        self._servers = []
        for writer in tuple(self._writers):
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sock = self._namespace.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", self._port))
            far_reader, far_writer = await asyncio.open_connection(sock=sock)
        except OSError:
            writer.transport.abort()
            sock.close()
            return
        both = {writer, far_writer}
        self._writers |= both
        try:
            await asyncio.gather(_pass_on(reader, far_writer), _pass_on(far_reader, writer))
        finally:
            self._writers -= both
            for one in both:
                one.transport.abort()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while piece := await reader.read(_PIECE):
            writer.write(piece)
            await writer.drain()
        writer.write_eof()
