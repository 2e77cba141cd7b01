"""Memory that the daemon may take, and the most that it took."""

from __future__ import annotations

import asyncio
import time

from kproxy.lab.processes import Process
from kproxy.model.network import Family
from tests.bench.process import Tree
from tests.bench.stage import put
from tests.bench.world import Size, documents
from tests.support.daemon_stage import Stage, stage

MEGABYTE = 1_000_000


MEMORY = [(Size(100, 5), 80 * MEGABYTE), (Size(10_000, 5), 200 * MEGABYTE)]


SYNCED_WITHIN = 240.0


def peak(daemon: Process) -> int:
    return Tree(daemon.pid).daemon_peak()


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
