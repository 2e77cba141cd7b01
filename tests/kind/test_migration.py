"""kproxy's DaemonSet in the place of kube-proxy's, and kube-proxy's in its place: the steps of docs/kind.md, under load.

In a cluster of real kubelets on this machine. The clients come from a node that stays with the old proxy; they send to a
node port of the first node, whose proxy is replaced, and endpoints are on both.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from kproxy.lab.cluster.command import DEPLOY
from kproxy.lab.cluster.service_proxy import ProxyName, kproxy_documents
from tests.kind.load import Client, Seen, only, pods, requested
from tests.kind.local import LocalCluster, local_cluster
from tests.kind.providers import MODES
from tests.support.waiting import eventually

pytestmark = pytest.mark.local

LABEL = "service-proxy"
AWAY = {"matchExpressions": [{"key": LABEL, "operator": "NotIn", "values": ["kproxy"]}]}
NAME = "migrated"


def both_look_at_the_label(cluster: LocalCluster, mode: str) -> None:
    """kube-proxy where the label is not, kproxy where it is."""
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [AWAY]}}
    patch = {"spec": {"template": {"spec": {"affinity": {"nodeAffinity": required}}}}}
    arguments = ("-n", "kube-system", "patch", "daemonset", "kube-proxy", "--patch-file=/dev/stdin")
    cluster.kubectl(*arguments, stdin=json.dumps(patch))
    cluster.rolled_out("daemonset/kube-proxy", "kube-system")
    documents = kproxy_documents(mode, cluster.lab.spec.programs.kubectl, DEPLOY)
    for document in documents:
        if document["kind"] == "DaemonSet":
            document["spec"]["template"]["spec"]["nodeSelector"][LABEL] = "kproxy"
    cluster.apply(*documents)


def proxy_pods(cluster: LocalCluster, node: str) -> set[str]:
    """Names of the DaemonSets whose pods on this node are ready, or still there."""
    listed = json.loads(cluster.kubectl("-n", "kube-system", "get", "pods", "-o", "json"))["items"]
    return {
        pod["metadata"]["ownerReferences"][0]["name"]
        for pod in listed
        if pod["spec"].get("nodeName") == node and "ownerReferences" in pod["metadata"]
    }


def moved(cluster: LocalCluster, node: str, label: str, name: str) -> None:
    """Change the node's label, and wait until this proxy alone is there, and ready."""
    cluster.kubectl("label", "node", node, label)
    eventually(lambda: proxy_pods(cluster, node) == {name}, 120)
    cluster.rolled_out(f"daemonset/{name}", "kube-system")


def still_right(
    cluster: LocalCluster, clients: Sequence[Client], before: Sequence[Seen], replicas: int
) -> None:
    """Nothing was lost, and the proxy that is there now follows a change."""
    cluster.kubectl("scale", f"deployment/{NAME}", f"--replicas={replicas}")
    cluster.rolled_out(f"deployment/{NAME}")
    only(cluster, NAME, replicas)
    clients[0].until_only(set(pods(cluster, NAME)))
    for client, then in zip(clients, before, strict=True):
        client.lost_nothing(then)


@pytest.mark.parametrize("mode", MODES)
def test_kube_proxy_is_replaced_node_by_node_and_comes_back_and_nothing_is_lost(mode: str) -> None:
    with local_cluster(mode, ProxyName.KUBE_PROXY) as cluster:
        both_look_at_the_label(cluster, mode)
        with requested(cluster, NAME, 4, ("new", "held")) as clients:
            before = [client.steady() for client in clients]
            replicas = 4
            for name, label in (("kproxy", f"{LABEL}=kproxy"), ("kube-proxy", f"{LABEL}-")):
                for node in cluster.workers:
                    moved(cluster, node, label, name)
                    replicas += 1
                    still_right(cluster, clients, before, replicas)
