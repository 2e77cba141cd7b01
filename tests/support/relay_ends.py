"""Both ends of connections through a relay, as programs: ``python -m tests.support.relay_ends server|client ...``.

The server repeats the first byte of a connection.  After ``x`` it counts what comes until the end, and replies with the count; after ``d`` it
exchanges as many bytes both ways at the same time, and replies with the SHA-256 of what came and of what it sent.
The client prints one line of JSON for each thing done.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import resource
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

COUNT = struct.Struct("!Q")
CHUNK = 1 << 20
BACKLOG = 4096
PATIENCE = 120.0
DIGEST = 32


def memory_of(processes: Iterable[int]) -> int:
    """Bytes of their own (proportional set size, proc(5) smaps_rollup)."""
    total = 0
    for process in processes:
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1]) * 1024
    return total


def serve(address: str, port: int) -> None:
    """Serve for ever."""
    _many_descriptors()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = await reader.read(1)
        writer.write(first)
        if first == b"d":
            await _exchange(reader, writer)
        count = 0
        while data := await reader.read(CHUNK):
            count += len(data)
        writer.write(COUNT.pack(count))
        writer.close()

    async def run() -> None:
        server = await asyncio.start_server(handle, address, port, backlog=BACKLOG, limit=CHUNK)
        print("ready", flush=True)
        await server.serve_forever()

    asyncio.run(run())


async def _exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    size = COUNT.unpack(await reader.readexactly(COUNT.size))[0]
    sent, received = hashlib.sha256(), hashlib.sha256()

    async def send() -> None:
        for part in _parts(size):
            writer.write(part)
            sent.update(part)
            await writer.drain()

    async def receive() -> None:
        left = size
        while left:
            data = await reader.read(min(CHUNK, left))
            assert data, "ended early"
            received.update(data)
            left -= len(data)

    await asyncio.gather(send(), receive())
    writer.write(received.digest() + sent.digest())


def connect_often(address: str, port: int, total: int, threads: int) -> dict[str, float]:
    """Make connections one after the other in each thread, one byte there and back; returns seconds and failures."""
    failures = [0] * threads

    def some(index: int) -> None:
        for _ in range(total // threads):
            try:
                with _connected(address, port):
                    pass
            except OSError:
                failures[index] += 1

    started = time.monotonic()
    _in_threads(threads, some)
    return {"seconds": time.monotonic() - started, "failures": float(sum(failures))}


def stream(address: str, port: int, size: int, streams: int) -> dict[str, float]:
    """Send so many bytes over each of some connections at once; returns seconds."""
    block = os.urandom(CHUNK)

    def one(_: int) -> None:
        with _connected(address, port) as made:
            for _part in range(size // CHUNK):
                made.sendall(block)
            made.shutdown(socket.SHUT_WR)
            assert COUNT.unpack(_exactly(made, COUNT.size))[0] == size // CHUNK * CHUNK

    started = time.monotonic()
    _in_threads(streams, one)
    return {"seconds": time.monotonic() - started}


def exchange(address: str, port: int, size: int) -> dict[str, object]:
    """Exchange so many bytes each way at once; returns whether both checksums are equal."""
    received, sent = hashlib.sha256(), hashlib.sha256()
    started = time.monotonic()
    with _connected(address, port, b"d" + COUNT.pack(size)) as made:

        def send() -> None:
            for part in _parts(size):
                made.sendall(part)
                sent.update(part)

        sender = threading.Thread(target=send)
        sender.start()
        left = size
        while left:
            data = made.recv(min(CHUNK, left))
            assert data, "ended early"
            received.update(data)
            left -= len(data)
        sender.join()
        there, back = _exactly(made, DIGEST), _exactly(made, DIGEST)
    equal = there == sent.digest() and back == received.digest()
    return {"seconds": time.monotonic() - started, "equal": equal, "bytes": size}


def hold(address: str, port: int, total: int) -> Iterable[dict[str, float]]:
    """Open connections, and keep them until a line comes; then each is used again.  Counts of both times."""
    _many_descriptors()
    held: list[socket.socket] = []
    for _ in range(total):
        try:
            held.append(_connected(address, port))
        except OSError:
            continue
    yield {"open": len(held)}
    sys.stdin.readline()
    alive = 0
    for made in held:
        made.shutdown(socket.SHUT_WR)
        alive += _exactly(made, COUNT.size) == COUNT.pack(0)
    yield {"alive": alive}


def _connected(address: str, port: int, first: bytes = b"x") -> socket.socket:
    made = socket.create_connection((address, port), timeout=PATIENCE)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    made.sendall(first)
    if made.recv(1) != first[:1]:
        made.close()
        raise ConnectionResetError
    return made


def _exactly(made: socket.socket, count: int) -> bytes:
    return made.recv(count, socket.MSG_WAITALL)


def _parts(size: int) -> Iterable[bytes]:
    block = os.urandom(CHUNK)
    for number in range(size // CHUNK):
        yield COUNT.pack(number) + block[COUNT.size :]


def _in_threads(count: int, work: Callable[[int], None]) -> None:
    threads = [threading.Thread(target=work, args=(index,)) for index in range(count)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()


def _many_descriptors() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def main(role: str, *arguments: str) -> None:
    """Be the server, or a client of one kind."""
    if role == "server":
        serve(arguments[0], int(arguments[1]))
        return
    kind, address, *numbers = arguments
    port, *more = map(int, numbers)
    if kind == "hold":
        for found in hold(address, port, *more):
            print(json.dumps(found), flush=True)
        return
    does: dict[str, Callable[..., object]] = {
        "connect": connect_often,
        "stream": stream,
        "exchange": exchange,
    }
    print(json.dumps(does[kind](address, port, *more)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
