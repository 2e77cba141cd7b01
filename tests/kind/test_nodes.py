"""What only nodes of this machine's own show: one is rebooted; proxies stand still."""

from __future__ import annotations

import pytest

from tests.kind.load import only, pods, requested, sending
from tests.kind.local import LocalCluster
from tests.kind.providers import LOCAL

pytestmark = pytest.mark.parametrize("cluster", LOCAL, indirect=True)


def test_a_rebooted_node_serves_again_and_is_served(cluster: LocalCluster) -> None:
    """The client sends to the node port of this node, which has half of the endpoints and loses its rules."""
    rebooted = cluster.workers[0]
    with requested(cluster, "rebooted", 4, ("new",)) as (client,):
        before = client.steady()
        assert before.nodes == set(cluster.workers)
        there = pods(cluster, "rebooted", rebooted)
        cluster.reboot(rebooted)
        client.until(lambda seen: seen.lost > before.lost, "losing: the node has not gone")
        client.until_only(set(pods(cluster, "rebooted")))
        assert client.steady().nodes == set(cluster.workers)
        assert pods(cluster, "rebooted", rebooted) == there, "the same pods, started again"
        with sending(cluster, "new", rebooted, cluster.cluster_ip("rebooted"), 80) as inside:
            inside.until_only(set(pods(cluster, "rebooted")))


def test_a_client_loses_when_the_proxies_stand_still_in_a_rolling_update(cluster: LocalCluster) -> None:
    """Positive control of tests.kind.test_cluster."""
    with requested(cluster, "control", 2, ("new",)) as (client,):
        before = client.steady()
        with cluster.proxies_stopped():
            cluster.kubectl("rollout", "restart", "deployment/control")
            cluster.rolled_out("deployment/control")
            only(cluster, "control", 2)
            client.until(lambda seen: seen.lost > before.lost, "losing")
        client.until_only(set(pods(cluster, "control")))
