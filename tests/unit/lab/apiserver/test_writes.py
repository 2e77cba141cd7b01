"""Create, update, patch, delete, and Events in both their shapes, over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.lab.apiserver import ApiServer, ResourceKind
from kproxy.lab.apiserver.protobuf import read_event
from kproxy.lab.apiserver.writes import apply_merge_patch
from tests.support.apiserver_client import IN_DEFAULT, SERVICES, Client, put, served, service

WEB = f"{IN_DEFAULT}/web"
MERGE = {"Content-Type": "application/merge-patch+json"}


@served()
async def test_a_created_object_is_answered_stored_and_not_created_twice(
    server: ApiServer, client: Client
) -> None:
    code, created = await client.send("POST", IN_DEFAULT, json=service("web", clusterIP="10.96.0.1"))
    assert (code, created["kind"], created["spec"]) == (201, "Service", {"clusterIP": "10.96.0.1"})
    assert await client.get(WEB) == created
    assert server.store.get(ResourceKind.SERVICE, "default", "web") is not None
    code, status = await client.send("POST", IN_DEFAULT, json=service("web"))
    assert (code, status["reason"]) == (409, "AlreadyExists")


@served()
async def test_the_server_and_not_the_client_gives_identity(client: Client) -> None:
    document = service("web")
    document["metadata"] |= {"uid": "mine", "creationTimestamp": "2001-01-01T00:00:00Z"}
    _, created = await client.send("POST", IN_DEFAULT, json=document)
    assert created["metadata"]["uid"] != "mine"
    assert created["metadata"]["creationTimestamp"] > "2020"


@served()
async def test_a_name_is_generated_from_its_prefix(client: Client) -> None:
    code, created = await client.send("POST", IN_DEFAULT, json={"metadata": {"generateName": "web-"}})
    name = created["metadata"]["name"]
    assert (code, name[:4], len(name)) == (201, "web-", 9)


@pytest.mark.parametrize(
    ("path", "document", "refusal"),
    [
        (IN_DEFAULT, {"metadata": {}}, (422, "Invalid")),
        (IN_DEFAULT, service("web", namespace="other"), (400, "BadRequest")),
        (IN_DEFAULT, {"kind": "Node", "metadata": {"name": "web"}}, (400, "BadRequest")),
        (IN_DEFAULT, {"metadata": {"name": "web", "resourceVersion": "1"}}, (400, "BadRequest")),
        (IN_DEFAULT, [1], (400, "BadRequest")),
        (SERVICES, service("web"), (405, "MethodNotAllowed")),
    ],
)
def test_a_creation_that_makes_no_sense_is_refused(
    path: str, document: object, refusal: tuple[int, str]
) -> None:
    @served()
    async def scenario(client: Client) -> None:
        code, status = await client.send("POST", path, json=document)
        assert (code, status["reason"]) == refusal
        assert await client.names(SERVICES) == []

    scenario()


@served()
async def test_an_update_from_a_stale_version_is_a_conflict(server: ApiServer, client: Client) -> None:
    put(server, "web")
    stale = await client.get(WEB)
    code, fresh = await client.send("PUT", WEB, json=stale | {"spec": {"type": "NodePort"}})
    assert (code, fresh["spec"], fresh["metadata"]["generation"]) == (200, {"type": "NodePort"}, 2)
    code, status = await client.send("PUT", WEB, json=stale | {"spec": {"type": "ClusterIP"}})
    assert (code, status["reason"]) == (409, "Conflict")
    code, again = await client.send("PUT", WEB, json=fresh)
    assert (code, again) == (200, fresh)


@served()
async def test_an_update_needs_the_object_and_its_name(server: ApiServer, client: Client) -> None:
    code, _ = await client.send("PUT", WEB, json=service("web"))
    assert code == 404
    put(server, "web")
    code, _ = await client.send("PUT", WEB, json=service("other"))
    assert code == 400


@served()
async def test_a_merge_patch_changes_only_what_it_names(server: ApiServer, client: Client) -> None:
    put(server, "web", labels={"a": "1", "b": "2"}, clusterIP="10.96.0.1")
    patch = {"metadata": {"labels": {"a": None, "c": "3"}}, "spec": {"type": "NodePort"}}
    code, patched = await client.send("PATCH", WEB, json=patch, headers=MERGE)
    assert code == 200
    assert patched["metadata"]["labels"] == {"b": "2", "c": "3"}
    assert patched["spec"] == {"clusterIP": "10.96.0.1", "type": "NodePort"}


@served()
async def test_other_kinds_of_patch_and_body_are_refused(server: ApiServer, client: Client) -> None:
    put(server, "web")
    json_patch = {"Content-Type": "application/json-patch+json"}
    code, status = await client.send("PATCH", WEB, json=[], headers=json_patch)
    assert (code, status["reason"]) == (415, "UnsupportedMediaType")
    protobuf = {"Content-Type": "application/vnd.kubernetes.protobuf"}
    code, _ = await client.send("PUT", WEB, data=b"k8s\x00", headers=protobuf)
    assert code == 415


@pytest.mark.parametrize(
    ("target", "patch", "merged"),
    [  # from the table in appendix A of RFC 7396
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patches_follow_rfc_7396(target: object, patch: dict[str, Any], merged: object) -> None:
    assert apply_merge_patch(target, patch) == merged


@served()
async def test_a_deleted_object_is_gone(server: ApiServer, client: Client) -> None:
    put(server, "web")
    code, last = await client.send("DELETE", WEB)
    assert (code, last["kind"], last["metadata"]["name"]) == (200, "Service", "web")
    assert (await client.send("DELETE", WEB))[0] == 404
    assert await client.names(SERVICES) == []
    server.store.put(ResourceKind.NODE, {"metadata": {"name": "a"}})
    code, status = await client.send("DELETE", "/api/v1/nodes/a")
    assert (code, status["kind"], status["status"]) == (200, "Status", "Success")


# --------------------------------------------------------------------------- Events

EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
CORE_EVENTS = "/api/v1/namespaces/default/events"


@served()
async def test_an_event_of_one_api_is_read_by_the_other(client: Client) -> None:
    event = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "e1", "namespace": "default"},
        "regarding": {"kind": "Node", "name": "a"},
        "note": "starting",
        "reason": "Starting",
        "type": "Normal",
        "reportingController": "kube-proxy",
    }
    code, _ = await client.send("POST", EVENTS, json=event)
    assert code == 201
    core = await client.get(f"{CORE_EVENTS}/e1")
    assert (core["apiVersion"], core["message"], core["reportingComponent"]) == (
        "v1",
        "starting",
        "kube-proxy",
    )
    assert core["involvedObject"] == {"kind": "Node", "name": "a"}
    assert await client.names(CORE_EVENTS, fieldSelector="involvedObject.kind=Node,reason=Starting") == ["e1"]
    assert await client.names(CORE_EVENTS, fieldSelector="involvedObject.kind=Pod") == []
    (listed,) = (await client.get(CORE_EVENTS))["items"]
    assert listed["message"] == "starting"


@served()
async def test_an_event_of_the_core_api_is_read_by_the_newer(client: Client) -> None:
    event = {
        "metadata": {"name": "e1"},
        "involvedObject": {"kind": "Service"},
        "message": "hello",
        "count": 2,
    }
    await client.send("POST", CORE_EVENTS, json=event)
    found = await client.get(f"{EVENTS}/e1")
    assert (found["note"], found["regarding"], found["deprecatedCount"]) == ("hello", {"kind": "Service"}, 2)
    patch = {"series": {"count": 3}}
    _, patched = await client.send("PATCH", f"{CORE_EVENTS}/e1", json=patch, headers=MERGE)
    assert (patched["series"], patched["message"]) == ({"count": 3}, "hello")


def field(number: int, value: bytes | int) -> bytes:
    """A field in protobuf's wire format; lengths and numbers below 128 only."""
    if isinstance(value, int):
        return bytes([number << 3, value])
    return bytes([number << 3 | 2, len(value)]) + value


def protobuf_event(api_version: bytes = b"events.k8s.io/v1") -> bytes:
    metadata = field(1, b"node-a.1") + field(2, b"") + field(3, b"default")
    # 1,700,000,000 seconds as a varint, 250,000,000 nanoseconds
    moment = b"\x08\x80\xe2\xcf\xaa\x06" + b"\x10\x80\xe5\x9a\x77"
    event = (
        field(1, metadata)
        + field(2, moment)
        + field(4, b"kube-proxy")
        + field(7, b"Starting")
        + field(8, field(1, b"Node") + field(3, b"node-a"))
        + field(11, b"Normal")
        + field(13, b"")
        + field(15, 0)
    )
    return b"k8s\x00" + field(1, field(1, api_version) + field(2, b"Event")) + field(2, event)


def test_an_event_in_protobuf_reads_as_its_json() -> None:
    assert read_event(protobuf_event()) == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "node-a.1", "namespace": "default"},
        "eventTime": "2023-11-14T22:13:20.250000Z",
        "reportingController": "kube-proxy",
        "reason": "Starting",
        "regarding": {"kind": "Node", "name": "node-a"},
        "type": "Normal",
    }


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"k8s\x00", protobuf_event()[:-3], protobuf_event()[:40], protobuf_event(b"v1")]
)
def test_other_bytes_than_an_event_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="protobuf"):
        read_event(data)


@served()
async def test_an_event_posted_in_protobuf_is_stored(client: Client) -> None:
    headers = {"Content-Type": "application/vnd.kubernetes.protobuf"}
    code, _ = await client.send("POST", EVENTS, data=protobuf_event(), headers=headers)
    assert code == 201
    assert await client.names(CORE_EVENTS, fieldSelector="involvedObject.name=node-a") == ["node-a.1"]
    code, status = await client.send("POST", EVENTS, data=b"k8s\x00\xff", headers=headers)
    assert (code, status["reason"]) == (400, "BadRequest")
