"""Injected faults: each seen by a client, and over once lifted."""

from __future__ import annotations

import asyncio
import socket
import time

import aiohttp
import pytest

from kproxy.lab.apiserver import (
    ApiServer,
    Refuse,
    ResourceKind,
    SlowStream,
    StallBookmarks,
    StallRequests,
    Verb,
)
from tests.support.apiserver_client import SERVICES, SLICES, WATCH_LIST, Client, put, served, until

SERVICE_ONLY = frozenset({ResourceKind.SERVICE})
SLICES_ONLY = frozenset({ResourceKind.ENDPOINT_SLICE})


@served()
async def test_a_refusal_concerns_its_kinds_and_verbs_until_lifted(server: ApiServer, client: Client) -> None:
    put(server, "a")
    fault = Refuse(code=500, kinds=SERVICE_ONLY, verbs=frozenset({Verb.LIST}))
    with server.faults.during(fault):
        assert await client.refused(SERVICES) == (500, "InternalError")
        assert await client.names(SLICES) == []
        async with client.watch(SERVICES) as stream:
            assert await stream.events(1) == [("ADDED", "a")]
    assert await client.names(SERVICES) == ["a"]


@served()
async def test_a_refusal_can_have_retry_after_and_end_by_itself(server: ApiServer, client: Client) -> None:
    server.faults.inject(Refuse(retry_after=1), seconds=0.2)
    async with client.session.get(client.url + SERVICES) as response:
        assert (response.status, response.headers["Retry-After"]) == (503, "1")
    await until(lambda: not server.faults.active)
    assert await client.names(SERVICES) == []


@served()
async def test_a_held_list_is_answered_with_what_is_there_when_let_go(
    server: ApiServer, client: Client
) -> None:
    put(server, "before")
    with server.faults.during(StallRequests(kinds=SERVICE_ONLY)):
        requested = asyncio.create_task(client.names(SERVICES))
        assert await client.names(SLICES) == []
        await asyncio.sleep(0.1)
        assert not requested.done()
        put(server, "meanwhile")
    assert await asyncio.wait_for(requested, 5) == ["before", "meanwhile"]


@served()
async def test_a_held_list_holds_the_initial_events_of_a_watch_list(
    server: ApiServer, client: Client
) -> None:
    put(server, "before")
    fault = StallRequests(kinds=SERVICE_ONLY)
    server.faults.inject(fault)
    async with client.watch(SERVICES, **WATCH_LIST) as services, client.watch(SLICES, **WATCH_LIST) as slices:
        assert await slices.events(1) == [("BOOKMARK", "")]
        assert await services.is_silent()
        put(server, "meanwhile")
        server.faults.lift(fault)
        assert await services.events(3) == [("ADDED", "before"), ("ADDED", "meanwhile"), ("BOOKMARK", "")]


@served(lambda: ApiServer(bookmark_seconds=0.05))
async def test_a_held_watch_sends_nothing_and_then_everything(server: ApiServer, client: Client) -> None:
    query = {"resourceVersion": str(server.store.revision), "allowWatchBookmarks": "true"}
    fault = StallRequests(verbs=frozenset({Verb.WATCH}))
    async with client.watch(SERVICES, **query) as stream:
        server.faults.inject(fault)
        put(server, "a")
        assert await stream.is_silent()
        server.faults.lift(fault)
        assert await stream.events(2) == [("ADDED", "a"), ("BOOKMARK", "")]


@served(lambda: ApiServer(bookmark_seconds=0.02))
async def test_a_held_watch_sends_no_bookmarks_though_nothing_changed(
    server: ApiServer, client: Client
) -> None:
    query = {"resourceVersion": str(server.store.revision), "allowWatchBookmarks": "true"}
    fault = StallRequests(verbs=frozenset({Verb.WATCH}))
    server.faults.inject(fault)
    async with client.watch(SERVICES, **query) as stream:
        assert await stream.is_silent()
        server.faults.lift(fault)
        assert await stream.events(1) == [("BOOKMARK", "")]


@served()
async def test_no_bookmark_vouches_for_changes_that_were_not_sent(server: ApiServer, client: Client) -> None:
    query = {"resourceVersion": str(server.store.revision), "allowWatchBookmarks": "true"}
    with server.faults.during(SlowStream(seconds=1.1)):
        async with client.watch(SERVICES, **query, timeoutSeconds="1") as stream:
            put(server, "a")
            put(server, "b")
            assert await stream.events(1) == [("ADDED", "a")]
            assert await stream.ended()


@served(lambda: ApiServer(bookmark_seconds=0.02))
async def test_stalled_bookmarks_stop_and_changes_do_not(server: ApiServer, client: Client) -> None:
    query = {"resourceVersion": str(server.store.revision), "allowWatchBookmarks": "true"}
    fault = StallBookmarks(kinds=SERVICE_ONLY)
    server.faults.inject(fault)
    async with client.watch(SERVICES, **query) as stream:
        assert await stream.is_silent()
        put(server, "a")
        assert await stream.events(1) == [("ADDED", "a")]
        server.faults.lift(fault)
        assert await stream.events(1) == [("BOOKMARK", "")]


@served()
async def test_a_slow_stream_sends_events_one_by_one(server: ApiServer, client: Client) -> None:
    server.faults.inject(SlowStream(seconds=0.1, kinds=SERVICE_ONLY))
    async with client.watch(SERVICES, resourceVersion=str(server.store.revision)) as stream:
        start = time.monotonic()
        for name in "abc":
            put(server, name)
        assert await stream.events(3) == [("ADDED", "a"), ("ADDED", "b"), ("ADDED", "c")]
        assert time.monotonic() - start >= 0.2


@served()
async def test_dropped_watches_end_cleanly_and_others_go_on(server: ApiServer, client: Client) -> None:
    async with client.watch(SERVICES) as services, client.watch(SLICES) as slices:
        assert server.drop_watches(SERVICE_ONLY) == 1
        assert await services.ended()
        server.store.put(ResourceKind.ENDPOINT_SLICE, {"metadata": {"name": "s"}})
        assert await slices.events(1) == [("ADDED", "s")]


@served()
async def test_watches_can_be_cut_in_the_middle(server: ApiServer, client: Client) -> None:
    async with client.watch(SERVICES) as stream:
        assert server.drop_watches(reset=True) == 1
        with pytest.raises(aiohttp.ClientError):
            await stream.event()
    assert await client.names(SERVICES) == []


@served()
async def test_a_closed_listener_refuses_connections_until_it_listens_again(
    server: ApiServer, client: Client
) -> None:
    revision = put(server, "a")
    port = int(client.url.rsplit(":", 1)[1])
    async with client.watch(SERVICES, resourceVersion=str(revision)) as stream:
        await server.close_listeners()
        with pytest.raises(aiohttp.ClientError):
            await stream.event()
    with pytest.raises(aiohttp.ClientConnectorError):
        await client.names(SERVICES)
    await server.listen([socket.create_server(("127.0.0.1", port))])
    assert await client.names(SERVICES) == ["a"]


@served()
async def test_a_closed_listener_can_leave_open_connections_alone(server: ApiServer, client: Client) -> None:
    revision = put(server, "a")
    async with client.watch(SERVICES, resourceVersion=str(revision)) as stream:
        await server.close_listeners(connections=False)
        put(server, "b")
        assert await stream.events(1) == [("ADDED", "b")]


@served()
async def test_one_server_serves_several_sockets(server: ApiServer, client: Client) -> None:
    put(server, "a")
    other = socket.create_server(("::1", 0), family=socket.AF_INET6)
    await server.listen([other])
    second = Client(client.session, f"http://[::1]:{other.getsockname()[1]}")
    assert await client.names(SERVICES) == await second.names(SERVICES) == ["a"]
