import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from ipaddress import ip_address
from urllib.parse import urlsplit

import pytest

from kproxy.api import Metadata, Node, NodeSpec, Service, Taint
from kproxy.net import Family
from kproxy.server import health as health_module
from kproxy.server.health import FamilyHealth, Health, HealthServer, healthz, livez, serve
from kproxy.server.store import Store
from kproxy.server.sync import Progress
from tests.objects import service

NODE = Node(metadata=Metadata(name="a"))
NOW = 1_700_000_000.0  # 2023-11-14T22:13:20Z
TEXT = "2023-11-14T22:13:20Z"
IDLE = FamilyHealth(updated=5000.0, waiting=None)
LATE = FamilyHealth(updated=61.0, waiting=60.0)


def test_an_idle_proxy_is_healthy_and_says_it_was_updated_just_now() -> None:
    answer = healthz({Family.IPV4: IDLE, Family.IPV6: IDLE}, 60.0, NOW, NODE)
    assert answer.status == 200
    assert json.loads(answer.body) == {
        "lastUpdated": TEXT,
        "currentTime": TEXT,
        "healthy": True,
        "nodeEligible": True,
        "status": {
            "IPv4": {"lastUpdated": TEXT, "healthy": True},
            "IPv6": {"lastUpdated": TEXT, "healthy": True},
        },
    }


def test_a_change_that_waits_too_long_in_one_family_is_told_and_makes_all_unhealthy() -> None:
    for answer in (
        healthz({Family.IPV4: LATE, Family.IPV6: IDLE}, 60.0, NOW, NODE),
        livez({Family.IPV4: LATE, Family.IPV6: IDLE}, 60.0, NOW),
    ):
        body = json.loads(answer.body)
        assert answer.status == 503
        assert body["healthy"] is False
        assert body["lastUpdated"] == "2023-11-14T22:12:19Z"
        assert body["status"]["IPv4"] == {"lastUpdated": "2023-11-14T22:12:19Z", "healthy": False}
        assert body["status"]["IPv6"]["healthy"] is True


def test_a_change_may_wait_for_less_than_two_sync_periods() -> None:
    assert livez({Family.IPV4: FamilyHealth(61.0, 59.9)}, 60.0, NOW).status == 200


def test_a_proxy_that_has_never_synced_is_healthy_until_that_takes_too_long() -> None:
    assert livez({Family.IPV4: FamilyHealth(None, 1.0)}, 60.0, NOW).status == 200
    answer = livez({Family.IPV4: FamilyHealth(None, 60.0)}, 60.0, NOW)
    assert answer.status == 503
    assert json.loads(answer.body)["lastUpdated"] == "0001-01-01T00:00:00Z"


@pytest.mark.parametrize(
    "node",
    [
        None,
        Node(metadata=Metadata(name="a", deletion_timestamp=TEXT)),
        Node(
            metadata=Metadata(name="a"), spec=NodeSpec(taints=[Taint(key="ToBeDeletedByClusterAutoscaler")])
        ),
    ],
    ids=["never seen", "being deleted", "tainted"],
)
def test_a_node_that_goes_away_wants_no_new_traffic_but_is_alive(node: Node | None) -> None:
    answer = healthz({Family.IPV4: IDLE}, 60.0, NOW, node)
    assert answer.status == 503
    assert json.loads(answer.body)["nodeEligible"] is False
    alive = livez({Family.IPV4: IDLE}, 60.0, NOW)
    assert alive.status == 200
    assert "nodeEligible" not in json.loads(alive.body)


def test_other_taints_do_not_matter() -> None:
    node = Node(
        metadata=Metadata(name="a"), spec=NodeSpec(taints=[Taint(key="node.kubernetes.io/unschedulable")])
    )
    assert healthz({Family.IPV4: IDLE}, 60.0, NOW, node).status == 200


@pytest.fixture
def store() -> Store:
    return Store(time.monotonic)


@pytest.fixture
def health(store: Store) -> Health:
    progress = Progress(store.subscribe())
    progress.feed.begin(0.0)
    progress.feed.take()
    progress.feed.applied()
    return Health({Family.IPV4: progress}, 0.2, lambda: NODE, time.monotonic)


@pytest.fixture
def url(health: Health) -> Iterator[str]:
    server = HealthServer(ip_address("127.0.0.1"), 0, health)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def get(url: str) -> tuple[int, dict[str, str]]:
    place = urlsplit(url)
    with closing(HTTPConnection(place.hostname or "", place.port, timeout=5)) as connection:
        connection.request("GET", f"{place.path}?{place.query}")
        response = connection.getresponse()
        return response.status, dict(response.headers)


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/healthz?verbose"])
def test_probes_are_answered_over_http(url: str, path: str) -> None:
    status, headers = get(url + path)
    assert status == 200
    assert headers["Content-Type"] == "application/json"
    assert headers["X-Content-Type-Options"] == "nosniff"


def test_other_paths_are_not_found(url: str) -> None:
    assert get(url + "/metrics")[0] == 404


def test_a_change_nobody_applies_turns_the_probe_red_and_applying_it_green_again(
    url: str, store: Store, health: Health
) -> None:
    store.apply(Service, [service("a")])
    assert get(url + "/healthz")[0] == 200
    time.sleep(0.25)
    assert get(url + "/healthz")[0] == 503
    feed = health.families[Family.IPV4].feed
    feed.take()
    assert get(url + "/livez")[0] == 503
    feed.applied()
    assert get(url + "/livez")[0] == 200


def test_a_proxy_whose_lists_are_withheld_is_healthy_however_long_that_takes(store: Store) -> None:
    clock = [0.0]
    progress = Progress(store.subscribe())
    waiting = Health({Family.IPV4: progress}, 60.0, lambda: NODE, lambda: clock[0])
    clock[0] = time.monotonic() + 3600.0
    answer = waiting.answer("/healthz")
    assert answer is not None
    assert answer.status == 200
    progress.feed.begin(clock[0] - 61.0)
    answer = waiting.answer("/healthz")
    assert answer is not None
    assert answer.status == 503


def test_a_wildcard_address_answers_in_both_families(health: Health) -> None:
    server = HealthServer(ip_address("0.0.0.0"), 0, health)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        port = server.server_address[1]
        assert get(f"http://127.0.0.1:{port}/livez")[0] == 200
        assert get(f"http://[::1]:{port}/livez")[0] == 200
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_an_address_that_is_taken_is_tried_again(health: Health, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_module, "BIND_RETRY_SECONDS", 0.02)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        serve(ip_address("127.0.0.1"), port, health, hard_fail=False)
    deadline = time.monotonic() + 5
    while not answers(port) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert answers(port)


def answers(port: int) -> bool:
    try:
        return get(f"http://127.0.0.1:{port}/livez")[0] == 200
    except ConnectionRefusedError:
        return False


def test_an_address_that_is_taken_is_fatal_if_asked_for(health: Health) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use"):
        serve(ip_address("127.0.0.1"), taken.getsockname()[1], health, hard_fail=True)
