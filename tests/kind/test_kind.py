"""What only a real cluster shows: names, and in kind's kproxy's DaemonSet in the place of kube-proxy's."""

from __future__ import annotations

import json
import time

import pytest

from tests.kind.cluster import Cluster
from tests.kind.kind import kind_cluster
from tests.kind.load import container, requested
from tests.kind.providers import IN_CONTAINERS, LOCAL

RESOLVE = "import socket; print(socket.getaddrinfo('kubernetes.default.svc.cluster.local', 443)[0][4][0])"


@pytest.mark.parametrize("cluster", IN_CONTAINERS, indirect=True)
def test_names_are_resolved_by_coredns_through_the_proxy(cluster: Cluster) -> None:
    cluster.rolled_out("deployment/coredns", "kube-system")
    resolves(cluster)


@pytest.mark.parametrize("cluster", LOCAL, indirect=True)
def test_names_are_resolved_by_the_labs_resolver_through_the_proxy(cluster: Cluster) -> None:
    resolves(cluster)


def resolves(cluster: Cluster) -> None:
    """A pod finds the API server's Service by its name."""
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "resolve"},
        "spec": {
            "template": {
                "spec": {"restartPolicy": "Never", "containers": [container(cluster.image, RESOLVE)]}
            }
        },
    }
    cluster.apply(job)
    cluster.kubectl("wait", "--for=condition=Complete", "job/resolve", "--timeout=120s")
    assert cluster.kubectl("logs", "job/resolve").strip().startswith("10.96.")


AWAY = {
    "matchExpressions": [{"key": "service-proxy", "operator": "NotIn", "values": ["kproxy"]}],
}


@pytest.mark.kind
def test_kube_proxy_is_replaced_node_by_node_and_nothing_is_lost(
    image: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The steps of docs/kind.md, under load."""
    with kind_cluster(image, tmp_path_factory.mktemp("upgrade"), "iptables") as cluster:
        cluster.kubectl("wait", "--for=condition=Ready", "nodes", "--all", "--timeout=300s")
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [AWAY]}}
        patch = {"spec": {"template": {"spec": {"affinity": {"nodeAffinity": required}}}}}
        arguments = ("-n", "kube-system", "patch", "daemonset", "kube-proxy", "--patch-file=/dev/stdin")
        cluster.kubectl(*arguments, stdin=json.dumps(patch))
        cluster.rolled_out("daemonset/kube-proxy", "kube-system")
        with requested(cluster, "upgraded", 4, ("new",)) as (client,):
            before = client.steady()
            for node in cluster.workers:
                cluster.kubectl("label", "node", node, "service-proxy=kproxy")
                cluster.install("iptables", {"service-proxy": "kproxy"})
                time.sleep(10)
                client.lost_nothing(before)
