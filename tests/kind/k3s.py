"""A cluster of k3s in containers, by testcontainers: one server, two agents, no service proxy, our image imported.

Its API server is part of the server's process, so a restart of one is that of the node, which runs no pod of a test.

https://docs.k3s.io/cli/server; https://docs.k3s.io/installation/airgap (images that are imported at the start)
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import docker
from testcontainers.community.k3s import K3SContainer
from testcontainers.core.config import ConnectionMode, testcontainers_config
from testcontainers.core.container import DockerContainer
from testcontainers.core.network import Network

from tests.kind.engine_cluster import EngineCluster, privileged_nodes_lack
from tests.support.waiting import eventually

testcontainers_config.connection_mode_override = ConnectionMode.docker_host  # the ports are this machine's

NODE_IMAGE = "rancher/k3s:v1.34.1-k3s1"
SERVER = (
    "server",
    "--disable-kube-proxy",
    "--disable-network-policy",  # it writes rules of its own
    *(f"--disable={name}" for name in ("traefik", "servicelb", "metrics-server")),
    "--cluster-cidr=10.244.0.0/16",
    "--service-cidr=10.96.0.0/16",
    "--cluster-dns=10.96.0.10",
    "--node-taint=node-role.kubernetes.io/control-plane=:NoSchedule",
)
C = TypeVar("C", bound=DockerContainer)
_IMPORTED = "/var/lib/rancher/k3s/agent/images"
_PATIENCE = 180.0


def lacking() -> list[str]:
    """Missing prerequisites, each with what to do; empty if a cluster is possible."""
    return privileged_nodes_lack(NODE_IMAGE)


@dataclass(frozen=True, slots=True)
class K3sCluster(EngineCluster):
    """A running cluster of k3s."""

    server: DockerContainer

    def apiserver(self) -> str:
        """Its address: k3s gives pods no resolver that knows containers' names."""
        return self.address(self.control_plane)

    def kill_apiserver(self) -> None:
        self.server.get_wrapped_container().restart(timeout=0)


def server(name: str, token: str, images: Path, port: int) -> K3SContainer:
    """The server's container, not started; ``port``: of this machine, which stays the same in a restart."""
    container = K3SContainer(NODE_IMAGE)
    container.with_command([*SERVER, f"--tls-san={container.get_container_host_ip()}"])
    container.with_env("K3S_URL", "").with_bind_ports(
        K3SContainer.KUBE_SECURE_PORT, port
    )  # it joins no other
    return _node(container, name, token, images)


def agent(name: str, token: str, images: Path, of: str) -> DockerContainer:
    """An agent's container, not started, of the server with this name."""
    container = DockerContainer(NODE_IMAGE).with_kwargs(privileged=True).with_command(["agent"])
    container.with_tmpfs_mount("/run").with_tmpfs_mount("/var/run")
    container.with_volume_mapping("/sys/fs/cgroup", "/sys/fs/cgroup", "rw")
    container.with_env("K3S_URL", f"https://{of}:{K3SContainer.KUBE_SECURE_PORT}")
    return _node(container, name, token, images)


def _node(container: C, name: str, token: str, images: Path) -> C:
    container.with_name(name).with_env("K3S_TOKEN", token).with_env("K3S_NODE_NAME", name)
    container.with_volume_mapping(images, _IMPORTED, "ro")
    return container


@contextmanager
def k3s_cluster(image: str, folder: Path) -> Iterator[K3sCluster]:
    """A running cluster without a service proxy; removed afterwards unless ``KPROXY_KEEP_CLUSTER`` is set."""
    name, token = f"kproxy-{secrets.token_hex(3)}", secrets.token_hex(16)
    control_plane, *workers = (f"{name}-{part}" for part in ("server", "worker", "worker2"))
    first = server(control_plane, token, _saved(image, folder / "images"), _free_port())
    nodes = [first, *(agent(worker, token, folder / "images", control_plane) for worker in workers)]
    with ExitStack() as stack:
        network = Network()
        network.create()
        stack.callback(network.remove)
        for node in nodes:
            node.with_network(network)
            stack.callback(node.stop)
            node.start()
        (folder / "kubeconfig").write_text(first.config_yaml())
        two = workers[0], workers[1]
        cluster = K3sCluster(folder / "kubeconfig", control_plane, two, "kubectl", image, first)
        assert eventually(lambda: len(cluster.listed("nodes")) == len(nodes), _PATIENCE), (
            "an agent is missing"
        )
        cluster.label_zones()
        yield cluster
        if os.environ.get("KPROXY_KEEP_CLUSTER"):
            stack.pop_all()


def _saved(image: str, folder: Path) -> Path:
    """A folder with the image as k3s imports it."""
    folder.mkdir()
    with (folder / "kproxy.tar").open("wb") as file:
        file.writelines(docker.from_env().images.get(image).save(named=True))
    return folder


def _free_port() -> int:
    with socket.create_server(("", 0)) as taken:
        return int(taken.getsockname()[1])
