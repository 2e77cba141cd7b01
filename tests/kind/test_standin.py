"""The stand-in cluster is a cluster: its pods run, are ready, answer and end, real controllers make and count them."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kproxy.lab.kube import MissingAssets
from kproxy.lab.namespaces import LabError
from tests.kind import load
from tests.kind.cluster import Cluster
from tests.kind.load import only, pods, quiet, requested
from tests.kind.providers import STANDIN
from tests.kind.standin.cluster import StandIn, standin_cluster
from tests.kind.standin.programs import NAMES, programs
from tests.support.leftovers import Leftovers

in_one = pytest.mark.parametrize("cluster", STANDIN[:1], indirect=True)

SERVE = ["/usr/bin/python3", "-m", "http.server", "8080"]
IGNORES_SIGTERM = [
    "/usr/bin/python3",
    "-c",
    "import signal; signal.signal(15, lambda *_: print('asked', flush=True)); signal.pause(); signal.pause()",
]


def pod(name: str, command: list[str], **spec: object) -> dict[str, Any]:
    probe = {"tcpSocket": {"port": 8080}, "periodSeconds": 1} if command is SERVE else None
    container = {"name": "it", "image": "none", "command": command, "readinessProbe": probe}
    return load.pod(name, container, **{"nodeName": "worker-1", **spec})


def run(cluster: Cluster, document: dict[str, Any]) -> str:
    """Apply a pod, wait until it is ready; its IP."""
    cluster.apply(document)
    name = document["metadata"]["name"]
    cluster.kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=60s")
    return str(cluster.get(f"pod/{name}")["status"]["podIP"])


def answer(cluster: Cluster, name: str) -> str:
    return cluster.kubectl("get", "--raw", f"/api/v1/namespaces/default/pods/{name}:8080/proxy/")


@in_one
def test_a_pod_is_reached_through_the_api_server_and_its_log_is_read(cluster: Cluster) -> None:
    assert run(cluster, pod("plain", SERVE)).startswith("10.60.1.")
    assert "Directory listing" in answer(cluster, "plain")
    assert '"GET / HTTP' in cluster.kubectl("logs", "plain")


@in_one
def test_a_pod_of_the_host_network_has_its_nodes_address(cluster: Cluster) -> None:
    assert run(cluster, pod("host", SERVE, hostNetwork=True)) == cluster.address("worker-1")
    assert "Directory listing" in answer(cluster, "host")
    cluster.kubectl("delete", "pod", "host")


@in_one
def test_a_pod_is_requested_to_end_then_made_to_and_its_address_is_the_next_ones(cluster: Cluster) -> None:
    quiet(cluster)
    address = run(cluster, pod("stubborn", IGNORES_SIGTERM, terminationGracePeriodSeconds=2))
    started = time.monotonic()
    cluster.kubectl("delete", "pod", "stubborn", "--wait=false")
    time.sleep(0.7)
    assert cluster.kubectl("logs", "stubborn").strip() == "asked"
    cluster.kubectl("wait", "--for=delete", "pod/stubborn", "--timeout=30s")
    assert time.monotonic() - started >= 2
    assert run(cluster, pod("heir", SERVE)) == address


@in_one
def test_a_client_loses_when_the_proxies_stand_still_in_a_rolling_update(cluster: StandIn) -> None:
    """Positive control of tests.kind.test_cluster."""
    with requested(cluster, "control", 2, ("new",)) as (client,):
        before = client.steady()
        with cluster.proxies_stopped():
            cluster.kubectl("rollout", "restart", "deployment/control")
            cluster.rolled_out("deployment/control")
            only(cluster, "control", 2)
            client.until(lambda seen: seen.lost > before.lost, "losing")
        client.until_only(set(pods(cluster, "control")))


@in_one
def test_a_pod_whose_process_ends_is_not_ready_until_it_was_started_again(cluster: Cluster) -> None:
    cluster.apply(pod("short", ["/usr/bin/python3", "-c", "import time; time.sleep(1)"]))
    for state in ("Ready", "Ready=false", "Ready"):
        cluster.kubectl("wait", f"--for=condition={state}", "pod/short", "--timeout=30s")
    assert cluster.get("pod/short")["status"]["containerStatuses"][0]["restartCount"] >= 1


@in_one
def test_what_it_cannot_run_is_reported(cluster: Cluster) -> None:
    cluster.apply(pod("image", [], restartPolicy="Never"))
    cluster.kubectl("wait", "--for=jsonpath={.status.phase}=Failed", "pod/image", "--timeout=30s")
    assert "knows no images: give a command" in cluster.kubectl("logs", "image")


@pytest.mark.standin
def test_nothing_is_left_of_one_even_when_a_test_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = Leftovers(tmp_path / "scratch", monkeypatch)
    with pytest.raises(KeyError), standin_cluster("nftables") as made:  # noqa: PT012 (all of it is the block)
        run(made, pod("plain", SERVE))
        assert left.now(), "what looks for leftovers sees nothing"
        raise KeyError
    assert left.gone(), left.now()


@pytest.mark.standin
def test_a_program_that_has_ended_is_reported_at_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = programs()
    scheduler = tmp_path / "kube-scheduler"
    scheduler.write_text("#!/bin/sh\necho why it ended\n")
    scheduler.chmod(0o755)
    monkeypatch.setattr("tests.kind.standin.cluster.programs", lambda: replace(real, scheduler=scheduler))
    with (
        pytest.raises(LabError, match=r"kube-scheduler has ended: why it ended"),
        standin_cluster("nftables"),
    ):
        pass


def test_nothing_is_left_when_one_does_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        (tmp_path / name).write_text(f"#!/bin/sh\necho this is no {name}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    left = Leftovers(tmp_path / "scratch", monkeypatch)
    with pytest.raises(LabError, match="does not serve: this is no etcd"), standin_cluster("nftables"):
        pass
    assert left.gone(), left.now()


def test_a_program_that_is_missing_is_reported_with_where_it_is_had(tmp_path: Path) -> None:
    for name in {*NAMES} - {"kube-controller-manager"}:
        (tmp_path / name).touch(0o755)
    with pytest.raises(
        MissingAssets, match=r"no kube-controller-manager in .*: put that of https://dl\.k8s\.io/"
    ):
        programs({"KUBEBUILDER_ASSETS": str(tmp_path), "PATH": str(tmp_path)})
