"""A pod gets the address of one that has gone: nothing of the old one's Service may reach it.

In the stand-in cluster alone: its kubelets give the lowest free address (kind's network takes the next one), and its proxies can be stood still.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from tests.kind.load import Client, asking, pod, quiet, server, service
from tests.kind.providers import STANDIN
from tests.kind.standin.cluster import StandIn

pytestmark = pytest.mark.parametrize("cluster", STANDIN, indirect=True)


def run(cluster: StandIn, name: str) -> str:
    """A server on the first worker, with a Service; its address."""
    cluster.apply(pod(name, server(cluster.image), nodeName=cluster.workers[0]), service(name))
    cluster.kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=60s")
    return str(cluster.get(f"pod/{name}")["status"]["podIP"])


@contextmanager
def clients_of(cluster: StandIn, name: str) -> Iterator[list[Client]]:
    """New connections, and a flow of datagrams from one port, from the second worker to a Service's cluster IP."""
    with ExitStack() as stack:
        place = cluster.workers[1], cluster.cluster_ip(name), 80
        yield [stack.enter_context(asking(cluster, way, *place)) for way in ("new", "udp")]


@contextmanager
def old_and_heir(cluster: StandIn) -> Iterator[None]:
    """Both are gone afterwards."""
    try:
        yield
    finally:
        for name in ("old", "heir"):
            cluster.kubectl("delete", f"pod/{name}", f"service/{name}", "--ignore-not-found")


def inherit(cluster: StandIn, address: str) -> None:
    """The old pod goes, another one gets its address, and answers."""
    cluster.kubectl("delete", "pod/old")
    assert run(cluster, "heir") == address


def test_neither_connections_nor_a_flow_of_the_old_service_reach_the_next_pod(cluster: StandIn) -> None:
    with old_and_heir(cluster):
        quiet(cluster)
        address = run(cluster, "old")
        with clients_of(cluster, "old") as clients:
            for client in clients:
                client.steady()
            inherit(cluster, address)
            assert [client.until_refused().pods for client in clients] == [{"old"}] * 2
        with clients_of(cluster, "heir") as clients:
            assert [client.steady().pods for client in clients] == [{"heir"}] * 2


def test_both_would_if_the_proxy_stood_still_and_do_no_more_when_it_goes_on(cluster: StandIn) -> None:
    """Positive control of the other."""
    with old_and_heir(cluster):
        quiet(cluster)
        address = run(cluster, "old")
        with clients_of(cluster, "old") as clients:
            for client in clients:
                client.steady()
            with cluster.proxies_stopped():
                inherit(cluster, address)
                for client in clients:
                    client.until_only({"heir"})
            for client in clients:
                client.until_refused()
