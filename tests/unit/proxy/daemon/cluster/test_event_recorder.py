"""Events: what is posted, and that nobody waits for it."""

import http.client
import json
from typing import Any

import pytest

from kproxy.linux.host import HostError, Reason
from kproxy.proxy.daemon.cluster.client import ApiError
from kproxy.proxy.daemon.cluster.event_recorder import (
    MAX_TRIES,
    QUEUE_SIZE,
    Event,
    EventRecorder,
    EventType,
    encode_event,
    event_path,
    node_reference,
    service_reference,
)
from kproxy.proxy.daemon.cluster.kubeconfig import KubeconfigError

STARTING = Event(node_reference("n1", "u"), EventType.NORMAL, "Starting", "StartKubeProxy")
NO_PORT = Event(service_reference("ns", "web"), EventType.WARNING, "Failed", "Listen", "é" * 1000)


class Poster:
    """Answers each post by the next of a script; the last repeats."""

    def __init__(self, *script: Exception | None) -> None:
        self.script = list(script)
        self.posts: list[tuple[str, dict[str, Any]]] = []

    def post(self, path: str, body: bytes) -> bytes:
        self.posts.append((path, json.loads(body)))
        answer = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if answer is not None:
            raise answer
        return b"{}"


def sent(*script: Exception | None) -> tuple[int, list[float]]:
    """How often an event was posted, and the pauses between."""
    poster, pauses = Poster(*script), list[float]()
    recorder = EventRecorder(poster, "n1", pauses.append)
    idle = [recorder.idle]
    recorder.record(STARTING)
    idle.append(recorder.idle)
    recorder.send_next()
    assert [*idle, recorder.idle] == [True, False, True]
    return len(poster.posts), pauses


def test_an_event_is_what_the_api_wants() -> None:
    document = json.loads(encode_event(STARTING, "n1", 1_700_000_000_123_456_789))
    assert document == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": f"n1.{1_700_000_000_123_456_789:x}", "namespace": "default"},
        "eventTime": "2023-11-14T22:13:20.123456Z",
        "reportingController": "kube-proxy",
        "reportingInstance": "kube-proxy-n1",
        "type": "Normal",
        "reason": "Starting",
        "action": "StartKubeProxy",
        "note": "",
        "regarding": {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u"},
    }


def test_an_event_goes_to_the_namespace_of_its_object() -> None:
    assert event_path(NO_PORT) == "/apis/events.k8s.io/v1/namespaces/ns/events"
    assert event_path(STARTING) == "/apis/events.k8s.io/v1/namespaces/default/events"
    assert json.loads(encode_event(NO_PORT, "n1", 0))["metadata"]["namespace"] == "ns"


def test_a_note_is_no_longer_than_the_api_takes() -> None:
    assert len(json.loads(encode_event(NO_PORT, "n1", 0))["note"].encode()) <= 1024


@pytest.mark.parametrize(
    ("script", "posts"),
    [
        ((None,), 1),
        ((ApiError(403, "no"),), 1),
        ((ApiError(500, "later"), None), 2),
        ((ApiError(429, "later"), None), 2),
        ((ConnectionRefusedError(), None), 2),
        ((http.client.BadStatusLine("x"), None), 2),
        ((HostError("plugin", "Too many open files", Reason.OTHER), None), 2),
        ((KubeconfigError("plugin gave nothing"), None), 2),
        ((ConnectionRefusedError(),), MAX_TRIES),
    ],
    ids=[
        "taken",
        "refused",
        "500",
        "429",
        "no connection",
        "no HTTP",
        "no plugin",
        "no credentials",
        "never",
    ],
)
def test_an_event_is_tried_again_where_that_may_help(
    script: tuple[Exception | None, ...], posts: int
) -> None:
    count, pauses = sent(*script)
    assert count == posts
    assert pauses == sorted(set(pauses))
    assert sum(pauses) < 90


def test_a_flood_of_events_is_dropped_and_no_caller_waits(caplog: pytest.LogCaptureFixture) -> None:
    recorder = EventRecorder(Poster(None), "n1")
    for _ in range(QUEUE_SIZE):
        recorder.record(STARTING)
    assert caplog.text == ""
    recorder.record(STARTING)
    assert "dropped Starting" in caplog.text


def test_an_event_that_cannot_even_be_tried_costs_no_later_one() -> None:
    """As with a token that has a line break: ``http.client`` raises ValueError."""
    poster = Poster(ValueError("Invalid header value"), None)
    recorder = EventRecorder(poster, "n1", lambda _: None)
    for _ in range(2):
        recorder.record(STARTING)
        recorder.send_next()
    assert len(poster.posts) == 2
    assert recorder.idle
