"""What a start of the daemon may cost a node, under a second to the first sync; and as long for repairs of our rules.

A start waits for nothing but the API server, so its CPU seconds, its tools' included, are what an idle machine needs;
the time on the clock is divided by how long a second of work takes just afterwards.  Of several starts the quickest
counts, for it was disturbed least.
"""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.bench.process import Tree
from tests.faults.drift import DRIFT, REPORTED_SECONDS
from tests.faults.fault import Fault, Row, judge
from tests.support.daemon_stage import MODES, stage

STARTS = 3
START_SECONDS = 1.0
QUICK_REPAIRS = ("table-deleted", "nat-flushed")
CONTROL_SECONDS = 0.3
"""Of work: as much as a start needs."""


def slowness() -> float:
    """Seconds on the clock that a second of work takes: 1, or more where others want the processors too."""
    began, work = time.monotonic(), time.thread_time()
    while time.thread_time() - work < CONTROL_SECONDS:
        pass
    return (time.monotonic() - began) / CONTROL_SECONDS


@pytest.mark.parametrize("mode", MODES)
def test_an_empty_cluster_is_synced_within_a_second_and_for_less_than_that_of_work(mode: str) -> None:
    async def started() -> tuple[float, float]:
        async with stage(mode) as on:
            seconds, work = time.monotonic() - on.began, Tree(on.daemon.pid).cpu()
            return seconds / await asyncio.to_thread(slowness), work

    for seconds in zip(*(asyncio.run(started()) for _ in range(STARTS)), strict=True):
        assert min(seconds) < START_SECONDS


@pytest.mark.parametrize(
    "fault", [fault for fault in DRIFT if fault.name in QUICK_REPAIRS], ids=lambda fault: fault.name
)
def test_drift_that_the_kernel_notifies_of_is_repaired_within_a_second(fault: Fault) -> None:
    """The faults of `tests.faults.drift` that `tests/netns/test_faults.py` injects beside other tests, one for each mode."""
    (proxy,) = fault.proxies
    recovery = asyncio.run(judge(Row(fault, proxy))).recovery
    assert recovery / slowness() < REPORTED_SECONDS
