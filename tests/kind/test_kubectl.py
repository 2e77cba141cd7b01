"""`kubectl kproxy` in a cluster of real kubelets, by its real API server, and the rules that kproxy's own pod shows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kind.cluster import Cluster
from tests.kind.providers import LOCAL

pytestmark = pytest.mark.parametrize("cluster", LOCAL[:1], indirect=True)


def plugin(cluster: Cluster, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The plugin, as kubectl finds it on PATH."""
    path = f"{Path(sys.executable).parent}:{Path(cluster.program).parent}:{os.environ['PATH']}"
    return subprocess.run(
        [cluster.program, "kproxy", f"--kubeconfig={cluster.kubeconfig}", *arguments],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_live_cluster_is_explained(cluster: Cluster) -> None:
    done = plugin(cluster, "explain", "--from", "host/node-1", "--to", "svc/default/kubernetes:443")
    assert done.returncode == 0, done.stderr
    assert "delivered to" in done.stdout


def test_a_nodes_rules_are_followed(cluster: Cluster) -> None:
    packet = ("--from", "host", "--to", "svc/default/kubernetes:443")
    done = plugin(cluster, "trace", "--node", "node-1", *packet)
    assert done.returncode == 0, done.stderr
    assert (
        f"DNAT to {cluster.get('endpoints/kubernetes')['subsets'][0]['addresses'][0]['ip']}:6443"
        in done.stdout
    )
