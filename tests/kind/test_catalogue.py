"""The catalogue in pods: `kproxy conformance cluster` from its command line, in a cluster of this machine's and in one of kind's.

Pods, nodes and Services have other addresses there than in the lab, so that every verdict went through the lens.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from kproxy.conformance.testbeds.cluster.agent import KEY
from kproxy.conformance.testbeds.cluster.limits import ClusterShape, case_not_runnable
from kproxy.conformance.testbeds.cluster.pods import LABELS
from kproxy.model.network import Family
from tests.kind.cluster import Cluster
from tests.kind.load import container, pod
from tests.kind.local import LocalCluster
from tests.kind.providers import IN_CONTAINERS, LOCAL
from tests.kind.selection import GLOBS, selected
from tests.support.waiting import eventually

OURS = ",".join(f"{name}={value}" for name, value in LABELS.items())
ONE_CASE = ("--case", "cluster-ip.every-endpoint-of-six")
MASQUERADED_TOO = ("--case", "cluster-ip.reached-from-everywhere")
MOST = 100
"""Of the groups' cases: two nodes and clients outside can express so many."""
AT_NODES = ("node-port.*", "cluster-ip.*", "terminating.*")

in_both_modes = pytest.mark.parametrize("cluster", LOCAL, indirect=True)
in_one = pytest.mark.parametrize("cluster", LOCAL[:1], indirect=True)


@dataclass(frozen=True)
class Judged:
    """Outcome of a run: its exit status, its output, and the results by case."""

    status: int
    output: str
    results: dict[str, dict[str, Any]]
    families: tuple[Family, ...] = ()

    def having(self, result: str) -> dict[str, str]:
        """The cases with a result, and the reasons."""
        return {name: one.get("reason", "") for name, one in self.results.items() if one["result"] == result}


def command(cluster: Cluster, mode: str, where: Path, *arguments: str) -> list[str]:
    judge = [sys.executable, "-m", "kproxy", "conformance", "cluster", "--mode", mode, *arguments]
    outputs = ["--json", str(where / "results.json"), "--evidence", str(where / "evidence")]
    return [*judge, f"--kubeconfig={cluster.kubeconfig}", f"--agent-image={cluster.image}", *outputs]


def judge(cluster: Cluster, mode: str, where: Path, *arguments: str) -> Judged:
    """Run the catalogue to its end; the cluster must have no leftovers of it."""
    done = subprocess.run(
        command(cluster, mode, where, *arguments), capture_output=True, text=True, check=False
    )
    file = where / "results.json"
    assert left(cluster) == []
    printed = done.stdout + done.stderr
    if not file.exists():
        return Judged(done.returncode, printed, {})
    reported = json.loads(file.read_text())
    families = tuple(Family(name) for name in reported["environment"]["families"].split(", "))
    return Judged(done.returncode, printed, {one["id"]: one for one in reported["results"]}, families)


def left(cluster: Cluster) -> list[str]:
    """Leftovers of a run: its namespace, which has all its other objects."""
    return [one["metadata"]["name"] for one in cluster.listed("namespaces", OURS)]


@pytest.fixture
def mode(request: pytest.FixtureRequest) -> str:
    """Of the cluster's service proxy."""
    mode: str = request.node.callspec.params["cluster"][1]
    return mode


def no_packet_is_astray(judged: Judged, groups: tuple[str, ...], shape: ClusterShape) -> None:
    """All cases of these groups that a cluster of this shape can express have passed or deviate as is known, unless the kernel has no SCTP."""
    assert judged.having("failed") == judged.having("broken") == {}
    assert judged.status == 0, judged.output
    shape = replace(shape, families=judged.families)
    able = {case.id for case in selected(groups) if case_not_runnable(case, shape) is None}
    left_out = {name: why for name, why in judged.having("not-runnable").items() if name in able}
    assert all("SCTP sockets" in why for why in left_out.values()), left_out
    unclaimed = judged.having("unsupported").keys()
    ran = judged.having("passed").keys() | judged.having("deviation").keys()
    assert ran == able - left_out.keys() - unclaimed


def cases(groups: tuple[str, ...]) -> list[str]:
    return [word for group in groups for word in ("--case", group)]


@in_both_modes
def test_packets_of_pods_nodes_and_clients_outside_go_where_they_may(
    cluster: LocalCluster, mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY, "secret")
    with cluster.agents_outside("secret", tmp_path) as urls:
        outside = [f"--{name}={url}" for name, url in urls.items()]
        judged = judge(cluster, mode, tmp_path, "--allow-production", *outside, *cases(GLOBS))
    no_packet_is_astray(judged, GLOBS, ClusterShape(outside=True))
    assert len(judged.having("passed")) > MOST


@pytest.mark.parametrize("cluster", [*LOCAL[:1], *IN_CONTAINERS], indirect=True)
def test_a_third_nodes_host_is_the_client_outside_where_there_is_no_better(
    cluster: Cluster, mode: str, tmp_path: Path
) -> None:
    judged = judge(cluster, mode, tmp_path, "--allow-production", *cases(AT_NODES))
    no_packet_is_astray(judged, AT_NODES, ClusterShape(neighbour=True))
    alone = {
        case.id
        for case in selected(AT_NODES)
        if case_not_runnable(case, ClusterShape(families=judged.families)) is None
    }
    assert judged.having("passed").keys() > alone, "the third node was of use"


@in_one
def test_what_is_wrong_is_seen_and_shown(cluster: LocalCluster, mode: str, tmp_path: Path) -> None:
    """Positive control: the same pods and nodes, served by proxies that masquerade all."""
    with cluster.configured({mode: {"masqueradeAll": True}}):
        judged = judge(cluster, mode, tmp_path, "--allow-production", *MASQUERADED_TOO)
    assert judged.status == 1
    (failed,) = judged.having("failed")
    (first, *_) = judged.results[failed]["findings"]
    assert any("masquerade" in clause for clause in first["clauses"])
    evidence = tmp_path / "evidence" / failed / "IPv4"
    (places, objects) = ((evidence / name).read_text() for name in ("places.txt", "objects.json"))
    assert cluster.address(cluster.workers[0]) in places
    assert '"10.96.' in objects
    assert "masquerade" in (evidence / "a.nft.txt").read_text()


@in_one
def test_a_cluster_that_does_not_serve_is_distinguished_from_one_that_serves_wrongly(
    cluster: LocalCluster, mode: str, tmp_path: Path
) -> None:
    with cluster.proxies_stopped():
        judged = judge(cluster, mode, tmp_path, "--allow-production", "--sync-timeout", "2", *ONE_CASE)
    assert judged.status == 1, judged.output
    (reason,) = judged.having("failed").values()
    assert "have not applied a Service within 2 s: node a IPv4" in reason


@in_one
def test_a_run_that_is_stopped_leaves_nothing(cluster: Cluster, mode: str, tmp_path: Path) -> None:
    run = subprocess.Popen(
        command(cluster, mode, tmp_path, "--allow-production"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not (found := left(cluster)):
        assert run.poll() is None
        time.sleep(0.1)
    while "agent-b3" not in cluster.kubectl("get", "pods", "-n", found[0]):
        time.sleep(0.1)
    run.send_signal(signal.SIGINT)
    _, printed = run.communicate(timeout=60)
    assert run.returncode != 0
    assert "Traceback" not in printed
    assert eventually(lambda: not left(cluster), 60, 0.2), printed


@in_one
def test_a_cluster_in_use_is_left_alone(cluster: Cluster, mode: str, tmp_path: Path) -> None:
    cluster.apply(pod("shop", container(cluster.image, "import time; time.sleep(600)")))
    try:
        judged = judge(cluster, mode, tmp_path, *ONE_CASE)
    finally:
        cluster.kubectl("delete", "pod", "shop", "--grace-period=0", "--force")
    assert judged.status == 2
    assert "foreign pods run in default" in judged.output
    assert "give --allow-production" in judged.output


@in_one
def test_what_a_killed_run_has_left_is_named(cluster: Cluster, mode: str, tmp_path: Path) -> None:
    cluster.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kproxy-old", "labels": dict(LABELS)}}
    )
    try:
        done = subprocess.run(
            command(cluster, mode, tmp_path, "--allow-production", *ONE_CASE),
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        cluster.kubectl("delete", "namespace", "kproxy-old")
    assert done.returncode == 2
    assert "kubectl delete namespace kproxy-old" in done.stderr
