"""A cluster made by kind, with our image loaded, and without a service proxy or with kube-proxy.

`lacking` returns the prerequisites that this machine lacks, and what to do.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.kind.cluster import Cluster, output
from tests.kind.engine import SOCKET
from tests.support.paths import ROOT

KIND = "v0.30.0"
NODE_IMAGE = "kindest/node:v1.34.0@sha256:7416a61b42b1662ca6ca89f02028ac133a309a2a30ba309614e8ec94d976dc5a"
OVERLAYS = ROOT / "deploy/overlays"

_KIND_PAGE, _KUBECTL_PAGE = "https://kind.sigs.k8s.io/dl/" + KIND, "https://kubernetes.io/docs/tasks/tools/"
_CAP_SYS_RESOURCE = 24
_PLACEHOLDER = "https://control-plane.example:6443"


def lacking() -> list[str]:
    """Missing prerequisites, each with what to do; empty if a cluster is possible."""
    found = []
    if shutil.which("kind") is None:
        found.append(f"kind is not installed: put kind-linux-amd64 of {_KIND_PAGE} on PATH")
    elif KIND not in (said := output(["kind", "version"]).strip()):
        found.append(f"this is {said}, tested is {KIND}: take that of {_KIND_PAGE}")
    if shutil.which("kubectl") is None:
        found.append(f"kubectl is not installed: {_KUBECTL_PAGE}")
    if not (os.environ.get("DOCKER_HOST") or SOCKET.exists()):
        found.append(f"no Docker engine runs that may pull {NODE_IMAGE.partition('@')[0]}: start one")
    status = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines())
    if not int(status["CapBnd"], 16) >> _CAP_SYS_RESOURCE & 1:
        found.append(
            "kind's nodes are privileged and this machine denies CAP_SYS_RESOURCE: take another machine"
        )
    return found


@dataclass(frozen=True, slots=True)
class KindCluster(Cluster):
    """A running cluster of kind's."""

    def install(self, mode: str, selector: dict[str, str] | None = None) -> None:
        """Put the overlay of a mode in, and wait until it is on every node that has these labels."""
        text = output(["kubectl", "kustomize", str(OVERLAYS / mode)])
        documents = list(yaml.safe_load_all(text.replace(_PLACEHOLDER, f"https://{self.control_plane}:6443")))
        for document in documents:
            if document["kind"] == "DaemonSet" and selector:
                document["spec"]["template"]["spec"]["nodeSelector"].update(selector)
        self.apply(*documents)
        self.rolled_out("daemonset/kproxy", "kube-system")

    def restart_proxies(self) -> None:
        self.kubectl("-n", "kube-system", "rollout", "restart", "daemonset/kproxy")
        self.rolled_out("daemonset/kproxy", "kube-system")

    def restart_apiserver(self) -> None:
        """Its static pod's process; the kubelet starts it again."""
        output(["docker", "exec", self.control_plane, "pkill", "-KILL", "kube-apiserver"])
        deadline = time.monotonic() + 120
        while not self._serves():
            assert time.monotonic() < deadline, "the API server did not come back"
            time.sleep(0.5)

    def _serves(self) -> bool:
        arguments = [self.program, f"--kubeconfig={self.kubeconfig}", "get", "--raw", "/readyz"]
        return subprocess.run(arguments, capture_output=True, check=False).returncode == 0


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
        for number, worker in enumerate(workers, 1):
            cluster.kubectl("label", "node", worker, f"topology.kubernetes.io/zone=zone-{number}")
        yield cluster
    finally:
        if not os.environ.get("KPROXY_KEEP_CLUSTER"):
            output(["kind", "delete", "cluster", *where])
