"""The Node of this node, before and while the daemon runs."""

import threading
import time
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError

import pytest

from kproxy.model import api
from kproxy.model.api import Node
from kproxy.proxy.daemon.cluster import node_watch
from kproxy.proxy.daemon.cluster.node_watch import NodeWatch, PodCIDRsMissing, wait_for_node
from kproxy.proxy.daemon.cluster.store import ClusterStore
from kproxy.proxy.daemon.config.configuration import Configuration

BY_NODE = Configuration(detect_local_mode="NodeCIDR")
BY_CLUSTER = Configuration()


def node(*networks: str, address: str = "192.0.2.1") -> Node:
    return Node(
        metadata=api.Metadata(name="n1"),
        spec=api.NodeSpec(pod_cidrs=list(networks)),
        status=api.NodeStatus(addresses=[api.NodeAddress(type="InternalIP", address=address)]),
    )


def watched(config: Configuration, before: Node | None, *after: Node) -> tuple[list[str], list[bool]]:
    reported: list[str] = []
    watch = NodeWatch(config, before, reported.append)
    return reported, [watch.check(each) for each in after]


def test_other_networks_of_its_pods_end_a_daemon_that_detects_by_them() -> None:
    reported, ends = watched(BY_NODE, node("10.0.0.0/24"), node("10.0.0.0/24"), node("10.0.1.0/24"))
    assert ends == [False, True]
    assert reported == ["spec.podCIDRs of Node n1 changed: 10.0.1.0/24 now"]


@pytest.mark.parametrize("after", [node(), node("10.0.0.0/24", "fd00::/64")], ids=["gone", "one more"])
def test_fewer_or_more_networks_are_others(after: Node) -> None:
    assert watched(BY_NODE, node("10.0.0.0/24"), after)[1] == [True]


def test_another_detector_does_not_care() -> None:
    assert watched(BY_CLUSTER, node("10.0.0.0/24"), node("10.0.1.0/24")) == ([], [False])


def test_another_address_is_reported_and_lived_with(caplog: pytest.LogCaptureFixture) -> None:
    assert watched(BY_NODE, node("10.0.0.0/24"), node("10.0.0.0/24", address="192.0.2.2")) == ([], [False])
    assert "addresses of Node n1 changed" in caplog.text


def test_a_node_that_comes_late_is_none_that_changed() -> None:
    assert watched(BY_NODE, None, node("10.0.0.0/24")) == ([], [False])


def test_the_watch_ends_when_the_store_gets_a_change() -> None:
    store, reported = ClusterStore(time.monotonic), list[str]()
    store.replace(Node, [node("10.0.0.0/24")], [])
    watch = NodeWatch(BY_NODE, store.node("n1"), reported.append)
    thread = threading.Thread(target=watch.run, args=(store, "n1"), daemon=True)
    thread.start()
    store.apply(Node, [node("10.0.1.0/24")])
    thread.join(5)
    assert len(reported) == 1


def without_addresses(*networks: str) -> Node:
    return Node(metadata=api.Metadata(name="n1"), spec=api.NodeSpec(pod_cidrs=list(networks)))


def waiting(config: Configuration, store: ClusterStore) -> Future[Node | None]:
    """The wait, in a thread."""
    found: Future[Node | None] = Future()

    def wait() -> None:
        try:
            found.set_result(wait_for_node(config, store, "n1"))
        except PodCIDRsMissing as error:
            found.set_exception(error)

    threading.Thread(target=wait, daemon=True).start()
    return found


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_watch, "NODE_SECONDS", 0.05)
    monkeypatch.setattr(node_watch, "POD_NETWORK_SECONDS", 0.05)


@pytest.mark.usefixtures("short")
def test_start_goes_on_with_the_node_or_without_it(caplog: pytest.LogCaptureFixture) -> None:
    store = ClusterStore(time.monotonic)
    store.replace(Node, [], [])
    assert wait_for_node(BY_CLUSTER, store, "n1") is None
    assert "not known" in caplog.text
    store.replace(Node, [node()], [])
    assert wait_for_node(BY_CLUSTER, store, "n1") == store.node("n1")


def test_start_waits_for_the_nodes_addresses() -> None:
    store = ClusterStore(time.monotonic)
    store.replace(Node, [without_addresses()], [])
    found = waiting(Configuration(bind_address="192.0.2.9"), store)
    with pytest.raises(FutureTimeoutError):
        found.result(0.1)
    store.apply(Node, [node()])
    assert found.result(5) == node()


@pytest.mark.usefixtures("short")
def test_start_goes_on_with_a_node_that_gets_no_addresses(caplog: pytest.LogCaptureFixture) -> None:
    store = ClusterStore(time.monotonic)
    store.replace(Node, [without_addresses()], [])
    assert wait_for_node(BY_CLUSTER, store, "n1") == without_addresses()
    assert "without addresses" in caplog.text


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("config", [BY_CLUSTER, BY_NODE], ids=["by cluster", "by node"])
def test_the_time_without_an_api_server_does_not_count(config: Configuration) -> None:
    store = ClusterStore(time.monotonic)
    found = waiting(config, store)
    with pytest.raises(FutureTimeoutError):
        found.result(0.3)
    store.replace(Node, [node("10.0.0.0/24")], [])
    assert found.result(5) == node("10.0.0.0/24")


def test_networks_that_come_before_the_addresses_do_not_end_the_wait_for_these() -> None:
    store = ClusterStore(time.monotonic)
    store.replace(Node, [without_addresses("fd00::/64")], [])
    found = waiting(BY_NODE, store)
    with pytest.raises(FutureTimeoutError):
        found.result(0.1)
    later = node("fd00::/64", address="2001:db8::1")
    store.apply(Node, [later])
    assert found.result(5) == later


@pytest.mark.usefixtures("short")
def test_start_waits_for_the_networks_where_they_are_needed() -> None:
    store = ClusterStore(time.monotonic)
    store.replace(Node, [node()], [])
    with pytest.raises(PodCIDRsMissing, match="n1"):
        wait_for_node(BY_NODE, store, "n1")
    store.replace(Node, [node("10.0.0.0/24")], [])
    assert wait_for_node(BY_NODE, store, "n1") == store.node("n1")


@pytest.mark.usefixtures("short")
def test_the_wait_for_the_networks_follows_that_for_the_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_watch, "POD_NETWORK_SECONDS", 30.0)
    store = ClusterStore(time.monotonic)
    store.replace(Node, [without_addresses()], [])
    found = waiting(BY_NODE, store)
    with pytest.raises(FutureTimeoutError):
        found.result(0.3)
    store.apply(Node, [without_addresses("10.0.0.0/24")])
    assert found.result(5) == without_addresses("10.0.0.0/24")
