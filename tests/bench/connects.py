"""Connections from one namespace to another, timed by a program in C (``connects.c``), which is compiled here."""

from __future__ import annotations

import enum
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from kproxy.lab.namespaces import LabError, Namespace
from kproxy.lab.processes import run_in
from kproxy.model.network import Address, Protocol
from tests.bench.process import Tree

_SOURCE = Path(__file__).with_suffix(".c")


@dataclass(frozen=True, slots=True)
class Connect:
    """One connection: the time of connect(2), of UDP that of a datagram and its reply; and the errno, 0 if it was made."""

    nanoseconds: int
    errno: int


@dataclass(frozen=True, slots=True)
class Destination:
    """Where to connect to."""

    address: Address
    port: int
    protocol: Protocol = Protocol.TCP


@dataclass(frozen=True, slots=True)
class Client:
    """A client's network namespace, which no other client of a turn has, and where it connects to."""

    namespace: Namespace
    destinations: Sequence[Destination]


class Kind(enum.Enum):
    """Kind of load; the value is the program's name of it."""

    CONNECTIONS = "connect"
    """New connections of TCP, one after the other in each process."""
    STREAM = "stream"
    """Bytes of one connection of TCP."""
    DATAGRAMS = "datagrams"
    """Datagrams of 64 bytes from one port."""


@dataclass(frozen=True, slots=True)
class Load:
    """What was done over some seconds: connections, bytes or datagrams, failures, and CPU seconds of both ends."""

    count: int
    failed: int
    cpu: float
    seconds: float


class Connector:
    """The compiled program; `LabError` where there is no C compiler."""

    def __init__(self, directory: Path) -> None:
        """Compile it into ``directory``."""
        compiler = shutil.which("cc")
        if compiler is None:
            raise LabError("the data path bench needs a C compiler: apt install gcc libc6-dev")
        self._program = directory / "connects"
        command = (compiler, "-O2", "-o", str(self._program), str(_SOURCE))
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise LabError(f"{' '.join(command)}: {done.stderr.strip()}")

    @contextmanager
    def serving(self, namespace: Namespace, *ports: int) -> Iterator[Tree]:
        """Context in which connections to any address of the namespace are accepted at these ports, and closed.

        At the first port datagrams of UDP are sent back.  Yields the processes that do so.
        """
        with self._listening(namespace, "serve", *ports) as tree:
            yield tree

    @contextmanager
    def sinking(self, namespace: Namespace, port: int) -> Iterator[Tree]:
        """Context in which what comes to this port, by TCP and UDP, is discarded; yields the processes that do so."""
        with self._listening(namespace, "sink", port) as tree:
            yield tree

    @contextmanager
    def _listening(self, namespace: Namespace, role: str, *ports: int) -> Iterator[Tree]:
        command = (str(self._program), role, "::", *map(str, ports))
        process = namespace.start(command, stdout=subprocess.PIPE, start_new_session=True)
        assert process.stdout is not None
        try:
            if not process.stdout.readline():
                raise LabError(f"{' '.join(command)}: it does not listen")
            yield Tree(process.pid)
        finally:
            process.kill()
            process.wait()
            process.stdout.close()

    async def connect(self, count: int, clients: Sequence[Client]) -> list[list[list[Connect]]]:
        """Connect ``count`` times from each client to each of its destinations in turn; results by client and destination.

        One process does it all, so that where its memory lies favours no client.
        """
        targets = [
            text
            for client in clients
            for to in client.destinations
            for text in (client.namespace.path, to.protocol.value.lower(), str(to.address), str(to.port))
        ]
        output = await run_in(clients[0].namespace, (str(self._program), "connect", str(count), *targets))
        found = (Connect(*map(int, line.split())) for line in output.splitlines())
        results = []
        for number in (len(client.destinations) for client in clients):
            own = list(islice(found, number * count))
            results.append([own[place::number] for place in range(number)])
        return results

    async def load(
        self, namespace: Namespace, server: Tree, kind: Kind, to: Destination, *, seconds: int, processes: int
    ) -> Load:
        """As much as goes in so many seconds; ``server``: the other end's processes, whose CPU time counts too."""
        before = server.cpu()
        arguments = (kind.value, str(seconds), str(processes), str(to.address), str(to.port))
        output = await run_in(namespace, (str(self._program), "load", *arguments))
        count, failed, nanoseconds = map(int, output.split())
        return Load(count, failed, nanoseconds / 1e9 + server.cpu() - before, float(seconds))
