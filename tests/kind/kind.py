"""A cluster made by kind, with our image loaded, and without a service proxy or with kube-proxy.

`lacking` returns the prerequisites that this machine lacks, and what to do.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.kind.cluster import output
from tests.kind.engine_cluster import EngineCluster, privileged_nodes_lack

KIND = "v0.30.0"
NODE_IMAGE = "kindest/node:v1.34.0@sha256:7416a61b42b1662ca6ca89f02028ac133a309a2a30ba309614e8ec94d976dc5a"

_KIND_PAGE = f"https://kind.sigs.k8s.io/dl/{KIND}"


def lacking() -> list[str]:
    """Missing prerequisites, each with what to do; empty if a cluster is possible."""
    found = []
    if shutil.which("kind") is None:
        found.append(f"kind is not installed: put kind-linux-amd64 of {_KIND_PAGE} on PATH")
    elif KIND not in (version := output(["kind", "version"]).strip()):
        found.append(f"this is {version}, tested is {KIND}: take that of {_KIND_PAGE}")
    found.extend(privileged_nodes_lack(NODE_IMAGE.partition("@")[0]))
    return found


@dataclass(frozen=True, slots=True)
class KindCluster(EngineCluster):
    """A running cluster of kind's."""

    def apiserver(self) -> str:
        return self.control_plane

    def kill_apiserver(self) -> None:
        """Kill its static pod's process; the kubelet starts it again."""
        output(["docker", "exec", self.control_plane, "pkill", "-KILL", "kube-apiserver"])


@contextmanager
def kind_cluster(image: str, folder: Path, kube_proxy_mode: str = "none") -> Iterator[KindCluster]:
    """One control plane and two workers; deleted afterwards unless ``KPROXY_KEEP_CLUSTER`` is set."""
    name = f"kproxy-{secrets.token_hex(3)}"
    workers = f"{name}-worker", f"{name}-worker2"
    cluster = KindCluster(folder / "kubeconfig", f"{name}-control-plane", workers, "kubectl", image)
    config = {
        "kind": "Cluster",
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        "networking": {"kubeProxyMode": kube_proxy_mode, "podSubnet": "10.244.0.0/16"},
        "nodes": [{"role": role} for role in ("control-plane", "worker", "worker")],
    }
    where = (f"--name={name}", f"--kubeconfig={cluster.kubeconfig}")
    try:
        arguments = ["kind", "create", "cluster", *where, f"--image={NODE_IMAGE}", "--config=-"]
        output(arguments, yaml.safe_dump(config))
        output(["kind", "load", "docker-image", f"--name={name}", image])
        cluster.label_zones()
        yield cluster
    finally:
        if not os.environ.get("KPROXY_KEEP_CLUSTER"):
            output(["kind", "delete", "cluster", *where])
