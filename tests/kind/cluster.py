"""Interface of tests to a cluster of any provider: kubectl, and operations that kubectl lacks."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

PATIENCE = "300s"


@dataclass(frozen=True, slots=True)
class Cluster:
    """A running cluster, with two workers and a node that has none of a Service's endpoints."""

    kubeconfig: Path
    control_plane: str
    workers: tuple[str, str]
    program: str
    """Path of kubectl."""
    image: str
    """Image for pods, with Python in it."""

    def kubectl(self, *arguments: str, stdin: str = "") -> str:
        """Output of kubectl; a failure raises AssertionError."""
        return output([self.program, f"--kubeconfig={self.kubeconfig}", *arguments], stdin)

    def apply(self, *documents: dict[str, Any]) -> None:
        self.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(documents))

    def rolled_out(self, what: str, namespace: str = "default") -> None:
        self.kubectl("-n", namespace, "rollout", "status", what, f"--timeout={PATIENCE}")

    def get(self, what: str) -> dict[str, Any]:
        """An object, by ``kind/name``."""
        found: dict[str, Any] = json.loads(self.kubectl("get", what, "-o", "json"))
        return found

    def listed(self, kind: str, labels: str = "") -> list[dict[str, Any]]:
        """The objects of a kind, those that have these labels."""
        found: list[dict[str, Any]] = json.loads(self.kubectl("get", kind, "-l", labels, "-o", "json"))[
            "items"
        ]
        return found

    def cluster_ip(self, service: str) -> str:
        return str(self.get(f"service/{service}")["spec"]["clusterIP"])

    def address(self, node: str) -> str:
        """A node's internal IPv4 address."""
        addresses = self.get(f"node/{node}")["status"]["addresses"]
        return next(str(a["address"]) for a in addresses if a["type"] == "InternalIP" and "." in a["address"])

    def restart_proxies(self) -> None:
        """End the nodes' service proxies, and start them again."""
        raise NotImplementedError

    def restart_apiserver(self) -> None:
        """Kill the API server; returns when it serves again."""
        raise NotImplementedError


def output(arguments: Sequence[str], stdin: str = "") -> str:
    """Output of a program; raises AssertionError with its error text if it fails."""
    done = subprocess.run(arguments, input=stdin, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(arguments)}: {done.stderr.strip()[-2000:]}"
    return done.stdout
