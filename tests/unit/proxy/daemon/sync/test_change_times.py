"""What network programming latency is counted from (``met.network_programming_duration_seconds``)."""

import msgspec
import pytest

from kproxy.model.api import EndpointSlice, Metadata, Service
from kproxy.model.network import Family
from kproxy.proxy.daemon.cluster.store import ClusterStore, Removed
from kproxy.proxy.daemon.sync.change_times import ANNOTATION, TriggerTimes, trigger_time
from tests.support.objects import endpoint, service, slice_of

START = 1_700_000_000.0  # 2023-11-14T22:13:20Z
LATER = "2023-11-14T22:14:00.5Z"
LATER_SECONDS = START + 40.5


def dated(text: str, *addresses: str, address_type: str = "IPv4") -> EndpointSlice:
    made = slice_of(*map(endpoint, addresses), address_type=address_type)
    metadata = msgspec.structs.replace(made.metadata, annotations={ANNOTATION: text})
    return msgspec.structs.replace(made, metadata=metadata)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2023-11-14T22:13:20Z", START),
        ("2023-11-14T22:13:20.123456789Z", START + 0.123456),
        ("2023-11-14T23:13:20+01:00", START),
        ("yesterday", None),
        ("2023-11-14T22:13:20", None),
        ("", None),
    ],
)
def test_a_time_is_read_as_the_controller_writes_it(text: str, seconds: float | None) -> None:
    found = trigger_time(Metadata(annotations={ANNOTATION: text} if text else {}))
    assert found == (None if seconds is None else pytest.approx(seconds))


class Reader:
    """A store and one family's reader of it."""

    def __init__(self) -> None:
        self.store = ClusterStore(lambda: 0.0)
        self.feed = self.store.subscribe(TriggerTimes(Family.IPV4, START))

    def sync(self) -> tuple[float, ...]:
        self.feed.take()
        return self.feed.applied()


def test_a_change_is_reported_once_when_it_is_applied() -> None:
    reader = Reader()
    reader.store.apply(EndpointSlice, [dated(LATER, "10.0.0.1")])
    assert reader.sync() == (LATER_SECONDS,)
    assert reader.sync() == ()


def test_a_change_whose_sync_fails_is_reported_when_one_succeeds() -> None:
    reader = Reader()
    reader.store.apply(EndpointSlice, [dated(LATER, "10.0.0.1")])
    reader.feed.take()
    assert reader.sync() == (LATER_SECONDS,)


def test_a_change_that_comes_after_the_cluster_was_taken_waits_for_the_next_sync() -> None:
    reader = Reader()
    reader.feed.take()
    reader.store.apply(EndpointSlice, [dated(LATER, "10.0.0.1")])
    assert reader.feed.applied() == ()
    assert reader.sync() == (LATER_SECONDS,)


def test_changes_from_before_the_start_other_families_and_other_kinds_do_not_count() -> None:
    reader = Reader()
    reader.store.apply(EndpointSlice, [dated("2023-11-14T22:13:19Z", "10.0.0.1")])
    reader.store.apply(EndpointSlice, [dated(LATER, "fd00::1", address_type="IPv6")])
    reader.store.apply(Service, [service()])
    assert reader.sync() == ()


def test_a_slice_that_goes_before_it_was_applied_takes_its_times_along() -> None:
    reader = Reader()
    reader.store.apply(EndpointSlice, [dated(LATER, "10.0.0.1")])
    reader.store.apply(EndpointSlice, [Removed(("test", "web-1"))])
    assert reader.sync() == ()


def test_a_new_list_reports_what_differs_only() -> None:
    reader = Reader()
    reader.store.replace(EndpointSlice, [dated(LATER, "10.0.0.1")], [])
    assert reader.sync() == (LATER_SECONDS,)
    reader.store.replace(EndpointSlice, [dated(LATER, "10.0.0.1")], [])
    assert reader.sync() == ()
    reader.store.replace(EndpointSlice, [dated(LATER, "10.0.0.2")], [])
    assert reader.sync() == (LATER_SECONDS,)
