"""Functions that inject faults: each makes a change of the cluster during the fault, and returns when it is over."""

from __future__ import annotations

import asyncio
import fcntl
import itertools
import os
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from kproxy.conformance.binding.world import RestartProxy
from kproxy.conformance.testbeds.proxies import API_PORT
from kproxy.lab.apiserver import Refuse, ResourceKind, StallRequests
from kproxy.lab.kernels.abilities import KernelName
from kproxy.lab.kernels.current import kernel_here
from kproxy.lab.processes import run_in
from kproxy.lab.topology import NODES
from tests.faults import wire
from tests.faults.stage import Stage
from tests.faults.wire import Treatment

Happening = Callable[[Stage], Awaitable[None]]

BACK = 12.0
"""The longest pause between two watches is 10 s."""
SHORT = 2.0
LISTED = "] services: "
"""Part of the daemon's log line after the list of all Services."""

# ------------------------------------------------------------------------------- the API server


async def api_server_killed(stage: Stage) -> None:
    for one in stage.wires.values():
        await one.disconnect()
    await stage.change()
    await asyncio.sleep(SHORT)
    assert await stage.serves_old()
    for one in stage.wires.values():
        await one.connect()


async def down_at_start(stage: Stage) -> None:
    """The daemons start without an API server: the rules of their predecessors stay (``life.apiserver-down``)."""
    for one in stage.wires.values():
        await one.disconnect()
    before = await stage.rules()
    await stage.bed.change([RestartProxy(node, ()) for node in NODES])
    await stage.change()
    await asyncio.sleep(2 * SHORT)
    assert await stage.rules() == before
    for one in stage.wires.values():
        await one.connect()


async def slices_withheld(stage: Stage) -> None:
    """The daemons start and receive Services, but no EndpointSlices (``life.wait-both``)."""
    before, lists = await stage.rules(), [stage.log(node).count(LISTED) for node in NODES]
    with stage.server.faults.during(StallRequests(kinds=frozenset({ResourceKind.ENDPOINT_SLICE}))):
        await stage.bed.change([RestartProxy(node, ()) for node in NODES])
        await stage.change()
        await asyncio.sleep(2 * SHORT)
        assert [stage.log(node).count(LISTED) for node in NODES] == [count + 1 for count in lists]
        assert await stage.rules() == before


def on_the_wire(treatment: Treatment, seconds: float = SHORT) -> Happening:
    async def happen(stage: Stage) -> None:
        with ExitStack() as stack:
            for one in stage.wires.values():
                stack.enter_context(one.during(treatment))
            await stage.change()
            await asyncio.sleep(seconds)
            assert treatment is wire.slow or await stage.serves_old()
            assert all(one.treated for one in stage.wires.values())

    return happen


async def cable_pulled(stage: Stage) -> None:
    """Packets of the API server vanish, long enough for keepalive to notice."""
    rule = f"add table inet pulled; add chain inet pulled in {{ type filter hook input priority 0; }}; add rule inet pulled in tcp sport {API_PORT} drop"
    for node in NODES:
        await run_in(stage.lab.network[node], ("nft", rule))
    await stage.change()
    await asyncio.sleep(40)
    assert await stage.serves_old()
    for node in NODES:
        await run_in(stage.lab.network[node], ("nft", "delete", "table", "inet", "pulled"))


def refused(code: int, retry_after: int | None = None, seconds: float = SHORT) -> Happening:
    """All requests are refused, and open watches end."""

    async def happen(stage: Stage) -> None:
        with stage.server.faults.during(Refuse(code=code, retry_after=retry_after)):
            stage.server.drop_watches(reset=True)
            began = time.monotonic()
            await stage.change()
            await asyncio.sleep(seconds)
            assert await stage.serves_old()
        requested = [request for request in stage.server.requests if request.at > began]
        assert requested
        for before, after in pauses(stage, began):
            assert after - before >= (retry_after or 0), f"requested again after {after - before:.2f} s"

    return happen


def pauses(stage: Stage, since: float) -> Iterator[tuple[float, float]]:
    """Times of consecutive requests for one kind of object by one node, in pairs."""
    by_kind: dict[object, list[float]] = {}
    for request in stage.server.requests:
        if request.at > since:
            by_kind.setdefault((request.kind, request.client), []).append(request.at)
    return itertools.chain.from_iterable(map(itertools.pairwise, by_kind.values()))


async def version_forgotten(stage: Stage) -> None:
    with stage.server.faults.during(Refuse(code=503)):
        stage.server.drop_watches(reset=True)
        await stage.change()
        stage.server.store.compact()
        await asyncio.sleep(SHORT / 2)
        assert await stage.serves_old()


# ------------------------------------------------------------------------------- the daemon


def killed(times: int, seed: int = 1) -> Happening:
    """Kill the daemon at random moments: while it starts, lists, writes, waits.  Endpoints change all the time."""
    chance = random.Random(seed)  # noqa: S311 - the same moments every time

    async def happen(stage: Stage) -> None:
        async def churn() -> None:
            while True:
                await stage.change()
                await asyncio.sleep(0.05)

        churning = asyncio.create_task(churn())
        for number in range(times):
            await asyncio.sleep(chance.uniform(0, 1.5))
            await stage.bed.change([RestartProxy(NODES[number % 2], ())])
        churning.cancel()
        await asyncio.gather(churning, return_exceptions=True)
        await stage.change()

    return happen


async def disk_full(stage: Stage) -> None:
    """Fill the file system of the log and of temporary files."""
    fillings = [stage.disk(node) / "filling" for node in NODES]
    for path in fillings:
        fill(path)
    for _ in range(20):
        await stage.change()
        await stage.applied()
        for path in fillings:
            fill(path)
    for path in fillings:
        path.unlink()
    await stage.change()


def fill(path: Path) -> None:
    """Write a file until the file system is full."""
    with path.open("ab", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError:
            return


async def clock_jumps(stage: Stage) -> None:
    """Set the machine's clock; only in a guest."""
    assert kernel_here() is KernelName.UML, "never set the clock of the machine itself"
    for hours in (2, -5, 24 * 400, -24 * 400):
        time.clock_settime(time.CLOCK_REALTIME, time.time() + 3600 * hours)
        await stage.change()
        await stage.applied()
    time.clock_settime(time.CLOCK_REALTIME, time.time() + 3600 * 3)
    await stage.change()


# ------------------------------------------------------------------------------- the kernel


def marked(name: str, stage: Stage) -> list[Path]:
    """The files that make writes fail (`tests.faults.launch`)."""
    return [stage.folder(node) / name for node in NODES]


async def write_fails_once(stage: Stage) -> None:
    for path in marked("once", stage):
        path.touch()
    await stage.change()
    async with asyncio.timeout(BACK):
        while stage.failures() < len(NODES):  # noqa: ASYNC110 - the failures are in files
            await asyncio.sleep(0.01)
    assert stage.failures() == len(NODES)


async def write_fails_always(stage: Stage) -> None:
    for path in marked("always", stage):
        path.touch()
    await stage.change()
    await asyncio.sleep(6)
    assert await stage.serves_old()
    assert stage.failures() > 2 * len(NODES)
    for path in marked("always", stage):
        path.unlink()


def lock_held(seconds: float) -> Happening:
    async def happen(stage: Stage) -> None:
        with ExitStack() as stack:
            for node in NODES:
                stack.enter_context(locked(stage.lock(node)))
            await stage.change()
            await asyncio.sleep(seconds)
            assert await stage.serves_old()

    return happen


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock file in the way that ``iptables`` does."""
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
