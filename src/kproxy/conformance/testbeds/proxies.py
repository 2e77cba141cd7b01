"""Processes of the subject in a lab: on each node, with their files, started, watched, killed, restarted."""

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
from kproxy.conformance.case import Feature, Flushed, Profile
from kproxy.conformance.subjects.configuration import NodeConfiguration, kube_proxy_configuration
from kproxy.conformance.subjects.subject import Subject, SubjectProcess, fill_placeholders
from kproxy.conformance.testbed import HarnessError, SubjectFailed
from kproxy.conformance.testbeds.cause import first_error
from kproxy.conformance.testbeds.disk_watch import DiskWatch, read_tail
from kproxy.lab.apiserver import ResourceKind, kubeconfig
from kproxy.lab.faults.addresses import flush_dummies
from kproxy.lab.faults.iptables_tables import BUILT_IN, flush_tables
from kproxy.lab.faults.write_faults import (
    WriteFault,
    delay_writes,
    hold_threads,
    inject_write_errors,
    refuse_some,
)
from kproxy.lab.kernels.current import time_here
from kproxy.lab.kernels.uml import Time
from kproxy.lab.network import Network
from kproxy.lab.processes import (
    Process,
    Usage,
    Xtables,
    kill_in,
    listen_in,
    run_after,
    run_in,
    spawn,
    xtables_directory,
    xtables_lock_file,
)
from kproxy.lab.sandbox import Sandbox, open_sandbox
from kproxy.lab.topology import LAB, NODES, Topology
from kproxy.model.network import Family

API_PORT = 6443
API_ADDRESS = f"127.0.0.1:{API_PORT}"
LOG_TAIL_LINES, LOG_TAIL_BYTES = 15, 4096
LOG_SEARCHED = 4 << 20
"""Bytes of a log that are searched for the first error."""
WATCH, SLOW_WATCH = 0.25, 60.0
"""Seconds between two checks of the disk; the second in virtual time, where idle time would be full of them."""


class ObjectWriter(Interface):
    """Writer of objects; one that is not admitted raises `kproxy.lab.kube.NotAdmitted`."""

    def put(self, kind: ResourceKind, document: Document) -> object:
        """Create or replace an object."""

    def delete(self, kind: ResourceKind, namespace: str, name: str) -> object:
        """Delete an object."""

    def documents(self, kind: ResourceKind) -> list[Document]:
        """All objects of a kind."""


class LabApiServer(Interface):
    """API server of the lab: `kproxy.lab.apiserver.ApiServer`, or a real one (`kproxy.lab.kube.KubeApiServer`)."""

    @property
    def store(self) -> ObjectWriter:
        """Store of its objects."""

    async def listen(self, sockets: Iterable[socket.socket]) -> None:
        """Serve on listening sockets of any namespace."""

    def kubeconfig(self, address: str) -> str:
        """Kubeconfig for clients in the namespace of one of them."""

    def url(self, address: str) -> str:
        """URL at which clients in that namespace reach the API server."""


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """Identity of a lab node in the cluster: its Node's name, its address, the pods' ranges (none: the topology's)."""

    hostname: str
    address: str
    cluster_cidrs: tuple[str, ...] = ()


def node_identities(topology: Topology, cluster_cidrs: tuple[str, ...] = ()) -> Mapping[str, NodeIdentity]:
    """Identities of a topology's nodes."""
    return {
        node: NodeIdentity(hostname, str(next(iter(topology.node_address[node].values()))), cluster_cidrs)
        for node, hostname in topology.hostnames.items()
    }


class Proxies:
    """Processes of the subject on every node of a lab."""

    def __init__(
        self,
        network: Network,
        subject: Subject,
        mode: str,
        profile: Profile,
        variant: Xtables,
        directory: Path,
    ) -> None:
        self._network, self._subject, self.mode, self.profile = network, subject, mode, profile
        self._directory = directory
        self.nodes: Mapping[str, NodeIdentity] = node_identities(LAB)
        """Nodes that it runs on, with their identities; to be changed before the start."""
        self.other = subject
        """Its other version (`replace_by_other`), or itself; to be changed before the start."""
        self.sandboxed = False
        """True if it gets a sandbox on each node (`kproxy.lab.sandbox`); to be changed before the start."""
        self._tools = xtables_directory(directory / "bin", variant)
        self._server: LabApiServer | None = None
        self._masquerade_bits: dict[str, int] = {}
        self._replaced: set[str] = set()
        """Nodes whose proxy is of the other version."""
        self._modes = dict.fromkeys(NODES, subject.mode_before(mode)) if profile.mode_before else {}
        self._running: dict[str, list[Process]] = {}
        self._rooms: dict[str, Sandbox] = {}
        self._write_faults: dict[str, WriteFault] = {}
        self._watch = DiskWatch(directory)
        self._well: dict[str, int] = {}

    async def start_all(self, server: LabApiServer) -> None:
        """Make the API server listen on every node, and start the subject there. Raises `LabError`."""
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

        ``masquerade_bit``: value in the configuration from now on.
        """
        if masquerade_bit is not None:
            self._masquerade_bits[node] = masquerade_bit
        values = self._write_files(node)
        environment = {**self._environment(node, values), **dict(self.profile.environment)}
        self._running[node] = []
        before: Sequence[str] = ()
        for program in self._subject_of(node).all_processes:
            argv = run_after(before, [fill_placeholders(argument, values) for argument in program.command])
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
        """Add a rule on every node that drops forwarded packets after DNAT, below all existing rules."""
        await self._append("FORWARD", "-m", "conntrack", "--ctstate", "DNAT", "-j", "DROP")

    async def drop_health_checks(self, first: int) -> None:
        """Add a rule on every node that drops new connections from outside to its ports from ``first`` on, below all existing rules."""
        ports = ("-p", "tcp", "--dport", f"{first}:65535")
        await self._append(
            "INPUT", "!", "-i", "lo", *ports, "-m", "conntrack", "--ctstate", "NEW", "-j", "DROP"
        )

    async def _append(self, *rule: str) -> None:
        for node in self.nodes:
            for tool in ("iptables", "ip6tables"):
                await run_in(self._network[node], [str(self._tools / tool), "-w", "-A", *rule])

    async def kill(self, node: str) -> None:
        """Kill a node's proxy with SIGKILL and wait for its end.

        In a sandbox, all other processes of the sandbox are killed too, but those that outlive the proxy. A later
        start there is in the judged mode.
        """
        self._modes.pop(node, None)
        await self._end(node, self._running.pop(node))

    async def _end(self, node: str, processes: Iterable[Process]) -> None:
        if node in self._rooms:
            await self._rooms[node].end(processes, self._subject_of(node).outlived_by)
            return
        for process in processes:
            process.kill()
        for process in processes:
            await process.wait()

    async def restart_in_other_mode(self, node: str) -> None:
        """Kill a node's proxy and start it in a mode whose rules the judged one removes, if there is one, until it is killed."""
        await self.kill(node)
        if other := self._subject.mode_before(self.mode):
            self._modes[node] = other
        self.start(node)

    async def replace_by_other(self, node: str) -> None:
        """Kill a node's proxy and start the other of the two versions, which runs there from then on."""
        await self.kill(node)
        self._replaced ^= {node}
        self.start(node)

    def _subject_of(self, node: str) -> Subject:
        """Version that a node's proxy is of."""
        return self.other if node in self._replaced else self._subject

    def stop(self, node: str) -> None:
        """Stop a node's proxy (SIGSTOP) until `resume`."""
        for process in self._running[node]:
            process.stop()

    def resume(self, node: str) -> None:
        """Continue a stopped proxy."""
        for process in self._running[node]:
            process.resume()

    async def kill_all(self) -> None:
        """Kill all proxies with SIGKILL."""
        for node in list(self._write_faults):
            await self.take_writes(node)
        for node in list(self._running):
            await self.kill(node)
            if node not in self._rooms and (outliving := self._subject_of(node).outlived_by):
                kill_in(self._network[node], outliving)
        while self._rooms:
            await self._rooms.popitem()[1].close()

    def runs_on(self, node: str) -> bool:
        """True unless a node's proxy was killed, and not started again."""
        return node in self._running

    @property
    def can_clean_up(self) -> bool:
        """True if the subject has a command that removes what it left, and claims in this mode that it does."""
        return Feature.CLEANUP in self._subject.claimed_features(self.mode)

    async def clean_up(self, node: str) -> None:
        """Kill a node's proxy, and run the subject's own command that removes what it left.

        Raises `SubjectFailed` if that fails.
        """
        await self.kill(node)
        values = self._values(node)
        command = self._subject_of(node).cleanup_command
        argv = [fill_placeholders(argument, values) for argument in command]
        environment = self._environment(node, values)
        cleaning = spawn(
            argv, self._network[node], log=self.log(node), env=environment, path_prefix=self._tools
        )
        await cleaning.wait()
        if cleaning.returncode:
            raise SubjectFailed(self.explained(f"{shlex.join(argv)} ended with {cleaning.returncode}", node))

    async def flush_rules(self, node: str, what: Flushed) -> None:
        """Remove rules or addresses from a node, as another program of it. Raises `LabError`."""
        match what:
            case Flushed.IPTABLES:
                await flush_tables(self._network[node], self._tools, BUILT_IN)
            case Flushed.TABLE_NAT:
                await flush_tables(self._network[node], self._tools, ["nat"])
            case Flushed.NFTABLES:
                await run_in(self._network[node], ["nft", "flush", "ruleset"])
            case Flushed.ADDRESSES:
                await flush_dummies(self._network[node])

    async def refuse_writes(self, node: str, family: Family | None = None, seconds: float = 0.0) -> None:
        """Make the kernel writes of a node's proxy fail with ENOBUFS, so late, of one family or both. Raises `LabError`."""
        if node not in self._write_faults:
            self._write_faults[node] = await inject_write_errors(
                [process.pid for process in self._running[node]], errno.ENOBUFS, family, seconds
            )

    async def delay_writes(self, node: str, seconds: float, *, reads: bool = False) -> None:
        """Make each kernel write of a node's proxy begin so many seconds late, and ``reads`` too. Raises `LabError`."""
        if node not in self._write_faults:
            processes = [process.pid for process in self._running[node]]
            self._write_faults[node] = await delay_writes(processes, seconds, reads=reads)

    async def hold_threads(self, node: str, seconds: float, seed: int) -> None:
        """Hold threads of a node's proxy now and then, until `take_writes`. Raises `LabError`."""
        if node not in self._write_faults:
            processes = [process.pid for process in self._running[node]]
            self._write_faults[node] = await hold_threads(processes, seconds, seed)

    async def make_memory_short(self, node: str, seconds: float, seed: int) -> None:
        """Make some kernel writes of a node's proxy, and some starts of its tools, fail with ENOMEM, so late. Raises `LabError`."""
        if node not in self._write_faults:
            processes = [process.pid for process in self._running[node]]
            self._write_faults[node] = await refuse_some(processes, errno.ENOMEM, seconds, seed)

    async def take_writes(self, node: str) -> None:
        """End `refuse_writes`, `delay_writes`, `make_memory_short` or `hold_threads`."""
        if node in self._write_faults:
            await self._write_faults.pop(node).end()

    async def watch(self) -> NoReturn:
        """Kill a proxy whose log or folder exceeds its size limit; `check` raises afterwards."""
        pause = WATCH if time_here() is Time.REAL else SLOW_WATCH
        while True:
            await asyncio.sleep(pause)
            for node, processes in list(self._running.items()):
                if self._watch.disk_full() or self._watch.limit_exceeded(
                    self.log(node), self._directory / node
                ):
                    await self._end(node, processes)

    def check(self) -> None:
        """Raise `SubjectFailed` if a proxy exceeds its disk limits, or has ended by itself; `HarnessError` for a full disk."""
        if full := self._watch.disk_full():
            raise HarnessError(full)
        for node, processes in self._running.items():
            if complaint := self._watch.limit_exceeded(self.log(node), self._directory / node):
                raise SubjectFailed(f"the proxy of node {node} {complaint}\n{self.tail(node)}")
            for process, program in zip(processes, self._subject_of(node).all_processes, strict=True):
                if process.returncode is not None:
                    raise SubjectFailed(self._ended(node, process, program))

    def _ended(self, node: str, process: Process, program: SubjectProcess) -> str:
        status = process.returncode
        why = f" ({signal.Signals(-status).name})" if status and status < 0 else ""
        which = f" {program.name}" if len(self._subject_of(node).all_processes) > 1 else ""
        values = self._values(node)
        command = shlex.join(fill_placeholders(word, values) for word in program.command)
        foreground = "; it must stay in the foreground" if status == 0 else ""
        ended = f"the proxy of node {node} ended{which} with {status}{why}{foreground}"
        return f"{self.explained(ended, node)}\ncommand: {command}"

    def explained(self, what: str, node: str) -> str:
        """Text of a proxy's failure with the first error that it has logged since the last success, and the end of its log."""
        log = self.tail(node)
        cause = first_error(_log_from(self.log(node), self._well.get(node, 0))) or log.rpartition("\n")[2]
        return f"{what}: {cause}\n{log}" if cause else f"{what}: it has written nothing"

    def settled(self) -> None:
        """Record that everything is applied: errors logged so far explain no later failure."""
        self._well = {node: self.log(node).stat().st_size for node in self._running}

    @property
    def tools(self) -> Path:
        """Folder with ``iptables`` and its siblings, of the variant that the subject finds."""
        return self._tools

    def log(self, node: str) -> Path:
        """Log file of a node's proxy."""
        return self._directory / f"{node}.log"

    @property
    def xtables_locks(self) -> tuple[Path, ...]:
        """Lock files of the iptables tools that the proxies run, one a node."""
        return tuple(map(xtables_lock_file, map(self.log, self.nodes)))

    def whole_log(self, node: str) -> str:
        """Text of that file."""
        return self.log(node).read_text(errors="replace")

    def tail(self, node: str) -> str:
        """Last lines of that file."""
        lines = read_tail(self.log(node), LOG_TAIL_BYTES).strip().splitlines()
        return "\n".join(lines[-LOG_TAIL_LINES:])

    def usage(self, node: str) -> list[Usage]:
        """Resources of each process of a node's proxy now. Raises `LabError` when one has ended."""
        return [process.usage() for process in self._running[node]]

    def pid(self, node: str) -> int:
        """Process ID of a node's proxy."""
        return self._running[node][0].pid

    def _environment(self, node: str, values: Mapping[str, str]) -> Mapping[str, str]:
        environment = self._subject_of(node).environment
        return {name: fill_placeholders(text, values) for name, text in environment.items()}

    def _min_sync_period(self, node: str) -> str:
        own = self.profile.min_sync_seconds
        return f"{own:g}s" if own else self._subject_of(node).min_sync_period

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
            min_sync_period=self._min_sync_period(node),
        )
        Path(values["kubeconfig"]).write_text(
            server.kubeconfig(API_ADDRESS) if server else kubeconfig(values["api_server"])
        )
        bit = self._masquerade_bits.get(node, self.profile.masquerade_bit)
        profile = replace(self.profile, masquerade_bit=bit)
        Path(values["config"]).write_text(kube_proxy_configuration(profile, place))
        for name, template in self._subject_of(node).files.items():
            (home / name).write_text(fill_placeholders(template, values))
        return values

    def _values(self, node: str) -> Mapping[str, str]:
        """Values of the placeholders in a subject's commands."""
        home = self._directory / node
        server, who = self._server, self.nodes[node]
        return {
            "binary": self._subject_of(node).binary,
            "python": sys.executable,
            "config": str(home / "config.yaml"),
            "kubeconfig": str(home / "kubeconfig.yaml"),
            "api_server": server.url(API_ADDRESS) if server else f"http://{API_ADDRESS}",
            "mode": self._modes.get(node) or self.mode,
            "node": who.hostname,
            "node_name": who.hostname,
            "node_ip": who.address,
            "directory": str(home),
        }


def _log_from(path: Path, start: int) -> str:
    """Text of a log from an offset on, at most `LOG_SEARCHED` bytes."""
    with path.open("rb") as file:
        file.seek(start)
        return file.read(LOG_SEARCHED).decode(errors="replace")
