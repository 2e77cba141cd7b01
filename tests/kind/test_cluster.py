"""What only a cluster shows: kubelets, controllers, CoreDNS, and kproxy's DaemonSet among them.

With ``--provider kind`` only; a machine that cannot have a cluster refuses that with what it lacks.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

from tests.kind.kind import KindCluster as Cluster
from tests.kind.kind import kind_cluster
from tests.kind.load import Client, asking, container, deployment, service

pytestmark = pytest.mark.kind

ENOUGH = 100
"""Answers that a client must have had before silence about failures means anything."""
RESOLVE = "import socket; print(socket.getaddrinfo('kubernetes.default.svc.cluster.local', 443)[0][4][0])"


@pytest.fixture(scope="module", params=["nftables", "iptables"])
def cluster(
    request: pytest.FixtureRequest, image: str, provider: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    assert provider == "kind"
    with kind_cluster(image, tmp_path_factory.mktemp("cluster")) as made:
        made.install(request.param)
        made.kubectl("wait", "--for=condition=Ready", "nodes", "--all", "--timeout=300s")
        made.rolled_out("deployment/coredns", "kube-system")
        yield made


def served(cluster: Cluster, image: str, name: str, replicas: int, **fields: object) -> int:
    """A Deployment with a Service of type NodePort, ready; its node port."""
    pod = {name: fields.pop(name) for name in ("nodeName",) if name in fields}
    cluster.apply(deployment(name, image, replicas, **pod), service(name, type="NodePort", **fields))
    cluster.rolled_out(f"deployment/{name}")
    port = cluster.kubectl("get", "service", name, "-o", "jsonpath={.spec.ports[0].nodePort}")
    return int(port)


def steady(client: Client) -> None:
    """Wait until it is under way, and nothing has failed yet."""
    deadline = time.monotonic() + 60
    while (seen := client.result())[0] < ENOUGH:
        assert time.monotonic() < deadline, seen
        time.sleep(1)


def lost_nothing(client: Client, before: int) -> None:
    good, bad = client.result()
    assert good > before + ENOUGH
    assert bad == []


def test_names_are_resolved_by_coredns_through_the_proxy(cluster: Cluster, image: str) -> None:
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "resolve"},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container(image, RESOLVE)]}}},
    }
    cluster.apply(job)
    cluster.kubectl("wait", "--for=condition=Complete", "job/resolve", "--timeout=120s")
    assert cluster.kubectl("logs", "job/resolve").strip().startswith("10.96.")


@pytest.mark.parametrize("policy", ["Cluster", "Local"])
def test_a_rolling_update_loses_no_connection(cluster: Cluster, image: str, policy: str) -> None:
    worker = cluster.workers[0]
    name = f"rolling-{policy.lower()}"
    port = served(cluster, image, name, 3, externalTrafficPolicy=policy, nodeName=worker)
    url = f"http://{cluster.address(worker)}:{port}/"
    with asking(cluster, image, url, cluster.control_plane) as client:
        steady(client)
        before, _ = client.result()
        cluster.kubectl("rollout", "restart", f"deployment/{name}")
        cluster.rolled_out(f"deployment/{name}")
        time.sleep(20)  # until the old ones have ended
        lost_nothing(client, before)


def test_the_proxy_is_replaced_under_load_and_nothing_is_lost(cluster: Cluster, image: str) -> None:
    port = served(cluster, image, "restarted", 4)
    url = f"http://{cluster.address(cluster.workers[0])}:{port}/"
    with asking(cluster, image, url, cluster.control_plane) as client:
        steady(client)
        before, _ = client.result()
        cluster.kubectl("-n", "kube-system", "rollout", "restart", "daemonset/kproxy")
        cluster.rolled_out("daemonset/kproxy", "kube-system")
        lost_nothing(client, before)


def test_a_drained_node_takes_its_endpoints_along_and_no_connection(cluster: Cluster, image: str) -> None:
    first, second = cluster.workers
    port = served(cluster, image, "drained", 4)
    with asking(cluster, image, f"http://{cluster.address(first)}:{port}/", cluster.control_plane) as client:
        steady(client)
        before, _ = client.result()
        cluster.kubectl("drain", second, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=300s")
        try:
            time.sleep(5)
            lost_nothing(client, before)
        finally:
            cluster.kubectl("uncordon", second)


AWAY = {
    "matchExpressions": [{"key": "service-proxy", "operator": "NotIn", "values": ["kproxy"]}],
}


def test_kube_proxy_is_replaced_node_by_node_and_nothing_is_lost(
    image: str, provider: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The steps of docs/kind.md, under load."""
    assert provider == "kind"
    with kind_cluster(image, tmp_path_factory.mktemp("upgrade"), "iptables") as cluster:
        cluster.kubectl("wait", "--for=condition=Ready", "nodes", "--all", "--timeout=300s")
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [AWAY]}}
        patch = {"spec": {"template": {"spec": {"affinity": {"nodeAffinity": required}}}}}
        words = ("-n", "kube-system", "patch", "daemonset", "kube-proxy", "--patch-file=/dev/stdin")
        cluster.kubectl(*words, stdin=json.dumps(patch))
        cluster.rolled_out("daemonset/kube-proxy", "kube-system")
        port = served(cluster, image, "upgraded", 4)
        url = f"http://{cluster.address(cluster.workers[0])}:{port}/"
        with asking(cluster, image, url, cluster.control_plane) as client:
            steady(client)
            for node in cluster.workers:
                before, _ = client.result()
                cluster.kubectl("label", "node", node, "service-proxy=kproxy")
                cluster.install("iptables", {"service-proxy": "kproxy"})
                time.sleep(10)
                lost_nothing(client, before)
