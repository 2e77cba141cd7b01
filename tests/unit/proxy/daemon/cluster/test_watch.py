import itertools
import logging
import random
import socket
import threading
import time
from collections import Counter as Count
from collections.abc import Iterator
from contextlib import AbstractContextManager

import pytest

from kproxy.linux import host
from kproxy.model.api import EndpointSlice, Service, ServicePort
from kproxy.proxy.daemon.cluster import watch
from kproxy.proxy.daemon.cluster.client import ApiClient, ResponseStream
from kproxy.proxy.daemon.cluster.credentials import Authorizer
from kproxy.proxy.daemon.cluster.kubeconfig import ClientConfig
from kproxy.proxy.daemon.cluster.store import ClusterStore
from kproxy.proxy.daemon.cluster.watch import (
    BACKOFF,
    ENDPOINT_SLICES,
    SERVICES,
    Backoff,
    Reflector,
    node_resource,
)
from kproxy.proxy.daemon.cluster.watch_decoder import WatchDecoder
from tests.support.scripted_apiserver import Answer, Script, json, serving, status


def service(name: str, version: int, port: int = 80) -> dict[str, object]:
    return {
        "metadata": {"namespace": "default", "name": name, "resourceVersion": str(version)},
        "spec": {"clusterIP": "10.0.0.1", "ports": [{"port": port}]},
    }


def event(kind: str, item: object) -> bytes:
    return json({"type": kind, "object": item}) + b"\n"


def bookmark(version: int, *, initial: bool = False) -> bytes:
    annotations = {"k8s.io/initial-events-end": "true"} if initial else {}
    return event("BOOKMARK", {"metadata": {"resourceVersion": str(version), "annotations": annotations}})


def error(code: int) -> bytes:
    return event("ERROR", {"kind": "Status", "metadata": {}, "message": "too old", "code": code})


def listing(version: int, *items: object) -> Answer:
    return Answer([json({"metadata": {"resourceVersion": str(version)}, "items": items})])


def stream(*pieces: bytes, complete: bool = True) -> Answer:
    return Answer(pieces, complete=complete)


def initial(version: int, *items: object) -> bytes:
    return b"".join(event("ADDED", item) for item in items) + bookmark(version, initial=True)


class Counter:
    """Counts the changes of a store by its clock, which dates each of them."""

    def __init__(self, store: ClusterStore) -> None:
        self.count = 0
        store._clock = self

    def __call__(self) -> float:
        self.count += 1
        return 0.0


def watcher(script: Script, store: ClusterStore) -> Reflector:
    client = ApiClient(ClientConfig(server=script.url), Authorizer(None, host.run_tool))
    return Reflector(client, SERVICES, store)


def names(store: ClusterStore) -> set[str]:
    return {name for _, name in store.cluster().services}


@pytest.fixture
def store() -> ClusterStore:
    return ClusterStore(lambda: 0.0)


NO_WATCH_LIST = status(422, "sendInitialEvents is forbidden")


def test_everything_there_is_comes_as_the_first_events_of_a_watch(store: ClusterStore) -> None:
    with serving(stream(initial(7, service("a", 1), service("b", 2)))) as script:
        watcher(script, store).step()
    assert names(store) == {"a", "b"}
    assert store.listed(Service)
    ((path, query),) = script.requested
    assert path == "/api/v1/services"
    assert query["sendInitialEvents"] == "true"
    assert query["resourceVersionMatch"] == "NotOlderThan"
    assert query["allowWatchBookmarks"] == "true"
    assert 300 <= int(query["timeoutSeconds"]) <= 600


@pytest.mark.parametrize(
    ("resource", "path", "fields", "labels"),
    [
        (SERVICES, "/api/v1/services", "spec.clusterIP!=None", "!service.kubernetes.io/service-proxy-name"),
        (
            ENDPOINT_SLICES,
            "/apis/discovery.k8s.io/v1/endpointslices",
            None,
            "!service.kubernetes.io/headless",
        ),
        (node_resource("n1"), "/api/v1/nodes", "metadata.name=n1", None),
    ],
)
def test_only_what_concerns_this_proxy_is_requested(
    store: ClusterStore, resource: watch.WatchedResource, path: str, fields: str | None, labels: str | None
) -> None:
    with serving(NO_WATCH_LIST, listing(1), stream()) as script:
        client = ApiClient(ClientConfig(server=script.url), Authorizer(None, host.run_tool))
        subject = Reflector(client, resource, store)
        subject.step()
        subject.step()
    assert len(script.requested) == 3
    for requested_path, query in script.requested:
        assert (requested_path, query.get("fieldSelector"), query.get("labelSelector")) == (
            path,
            fields,
            labels,
        )


class TimingOut:
    """Server that no connection reaches."""

    def get(self, *_: object) -> bytes:
        raise TimeoutError

    def stream(self, *_: object) -> AbstractContextManager[ResponseStream]:
        raise TimeoutError


def test_nothing_is_believed_before_the_initial_events_are_complete(store: ClusterStore) -> None:
    with serving(stream(event("ADDED", service("a", 1)))) as script:
        watcher(script, store).step()
    assert not store.listed(Service)
    assert names(store) == set()


@pytest.mark.parametrize("code", [400, 422])
def test_a_server_without_watch_lists_is_listed_and_watched_from_there(
    store: ClusterStore, code: int
) -> None:
    answers = status(code), listing(5, service("a", 3)), stream(event("ADDED", service("b", 6)))
    with serving(*answers) as script:
        subject = watcher(script, store)
        subject.step()
        subject.step()
    assert names(store) == {"a", "b"}
    _, (_, listed), (_, watched) = script.requested
    assert "watch" not in listed
    assert listed["resourceVersion"] == "0"
    assert watched["resourceVersion"] == "5"
    assert "sendInitialEvents" not in watched


def test_a_server_that_begins_a_watch_list_and_cannot_go_on_is_listed(store: ClusterStore) -> None:
    """As kube-apiserver 1.36 does on an old etcd: ``storage feature RequestWatchProgress is disabled``."""
    with serving(stream(error(500)), listing(5, service("a", 3)), stream()) as script:
        subject = watcher(script, store)
        subject.step()
        subject.step()
    assert names(store) == {"a"}
    assert "watch" not in script.requested[1][1]


def test_a_server_that_ignores_the_wish_for_initial_events_is_listed(
    store: ClusterStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "INITIAL_TIMEOUT_SECONDS", 0.1)
    done = threading.Event()

    def silent() -> Iterator[bytes]:
        yield event("ADDED", service("a", 1))
        done.wait(10)

    with serving(Answer(silent()), listing(5, service("b", 3)), stream()) as script:
        subject = watcher(script, store)
        subject.step()
        subject.step()
        done.set()
    assert names(store) == {"b"}


@pytest.mark.parametrize("code", [401, 403, 500, 503])
def test_other_refusals_do_not_turn_watch_lists_off(store: ClusterStore, code: int) -> None:
    with serving(status(code), stream(initial(7, service("a", 1)))) as script:
        subject = watcher(script, store)
        subject.step()
        subject.step()
    assert names(store) == {"a"}
    assert "sendInitialEvents" in script.requested[1][1]


def test_a_connection_that_times_out_does_not_turn_watch_lists_off(store: ClusterStore) -> None:
    with serving(stream(initial(7, service("a", 1)))) as script:
        subject = watcher(script, store)
        real, subject._source = subject._source, TimingOut()
        assert subject.step() >= 0
        subject._source = real
        subject.step()
    assert names(store) == {"a"}
    assert "sendInitialEvents" in script.requested[0][1]


def test_changes_are_followed(store: ClusterStore) -> None:
    changes = (
        event("MODIFIED", service("a", 8, port=81)),
        event("DELETED", service("b", 9)),
        event("ADDED", service("c", 10)),
    )
    with serving(stream(initial(7, service("a", 1), service("b", 2)), *changes)) as script:
        watcher(script, store).step()
    assert names(store) == {"a", "c"}
    assert [port.port for port in store.cluster().services["default", "a"].spec.ports or ()] == [81]


@pytest.mark.parametrize("size", [1, 7, 100, 10_000])
def test_lines_may_be_cut_anywhere(store: ClusterStore, size: int) -> None:
    whole = initial(7, service("a", 1)) + event("ADDED", service("b", 8)) + event("ADDED", service("c", 9))
    with serving(stream(*(whole[at : at + size] for at in range(0, len(whole), size)))) as script:
        watcher(script, store).step()
    assert names(store) == {"a", "b", "c"}


def test_a_watch_may_be_silent_once_the_initial_events_are_complete(
    store: ClusterStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "INITIAL_TIMEOUT_SECONDS", 0.1)

    def pausing() -> Iterator[bytes]:
        yield initial(7, service("a", 1))
        time.sleep(0.3)
        yield event("ADDED", service("b", 8))

    with serving(Answer(pausing())) as script:
        watcher(script, store).step()
    assert names(store) == {"a", "b"}


def test_a_watch_that_falls_silent_is_requested_anew_from_where_it_was(
    store: ClusterStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(watch, "IDLE_TIMEOUT_SECONDS", 0.1)
    done = threading.Event()

    def falling_silent() -> Iterator[bytes]:
        yield initial(7, service("a", 1))
        done.wait(10)

    with serving(Answer(falling_silent()), stream(event("ADDED", service("b", 8)))) as script:
        subject = watcher(script, store)
        assert subject.step() <= BACKOFF.first
        subject.step()
        done.set()
    assert names(store) == {"a", "b"}
    assert script.requested[1][1]["resourceVersion"] == "7"
    assert not [record for record in caplog.records if record.levelname != "INFO"]


def test_a_server_that_accepts_but_does_not_answer_is_given_up(
    store: ClusterStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "INITIAL_TIMEOUT_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        subject = watcher(Script([], url=url), store)
        subject._version = "7"
        assert subject.step() > BACKOFF.first / 2


def test_a_watch_goes_on_from_the_last_version_it_saw(store: ClusterStore) -> None:
    first = stream(initial(7, service("a", 1)), event("ADDED", service("b", 8)), bookmark(15))
    with serving(first, stream(event("ADDED", service("c", 16))), stream()) as script:
        subject = watcher(script, store)
        for _ in range(3):
            subject.step()
    assert [query["resourceVersion"] for _, query in script.requested] == ["", "15", "16"]
    assert names(store) == {"a", "b", "c"}


def test_what_is_known_stays_when_the_connection_is_lost_and_the_watch_goes_on_from_there(
    store: ClusterStore,
) -> None:
    broken = stream(initial(7, service("a", 1)), event("ADDED", service("b", 8)), complete=False)
    with serving(broken, status(503), stream(event("DELETED", service("a", 9)))) as script:
        subject = watcher(script, store)
        subject.step()
        assert names(store) == {"a", "b"}
        subject.step()
        assert names(store) == {"a", "b"}
        subject.step()
    assert names(store) == {"b"}
    assert [query["resourceVersion"] for _, query in script.requested] == ["", "8", "8"]


def test_a_server_that_is_not_there_is_waited_for(store: ClusterStore) -> None:
    with serving(stream()) as script:
        pass
    subject = watcher(script, store)
    assert subject.step() > 0
    assert not store.listed(Service)


@pytest.mark.parametrize("gone", [status(410), stream(error(410))], ids=["answer", "event"])
def test_a_forgotten_version_means_listing_again(store: ClusterStore, gone: Answer) -> None:
    answers = stream(initial(7, service("a", 1))), gone, stream(initial(50, service("b", 40)))
    with serving(*answers) as script:
        subject = watcher(script, store)
        subject.step()
        subject.step()
        assert names(store) == {"a"}
        subject.step()
    assert names(store) == {"b"}
    assert [query["resourceVersion"] for _, query in script.requested] == ["", "7", ""]


def test_a_server_that_has_forgotten_is_there_again_and_listed_soon_but_not_without_end(
    store: ClusterStore,
) -> None:
    """After an outage its first answer may be 410; the pauses of the outage are not added to it."""
    away = [status(503)] * 5
    answers = (
        stream(initial(7, service("a", 1))),
        *away,
        status(410),
        NO_WATCH_LIST,
        listing(9),
        status(410),
    )
    with serving(*answers) as script:
        subject = watcher(script, store)
        subject.step()
        outage = [subject.step() for _ in away]
        again = subject.step()
        subject.step()
        still = subject.step()
    assert min(outage[-2:]) > 2 * BACKOFF.first
    assert again <= BACKOFF.first < still


def test_a_second_list_must_be_newer_than_the_servers_cache(store: ClusterStore) -> None:
    answers = NO_WATCH_LIST, listing(5), status(410), listing(9, service("a", 8)), stream()
    with serving(*answers) as script:
        subject = watcher(script, store)
        for _ in range(3):
            subject.step()
    lists = [query for _, query in script.requested if "watch" not in query]
    assert [query.get("resourceVersion") for query in lists] == ["0", None]
    assert names(store) == {"a"}


def test_a_bad_object_costs_no_other_and_takes_its_own_place(
    store: ClusterStore, caplog: pytest.LogCaptureFixture
) -> None:
    bad = service("a", 8) | {"spec": {"ports": "none"}}
    events = stream(
        initial(7, service("a", 1), service("b", 2)), event("MODIFIED", bad) + event("ADDED", service("c", 9))
    )
    with serving(events) as script:
        watcher(script, store).step()
    assert names(store) == {"b", "c"}
    (rejected,) = store.cluster().rejected
    assert rejected.key == ("default", "a")
    assert "Service default/a set aside" in caplog.text


def test_a_bad_object_among_the_initial_events_costs_no_other(store: ClusterStore) -> None:
    bad = service("a", 8) | {"spec": {"ports": "none"}}
    with serving(stream(initial(7, bad, service("b", 2)))) as script:
        watcher(script, store).step()
    assert names(store) == {"b"}
    assert len(store.cluster().rejected) == 1


def test_what_changes_or_goes_before_the_initial_events_end_is_not_as_it_was_added(
    store: ClusterStore,
) -> None:
    first = [event("ADDED", service(name, 1)) for name in "abc"]
    later = event("DELETED", service("a", 2)), event("MODIFIED", service("b", 3, port=81))
    with serving(stream(*first, b"".join(later), initial(4))) as script:
        watcher(script, store).step()
    assert names(store) == {"b", "c"}
    ports = store.cluster().services["default", "b"].spec.ports
    assert ports == [ServicePort(port=81)]


def test_events_that_come_together_are_one_change(store: ClusterStore) -> None:
    burst = b"".join(event("ADDED", service(f"s{number}", 10 + number)) for number in range(50))
    with serving(stream(initial(7), burst)) as script:
        subject = watcher(script, store)
        changes = Counter(store)
        subject.step()
    assert len(names(store)) == 50
    assert changes.count == 2


def test_garbage_ends_the_watch_only(store: ClusterStore) -> None:
    with serving(
        stream(initial(7, service("a", 1)), b"<html>\n"), stream(event("ADDED", service("b", 8)))
    ) as script:
        subject = watcher(script, store)
        subject.step()
        subject.step()
    assert names(store) == {"a", "b"}


def test_failures_are_waited_for_longer_and_longer_and_success_ends_that(store: ClusterStore) -> None:
    with serving(*[status(500)] * 6, stream(initial(7))) as script:
        subject = watcher(script, store)
        pauses = [subject.step() for _ in range(7)]
    # each pause is between half and all of a bound that doubles
    for number, pause in enumerate(pauses[:6], start=1):
        bound = min(BACKOFF.longest, BACKOFF.first * 2**number)
        assert bound / 2 <= pause <= bound
    assert pauses[6] <= BACKOFF.first


def test_a_watch_that_goes_on_well_ends_the_waiting_too(store: ClusterStore) -> None:
    answers = stream(initial(7)), *[status(500)] * 4, stream(event("ADDED", service("a", 8)))
    with serving(*answers) as script:
        subject = watcher(script, store)
        pauses = [subject.step() for _ in range(6)]
    assert pauses[4] > BACKOFF.first
    assert pauses[5] <= BACKOFF.first


def test_a_server_that_sends_retry_after_gets_its_time(store: ClusterStore) -> None:
    with serving(status(429, Retry_After="3")) as script:
        assert watcher(script, store).step() == 3.0


def test_an_unforeseen_error_ends_a_watch_but_not_the_watching(
    store: ClusterStore, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(stream(initial(7, service("a", 1)))) as script:
        subject = watcher(script, store)
        subject._decoder = None  # type: ignore[assignment]
        assert subject.step() > BACKOFF.first / 2
        assert "Traceback" in caplog.text
        subject._decoder = WatchDecoder(Service)
        subject.step()
    assert names(store) == {"a"}


def test_back_off_is_bounded_however_often_it_fails() -> None:
    backoff = Backoff(first=0.1, longest=10.0)
    assert backoff.delay(10_000, 0.999) <= 10.0
    assert backoff.delay(1, 0.0) == pytest.approx(0.1)
    assert backoff.delay(0, 0.0) == 0.0
    assert backoff.delay(0, 0.999) < 0.1


def test_a_thousand_nodes_whose_watches_end_together_do_not_come_back_together() -> None:
    """In no tenth of a second comes more than a fifth of them, and each round is wider than the one before."""
    rng = random.Random(0)  # noqa: S311 - stands for what spreads the load
    at = [0.0] * 1000
    spans = []
    for failures in range(6):
        at = [time + BACKOFF.delay(failures, rng.random()) for time in at]
        busiest = max(Count(int(time * 10) for time in at).values())
        assert busiest <= 200
        spans.append(max(at) - min(at))
    assert spans == sorted(spans)


class Passing:
    """A clock that goes on by so many seconds each time it is read."""

    def __init__(self, step: float) -> None:
        self.now, self.step = 0.0, step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def pauses(store: ClusterStore, *answers: Answer, lasting: float, count: int) -> list[float]:
    """Between watches that each last so many seconds."""
    with serving(*answers) as script:
        client = ApiClient(ClientConfig(server=script.url), Authorizer(None, host.run_tool))
        subject = Reflector(client, SERVICES, store, clock=Passing(lasting))
        return [subject.step() for _ in range(count)]


def requests_within(seconds: float, found: list[float]) -> int:
    return sum(at < seconds for at in itertools.accumulate(found, initial=0.0))


@pytest.mark.parametrize("end", [stream(), stream(bookmark(8))], ids=["nothing", "a bookmark"])
def test_watches_that_end_at_once_and_cleanly_back_off(
    store: ClusterStore, caplog: pytest.LogCaptureFixture, end: Answer
) -> None:
    found = pauses(store, stream(initial(7)), end, lasting=0.01, count=9)
    assert requests_within(30.0, found) <= 8, "without a pause it were hundreds"
    assert [record.levelname for record in caplog.records].count("WARNING") == 1


def test_watches_that_last_or_bring_something_do_not_back_off(store: ClusterStore) -> None:
    quiet = pauses(store, stream(initial(7)), stream(bookmark(8)), lasting=1.0, count=6)
    busy = pauses(store, stream(initial(7)), stream(event("ADDED", service("b", 8))), lasting=0.01, count=6)
    assert max(quiet + busy) <= BACKOFF.first


def test_a_resource_that_may_not_be_read_is_logged_once_and_queried_ever_more_seldom(
    store: ClusterStore, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with serving(*[status(403)] * 10, stream(initial(7))) as script:
        subject = watcher(script, store)
        found = [subject.step() for _ in range(10)]
        assert [record.levelname for record in caplog.records if record.levelno >= logging.INFO] == [
            "WARNING"
        ]
        assert requests_within(300.0, found) <= 14
        subject.step()
    assert "watch works again" in caplog.text


def test_slices_are_decoded_as_slices(store: ClusterStore) -> None:
    item = {
        "metadata": {"namespace": "default", "name": "a-1", "labels": {"kubernetes.io/service-name": "a"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.1.0.1"], "conditions": {"ready": True}}],
        "ports": [{"name": "", "port": 8080, "protocol": "TCP"}],
    }
    with serving(stream(event("ADDED", item) + bookmark(3, initial=True))) as script:
        client = ApiClient(ClientConfig(server=script.url), Authorizer(None, host.run_tool))
        Reflector(client, ENDPOINT_SLICES, store).step()
    assert store.listed(EndpointSlice)
    endpoints = store.cluster().slices["default", "a-1"].endpoints or ()
    assert [endpoint.addresses for endpoint in endpoints] == [["10.1.0.1"]]
