"""Traffic while the chains that Services share grow into trees and shrink again, on a real kernel."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

import pytest

from kproxy.conformance.subjects.subject import load_subject
from kproxy.lab.apiserver import ObjectStore
from kproxy.lab.processes import Xtables, run_in
from tests.bench import world
from tests.bench.connects import Client, Connect, Connector, Destination
from tests.bench.stage import Stage, open_stage, put, take_away
from tests.bench.world import LIVE_ENDPOINTS, PORT, Document, Size

CLIENT, SERVER = "a2", world.LiveEndpoint("a1", 9100)
FEW, MANY = Size(3, 1), Size(200, 1)
"""One flat chain, and a tree."""

PATIENCE = 30.0


def filler(size: Size, beyond: Size) -> list[Document]:
    known = {document["metadata"]["name"] for document in world.filler(beyond)}
    return [document for document in world.filler(size) if document["metadata"]["name"] not in known]


def store() -> ObjectStore:
    found = ObjectStore()
    with found.batch():
        for document in world.documents(FEW):
            put(found, document)
        for live in world.measured(FEW):
            put(found, live.slice(SERVER))
    return found


async def is_tree(stage: Stage, variant: Xtables, *, wanted: bool) -> None:
    """Wait until KUBE-SERVICES is a tree, or no longer one."""
    deadline = time.monotonic() + PATIENCE
    while ("-N KUBE-SVC-10.96." in await listed(stage, variant)) is not wanted:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.1)


async def listed(stage: Stage, variant: Xtables) -> str:
    return await run_in(stage.node, (f"iptables-{variant.name.lower()}", "-t", "nat", "-S"))


async def connecting(connector: Connector, stage: Stage, during: Awaitable[None]) -> Sequence[Connect]:
    """Connections to all measured Services, one after the other, as long as something else goes on."""
    destinations = [Destination(live.cluster_ip, PORT) for live in world.measured(FEW)]
    client, found = Client(stage.namespace(CLIENT), destinations), list[Connect]()
    work = asyncio.ensure_future(during)
    while not work.done():
        for each in await connector.connect(300, [client]):
            found += chain.from_iterable(each)
    await work
    return found


@contextmanager
def compiled() -> Iterator[Connector]:
    with tempfile.TemporaryDirectory() as directory:
        yield Connector(Path(directory))


async def grow_and_shrink(variant: Xtables) -> Sequence[Connect]:
    with compiled() as connector:
        async with open_stage(load_subject("kproxy"), "iptables", variant, store()) as stage:
            with connector.serving(stage.namespace(SERVER.pod), SERVER.port):
                stage.start()
                for live in world.standing(FEW):
                    await stage.answered(live, LIVE_ENDPOINTS[0], 0.02, 30)
                return await connecting(connector, stage, grown_and_shrunk(stage, variant))


async def grown_and_shrunk(stage: Stage, variant: Xtables) -> None:
    more = filler(MANY, FEW)
    await is_tree(stage, variant, wanted=False)
    for _ in range(3):
        for document in more:
            put(stage.store, document)
        await is_tree(stage, variant, wanted=True)
        take_away(stage.store, *more)
        await is_tree(stage, variant, wanted=False)


@pytest.mark.parametrize("variant", Xtables, ids=lambda variant: variant.name.lower())
def test_no_connection_is_lost_when_a_chain_becomes_a_tree_and_back(variant: Xtables) -> None:
    found = asyncio.run(grow_and_shrink(variant))
    assert len(found) > 1000
    assert {each.errno for each in found} == {0}
