"""The store: revisions, what is filled in, the past, and when it notifies."""

from __future__ import annotations

import copy
from datetime import UTC, datetime
from typing import Any

import pytest

from kproxy.lab.apiserver.resources import ResourceKind
from kproxy.lab.apiserver.store import ObjectStore, RevisionExpired
from tests.support.apiserver_client import service


def store(history: int = 100) -> ObjectStore:
    return ObjectStore(history=history, clock=lambda: datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))


def metadata(of: ObjectStore, name: str) -> dict[str, Any]:
    version = of.get(ResourceKind.SERVICE, "default", name)
    assert version is not None
    found: dict[str, Any] = version.document()["metadata"]
    return found


def names(versions: list[Any]) -> list[str]:
    return [version.key[1] for version in versions]


def test_revisions_increase_over_all_kinds() -> None:
    cluster = store()
    first = cluster.put(ResourceKind.SERVICE, service("web"))
    second = cluster.put(ResourceKind.NODE, {"metadata": {"name": "a"}})
    third = cluster.delete(ResourceKind.SERVICE, "default", "web")
    assert cluster.revision == third > second > first > 0


def test_a_new_object_gets_identity_and_keeps_what_it_brought() -> None:
    cluster, document = store(), service("web", labels={"app": "web"}, clusterIP="10.96.0.1")
    given = copy.deepcopy(document)
    revision = cluster.put(ResourceKind.SERVICE, document)
    found = metadata(cluster, "web")
    assert document == given
    assert found.pop("uid")
    assert found == {
        "name": "web",
        "namespace": "default",
        "labels": {"app": "web"},
        "creationTimestamp": "2026-01-02T03:04:05Z",
        "generation": 1,
        "resourceVersion": str(revision),
    }


def test_an_update_keeps_identity_and_counts_generations_of_the_spec_only() -> None:
    cluster = store()
    cluster.put(ResourceKind.SERVICE, service("web", clusterIP="10.96.0.1"))
    created = metadata(cluster, "web")
    cluster.put(ResourceKind.SERVICE, service("web", labels={"a": "b"}, clusterIP="10.96.0.1"))
    relabelled = metadata(cluster, "web")
    cluster.put(ResourceKind.SERVICE, service("web", labels={"a": "b"}, clusterIP="10.96.0.2"))
    changed = metadata(cluster, "web")
    assert created["uid"] == relabelled["uid"] == changed["uid"]
    assert (created["generation"], relabelled["generation"], changed["generation"]) == (1, 1, 2)


def test_a_recreated_object_is_another_one() -> None:
    cluster = store()
    cluster.put(ResourceKind.SERVICE, service("web"))
    first = metadata(cluster, "web")
    cluster.delete(ResourceKind.SERVICE, "default", "web")
    cluster.put(ResourceKind.SERVICE, service("web"))
    assert metadata(cluster, "web")["uid"] != first["uid"]


def test_the_same_content_again_changes_nothing() -> None:
    cluster = store()
    first = cluster.put(ResourceKind.SERVICE, service("web"))
    assert cluster.put(ResourceKind.SERVICE, service("web")) == first == cluster.revision
    assert cluster.put(ResourceKind.SERVICE, service("web", type="NodePort")) > first


@pytest.mark.parametrize("document", [{"metadata": {}}, {}, {"kind": "Node", "metadata": {"name": "web"}}])
def test_a_document_without_name_or_of_another_kind_is_refused(document: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"metadata\.name|Node put as Service"):
        store().put(ResourceKind.SERVICE, document)


def test_deleting_what_is_not_there_is_an_error() -> None:
    with pytest.raises(KeyError):
        store().delete(ResourceKind.SERVICE, "default", "web")


def test_past_states_can_be_read_back() -> None:
    cluster = store()
    empty = cluster.revision
    one = cluster.put(ResourceKind.SERVICE, service("b"))
    two = cluster.put(ResourceKind.SERVICE, service("a"))
    cluster.put(ResourceKind.SERVICE, service("b", type="NodePort"))
    cluster.delete(ResourceKind.SERVICE, "default", "a")
    assert names(cluster.objects_at(ResourceKind.SERVICE, empty)) == []
    assert names(cluster.objects_at(ResourceKind.SERVICE, one)) == ["b"]
    assert names(cluster.objects_at(ResourceKind.SERVICE, two)) == ["a", "b"]
    assert cluster.objects_at(ResourceKind.SERVICE, two)[1].document()["spec"] == {}
    assert names(cluster.objects(ResourceKind.SERVICE)) == ["b"]


def test_history_is_bounded_and_reports_so() -> None:
    cluster = store(history=8)
    revisions = [cluster.put(ResourceKind.SERVICE, service(f"s{i}")) for i in range(30)]
    assert [c.revision for c in cluster.since(ResourceKind.SERVICE, revisions[-4], 100)] == revisions[-3:]
    with pytest.raises(RevisionExpired):
        cluster.since(ResourceKind.SERVICE, revisions[5], 100)


def test_compaction_expires_every_revision_handed_out_and_no_later_one() -> None:
    cluster = store()
    revision = cluster.put(ResourceKind.SERVICE, service("web"))
    cluster.check(revision)
    cluster.compact()
    with pytest.raises(RevisionExpired):
        cluster.check(revision)
    cluster.check(cluster.revision)


def test_a_batch_is_announced_once_to_those_concerned() -> None:
    cluster, notified = store(), []
    with (
        cluster.listening(ResourceKind.SERVICE, lambda: notified.append("service")),
        cluster.listening(ResourceKind.NODE, lambda: notified.append("node")),
    ):
        with cluster.batch():
            cluster.put(ResourceKind.SERVICE, service("a"))
            cluster.put(ResourceKind.SERVICE, service("b"))
            assert notified == []
        assert notified == ["service"]
        cluster.put(ResourceKind.NODE, {"metadata": {"name": "a"}})
    cluster.put(ResourceKind.SERVICE, service("c"))
    assert notified == ["service", "node"]
