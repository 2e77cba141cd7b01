"""A lab whose nodes are containers, and on each the proxy in a container as its DaemonSet would make it.

A node: all capabilities but CAP_SYS_RESOURCE (which a container's host may lack itself), no seccomp, a network
namespace with nothing in it, which the lab then wires as its own.  The proxy: our image in the node's network,
prepared by ``--init-only`` on the node, and then with CAP_NET_ADMIN alone on a root file system it cannot write to.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker.errors
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer

from kproxy.conformance.binding.bind import Instance
from kproxy.conformance.case import Profile
from kproxy.conformance.engine.session import OpenTestbed
from kproxy.conformance.subjects.subject import Subject, fill_placeholders
from kproxy.conformance.testbed import HarnessError, SubjectFailed, Testbed
from kproxy.conformance.testbeds.netns import NetnsTestbed
from kproxy.conformance.testbeds.proxies import Proxies
from kproxy.lab.apiserver import ApiServer
from kproxy.lab.lab import open_lab
from kproxy.lab.namespaces import Namespace
from kproxy.lab.network import Network
from kproxy.lab.processes import Xtables
from kproxy.lab.topology import NODES

testcontainers_config.ryuk_disabled = True  # its reaper is an image to be pulled; we remove what we start

NODE_SYSCTLS = dict.fromkeys(("ipv6/conf/all/disable_ipv6", "ipv6/conf/default/disable_ipv6"), "0")
"""Sysctls in which a node of Kubernetes differs from a container."""

PYTHON, START = "/usr/bin/python3", "/usr/lib/kproxy/start.py"
NODE = {
    "cap_add": ["ALL"],
    "cap_drop": ["SYS_RESOURCE"],
    "security_opt": ["seccomp=unconfined", "apparmor=unconfined"],
    "network_mode": "none",
    "entrypoint": [],
    "user": "0:0",
}
PROXY = {
    "cap_drop": ["ALL"],
    "cap_add": ["NET_ADMIN"],
    "read_only": True,
}
BE_A_NODE = """\
import ctypes, signal
MS_REMOUNT, MS_BIND = 32, 4096
libc = ctypes.CDLL(None, use_errno=True)
if libc.mount(b"none", b"/proc/sys", None, MS_REMOUNT | MS_BIND, None):
    raise OSError(ctypes.get_errno(), "a node writes sysctls: remount /proc/sys")
print("ready", flush=True)
signal.signal(signal.SIGTERM, lambda *_: exit())
signal.pause()
"""


@dataclass(frozen=True, slots=True)
class Node:
    """A node's container, and its network."""

    container: DockerContainer
    namespace: Namespace

    @property
    def id(self) -> str:
        return str(self.container.get_wrapped_container().id)


class ContainerProxies(Proxies):
    """The subject on every node, in containers of its image."""

    def __init__(
        self, nodes: dict[str, Node], image: str, network: Network, subject: Subject, mode: str, profile: Profile,
        directory: Path,
    ) -> None:  # fmt: skip
        super().__init__(network, subject, mode, profile, Xtables.NFT, directory)
        self._nodes, self._image = nodes, image
        self._containers: dict[str, DockerContainer] = {}
        self._pids: dict[str, int] = {}

    def start(self, node: str, masquerade_bit: int | None = None) -> None:
        if masquerade_bit is not None:
            self._masquerade_bits[node] = masquerade_bit
        values = self._write_files(node)
        command = [fill_placeholders(part, values) for part in self._subject.command]
        self._prepare(node, [PYTHON, START, *command, "--init-only"])
        container = (
            DockerContainer(self._image)
            .with_command(command)
            .with_kwargs(**PROXY, network_mode=f"container:{self._nodes[node].id}")
        )
        home = values["directory"]
        container.with_volume_mapping(home, home, "ro").with_tmpfs_mount("/run", "size=1m,mode=1777")
        self._containers[node] = container.start()
        self._pids[node] = self.inspect(node)["State"]["Pid"]

    def _prepare(self, node: str, command: Sequence[str]) -> None:
        done = self._nodes[node].container.exec(list(command))
        if done.exit_code:
            raise HarnessError(
                f"node {node} was not prepared: {done.output.decode(errors='replace').strip()}"
            )

    def pid(self, node: str) -> int:
        return self._pids[node]

    def inspect(self, node: str) -> dict[str, Any]:
        """The engine's state of the proxy's container."""
        wrapped = self._containers[node].get_wrapped_container()
        wrapped.reload()
        attributes: dict[str, Any] = wrapped.attrs
        return attributes

    async def kill(self, node: str) -> None:
        container = self._containers.pop(node)
        del self._pids[node]
        self._keep_log(node, container)
        with suppress(docker.errors.APIError):
            container.get_wrapped_container().kill()
        remove(container)

    async def kill_all(self) -> None:
        for node in list(self._containers):
            await self.kill(node)

    def check(self) -> None:
        for node, pid in self._pids.items():
            if not Path("/proc", str(pid)).exists():  # the engine replies slowly, and this is checked often
                status = self._containers[node].get_wrapped_container().wait()
                raise SubjectFailed(
                    f"the proxy of node {node} ended with {status['StatusCode']}\n{self.tail(node)}"
                )

    def log(self, node: str) -> Path:
        if node in self._containers:
            self._keep_log(node, self._containers[node])
        return super().log(node)

    def _keep_log(self, node: str, container: DockerContainer) -> None:
        out, err = container.get_logs()
        super().log(node).write_bytes(out + err)


def remove(container: DockerContainer) -> None:
    """By force, and the connection to the engine with it."""
    client = container.get_docker_client().client
    container.stop()
    client.close()


def start_node(name: str, image: str, files: Path) -> Node:
    """A container that is a node; ``files``: a folder it shares with the machine."""
    container = DockerContainer(image).with_command([PYTHON, "-c", BE_A_NODE]).with_kwargs(**NODE)
    container.with_volume_mapping(str(files), str(files), "ro").start()
    try:
        wrapped = container.get_wrapped_container()
        wrapped.reload()
        _ready(container)
        namespace = _namespace_of(name, wrapped.attrs["State"]["Pid"])
        namespace.set(NODE_SYSCTLS)
        return Node(container, namespace)
    except BaseException:
        remove(container)
        raise


def _namespace_of(name: str, pid: int) -> Namespace:
    """Network namespace of a container's first process; ``name`` is its name in the lab only."""
    return Namespace(name, os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC))


def _ready(container: DockerContainer) -> None:
    """Wait until it has printed that it is ready.  Not by a stream of its log: docker's client leaves the socket of one open."""
    wrapped = container.get_wrapped_container()
    while b"ready" not in container.get_logs()[0]:
        wrapped.reload()
        if wrapped.status == "exited":
            raise HarnessError(
                f"a node's container ended: {container.get_logs()[1].decode(errors='replace').strip()}"
            )
        time.sleep(0.05)


def opener(subject: Subject, mode: str, image: str, directory: Path) -> OpenTestbed:
    """How a session opens labs of such nodes."""

    @asynccontextmanager
    async def open_containers(profile: Profile, instances: Sequence[Instance]) -> AsyncIterator[Testbed]:
        home = directory / profile.name
        home.mkdir()
        nodes: dict[str, Node] = {}
        try:
            for name in NODES:
                nodes[name] = start_node(name, image, home)
            async with (
                open_lab({name: node.namespace for name, node in nodes.items()}) as lab,
                ApiServer() as server,
            ):
                proxies = ContainerProxies(nodes, image, lab.network, subject, mode, profile, home)
                testbed = NetnsTestbed(lab, server, proxies)
                testbed.prepare(instances)
                try:
                    await proxies.start_all(server)
                    yield testbed
                finally:
                    await proxies.kill_all()
        finally:
            for node in nodes.values():
                remove(node.container)

    return open_containers
