import json
import time
from http import HTTPStatus

import pytest

from kproxy.model.api import Metadata, Node, NodeSpec, Service, Taint
from kproxy.model.network import Family
from kproxy.proxy.daemon.cluster.store import ClusterStore, Removed
from kproxy.proxy.daemon.http.health import FamilyHealth, Health, healthz, livez
from kproxy.proxy.daemon.http.protocol import HttpRequest
from kproxy.proxy.daemon.sync.family_sync import SyncProgress
from tests.support.objects import service

NODE = Node(metadata=Metadata(name="a"))
NOW = 1_700_000_000.0  # 2023-11-14T22:13:20Z
TEXT = "2023-11-14T22:13:20Z"
IDLE = FamilyHealth(updated=5000.0, waiting=None)
IDLE_SINCE = "2023-11-14T20:50:00Z"
LATE = FamilyHealth(updated=61.0, waiting=60.0)


def test_an_idle_proxy_is_healthy_and_reports_it_was_updated_just_now() -> None:
    answer = healthz({Family.IPV4: IDLE, Family.IPV6: IDLE}, 60.0, NOW, NODE)
    assert answer.status == 200
    assert json.loads(answer.body) == {
        "lastUpdated": TEXT,
        "currentTime": TEXT,
        "healthy": True,
        "nodeEligible": True,
        "status": {
            "IPv4": {"lastUpdated": IDLE_SINCE, "healthy": True},
            "IPv6": {"lastUpdated": IDLE_SINCE, "healthy": True},
        },
    }


def test_a_change_that_waits_too_long_in_one_family_is_reported_and_makes_all_unhealthy() -> None:
    for answer in (
        healthz({Family.IPV4: LATE, Family.IPV6: IDLE}, 60.0, NOW, NODE),
        livez({Family.IPV4: LATE, Family.IPV6: IDLE}, 60.0, NOW),
    ):
        body = json.loads(answer.body)
        assert answer.status == 503
        assert body["healthy"] is False
        assert body["lastUpdated"] == "2023-11-14T22:12:19Z"
        assert body["status"]["IPv4"] == {"lastUpdated": "2023-11-14T22:12:19Z", "healthy": False}
        assert body["status"]["IPv6"] == {"lastUpdated": IDLE_SINCE, "healthy": True}


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
    body = json.loads(answer.body)
    assert body["nodeEligible"] is False
    assert body["healthy"] is True  # the proxy is: kube-proxy 1.36 was seen to report so
    assert body["lastUpdated"] == IDLE_SINCE
    alive = livez({Family.IPV4: IDLE}, 60.0, NOW)
    assert alive.status == 200
    assert "nodeEligible" not in json.loads(alive.body)


def test_other_taints_do_not_matter() -> None:
    node = Node(
        metadata=Metadata(name="a"), spec=NodeSpec(taints=[Taint(key="node.kubernetes.io/unschedulable")])
    )
    assert healthz({Family.IPV4: IDLE}, 60.0, NOW, node).status == 200


@pytest.fixture
def store() -> ClusterStore:
    return ClusterStore(time.monotonic)


@pytest.fixture
def counted() -> list[tuple[str, HTTPStatus]]:
    return []


@pytest.fixture
def health(store: ClusterStore, counted: list[tuple[str, HTTPStatus]]) -> Health:
    progress = SyncProgress(store.subscribe())
    progress.subscription.activate(0.0)
    progress.subscription.take()
    progress.subscription.applied()
    return Health(
        {Family.IPV4: progress},
        0.2,
        lambda: NODE,
        time.monotonic,
        lambda path, status: counted.append((path, status)),
    )


def test_both_paths_answer_and_no_other(health: Health) -> None:
    assert health(HttpRequest("GET", "/healthz")).status == 200
    assert health(HttpRequest("GET", "/livez")).status == 200
    assert health(HttpRequest("GET", "/metrics")).status == 404


def test_a_change_that_is_not_applied_turns_the_probe_red_and_applying_it_green_again(
    store: ClusterStore, health: Health
) -> None:
    store.apply(Service, [service("a")])
    assert health(HttpRequest("GET", "/healthz")).status == 200
    assert health.up_to_date()
    time.sleep(0.25)
    assert health(HttpRequest("GET", "/healthz")).status == 503
    assert not health.up_to_date()
    feed = health.families[Family.IPV4].subscription
    feed.take()
    assert health(HttpRequest("GET", "/livez")).status == 503
    feed.applied()
    assert health(HttpRequest("GET", "/livez")).status == 200
    assert health.up_to_date()


def test_each_probe_is_counted_by_path_and_answer(
    store: ClusterStore, health: Health, counted: list[tuple[str, HTTPStatus]]
) -> None:
    health(HttpRequest("GET", "/healthz"))
    health(HttpRequest("GET", "/nothing"))
    store.apply(Service, [service("a")])
    time.sleep(0.25)
    health(HttpRequest("GET", "/livez"))
    assert counted == [("/healthz", HTTPStatus.OK), ("/livez", HTTPStatus.SERVICE_UNAVAILABLE)]


def test_a_node_that_goes_away_is_no_reason_to_call_the_rules_stale(store: ClusterStore) -> None:
    health = Health({Family.IPV4: SyncProgress(store.subscribe())}, 60.0, lambda: None, time.monotonic)
    assert health(HttpRequest("GET", "/healthz")).status == 503
    assert health.up_to_date()


def test_a_node_that_is_deleted_stays_known_as_it_was_last_seen(store: ClusterStore) -> None:
    store.apply(Node, [NODE])
    store.apply(Node, [Removed(("", "a"))])
    health = Health(
        {Family.IPV4: SyncProgress(store.subscribe())}, 60.0, lambda: store.node("a"), time.monotonic
    )
    assert health(HttpRequest("GET", "/healthz")).status == 200


def test_a_proxy_whose_lists_are_withheld_is_healthy_however_long_that_takes(store: ClusterStore) -> None:
    clock = [0.0]
    progress = SyncProgress(store.subscribe())
    waiting = Health({Family.IPV4: progress}, 60.0, lambda: NODE, lambda: clock[0])
    clock[0] = time.monotonic() + 3600.0
    assert waiting(HttpRequest("GET", "/healthz")).status == 200
    progress.subscription.activate(clock[0] - 61.0)
    assert waiting(HttpRequest("GET", "/healthz")).status == 503
