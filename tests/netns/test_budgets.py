"""What the daemon may cost a node (issue: under 1 s to the first sync, 80 MB at 100 Services, 200 MB at 10,000 x 5).

Memory is the most that the process ever had (VmHWM).  A start waits for nothing but the API server, so its CPU seconds, its
tools' included, are what an idle machine needs; the time on the clock says more of what else runs here.  Of several starts
the quickest counts, for it was disturbed least.
"""

from __future__ import annotations

import asyncio
import time

import pytest

from kproxy.lab.processes import Process
from kproxy.model.network import Family
from tests.bench.process import Tree
from tests.bench.stage import put
from tests.bench.world import Size, documents
from tests.netns.test_ports import MODES, Stage, stage

STARTS = 3
START_SECONDS = 1.0
MEGABYTE = 1_000_000
MEMORY = [(Size(100, 5), 80 * MEGABYTE), (Size(10_000, 5), 200 * MEGABYTE)]
SYNCED_WITHIN = 240.0


def peak(daemon: Process) -> int:
    return Tree(daemon.pid).daemon_peak()


@pytest.mark.parametrize("mode", MODES)
def test_an_empty_cluster_is_synced_within_a_second_and_for_less_than_that_of_work(mode: str) -> None:
    async def started() -> tuple[float, float]:
        async with stage(mode) as on:
            return time.monotonic() - on.began, Tree(on.daemon.pid).cpu()

    for seconds in zip(*(asyncio.run(started()) for _ in range(STARTS)), strict=True):
        assert min(seconds) < START_SECONDS


@pytest.mark.timeout(900)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("size", "most"), MEMORY, ids=[str(size) for size, _ in MEMORY])
def test_the_daemon_takes_no_more_memory_than_it_may(mode: str, size: Size, most: int) -> None:
    assert asyncio.run(peak_of(mode, size)) < most


async def peak_of(mode: str, size: Size) -> int:
    """Bytes, once so many Services are programmed."""
    async with stage(mode) as on:
        with on.server.store.batch():
            for document in documents(size):
                put(on.server.store, document)
        await programmed(on, size)
        return peak(on.daemon)


async def programmed(on: Stage, size: Size) -> None:
    """All Services are known, and the family they are of has been brought up to date since."""
    deadline = time.monotonic() + SYNCED_WITHIN
    four = frozenset({("ip_family", Family.IPV4.value)})
    while True:
        found = await on.metrics()
        seen = found["sync_proxy_rules_service_changes_total", frozenset()] >= 2 * size.services
        waiting = found["sync_proxy_rules_service_changes_pending", frozenset()]
        waiting += found["sync_proxy_rules_endpoint_changes_pending", frozenset()]
        queued = found["sync_proxy_rules_last_queued_timestamp_seconds", four]
        if seen and not waiting and found["sync_proxy_rules_last_timestamp_seconds", four] > queued:
            return
        assert on.daemon.returncode is None, on.daemon.log.read_text()
        assert time.monotonic() < deadline, on.daemon.log.read_text()
        await asyncio.sleep(0.2)
