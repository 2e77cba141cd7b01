"""Watches over HTTP: changes, selections, resuming, WatchList, bookmarks, expiry, framing."""

from __future__ import annotations

import asyncio
import json
import time
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest

from kproxy.lab.apiserver import ApiServer, ObjectStore, ResourceKind, watch
from kproxy.lab.apiserver.options import parse_options
from kproxy.lab.apiserver.routes import ResourcePath, parse_path
from kproxy.universes.event_loop import UniverseLoop
from tests.support.apiserver_client import (
    IN_DEFAULT,
    SERVICES,
    SLICES,
    WATCH_LIST,
    Client,
    put,
    served,
    until,
)

LABEL = {"labelSelector": "app=web"}
INITIAL_EVENTS_END = {"k8s.io/initial-events-end": "true"}


@served()
async def test_changes_after_a_revision_come_in_order(server: ApiServer, client: Client) -> None:
    revision = put(server, "old")
    put(server, "a")
    async with client.watch(SERVICES, resourceVersion=str(revision)) as stream:
        put(server, "a", type="NodePort")
        gone = server.store.delete(ResourceKind.SERVICE, "default", "a")
        assert await stream.events(2) == [("ADDED", "a"), ("MODIFIED", "a")]
        last = await stream.event()
        assert (last["type"], last["object"]["spec"]) == ("DELETED", {"type": "NodePort"})
        assert last["object"]["metadata"]["resourceVersion"] == str(gone)
        assert (last["object"]["kind"], last["object"]["apiVersion"]) == ("Service", "v1")


@served()
async def test_a_watch_from_nowhere_or_zero_begins_with_what_is_there(
    server: ApiServer, client: Client
) -> None:
    put(server, "a")
    put(server, "b")
    for query in ({}, {"resourceVersion": "0"}):
        async with client.watch(SERVICES, **query) as stream:
            assert await stream.events(2) == [("ADDED", "a"), ("ADDED", "b")]
            assert await stream.is_silent()


@served()
async def test_entering_a_selection_is_added_and_leaving_it_deleted(
    server: ApiServer, client: Client
) -> None:
    revision = put(server, "a", labels={"app": "db"}, clusterIP="10.96.0.1")
    async with client.watch(SERVICES, resourceVersion=str(revision), **LABEL) as stream:
        put(server, "b", labels={"app": "db"})
        put(server, "a", labels={"app": "web"}, clusterIP="10.96.0.1")
        put(server, "a", labels={"app": "web"}, clusterIP="10.96.0.2")
        left = put(server, "a", labels={"app": "db"}, clusterIP="10.96.0.3")
        server.store.delete(ResourceKind.SERVICE, "default", "a")
        put(server, "a", labels={"app": "web"})
        assert await stream.events(2) == [("ADDED", "a"), ("MODIFIED", "a")]
        event = await stream.event()
        assert event["type"] == "DELETED"
        assert event["object"]["spec"] == {"clusterIP": "10.96.0.2"}
        assert event["object"]["metadata"]["labels"] == {"app": "web"}
        assert event["object"]["metadata"]["resourceVersion"] == str(left)
        assert await stream.events(1) == [("ADDED", "a")]


@served()
async def test_a_service_that_turns_headless_leaves_a_field_selection(
    server: ApiServer, client: Client
) -> None:
    revision = put(server, "a", clusterIP="10.96.0.1")
    query = {"resourceVersion": str(revision), "fieldSelector": "spec.clusterIP!=None"}
    async with client.watch(SERVICES, **query) as stream:
        put(server, "a", clusterIP="None")
        assert await stream.events(1) == [("DELETED", "a")]


@served()
async def test_a_watch_sees_only_its_kind_namespace_and_name(server: ApiServer, client: Client) -> None:
    revision = server.store.revision
    async with (
        client.watch(IN_DEFAULT, resourceVersion=str(revision)) as one_namespace,
        client.watch(f"{IN_DEFAULT}/b", resourceVersion=str(revision)) as one_object,
        client.watch(SLICES, resourceVersion=str(revision)) as slices,
    ):
        put(server, "a", namespace="other")
        put(server, "a")
        put(server, "b")
        assert await one_namespace.events(2) == [("ADDED", "a"), ("ADDED", "b")]
        assert await one_object.events(1) == [("ADDED", "b")]
        assert await slices.is_silent()


@served()
async def test_a_resumed_watch_misses_nothing_and_repeats_nothing(server: ApiServer, client: Client) -> None:
    seen, revision = [], str(server.store.revision)
    for round_ in range(4):
        put(server, f"before-{round_}")
        async with client.watch(SERVICES, resourceVersion=revision) as stream:
            put(server, f"during-{round_}")
            for _ in range(2):
                event = await stream.event()
                seen.append(event["object"]["metadata"]["name"])
                revision = event["object"]["metadata"]["resourceVersion"]
    assert seen == [f"{when}-{round_}" for round_ in range(4) for when in ("before", "during")]


@served()
async def test_many_changes_at_once_all_arrive(server: ApiServer, client: Client) -> None:
    async with client.watch(SERVICES, resourceVersion=str(server.store.revision)) as stream:
        with server.store.batch():
            for number in range(2000):
                put(server, f"s{number}")
        assert await stream.events(2000) == [("ADDED", f"s{number}") for number in range(2000)]


# --------------------------------------------------------------------------- WatchList


@served()
async def test_a_watch_list_marks_where_the_initial_events_end(server: ApiServer, client: Client) -> None:
    put(server, "a", labels={"app": "web"})
    put(server, "b", labels={"app": "db"})
    revision = server.store.put(ResourceKind.NODE, {"metadata": {"name": "n"}})
    async with client.watch(SERVICES, **WATCH_LIST, **LABEL) as stream:
        assert await stream.events(1) == [("ADDED", "a")]
        assert await stream.event() == {
            "type": "BOOKMARK",
            "object": {
                "kind": "Service",
                "apiVersion": "v1",
                "metadata": {"resourceVersion": str(revision), "annotations": INITIAL_EVENTS_END},
            },
        }
        put(server, "c", labels={"app": "web"})
        assert await stream.events(1) == [("ADDED", "c")]


@served()
async def test_a_watch_list_of_nothing_still_ends_its_initial_events(
    server: ApiServer, client: Client
) -> None:
    revision = put(server, "a")
    async with client.watch(SLICES, **WATCH_LIST, resourceVersion=str(revision)) as stream:
        event = await stream.event()
        assert (event["type"], event["object"]["kind"]) == ("BOOKMARK", "EndpointSlice")
        assert event["object"]["metadata"]["annotations"] == INITIAL_EVENTS_END
        assert int(event["object"]["metadata"]["resourceVersion"]) >= revision


@served()
async def test_a_watch_list_of_the_future_is_refused(server: ApiServer, client: Client) -> None:
    put(server, "a")
    assert await client.refused(SERVICES, **WATCH_LIST, resourceVersion="9999") == (504, "Timeout")


@served(lambda: ApiServer(watch_list=False))
async def test_a_server_without_watch_list_refuses_it_and_still_watches(
    server: ApiServer, client: Client
) -> None:
    revision = put(server, "a")
    code, status = await client.send("GET", SERVICES, params=WATCH_LIST)
    assert (code, status["reason"]) == (422, "Invalid")
    assert status["details"]["causes"][0]["field"] == "sendInitialEvents"
    async with client.watch(SERVICES, resourceVersion=str(revision)) as stream:
        put(server, "b")
        assert await stream.events(1) == [("ADDED", "b")]


@pytest.mark.parametrize(
    "query",
    [
        {"watch": "1", "resourceVersionMatch": "NotOlderThan", "resourceVersion": "1"},
        {"watch": "1", "sendInitialEvents": "true"},
        {"watch": "1", "sendInitialEvents": "true", "resourceVersionMatch": "Exact", "resourceVersion": "1"},
    ],
)
def test_half_a_watch_list_is_refused(query: dict[str, str]) -> None:
    @served()
    async def scenario(client: Client) -> None:
        assert await client.refused(SERVICES, **query) == (422, "Invalid")

    scenario()


# --------------------------------------------------------------------------- bookmarks and ends


@served(lambda: ApiServer(bookmark_seconds=0.05))
async def test_bookmarks_follow_the_changes_of_other_kinds(server: ApiServer, client: Client) -> None:
    async with client.watch(SERVICES, resourceVersion="1", allowWatchBookmarks="true") as stream:
        revision = server.store.put(ResourceKind.NODE, {"metadata": {"name": "a"}})
        event = await stream.event()
        metadata = {"resourceVersion": str(revision)}
        assert event["type"] == "BOOKMARK"
        assert event["object"] == {"kind": "Service", "apiVersion": "v1", "metadata": metadata}


@served(lambda: ApiServer(bookmark_seconds=0.02))
async def test_a_watch_without_bookmarks_gets_none(server: ApiServer, client: Client) -> None:
    async with client.watch(SERVICES, resourceVersion=str(server.store.revision)) as stream:
        assert await stream.is_silent()


@served()
async def test_a_timeout_ends_the_watch_after_a_bookmark(server: ApiServer, client: Client) -> None:
    revision = put(server, "a")
    query = {"resourceVersion": str(revision), "timeoutSeconds": "1", "allowWatchBookmarks": "true"}
    async with client.watch(SERVICES, **query) as stream:
        event = await stream.event()
        assert event["type"] == "BOOKMARK"
        assert event["object"]["metadata"]["resourceVersion"] == str(revision)
        assert await stream.ended()


@served()
async def test_a_watch_from_before_a_compaction_is_answered_410(server: ApiServer, client: Client) -> None:
    revision = put(server, "a")
    async with client.watch(SERVICES, resourceVersion=str(revision)) as kept:
        put(server, "b")
        assert await kept.events(1) == [("ADDED", "b")]
        server.store.compact()
        async with client.watch(SERVICES, resourceVersion=str(revision)) as stream:
            event = await stream.event()
            status = event["object"]
            assert (event["type"], status["kind"], status["code"], status["reason"]) == (
                "ERROR",
                "Status",
                410,
                "Expired",
            )
            assert await stream.ended()
        put(server, "c")
        assert await kept.events(1) == [("ADDED", "c")]
    relisted = (await client.get(SERVICES))["metadata"]["resourceVersion"]
    async with client.watch(SERVICES, resourceVersion=relisted) as stream:
        put(server, "d")
        assert await stream.events(1) == [("ADDED", "d")]


@served(lambda: ApiServer(ObjectStore(history=10)))
async def test_a_watch_that_falls_behind_the_history_is_answered_410(
    server: ApiServer, client: Client
) -> None:
    async with client.watch(SERVICES, resourceVersion=str(server.store.revision)) as stream:
        put(server, "first")
        assert await stream.events(1) == [("ADDED", "first")]
        for number in range(50):
            put(server, f"s{number}")
        event = await stream.event()
        assert (event["type"], event["object"]["code"]) == ("ERROR", 410)


@served()
async def test_a_client_that_goes_away_is_forgotten(server: ApiServer, client: Client) -> None:
    async with client.watch(SERVICES) as stream:
        put(server, "a")
        assert await stream.events(1) == [("ADDED", "a")]
        await until(lambda: server.current_watches == (ResourceKind.SERVICE,))
        stream.response.close()
        await until(lambda: not server.current_watches)


@served()
async def test_on_the_wire_a_watch_is_chunks_of_lines_and_lists_keep_the_connection(
    server: ApiServer, client: Client
) -> None:
    put(server, "a")
    address = urlsplit(client.url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    head = "Host: x\r\nAccept-Encoding: gzip\r\n\r\n"
    for _ in range(2):
        writer.write(f"GET {SERVICES} HTTP/1.1\r\n{head}".encode())
        headers = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(headers.split("content-length: ")[1].split("\r\n")[0])
        assert json.loads(await reader.readexactly(length))["kind"] == "ServiceList"
    writer.write(f"GET {SERVICES}?watch=1&timeoutSeconds=1 HTTP/1.1\r\n{head}".encode())
    headers = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    assert "transfer-encoding: chunked" in headers
    assert "content-type: application/json\r\n" in headers
    size = int(await reader.readline(), 16)
    chunk = await reader.readexactly(size + 2)
    assert chunk.endswith(b"}\n\r\n")
    assert json.loads(chunk)["type"] == "ADDED"
    assert await asyncio.wait_for(reader.readuntil(b"0\r\n\r\n"), 5) == b"0\r\n\r\n"
    writer.close()
    await writer.wait_closed()


class Impatient(UniverseLoop):
    """Loop that stops a callback which looks at the clock again and again while no time passes."""

    def __init__(self) -> None:
        self.looks = 0
        super().__init__()

    def time(self) -> float:
        self.looks += 1
        assert self.looks < 10_000, "no time passes"
        return super().time()


def test_watches_whose_bookmarks_are_due_together_do_not_stop_the_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In a universe the clock stands still while something is ready, and asyncio takes its resolution for 10 ms."""
    coarse = 0.1
    monkeypatch.setattr(time, "get_clock_info", lambda _: SimpleNamespace(resolution=coarse))
    monkeypatch.setattr(watch, "_RESOLUTION", coarse)
    bookmarks = 0

    async def write(data: bytes) -> None:
        nonlocal bookmarks
        bookmarks += b"BOOKMARK" in data

    async def follow_two() -> None:
        server, place = ApiServer(), parse_path(SERVICES)
        assert isinstance(place, ResourcePath)
        options = parse_options({"allowWatchBookmarks": "true"}, place, watch=True, watch_list=False)
        running = []
        for _ in range(2):
            one = watch.Watch(server.store, server.faults, place.resource, options, coarse / 2)
            running.append(asyncio.create_task(one.run(write)))
            await asyncio.sleep(0)
        await asyncio.sleep(0.5)
        for task in running:
            task.cancel()

    with asyncio.Runner(loop_factory=Impatient) as runner:
        runner.run(follow_two())
    assert bookmarks > 1
