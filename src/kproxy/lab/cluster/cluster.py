"""The running cluster: everything of `kproxy.lab.cluster`, opened in order and closed in reverse.

Nodes prepare themselves (containerd, images) while the control plane starts; kubelets start when their Node objects exist.
"""

from __future__ import annotations

import asyncio
import fcntl
import http.client
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Self

from kproxy.lab.cluster import control_groups, control_plane
from kproxy.lab.cluster.credentials import ADMIN, Credentials, make_credentials, node_user
from kproxy.lab.cluster.images import write_pause_image
from kproxy.lab.cluster.layout import API_PORT, DNS_PORT, ClusterLayout, control_plane_address
from kproxy.lab.cluster.node import SCRIPT, NodeFiles
from kproxy.lab.cluster.programs import Programs
from kproxy.lab.cluster.resolver import ClusterResolver, Document, resolver_documents
from kproxy.lab.cluster.wiring import ClusterWiring
from kproxy.lab.kube.relay import Relay
from kproxy.lab.kube.store import KubeStore, on_loopback
from kproxy.lab.namespaces import LabError
from kproxy.lab.network import Network, build_network
from kproxy.lab.processes import Process, spawn
from kproxy.lab.topology import SWITCH
from kproxy.model.network import Family
from kproxy.tls import client_context

PREFIX = "kproxy-cluster-"
"""Of the names of a cluster's folder and of its control groups."""
HOME = Path("/var/tmp")  # noqa: S108 (folders there are made by mkdtemp)
"""Where folders of clusters are: on a disk, since containerd's snapshots cannot be on an overlay or a tmpfs of old kernels."""
LOCK = "lock"
"""File in the folder that a running cluster's process has locked."""
INSIDE_KUBECONFIG = "inside.kubeconfig"
"""File in the folder: the administrator's kubeconfig for programs in the cluster's network."""
START_SECONDS = 300.0
"""Seconds that the control plane, and then the nodes, have until they are ready."""

_POLL = 0.2
_TAIL = 10
_OWN_NAMESPACES = ("--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child", "--mount-proc")
_IN_NODE = ("--mount", "--pid", "--uts", "--ipc", "--net", "--root")

Progress = Callable[[str], None]
"""Called with each step that has begun."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec:
    """Programs, layout and images of a cluster; ``images``: archives that every node imports."""

    programs: Programs
    layout: ClusterLayout = field(default_factory=ClusterLayout)
    images: tuple[Path, ...] = ()


class LabCluster:
    """A cluster, empty but for what Kubernetes makes itself; an asynchronous context manager.

    Entering raises `LabError` when a program ends or the nodes are not ready in time; the message has the end of its log.
    """

    def __init__(self, spec: ClusterSpec, progress: Progress = lambda _: None) -> None:
        self.spec, self._progress = spec, progress
        self._stack = AsyncExitStack()
        self._processes: dict[str, Process] = {}
        self.folder: Path
        self.kubeconfig: Path
        self.network: Network
        self.credentials: Credentials

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Start everything, and wait until the nodes are ready; what was started is closed if that fails."""
        try:
            await self._open()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """End everything, and remove it."""
        await self._stack.aclose()

    # ------------------------------------------------------------------ use

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names of the nodes."""
        return self.spec.layout.nodes

    def outer_pid(self, node: str) -> int:
        """The process whose only child is a node's first process."""
        return self._processes[node].pid

    def kubectl(self, *arguments: str, stdin: str = "") -> str:
        """Output of kubectl as administrator.  Raises `LabError` with its error text."""
        argv = [str(self.spec.programs.kubectl), f"--kubeconfig={self.kubeconfig}", *arguments]
        done = subprocess.run(argv, input=stdin, capture_output=True, text=True, check=False)
        if done.returncode:
            raise LabError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()[-2000:]}")
        return done.stdout

    def check(self) -> None:
        """Raise `LabError`, with the end of its log, if a program has ended by itself."""
        for name, process in self._processes.items():
            if process.returncode is not None:
                raise LabError(f"{name} has ended: {_tail(process.log)}")

    async def restart_apiserver(self) -> None:
        """Kill the API server, start it again, and wait until it serves."""
        old = self._processes["kube-apiserver"]
        old.kill()
        await old.wait()
        self._start("kube-apiserver", old.argv)
        await self._serving()

    async def reboot(self, node: str) -> None:
        """Kill a node's processes, remove its rules and tracked connections, and start its first process again.

        Its disk stays, and its links and addresses, as if the machine had configured them again at once.
        """
        await self._end_node(node)
        self.network[node].run(["nft", "flush", "ruleset"])
        self.network[node].run(["conntrack", "--flush"])
        self._start_node(node)

    def processes(self, node: str, argument: str) -> list[int]:
        """Processes in the pods of a node whose command line has this argument."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                arguments = (process / "cmdline").read_bytes().split(b"\0")
                if argument.encode() in arguments and self._group(node) in (process / "cgroup").read_text():
                    found.append(int(process.name))
        return found

    def node_folder(self, node: str) -> Path:
        """Folder of a node: its ``lib`` is ``/var/lib`` there."""
        return self.folder / node

    # ------------------------------------------------------------------ open

    async def _open(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=HOME))
        self._stack.callback(os.close, hold(self.folder))
        self._stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
        self._progress("network")
        self.network = self._stack.enter_context(build_network(ClusterWiring(self.spec.layout)))
        self._prepare_files()
        self._progress("nodes: containerd and images")
        for node in self.nodes:
            name = self._group(node)
            self._stack.callback(control_groups.remove_groups, name)
            control_groups.make_groups(name)
        for node in self.nodes:
            self._stack.push_async_callback(self._end_node, node)
            self._start_node(node)
        self._progress("control plane")
        await self._open_control_plane()
        self._progress("kubelets")
        await asyncio.to_thread(self._register)
        await self._open_resolver()
        for node in self.nodes:
            (self.node_folder(node) / "start").touch()
        await self._until("the nodes are ready", self._nodes_ready)

    def _prepare_files(self) -> None:
        layout, programs = self.spec.layout, self.spec.programs
        self.credentials = make_credentials(programs.openssl, self.folder / "credentials", layout)
        links, images = self.folder / "programs", self.folder / "images"
        links.mkdir()
        images.mkdir()
        for name in ("kubelet", "containerd", "ctr", "runc", "nsenter"):
            (links / name).symlink_to(getattr(programs, name))
        (self.folder / "boot.sh").write_text(SCRIPT)
        write_pause_image(images)
        for image in self.spec.images:
            (images / image.name).symlink_to(image.resolve())
        for node in self.nodes:
            files = self._files(node)
            files.write(self.credentials.authority)
            control_plane.write_kubeconfig(
                files.folder / "kubeconfig", control_plane.API_URL, node_user(node), self.credentials
            )

    def _files(self, node: str) -> NodeFiles:
        return NodeFiles(self.spec.layout, node, self.node_folder(node), self._group(node))

    def _group(self, node: str) -> str:
        return f"{self.folder.name}-{node}"

    def _start(self, name: str, argv: Sequence[str]) -> None:
        log = self.folder / f"{name}.log"
        self._processes[name] = spawn(list(argv), self.network[SWITCH], log=log)

    def _start_node(self, node: str) -> None:
        programs = self.spec.programs
        environment = self._files(node).environment(
            self.folder / "programs", programs.cni, self.folder / "images"
        )
        argv = [
            str(programs.unshare),
            *_OWN_NAMESPACES,
            "--propagation=private",
            "sh",
            str(self.folder / "boot.sh"),
        ]
        log = self.folder / f"{node}.log"
        self._processes[node] = spawn(argv, self.network[node], log=log, env=environment)

    async def _end_node(self, node: str) -> None:
        """Kill a node's first process, and with it all others, and wait until they are gone."""
        if node in self._processes:
            process = self._processes.pop(node)
            process.kill()
            await process.wait()

    async def _end(self, name: str) -> None:
        process = self._processes.pop(name)
        process.kill()
        await process.wait()

    async def _open_control_plane(self) -> None:
        programs, credentials = self.spec.programs, self.credentials
        servers = {
            "etcd": control_plane.etcd_arguments(programs, self.folder),
            "kube-apiserver": control_plane.apiserver_arguments(programs, credentials),
        }
        clients = control_plane.client_arguments(programs, self.folder, credentials)
        for name, argv in servers.items():
            self._start(name, argv)
            self._stack.push_async_callback(self._end, name)
        relay, here = Relay(self.network[SWITCH], API_PORT), socket.create_server(("127.0.0.1", 0))
        await relay.listen(here)
        self._stack.push_async_callback(relay.close)
        self.kubeconfig = control_plane.admin_kubeconfig(
            self.folder / "kubeconfig", here.getsockname()[1], credentials
        )
        control_plane.write_kubeconfig(
            self.folder / INSIDE_KUBECONFIG, control_plane.API_URL, ADMIN, credentials
        )
        await self._serving()
        for name, argv in clients.items():
            self._start(name, argv)
            self._stack.push_async_callback(self._end, name)

    async def _open_resolver(self) -> None:
        store, namespace = self._store(), self.network[SWITCH]
        sock = namespace.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.bind((str(control_plane_address(Family.IPV4)), DNS_PORT))
        resolver = ClusterResolver(partial(_object, store))
        self._stack.callback(store.close)
        await resolver.serve(sock)
        self._stack.callback(resolver.close)

    def _store(self) -> KubeStore:
        """Client of the API server, as administrator."""
        tls = client_context(cafile=str(self.credentials.authority))
        token = self.credentials.tokens[ADMIN]
        connect = partial(on_loopback, self.network[SWITCH], API_PORT, tls)
        return KubeStore(connect, lambda: {"Authorization": f"Bearer {token}"})

    async def _serving(self) -> None:
        store = self._store()
        self._stack.callback(store.close)
        await self._until("the API server serves", store.ready)
        system = partial(_object, store, "/api/v1/namespaces/kube-system")
        await self._until("the API server has made kube-system", lambda: system() is not None)

    def _register(self) -> None:
        made = [*control_plane.registered_nodes(self.spec.layout), *resolver_documents()]
        items = {"apiVersion": "v1", "kind": "List", "items": made}
        self.kubectl("create", "-f", "-", stdin=json.dumps(items))

    def _nodes_ready(self) -> bool:
        found = json.loads(self.kubectl("get", "nodes", "-o", "json"))["items"]
        return all(
            any((c["type"], c["status"]) == ("Ready", "True") for c in node["status"].get("conditions", ()))
            for node in found
        )

    async def _until(self, what: str, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not await asyncio.to_thread(condition):
            self.check()
            if time.monotonic() > deadline:
                raise LabError(f"not within {START_SECONDS:g} s: {what}; logs were: {self._logs()}")
            await asyncio.sleep(_POLL)

    def _logs(self) -> str:
        files = [*self.folder.glob("*.log"), *self.folder.glob("node-*/*.log")]
        return "\n".join(f"--- {file.relative_to(self.folder)}\n{_tail(file)}" for file in sorted(files))


def _object(store: KubeStore, path: str) -> Document | None:
    """Object at a path; None where there is none."""
    found = store.request("GET", path, tolerated=(http.client.NOT_FOUND,))
    return None if found.get("code") == http.client.NOT_FOUND else found


def hold(folder: Path) -> int:
    """Take the lock of a cluster's folder (flock(2)); returns the descriptor that holds it."""
    lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return lock


def enter_node(pid: int, argv: Sequence[str]) -> list[str]:
    """Command line that runs another one inside the namespaces of a node's first process."""
    return ["nsenter", f"--target={pid}", *_IN_NODE, "--", *argv]


def child_of(pid: int) -> int:
    """The only child of a process: ``unshare --fork`` stays outside of the PID namespace that it made."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    if not children:
        raise LabError("the node has ended")
    return int(children[0])


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-_TAIL:])
