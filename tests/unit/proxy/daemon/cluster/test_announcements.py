"""Which events the daemon has sent, and when it waits for one."""

import json
import threading
import time

import pytest

from kproxy.model.api import Service
from kproxy.proxy.daemon.cluster import announcements
from kproxy.proxy.daemon.cluster.announcements import DaemonEvents
from kproxy.proxy.daemon.cluster.event_recorder import EventRecorder, node_reference
from kproxy.proxy.daemon.cluster.store import ClusterStore
from kproxy.proxy.daemon.config.configuration import Configuration
from kproxy.proxy.daemon.http.listeners import HEALTH, METRICS, CannotListen
from tests.support.objects import service
from tests.support.waiting import eventually


class Poster:
    """Remembers what it is given."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, str, str]] = []

    def post(self, path: str, body: bytes) -> bytes:
        event = json.loads(body)
        self.events.append((path.split("/")[5], event["regarding"]["name"], event["type"], event["reason"]))
        return b"{}"


def announcer(store: ClusterStore | None = None) -> tuple[DaemonEvents, Poster]:
    poster = Poster()
    recorder = EventRecorder(poster, "n1")
    threading.Thread(target=recorder.run, daemon=True).start()
    return DaemonEvents(recorder, node_reference("n1"), store or ClusterStore(time.monotonic)), poster


def sent(made: DaemonEvents, poster: Poster) -> list[tuple[str, str, str, str]]:
    assert eventually(lambda: made.recorder.idle, every=0.001)
    return poster.events


@pytest.mark.parametrize(
    ("mode", "more"),
    [("iptables", []), ("nftables", []), ("ipvs", [("default", "n1", "Warning", "IPVSDeprecation")])],
)
def test_a_start_is_reported_and_a_mode_that_will_go(
    mode: str, more: list[tuple[str, str, str, str]]
) -> None:
    made, poster = announcer()
    made.started(Configuration(mode=mode))
    assert sent(made, poster) == [("default", "n1", "Normal", "Starting"), *more]


@pytest.mark.parametrize(
    ("what", "reason"), [(HEALTH, "FailedToStartProxierHealthcheck"), (METRICS, "FailedToStartMetricServer")]
)
def test_a_daemon_that_ends_for_want_of_an_address_has_reported_so_before(what: str, reason: str) -> None:
    made, poster = announcer()
    made.cannot_listen(CannotListen(what, OSError("in use")))
    assert poster.events == [("default", "n1", "Warning", reason)]


def test_it_does_not_wait_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(announcements, "FINAL_EVENT_TIMEOUT_SECONDS", 0.05)
    silent = DaemonEvents(EventRecorder(Poster(), "n1"), node_reference("n1"), ClusterStore(time.monotonic))
    started = time.monotonic()
    silent.cannot_listen(CannotListen(HEALTH, OSError("in use")))
    assert time.monotonic() - started < 2
    assert not silent.recorder.idle


def test_a_port_that_cannot_be_had_is_reported_for_its_service() -> None:
    store = ClusterStore(time.monotonic)
    store.replace(Service, [service("web", namespace="test")], [])
    made, poster = announcer(store)
    made.health_check_failed(("test", "web"), "in use")
    made.health_check_failed(("test", "gone"), "in use")
    reason = "FailedToStartServiceHealthcheck"
    assert sent(made, poster) == [("test", "web", "Warning", reason), ("test", "gone", "Warning", reason)]
