"""TCP proxy between a daemon and its API server, with faults at the level of bytes.

A `Wire` forwards both directions.  A fault is a `Treatment` of the server's bytes; `Wire.during` applies it.  It has no
knowledge of HTTP: connections break at any byte.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from ipaddress import ip_address

from kproxy.lab.namespaces import Namespace
from kproxy.lab.processes import listen_in

LOOPBACK = ip_address("127.0.0.1")
SERVER_PORT = 6444
_PIECE = 1 << 16
OBJECT = b'"object"'

Treatment = Callable[[bytes, asyncio.StreamWriter], Awaitable[bool]]
"""Forwards, changes or drops a chunk from the server; False ends the connection."""


async def whole(piece: bytes, writer: asyncio.StreamWriter) -> bool:
    """Forward the chunk: no fault."""
    writer.write(piece)
    await writer.drain()
    return True


async def cut(piece: bytes, writer: asyncio.StreamWriter) -> bool:
    """Reset the connection in the middle of an object."""
    if OBJECT not in piece:
        return await whole(piece, writer)
    writer.write(piece[: len(piece) // 2])
    await writer.drain()
    await asyncio.sleep(0.01)
    writer.transport.abort()
    return False


async def half_close(piece: bytes, writer: asyncio.StreamWriter) -> bool:
    """Close the server's direction in the middle of an object; the other stays open, unread."""
    if OBJECT not in piece:
        return await whole(piece, writer)
    writer.write(piece[: len(piece) // 2])
    writer.write_eof()
    await asyncio.sleep(3600)
    return False


async def hold_back(_piece: bytes, _writer: asyncio.StreamWriter) -> bool:
    """Drop the chunk; the connection stays open."""
    await asyncio.sleep(3600)
    return False


async def spoil(piece: bytes, writer: asyncio.StreamWriter) -> bool:
    """Replace the chunk by one of the same length that is no JSON."""
    return await whole(piece.replace(b'{"type":', b"<html>::").replace(b'{"kind":', b"<html>::"), writer)


def trickle(size: int, seconds: float) -> Treatment:
    """Treatment that forwards ``size`` bytes at a time, with a pause of ``seconds`` after each."""

    async def slowly(piece: bytes, writer: asyncio.StreamWriter) -> bool:
        for at in range(0, len(piece), size):
            await whole(piece[at : at + size], writer)
            await asyncio.sleep(seconds)
        return True

    return slowly


slow = trickle(100, 0.05)
"""2 kB/s."""


class Wire:
    """Listens at the API server's address as seen by the daemon, and forwards each connection to the real one."""

    def __init__(self, namespace: Namespace, port: int, source: str) -> None:
        """``source``: the address that identifies this wire to the server."""
        self._namespace, self._port, self._source = namespace, port, source
        self._treatment: Treatment = whole
        self._open: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.treated = 0
        """Number of chunks that a fault was applied to."""

    async def connect(self) -> None:
        """Begin (again) to accept connections."""
        sock = listen_in(self._namespace, LOOPBACK, self._port)
        self._server = await asyncio.start_server(self._accept, sock=sock)

    async def disconnect(self) -> None:
        """Refuse connections, and reset open ones."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for task in tuple(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    @contextmanager
    def during(self, treatment: Treatment) -> Iterator[None]:
        """Context in which a treatment is applied to all chunks."""
        self._treatment = treatment
        try:
            yield
        finally:
            self._treatment = whole

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            await self._serve(reader, writer)
        except (OSError, asyncio.CancelledError):
            writer.transport.abort()
        finally:
            self._open.discard(task)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sock = self._namespace.socket(socket.AF_INET, socket.SOCK_STREAM)
        sock.bind((self._source, 0))
        await asyncio.get_running_loop().sock_connect(sock, (str(LOOPBACK), SERVER_PORT))
        from_server, to_server = await asyncio.open_connection(sock=sock)
        requests = asyncio.create_task(_pass_on(reader, to_server))
        try:
            await self._answers(from_server, writer)
        finally:
            requests.cancel()
            writer.close()
            to_server.transport.abort()

    async def _answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(_PIECE):
            treatment = self._treatment
            self.treated += treatment is not whole
            if not await treatment(piece, writer):
                return


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while piece := await reader.read(_PIECE):
            await whole(piece, writer)
        writer.write_eof()
