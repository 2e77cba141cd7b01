import os
import threading
import time

import pytest

from kproxy.model.api import (
    EndpointSlice,
    Metadata,
    Node,
    NodeSpec,
    Rejected,
    Service,
    ServicePort,
    ServiceSpec,
    Taint,
)
from kproxy.model.network import Family
from kproxy.proxy.daemon.cluster.store import ClusterStore, Pending, Removed, Subscription
from kproxy.proxy.daemon.sync.change_times import TriggerTimes


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def service(name: str, port: int = 80, **metadata: object) -> Service:
    return Service(
        metadata=Metadata(name=name, namespace="default", **metadata),  # type: ignore[arg-type]
        spec=ServiceSpec(cluster_ip="10.0.0.1", ports=[ServicePort(port=port)]),
    )


def endpoint_slice(name: str, **metadata: object) -> EndpointSlice:
    return EndpointSlice(metadata=Metadata(name=name, namespace="default", **metadata))  # type: ignore[arg-type]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(clock: Clock) -> ClusterStore:
    store = ClusterStore(clock)
    store.replace(Service, [service("a"), service("b")], [])
    return store


@pytest.fixture
def feed(store: ClusterStore) -> Subscription:
    """A reader who has applied everything there is."""
    feed = store.subscribe()
    feed.activate(0.0)
    feed.take()
    feed.applied()
    assert feed.pending is None
    return feed


def test_a_kind_is_listed_once_it_has_been_replaced_even_by_nothing(store: ClusterStore) -> None:
    assert store.listed(Service)
    assert not store.listed(Service, EndpointSlice)
    store.replace(EndpointSlice, [], [])
    assert store.listed(Service, EndpointSlice)


def test_a_cluster_taken_earlier_never_changes(store: ClusterStore) -> None:
    before = store.cluster()
    store.apply(Service, [service("c"), Removed(("default", "a"))])
    assert {name for _, name in before.services} == {"a", "b"}
    assert {name for _, name in store.cluster().services} == {"b", "c"}


def test_what_did_not_change_is_the_same_object_even_over_a_new_list(store: ClusterStore) -> None:
    before = store.cluster()
    store.replace(Service, [service("a", resource_version="99"), service("b", port=81)], [])
    after = store.cluster()
    assert after.services["default", "a"] is before.services["default", "a"]
    assert after.services["default", "b"] is not before.services["default", "b"]


def test_mappings_of_kinds_that_did_not_change_are_the_same_objects(store: ClusterStore) -> None:
    before = store.cluster()
    store.apply(EndpointSlice, [endpoint_slice("a-1")])
    assert store.cluster().services is before.services
    assert store.cluster().slices is not before.slices


def test_a_changed_object_keeps_its_place(store: ClusterStore) -> None:
    store.apply(Service, [service("a", port=81)])
    assert [name for _, name in store.cluster().services] == ["a", "b"]


@pytest.mark.parametrize(
    "same",
    [
        service("a", resource_version="12345"),
        service("a", labels={"app": "web"}),
        service("a", annotations={"note": "x"}),
    ],
    ids=["version", "label", "annotation"],
)
def test_metadata_that_no_proxy_reads_wakes_no_reader(
    store: ClusterStore, feed: Subscription, same: Service
) -> None:
    store.apply(Service, [same])
    assert feed.pending is None


@pytest.mark.parametrize(
    "other",
    [
        service("a", port=81),
        service("a", labels={"service.kubernetes.io/service-proxy-name": "other"}),
        Removed(("default", "a")),
        Rejected("Service", ("default", "a"), "bad"),
    ],
    ids=["spec", "proxy name", "removal", "rejection"],
)
def test_what_a_proxy_reads_wakes_the_readers(
    store: ClusterStore, feed: Subscription, other: Service | Removed | Rejected
) -> None:
    store.apply(Service, [other])
    assert feed.pending is not None


def test_the_service_a_slice_belongs_to_is_read_from_a_label(store: ClusterStore, feed: Subscription) -> None:
    store.apply(EndpointSlice, [endpoint_slice("x", labels={"kubernetes.io/service-name": "a"})])
    feed.take()
    feed.applied()
    store.apply(EndpointSlice, [endpoint_slice("x", labels={"kubernetes.io/service-name": "b"})])
    assert feed.pending is not None


def test_another_label_beside_one_that_is_read_wakes_no_reader(
    store: ClusterStore, feed: Subscription
) -> None:
    mine = {"kubernetes.io/service-name": "a"}
    store.apply(EndpointSlice, [endpoint_slice("x", labels=mine)])
    feed.take()
    feed.applied()
    store.apply(EndpointSlice, [endpoint_slice("x", labels=mine | {"app": "web"})])
    assert feed.pending is None


def test_removing_what_is_not_known_wakes_no_reader(store: ClusterStore, feed: Subscription) -> None:
    store.apply(Service, [Removed(("default", "nobody"))])
    assert feed.pending is None


def test_the_first_list_wakes_even_when_it_is_empty(store: ClusterStore, feed: Subscription) -> None:
    store.replace(EndpointSlice, [], [])
    assert feed.pending is not None


def test_a_bad_update_takes_the_object_away_and_is_reported_until_a_good_one_comes(
    store: ClusterStore,
) -> None:
    bad = Rejected("Service", ("default", "a"), "spec.ports: wrong")
    store.apply(Service, [bad])
    assert ("default", "a") not in store.cluster().services
    assert store.cluster().rejected == (bad,)
    store.apply(Service, [service("a")])
    assert ("default", "a") in store.cluster().services
    assert store.cluster().rejected == ()


def test_a_new_list_replaces_the_rejections_of_its_kind_only(store: ClusterStore) -> None:
    of_slice = Rejected("EndpointSlice", ("default", "x"), "bad")
    store.apply(EndpointSlice, [of_slice])
    store.apply(Service, [Rejected("Service", ("default", "a"), "bad")])
    store.replace(Service, [service("a")], [])
    assert store.cluster().rejected == (of_slice,)


def test_a_node_stays_known_when_it_is_deleted(store: ClusterStore) -> None:
    node = Node(metadata=Metadata(name="n"), spec=NodeSpec(taints=[Taint(key="t")]))
    store.apply(Node, [node])
    store.apply(Node, [Removed(("", "n"))])
    store.replace(Node, [], [])
    assert store.node("n") == node
    assert store.node("other") is None


def test_pending_changes_report_when_the_first_and_the_last_came(
    store: ClusterStore, feed: Subscription, clock: Clock
) -> None:
    store.apply(Service, [service("a", port=81)])
    clock.now = 105.0
    store.apply(Service, [service("a", port=82)])
    assert feed.pending == Pending(100.0, 105.0)


def test_a_change_waits_until_it_is_applied_not_until_it_is_taken(
    store: ClusterStore, feed: Subscription, clock: Clock
) -> None:
    store.apply(Service, [service("a", port=81)])
    clock.now = 105.0
    feed.take()
    store.apply(Service, [service("a", port=82)])
    assert feed.waiting_since == 100.0
    feed.applied()
    assert feed.waiting_since == 105.0
    feed.take()
    feed.applied()
    assert feed.waiting_since is None


def test_no_reader_is_late_with_what_came_before_it_could_act(store: ClusterStore, clock: Clock) -> None:
    feed = store.subscribe()
    clock.now = 900.0
    assert feed.waiting_since is None
    feed.activate(clock.now)
    assert feed.pending == Pending(900.0, 900.0)
    assert feed.waiting_since == 900.0


def test_each_reader_has_its_own_changes(store: ClusterStore, feed: Subscription) -> None:
    other = store.subscribe()
    store.apply(Service, [service("a", port=81)])
    feed.take()
    assert feed.pending is None
    assert other.pending is not None


def test_a_reader_that_left_is_not_woken(store: ClusterStore, feed: Subscription) -> None:
    store.unsubscribe(feed)
    store.apply(Service, [service("a", port=81)])
    assert feed.pending is None


def test_a_sleeping_reader_wakes_by_a_change(store: ClusterStore, feed: Subscription) -> None:
    woken = threading.Event()

    def sleep() -> None:
        feed.wait(None, 30)
        woken.set()

    thread = threading.Thread(target=sleep)
    thread.start()
    assert not woken.wait(0.05)
    store.apply(Service, [service("a", port=81)])
    thread.join(5)
    assert woken.is_set()


def test_a_change_that_came_before_the_sleep_is_not_slept_over(
    store: ClusterStore, feed: Subscription
) -> None:
    seen = feed.pending
    store.apply(Service, [service("a", port=81)])
    thread = threading.Thread(target=feed.wait, args=(seen, 30))
    thread.start()
    thread.join(5)
    assert not thread.is_alive()


def test_a_reader_of_one_family_sleeps_through_slices_of_another() -> None:
    store = ClusterStore(lambda: 0.0)
    readers = {family: store.subscribe(TriggerTimes(family)) for family in Family}
    for reader in readers.values():
        reader.take()
        reader.applied()
    item = EndpointSlice(metadata=Metadata(name="s", namespace="n"), address_type="IPv6")
    store.apply(EndpointSlice, [item])
    assert readers[Family.IPV4].pending is None
    assert readers[Family.IPV6].pending is not None
    store.apply(EndpointSlice, [Removed(("n", "s"))])
    assert all(reader.pending is not None for reader in readers.values())


def test_a_list_wakes_readers_of_every_family() -> None:
    store = ClusterStore(lambda: 0.0)
    reader = store.subscribe(TriggerTimes(Family.IPV4))
    reader.take()
    store.replace(EndpointSlice, [EndpointSlice(metadata=Metadata(name="s"), address_type="IPv6")], [])
    assert reader.pending is not None


def test_a_sleeping_reader_wakes_by_a_descriptor_and_reports_it(
    store: ClusterStore, feed: Subscription
) -> None:
    reading, writing = os.pipe()
    try:
        assert not feed.wait(None, 0.01, [reading])
        os.write(writing, b"x")
        assert feed.wait(None, 30, [reading])
        assert feed.wait(None, 30, [reading]), "as long as nobody reads it"
        assert not feed.wait(None, 0.01)
        store.apply(Service, [service("a", port=81)])
        assert not feed.wait(None, 30, [reading]), "a change comes first"
    finally:
        os.close(reading)
        os.close(writing)


def test_a_change_that_was_seen_wakes_nobody(store: ClusterStore, feed: Subscription) -> None:
    store.apply(Service, [service("a", port=81)])
    started = time.monotonic()
    assert not feed.wait(feed.pending, 0.05)
    assert time.monotonic() - started >= 0.05
