"""A pod gets the address of one that has gone: nothing of the old one's Service may reach it.

In a cluster of this machine's alone, where an address can be given again, and proxies stopped.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from tests.kind.load import PATIENCE, Client, pod, quiet, sending, server, service
from tests.kind.local import LocalCluster
from tests.kind.providers import LOCAL

pytestmark = pytest.mark.parametrize("cluster", LOCAL, indirect=True)


def run(cluster: LocalCluster, name: str) -> str:
    """A server on the first worker, with a Service; its address."""
    cluster.apply(pod(name, server(cluster.image), nodeName=cluster.workers[0]), service(name))
    cluster.kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=60s")
    return str(cluster.get(f"pod/{name}")["status"]["podIP"])


def heir(cluster: LocalCluster, address: str) -> str:
    """A server that is given a free address; its address."""
    quiet(cluster)
    cluster.next_pod_has(cluster.workers[0], address)
    return run(cluster, "heir")


@contextmanager
def clients_of(cluster: LocalCluster, name: str) -> Iterator[list[Client]]:
    """New connections, and a flow of datagrams from one port, from the second worker to a Service's cluster IP."""
    with ExitStack() as stack:
        place = cluster.workers[1], cluster.cluster_ip(name), 80
        yield [stack.enter_context(sending(cluster, way, *place)) for way in ("new", "udp")]


@contextmanager
def old_pod(cluster: LocalCluster) -> Iterator[str]:
    """A server that is about to go, beside a witness that stays; its address.  Both are gone afterwards, and so is the heir."""
    quiet(cluster)
    try:
        run(cluster, "witness")
        yield run(cluster, "old")
    finally:
        gone = [
            f"{kind}/{name}" for kind in ("pod", "service") for name in ("witness", "old", "heir", "settled")
        ]
        cluster.kubectl("delete", *gone, "--ignore-not-found")


def settle(cluster: LocalCluster) -> None:
    """Wait until the second worker's proxy knows that the old pod has gone: it serves what was made after that."""
    deadline = time.monotonic() + PATIENCE
    while any(s["endpoints"] for s in cluster.listed("endpointslices", "kubernetes.io/service-name=old")):
        assert time.monotonic() < deadline, "the controller did not notice that the pod has gone"
        time.sleep(0.1)
    cluster.apply(service("settled", selector={"app": "witness"}))
    with sending(cluster, "new", cluster.workers[1], cluster.cluster_ip("settled"), 80) as client:
        client.steady()


def test_neither_connections_nor_a_flow_of_the_old_service_reach_the_next_pod(cluster: LocalCluster) -> None:
    with old_pod(cluster) as address:
        with clients_of(cluster, "old") as clients:
            for client in clients:
                client.steady()
            cluster.kubectl("delete", "pod/old")
            settle(cluster)
            assert heir(cluster, address) == address
            assert [client.until_refused().pods for client in clients] == [{"old"}] * 2
        with clients_of(cluster, "heir") as clients:
            assert [client.steady().pods for client in clients] == [{"heir"}] * 2


def test_both_would_if_the_proxy_stood_still_and_do_no_more_when_it_goes_on(cluster: LocalCluster) -> None:
    """Positive control of the other."""
    with old_pod(cluster) as address, clients_of(cluster, "old") as clients:
        for client in clients:
            client.steady()
        with cluster.proxies_stopped():
            cluster.kubectl("delete", "pod/old")
            assert heir(cluster, address) == address
            for client in clients:
                client.until_only({"heir"})
        for client in clients:
            client.until_refused()
