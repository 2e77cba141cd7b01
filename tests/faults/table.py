"""All faults there are."""

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

from kproxy.conformance.testbeds.proxies import API_PORT
from kproxy.conformance.world import RestartProxy
from kproxy.lab import topology
from kproxy.lab.apiserver import Refuse
from kproxy.lab.kernels.abilities import KernelName
from kproxy.lab.kernels.here import kernel_here
from kproxy.lab.processes import run_in
from kproxy.server.watch import SILENCE
from tests.faults import wire
from tests.faults.drift import DRIFT
from tests.faults.fault import Fault, Health, Row
from tests.faults.stage import IPTABLES_LEGACY, IPTABLES_NFT, IPVS, NFTABLES, Stage
from tests.faults.wire import Treatment

Happening = Callable[[Stage], Awaitable[None]]

BACK = 12.0
"""The longest pause between two watches is 10 s."""
SHORT = 2.0

# ------------------------------------------------------------------------------- the API server


async def api_server_killed(stage: Stage) -> None:
    for one in stage.wires.values():
        await one.disconnect()
    await stage.change()
    await asyncio.sleep(SHORT)
    assert await stage.serves_old()
    for one in stage.wires.values():
        await one.connect()


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
    for node in topology.NODES:
        await run_in(stage.lab.network[node], ("nft", rule))
    await stage.change()
    await asyncio.sleep(40)
    assert await stage.serves_old()
    for node in topology.NODES:
        await run_in(stage.lab.network[node], ("nft", "delete", "table", "inet", "pulled"))


def refused(code: int, retry_after: int | None = None, seconds: float = SHORT) -> Happening:
    """All requests, and the watches that are open end."""

    async def happen(stage: Stage) -> None:
        with stage.server.faults.during(Refuse(code=code, retry_after=retry_after)):
            stage.server.drop_watches(reset=True)
            began = time.monotonic()
            await stage.change()
            await asyncio.sleep(seconds)
            assert await stage.serves_old()
        asked = [request for request in stage.server.requests if request.at > began]
        assert asked
        for before, after in pauses(stage, began):
            assert after - before >= (retry_after or 0), f"asked again after {after - before:.2f} s"

    return happen


def pauses(stage: Stage, since: float) -> Iterator[tuple[float, float]]:
    """Times of requests for one thing by one node, each with the next."""
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
    """At random moments of its life: while it starts, lists, writes, waits.  Endpoints change all the time."""
    chance = random.Random(seed)  # noqa: S311 - the same moments every time

    async def happen(stage: Stage) -> None:
        async def churn() -> None:
            while True:
                await stage.change()
                await asyncio.sleep(0.05)

        churning = asyncio.create_task(churn())
        for number in range(times):
            await asyncio.sleep(chance.uniform(0, 1.5))
            await stage.bed.change([RestartProxy(topology.NODES[number % 2], ())])
        churning.cancel()
        await asyncio.gather(churning, return_exceptions=True)
        await stage.change()

    return happen


async def disk_full(stage: Stage) -> None:
    """The file system of the log, and of temporary files."""
    fillings = [stage.disk(node) / "filling" for node in topology.NODES]
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
    """Write until there is no room."""
    with path.open("ab", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError:
            return


async def clock_jumps(stage: Stage) -> None:
    """The machine's clock, so only in a guest."""
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
    return [stage.folder(node) / name for node in topology.NODES]


async def write_fails_once(stage: Stage) -> None:
    for path in marked("once", stage):
        path.touch()
    await stage.change()
    async with asyncio.timeout(BACK):
        await asyncio.to_thread(_failed_everywhere, stage)
    assert stage.failures() == len(topology.NODES)


def _failed_everywhere(stage: Stage) -> None:
    while stage.failures() < len(topology.NODES):
        time.sleep(0.01)


async def write_fails_always(stage: Stage) -> None:
    for path in marked("always", stage):
        path.touch()
    await stage.change()
    await asyncio.sleep(6)
    assert await stage.serves_old()
    assert stage.failures() > 2 * len(topology.NODES)
    for path in marked("always", stage):
        path.unlink()


def lock_held(seconds: float) -> Happening:
    async def happen(stage: Stage) -> None:
        with ExitStack() as stack:
            for node in topology.NODES:
                stack.enter_context(locked(stage.lock(node)))
            await stage.change()
            await asyncio.sleep(seconds)
            assert await stage.serves_old()

    return happen


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """As ``iptables`` locks it."""
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


ALL = (IPTABLES_NFT, IPTABLES_LEGACY, NFTABLES, IPVS)

FAULTS = (
    Fault(
        name="api-server-killed",
        about="The API server's port closes and all connections are reset; after 2 s it is back.",
        happen=api_server_killed,
        within=BACK,
    ),
    Fault(
        name="watch-cut",
        about="For 2 s each watch is reset in the middle of the first object it tells.",
        happen=on_the_wire(wire.cut),
        within=BACK,
    ),
    Fault(
        name="half-closed",
        about="For 2 s the server closes its direction in the middle of the first object; ours stays open, unread.",
        happen=on_the_wire(wire.half_close),
        within=BACK,
    ),
    Fault(
        name="slow",
        about="For 2 s the server says 2 kB/s.",
        happen=on_the_wire(wire.slow),
        within=BACK,
    ),
    Fault(
        name="garbage",
        about="For 2 s what the server says is no JSON.",
        happen=on_the_wire(wire.spoil),
        within=BACK,
    ),
    Fault(
        name="errors-500",
        about="For 2 s all requests are answered by 500, and open watches end.",
        happen=refused(500),
        within=BACK,
    ),
    Fault(
        name="too-many-requests",
        about="For 5 s all requests are answered by 429 with Retry-After: 2, and open watches end.",
        happen=refused(429, retry_after=2, seconds=5),
        within=BACK,
    ),
    Fault(
        name="version-forgotten",
        about="Watches end, and when the server is back it answers 410 Gone for every version it has told.",
        happen=version_forgotten,
        within=BACK,
    ),
    Fault(
        name="silent-connection",
        about="All connections stay open but no byte comes, for 10 s; new ones are served after that.",
        happen=on_the_wire(wire.hold_back, 10),
        within=SILENCE + BACK,
        long=True,
    ),
    Fault(
        name="cable-pulled",
        about="Packets from the API server vanish for 40 s, so that TCP gives the connections up.",
        happen=cable_pulled,
        within=BACK + 10,
        long=True,
    ),
    Fault(
        name="killed-5-times",
        about="SIGKILL at random moments, 5 times, while endpoints change 20 times a second.",
        happen=killed(5),
        within=BACK,
        health=Health.GONE,
    ),
    Fault(
        name="killed-50-times",
        about="SIGKILL at random moments, 50 times, while endpoints change 20 times a second.",
        happen=killed(50, seed=50),
        within=BACK,
        health=Health.GONE,
        proxies=ALL,
        long=True,
    ),
    Fault(
        name="disk-full",
        about="The disk of log and temporary files is full, over 20 changes.",
        happen=disk_full,
        within=BACK,
        disk=True,
        proxies=(IPTABLES_NFT,),
    ),
    Fault(
        name="clock-jumps",
        about="The machine's clock jumps by +2 h, -5 h, +400 days, -400 days and +3 h, with a change after each.",
        happen=clock_jumps,
        within=BACK,
        proxies=(NFTABLES, IPTABLES_LEGACY),
        own_clock=True,
        long=True,
    ),
    Fault(
        name="write-fails-once",
        about="`iptables-restore`, `ipset` or the transaction fails once.",
        happen=write_fails_once,
        within=BACK,
        proxies=ALL,
    ),
    Fault(
        name="write-fails-always",
        about="The same, for 6 s; syncPeriod is 1 s.",
        happen=write_fails_always,
        within=BACK,
        health=Health.LATE,
        proxies=ALL,
        sync_period=1.0,
    ),
    Fault(
        name="lock-3s",
        about="Another program holds the xtables lock for 3 s.",
        happen=lock_held(3),
        within=BACK,
        proxies=(IPTABLES_LEGACY,),
    ),
    Fault(
        name="lock-30s",
        about="Another program holds the xtables lock for 30 s; syncPeriod is 5 s.",
        happen=lock_held(30),
        within=BACK,
        health=Health.LATE,
        proxies=(IPTABLES_LEGACY,),
        sync_period=5.0,
        long=True,
    ),
)

ROWS = tuple(Row(fault, proxy) for fault in (*FAULTS, *DRIFT) for proxy in fault.proxies)
