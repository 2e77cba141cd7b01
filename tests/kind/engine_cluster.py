"""A cluster whose nodes are containers of Docker's engine, made by any provider; kproxy is installed as its DaemonSet."""

from __future__ import annotations

import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.kind.cluster import Cluster, output
from tests.kind.engine import running_engine
from tests.support.paths import ROOT

OVERLAYS = ROOT / "deploy/overlays"

_KUBECTL_PAGE = "https://kubernetes.io/docs/tasks/tools/"
_CAP_SYS_RESOURCE = 24
_PLACEHOLDER = "https://control-plane.example:6443"


def privileged_nodes_lack(image: str) -> list[str]:
    """Missing prerequisites of privileged containers of this image, each with what to do."""
    found = []
    if shutil.which("kubectl") is None:
        found.append(f"kubectl is not installed: {_KUBECTL_PAGE}")
    if not running_engine():
        found.append(f"no Docker engine runs that may pull {image}: start one")
    status = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines())
    if not int(status["CapBnd"], 16) >> _CAP_SYS_RESOURCE & 1:
        found.append(
            "its nodes are privileged and this machine denies CAP_SYS_RESOURCE: take another machine"
        )
    return found


@dataclass(frozen=True, slots=True)
class EngineCluster(Cluster):
    """A running cluster in containers."""

    def apiserver(self) -> str:
        """Name or address of the API server, for the nodes."""
        raise NotImplementedError

    def kill_apiserver(self) -> None:
        """Kill the API server; what started it starts it again."""
        raise NotImplementedError

    def label_zones(self) -> None:
        """Put each worker in a zone of its own."""
        for number, worker in enumerate(self.workers, 1):
            self.kubectl("label", "node", worker, f"topology.kubernetes.io/zone=zone-{number}")

    def install(self, mode: str, selector: dict[str, str] | None = None) -> None:
        """Put the overlay of a mode in, and wait until it is on every node that has these labels."""
        text = output(["kubectl", "kustomize", str(OVERLAYS / mode)])
        documents = list(yaml.safe_load_all(text.replace(_PLACEHOLDER, f"https://{self.apiserver()}:6443")))
        for document in documents:
            if document["kind"] == "DaemonSet" and selector:
                document["spec"]["template"]["spec"]["nodeSelector"].update(selector)
        self.apply(*documents)
        self.rolled_out("daemonset/kproxy", "kube-system")

    def restart_proxies(self) -> None:
        self.kubectl("-n", "kube-system", "rollout", "restart", "daemonset/kproxy")
        self.rolled_out("daemonset/kproxy", "kube-system")

    def restart_apiserver(self) -> None:
        self.kill_apiserver()
        deadline = time.monotonic() + 120
        while not self._serves():
            assert time.monotonic() < deadline, "the API server did not come back"
            time.sleep(0.5)

    def _serves(self) -> bool:
        arguments = [self.program, f"--kubeconfig={self.kubeconfig}", "get", "--raw", "/readyz"]
        return subprocess.run(arguments, capture_output=True, check=False).returncode == 0
