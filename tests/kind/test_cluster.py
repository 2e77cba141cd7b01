"""What only a cluster shows: controllers, a scheduler and kubelets move endpoints, and a client loses nothing by it.

In a cluster of this machine's and in one of kind's by the same tests; what differs is `tests.kind.cluster.Cluster`.
"""

from __future__ import annotations

import json

import pytest

from tests.kind.cluster import Cluster
from tests.kind.load import PORT, only, pods, requested, sending, served
from tests.kind.providers import EVERYWHERE

pytestmark = pytest.mark.parametrize("cluster", EVERYWHERE, indirect=True)


@pytest.mark.parametrize("policy", ["Cluster", "Local"])
def test_a_rolling_update_loses_no_connection(cluster: Cluster, policy: str) -> None:
    name, worker = f"rolling-{policy.lower()}", cluster.workers[0]
    where = {"nodeName": worker} if policy == "Local" else {}
    with requested(cluster, name, 3, ("new",), where, externalTrafficPolicy=policy) as (client,):
        before = client.steady()
        old = pods(cluster, name)
        assert before.pods == set(old)
        cluster.kubectl("rollout", "restart", f"deployment/{name}")
        cluster.rolled_out(f"deployment/{name}")
        only(cluster, name, 3)
        client.lost_nothing(before)
        new = set(pods(cluster, name))
        assert new.isdisjoint(old)
        client.until_only(new)


def test_a_drained_node_takes_its_endpoints_along_and_no_connection(cluster: Cluster) -> None:
    first, second = cluster.workers
    with requested(cluster, "drained", 4, ("new",)) as (client,):
        before = client.steady()
        assert before.nodes == {first, second}
        cluster.kubectl("drain", second, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=240s")
        try:
            cluster.rolled_out("deployment/drained")
            only(cluster, "drained", 4)
            client.until_only(set(pods(cluster, "drained")))
            assert client.lost_nothing(before).nodes == {first, second}
        finally:
            cluster.kubectl("uncordon", second)


def test_a_pod_that_is_not_ready_gets_nothing_until_it_is_again(cluster: Cluster) -> None:
    with requested(cluster, "ready", 2, ("new",)) as (client,):
        before = client.steady()
        tired, other = pods(cluster, "ready")
        assert before.pods == {tired, other}
        itself = f"/api/v1/namespaces/default/pods/{tired}:{PORT}/proxy"
        cluster.kubectl("get", "--raw", f"{itself}/be-unready")
        cluster.kubectl("wait", "--for=condition=Ready=false", f"pod/{tired}", "--timeout=60s")
        client.until_only({other})
        assert cluster.kubectl("get", "--raw", f"{itself}/").split()[0] == tired, "it would have answered"
        cluster.kubectl("get", "--raw", f"{itself}/be-ready")
        client.until_only({tired, other})
        client.lost_nothing(before)


@pytest.mark.parametrize("what", ["proxies", "apiserver"])
def test_a_restart_loses_nothing_nor_misses_what_comes_after(cluster: Cluster, what: str) -> None:
    with requested(cluster, what, 2, ("new", "held")) as clients:
        before = [client.steady() for client in clients]
        if what == "proxies":
            cluster.restart_proxies()
        else:
            cluster.restart_apiserver()
        cluster.kubectl("scale", f"deployment/{what}", "--replicas=4")
        cluster.rolled_out(f"deployment/{what}")
        clients[0].until_only(set(pods(cluster, what)))
        for client, then in zip(clients, before, strict=True):
            client.lost_nothing(then)


@pytest.mark.parametrize(
    ("distribution", "hint"), [("PreferSameZone", "forZones"), ("PreferSameNode", "forNodes")]
)
def test_traffic_stays_near_by_the_hints_of_the_real_controller(
    cluster: Cluster, distribution: str, hint: str
) -> None:
    near, far = cluster.workers
    name = distribution.lower()
    with served(cluster, name, 4), sending(cluster, "new", near, cluster.cluster_ip(name), 80) as client:
        before = client.steady()
        assert before.nodes == {near, far}
        patch = json.dumps({"spec": {"trafficDistribution": distribution}})
        cluster.kubectl("patch", f"service/{name}", "-p", patch)
        client.until_only(set(pods(cluster, name, near)))
        (item,) = cluster.listed("endpointslices", f"kubernetes.io/service-name={name}")
        assert all(hint in endpoint["hints"] for endpoint in item["endpoints"])
        client.lost_nothing(before)
