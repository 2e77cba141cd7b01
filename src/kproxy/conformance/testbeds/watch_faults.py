"""Faults of the lab's API server that keep changes from proxies for a while.

Beside `kproxy.conformance.testbeds.netns`; knows the lab's own API server, and no case.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator

from kproxy.conformance.binding.world import Change, WithholdEvents
from kproxy.conformance.case import WatchFault
from kproxy.conformance.testbeds.barrier import POLL
from kproxy.lab.apiserver import ApiServer, ResourceKind
from kproxy.lab.apiserver.faults import Refuse, StallRequests
from kproxy.lab.apiserver.routes import Verb

_READS = frozenset({Verb.LIST, Verb.WATCH})
_SLICES = frozenset({ResourceKind.ENDPOINT_SLICE})


def merge_withheld(changes: Iterable[Change]) -> Iterator[Change]:
    """The changes with all withheld ones moved to the end and merged: one watch fault of each kind for all cases."""
    later: dict[WatchFault, tuple[Change, ...]] = {}
    for change in changes:
        if isinstance(change, WithholdEvents):
            later[change.fault] = (*later.get(change.fault, ()), *change.changes)
        else:
            yield change
    yield from (WithholdEvents(fault, made) for fault, made in later.items())


async def change_during_fault(
    server: ApiServer, fault: WatchFault, change: Callable[[], Awaitable[None]]
) -> None:
    """Make changes during a fault of all watches."""
    match fault:
        case WatchFault.CONNECTION_RESET:
            server.drop_watches(reset=True)
            await change()
        case WatchFault.GONE:
            with server.faults.during(Refuse(verbs=_READS)):
                server.drop_watches(reset=True)
                await change()
                server.store.compact()
        case WatchFault.DELAYED:
            with server.faults.during(StallRequests(verbs=frozenset({Verb.WATCH}))):
                await change()


async def start_without_slices(
    server: ApiServer, start: Callable[[], None], seconds: float, within: float
) -> None:
    """Start a proxy, and serve it no EndpointSlices until so many seconds after it has begun to list them.

    Raises TimeoutError if it does not begin ``within`` seconds.
    """
    before = len(_listed(server))
    with server.faults.during(StallRequests(kinds=_SLICES)):
        start()
        async with asyncio.timeout(within):
            await _until(lambda: len(_listed(server)) > before)
        await asyncio.sleep(seconds)


async def _until(true: Callable[[], bool]) -> None:
    while True:
        if true():
            return
        await asyncio.sleep(POLL)


def _listed(server: ApiServer) -> list[float]:
    """Times at which EndpointSlices were listed, or watched."""
    return [request.at for request in server.requests if request.kind is ResourceKind.ENDPOINT_SLICE]
