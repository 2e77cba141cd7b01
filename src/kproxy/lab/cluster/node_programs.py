"""A service proxy as programs of the nodes themselves, beside their kubelets, in the place of a DaemonSet's pods.

What runs on a node is a value, `NodePrograms`, that another package makes of the node's place in the cluster. Here its
files are written, and its programs are started in the namespaces of the node's first process, with one log a node. One
that ends is reported and started again, as systemd would; the kernel ends all of them with their node.
"""

from __future__ import annotations

import asyncio
import shlex
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kproxy.lab.cluster.cluster import INSIDE_KUBECONFIG, LabCluster, Progress, child_of, enter_node
from kproxy.lab.cluster.control_plane import API_URL
from kproxy.lab.cluster.layout import POD_NETWORK, api_service_address
from kproxy.lab.namespaces import LabError
from kproxy.lab.processes import Process, run_after, spawn
from kproxy.model.network import Family

SERVES_SECONDS = 60.0
"""Seconds that the Service ``kubernetes`` has to answer on every node before its silence is reported."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 32.0
"""Seconds before a program that has ended is started again: twice as long each time, if it ends sooner than that."""

_HTTPS, _CONNECT_SECONDS, _POLL = 443, 0.5, 0.2
_TAIL = 10
_LOCK = {"XTABLES_LOCKFILE": "/run/xtables.lock"}
"""The node's own, which the tools of its CNI plugins take too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlace:
    """A node as its programs see it.  Paths are the same on the node and on the machine."""

    node: str
    address: str
    """IPv4."""
    directory: Path
    kubeconfig: Path
    """The administrator's."""
    api_server: str
    """URL that needs the credentials of the kubeconfig."""
    pod_ranges: tuple[str, ...]
    """Of the whole cluster, one a family."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeProgram:
    """One program.  ``ready``: a command that ends with 0 when the next one may start; empty: at once."""

    name: str
    argv: tuple[str, ...]
    ready: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePrograms:
    """Programs of a node, in the order of their start, and what they need.

    ``files``: text by name in the node's directory.  ``mounts``: type of file system (mount(8)) by mount point.
    """

    programs: tuple[NodeProgram, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    mounts: Mapping[str, str] = field(default_factory=dict)


MakePrograms = Callable[[NodePlace], NodePrograms]


class NodeProxies:
    """Programs of all nodes of an open cluster."""

    def __init__(self, cluster: LabCluster, make: MakePrograms, progress: Progress) -> None:
        self._cluster, self._make, self._progress = cluster, make, progress
        self._tasks: list[asyncio.Task[None]] = []
        self._started = False
        self._failures: list[str] = []

    async def start(self) -> None:
        """Start them, and wait until the Service ``kubernetes`` answers on every node.

        Its silence after `SERVES_SECONDS` is reported, and no error. Raises `LabError` when a program ends before.
        """
        for node in self._cluster.nodes:
            place = self._place(node)
            await self._start_node(place, self._make(place))
        self._progress(f"logs of the proxy: {self.log('node-*')}")
        silent, deadline = list(self._cluster.nodes), time.monotonic() + SERVES_SECONDS
        while silent and time.monotonic() < deadline:
            await asyncio.sleep(_POLL)
            if self._failures:
                raise LabError(self._failures[0])
            silent = [node for node in silent if not await asyncio.to_thread(self._serves, node)]
        self._started = True
        for node in silent:
            self._progress(
                f"{node}: the Service kubernetes does not answer after {SERVES_SECONDS:g} s: {self.log(node)}"
            )

    async def close(self) -> None:
        """End the supervision; the programs themselves end with their nodes."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def log(self, node: str) -> Path:
        """Log of a node's programs."""
        return self._cluster.folder / f"proxy-{node}.log"

    def _place(self, node: str) -> NodePlace:
        directory = self._cluster.folder / "proxy" / node
        directory.mkdir(parents=True)
        return NodePlace(
            node=node,
            address=str(self._cluster.spec.layout.node_address(node, Family.IPV4)),
            directory=directory,
            kubeconfig=self._cluster.folder / INSIDE_KUBECONFIG,
            api_server=API_URL,
            pod_ranges=tuple(str(POD_NETWORK[family]) for family in Family),
        )

    async def _start_node(self, place: NodePlace, made: NodePrograms) -> None:
        for name, text in made.files.items():
            (place.directory / name).write_text(text)
        for point, kind in made.mounts.items():
            await asyncio.to_thread(self._mount, place.node, kind, point)
        before: Sequence[str] = ()
        for program in made.programs:
            argv = run_after(before, program.argv)
            supervision = self._keep_running(place.node, program.name, argv, made.environment)
            self._tasks.append(asyncio.create_task(supervision))
            before = program.ready

    def _mount(self, node: str, kind: str, point: str) -> None:
        """Mount a file system in a node's mount namespace, where there is none of that type at that point."""
        script = 'findmnt --types "$1" "$2" >/dev/null || mount --types "$1" "$1" "$2"'
        done = subprocess.run(
            self._inside(node, ["sh", "-c", script, "sh", kind, point]),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise LabError(f"{node}: cannot mount {kind} at {point}: {done.stderr.strip()}")

    def _inside(self, node: str, argv: Sequence[str]) -> list[str]:
        return enter_node(child_of(self._cluster.outer_pid(node)), argv)

    async def _keep_running(
        self, node: str, name: str, argv: Sequence[str], environment: Mapping[str, str]
    ) -> None:
        pause = FIRST_PAUSE
        while True:
            began, offset = time.monotonic(), _size(self.log(node))
            process = spawn(
                self._inside(node, argv),
                self._cluster.network[node],
                log=self.log(node),
                env={**_LOCK, **environment},
            )
            await process.wait()
            if time.monotonic() - began > pause:
                pause = FIRST_PAUSE
            ended = f"{name} of {node} has ended with {process.returncode}"
            if not self._started:
                self._failures.append(f"{ended}: {_written(process, offset)}\ncommand: {shlex.join(argv)}")
                return
            self._progress(f"{ended}, and is started again in {pause:g} s: {process.log}")
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _serves(self, node: str) -> bool:
        """True if the Service ``kubernetes`` accepts a connection of the node's."""
        with self._cluster.network[node].socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
            sock.settimeout(_CONNECT_SECONDS)
            return sock.connect_ex((str(api_service_address()), _HTTPS)) == 0


def _written(process: Process, offset: int) -> str:
    """Last lines that a program has written to its log, from this offset on."""
    lines = process.log.read_bytes()[offset:].decode(errors="replace").splitlines()
    return "\n".join(lines[-_TAIL:]) or "it has written nothing"


def _size(log: Path) -> int:
    return log.stat().st_size if log.exists() else 0
