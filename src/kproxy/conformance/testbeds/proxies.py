"""The subject's processes in a lab: on each node, with their files, started, watched, killed, started again."""

from __future__ import annotations

import asyncio
import errno
import shlex
import signal
import socket
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_address
from pathlib import Path
from typing import NoReturn
from typing import Protocol as Interface

from kproxy.conformance.binding.kubernetes_objects import Document
from kproxy.conformance.case import Profile
from kproxy.conformance.subjects.configuration import NodeConfiguration, kube_proxy_configuration
from kproxy.conformance.subjects.subject import Subject, SubjectProcess, fill_placeholders
from kproxy.conformance.testbed import HarnessError, SubjectFailed
from kproxy.conformance.testbeds.cause import first_error
from kproxy.conformance.testbeds.disk_watch import DiskWatch, read_tail
from kproxy.lab import topology
from kproxy.lab.apiserver import ResourceKind, kubeconfig
from kproxy.lab.faults.write_faults import WriteFault, inject_write_errors
from kproxy.lab.kernels.current import time_here
from kproxy.lab.kernels.uml import Time
from kproxy.lab.network import Network
from kproxy.lab.processes import Process, Xtables, listen_in, run_in, spawn, xtables_directory
from kproxy.lab.sandbox import Sandbox, open_sandbox
from kproxy.model.network import Family

API_PORT = 6443
API_ADDRESS = f"127.0.0.1:{API_PORT}"
LOG_TAIL_LINES, LOG_TAIL_BYTES = 15, 4096
LOG_SEARCHED = 4 << 20
"""Bytes in which the first error is looked for."""
WATCH, SLOW_WATCH = 0.25, 60.0
"""Seconds between two looks at the disk; the second in virtual time, where idle time would be full of them."""


class ObjectWriter(Interface):
    """Where the harness writes objects; what is not admitted raises `kproxy.lab.kube.NotAdmitted`."""

    def put(self, kind: ResourceKind, document: Document) -> object:
        """Create or replace an object."""

    def delete(self, kind: ResourceKind, namespace: str, name: str) -> object:
        """Delete an object."""

    def documents(self, kind: ResourceKind) -> list[Document]:
        """All objects of a kind."""


class LabApiServer(Interface):
    """An API server of the lab: `kproxy.lab.apiserver.ApiServer`, or a real one (`kproxy.lab.kube.KubeApiServer`)."""

    @property
    def store(self) -> ObjectWriter:
        """Its objects."""

    async def listen(self, sockets: Iterable[socket.socket]) -> None:
        """Serve on listening sockets of any namespace."""

    def kubeconfig(self, address: str) -> str:
        """How clients reach it at one of them."""

    def url(self, address: str) -> str:
        """The same as URL."""


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """Who a node of the lab is in the cluster: its Node's name, its address, the pods' ranges (none: the topology's)."""

    hostname: str
    address: str
    cluster_cidrs: tuple[str, ...] = ()


OF_TOPOLOGY: Mapping[str, NodeIdentity] = {
    node: NodeIdentity(topology.HOSTNAMES[node], str(topology.NODE_ADDRESS[node][Family.IPV4]))
    for node in topology.NODES
}


class Proxies:
    """The subject on every node of a lab."""

    def __init__(
        self,
        network: Network,
        subject: Subject,
        mode: str,
        profile: Profile,
        variant: Xtables,
        directory: Path,
    ) -> None:
        self._network, self._subject, self._mode, self._profile = network, subject, mode, profile
        self._directory = directory
        self.nodes: Mapping[str, NodeIdentity] = OF_TOPOLOGY
        """Where it runs, and as whom; to be changed before the start."""
        self.sandboxed = False
        """Whether it gets a room of its own on each (`kproxy.lab.sandbox`); likewise."""
        self._tools = xtables_directory(directory / "bin", variant)
        self._server: LabApiServer | None = None
        self._masquerade_bits: dict[str, int] = {}
        self._modes = dict.fromkeys(topology.NODES, subject.mode_before(mode)) if profile.mode_before else {}
        self._running: dict[str, list[Process]] = {}
        self._rooms: dict[str, Sandbox] = {}
        self._refusing: dict[str, WriteFault] = {}
        self._watch = DiskWatch(directory)
        self._well: dict[str, int] = {}

    async def start_all(self, server: LabApiServer) -> None:
        """Let the API server listen on every node, and start the subject there.  Raises `LabError`."""
        self._server = server
        address = ip_address("127.0.0.1")
        await server.listen(listen_in(self._network[node], address, API_PORT) for node in self.nodes)
        mounts = {point: kind.value for point, kind in self._subject.mounts.items()}
        if self.sandboxed:
            for node in self.nodes:
                self._rooms[node] = await open_sandbox(self._network[node], self._directory, mounts)
        for node in self.nodes:
            self.start(node)

    def start(self, node: str, masquerade_bit: int | None = None) -> None:
        """Write a node's files and start its proxy, its processes one after the other.

        ``masquerade_bit``: one to have from now on.
        """
        if masquerade_bit is not None:
            self._masquerade_bits[node] = masquerade_bit
        values = self._write_files(node)
        environment = {
            name: fill_placeholders(text, values) for name, text in self._subject.environment.items()
        }
        environment |= dict(self._profile.environment)
        self._running[node] = []
        before: Sequence[str] = ()
        for program in self._subject.all_processes:
            argv = _once(before, [fill_placeholders(argument, values) for argument in program.command])
            before = [fill_placeholders(argument, values) for argument in program.ready]
            if node in self._rooms:
                argv = self._rooms[node].command(argv)
                environment = {"TMPDIR": values["directory"], **environment}
            process = spawn(
                argv,
                self._network[node],
                log=self.log(node),
                env=environment,
                path_prefix=self._tools,
            )
            self._running[node].append(process)

    async def drop_forwarded(self) -> None:
        """Drop on every node what is forwarded after its destination was translated, below all rules there are."""
        await self._append("FORWARD", "-m", "conntrack", "--ctstate", "DNAT", "-j", "DROP")

    async def drop_health_checks(self, first: int) -> None:
        """Drop on every node new connections from elsewhere to its ports from this one on, below all rules there are."""
        ports = ("-p", "tcp", "--dport", f"{first}:65535")
        await self._append(
            "INPUT", "!", "-i", "lo", *ports, "-m", "conntrack", "--ctstate", "NEW", "-j", "DROP"
        )

    async def _append(self, *rule: str) -> None:
        for node in self.nodes:
            for tool in ("iptables", "ip6tables"):
                await run_in(self._network[node], [str(self._tools / tool), "-w", "-A", *rule])

    async def kill(self, node: str) -> None:
        """SIGKILL a node's proxy and wait for its end; in a room also what it has started and left behind.

        What is started there from now on runs in the mode that is judged.
        """
        self._modes.pop(node, None)
        await self._end(node, self._running.pop(node))

    async def _end(self, node: str, processes: Iterable[Process]) -> None:
        if node in self._rooms:
            await self._rooms[node].end(processes)
            return
        for process in processes:
            process.kill()
        for process in processes:
            await process.wait()

    async def kill_all(self) -> None:
        """SIGKILL all that run."""
        for node in list(self._refusing):
            await self.take_writes(node)
        for node in list(self._running):
            await self.kill(node)
        while self._rooms:
            await self._rooms.popitem()[1].close()

    async def refuse_writes(self, node: str) -> None:
        """Let the kernel have no memory for what a node's proxy writes to it.  Raises `LabError`."""
        if node not in self._refusing:
            self._refusing[node] = await inject_write_errors(
                [process.pid for process in self._running[node]], errno.ENOBUFS
            )

    async def take_writes(self, node: str) -> None:
        """Let the kernel take it again."""
        if node in self._refusing:
            await self._refusing.pop(node).end()

    async def watch(self) -> NoReturn:
        """Kill who takes too much room on the disk; `check` tells then."""
        pause = WATCH if time_here() is Time.REAL else SLOW_WATCH
        while True:
            await asyncio.sleep(pause)
            for node, processes in list(self._running.items()):
                if self._watch.disk_full() or self._watch.limit_exceeded(
                    self.log(node), self._directory / node
                ):
                    await self._end(node, processes)

    def check(self) -> None:
        """Raise `SubjectFailed` if a proxy takes too much room, or has ended by itself; `HarnessError` for a full disk."""
        if full := self._watch.disk_full():
            raise HarnessError(full)
        for node, processes in self._running.items():
            if complaint := self._watch.limit_exceeded(self.log(node), self._directory / node):
                raise SubjectFailed(f"the proxy of node {node} {complaint}\n{self.tail(node)}")
            for process, program in zip(processes, self._subject.all_processes, strict=True):
                if process.returncode is not None:
                    raise SubjectFailed(self._ended(node, process, program))

    def _ended(self, node: str, process: Process, program: SubjectProcess) -> str:
        status = process.returncode
        why = f" ({signal.Signals(-status).name})" if status and status < 0 else ""
        which = f" {program.name}" if len(self._subject.all_processes) > 1 else ""
        values = self._values(node)
        command = shlex.join(fill_placeholders(word, values) for word in program.command)
        foreground = "; it must stay in the foreground" if status == 0 else ""
        ended = f"the proxy of node {node} ended{which} with {status}{why}{foreground}"
        return f"{self.explained(ended, node)}\ncommand: {command}"

    def explained(self, what: str, node: str) -> str:
        """What a node's proxy did with the first error that it has logged since all was well; the end of its log below."""
        log = self.tail(node)
        cause = first_error(_log_from(self.log(node), self._well.get(node, 0))) or log.rpartition("\n")[2]
        return f"{what}: {cause}\n{log}" if cause else f"{what}: it has written nothing"

    def settled(self) -> None:
        """All that was written is applied: what is logged up to here explains no later failure."""
        self._well = {node: self.log(node).stat().st_size for node in self._running}

    @property
    def tools(self) -> Path:
        """A folder with ``iptables`` and its siblings, of the variant that the subject finds."""
        return self._tools

    def log(self, node: str) -> Path:
        """The file a node's proxy writes its output to."""
        return self._directory / f"{node}.log"

    def tail(self, node: str) -> str:
        """The last lines of that file."""
        lines = read_tail(self.log(node), LOG_TAIL_BYTES).strip().splitlines()
        return "\n".join(lines[-LOG_TAIL_LINES:])

    def pid(self, node: str) -> int:
        """Process ID of a node's proxy."""
        return self._running[node][0].pid

    def _write_files(self, node: str) -> Mapping[str, str]:
        home = self._directory / node
        home.mkdir(parents=True, exist_ok=True)
        values = self._values(node)
        server, who = self._server, self.nodes[node]
        place = NodeConfiguration(
            node=node,
            mode=values["mode"],
            hostname=who.hostname,
            cluster_cidrs=who.cluster_cidrs,
            kubeconfig=values["kubeconfig"],
            min_sync_period=self._subject.min_sync_period,
        )
        Path(values["kubeconfig"]).write_text(
            server.kubeconfig(API_ADDRESS) if server else kubeconfig(values["api_server"])
        )
        bit = self._masquerade_bits.get(node, self._profile.masquerade_bit)
        profile = replace(self._profile, masquerade_bit=bit)
        Path(values["config"]).write_text(kube_proxy_configuration(profile, place))
        for name, template in self._subject.files.items():
            (home / name).write_text(fill_placeholders(template, values))
        return values

    def _values(self, node: str) -> Mapping[str, str]:
        """What placeholders stand for."""
        home = self._directory / node
        server, who = self._server, self.nodes[node]
        return {
            "binary": self._subject.binary,
            "python": sys.executable,
            "config": str(home / "config.yaml"),
            "kubeconfig": str(home / "kubeconfig.yaml"),
            "api_server": server.url(API_ADDRESS) if server else f"http://{API_ADDRESS}",
            "mode": self._modes.get(node) or self._mode,
            "node": who.hostname,
            "node_name": who.hostname,
            "node_ip": who.address,
            "directory": str(home),
        }


def _log_from(path: Path, start: int) -> str:
    """A log from some place on; only so much of it as can be looked through at once."""
    with path.open("rb") as file:
        file.seek(start)
        return file.read(LOG_SEARCHED).decode(errors="replace")


def _once(ready: Sequence[str], argv: Sequence[str]) -> list[str]:
    """A command that waits until another one succeeds."""
    if not ready:
        return list(argv)
    return [
        "sh",
        "-c",
        f'until {shlex.join(ready)} >/dev/null 2>&1; do sleep 0.05; done; exec "$@"',
        "sh",
        *argv,
    ]
