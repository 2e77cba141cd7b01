"""A start without EndpointSlices: what becomes of a proxy that lists them in time, and of one that does not."""

from __future__ import annotations

import asyncio

import pytest

from kproxy.conformance.testbeds.watch_faults import start_without_slices
from kproxy.lab.apiserver import ApiServer
from tests.support.apiserver_client import SLICES, WATCH_LIST, Client, served


@served()
async def test_a_proxy_that_lists_slices_in_time_gets_them_afterwards(
    server: ApiServer, client: Client
) -> None:
    async def proxy() -> list[tuple[str, str]]:
        async with client.watch(SLICES, **WATCH_LIST) as slices:
            found: list[tuple[str, str]] = await slices.events(1)
            return found

    running: list[asyncio.Task[list[tuple[str, str]]]] = []
    await start_without_slices(server, lambda: running.append(asyncio.create_task(proxy())), 0.1, 10.0)
    assert not running[0].done()
    assert await running[0] == [("BOOKMARK", "")]


@served()
async def test_a_proxy_that_lists_none_is_waited_for_no_longer_than_for_any_change(
    server: ApiServer,
    client: Client,  # noqa: ARG001 (it reads nothing)
) -> None:
    started: list[bool] = []
    with pytest.raises(TimeoutError):
        await start_without_slices(server, lambda: started.append(True), 0.0, 0.1)
    assert started == [True]
