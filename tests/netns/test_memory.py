"""The daemon's memory: the most that it ever had (VmHWM), 80 MB at 100 Services and 200 MB at 10,000 x 5, and over many changes.

``./run churn`` runs a day of changes.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.bench.churn import Sample, follow, growth
from tests.bench.world import Size
from tests.support.daemon_stage import MODES
from tests.support.memory_budgets import MEMORY, peak_of

pytestmark = pytest.mark.long

EVENTS, SERVICES = 20_000, 300
ALLOWED = 1.0
"""MB over the second half: some 100 bytes an event, less than any object would cost that is not forgotten."""


@pytest.mark.timeout(900)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("size", "most"), MEMORY, ids=[str(size) for size, _ in MEMORY])
def test_the_daemon_takes_no_more_memory_than_it_may(mode: str, size: Size, most: int) -> None:
    assert asyncio.run(peak_of(mode, size)) < most


def test_memory_is_flat_over_20000_changes() -> None:
    """Other tests beside it may delay some batches, which become larger then: a leak is in the second run, too."""
    samples = asyncio.run(follow("nftables", EVENTS, SERVICES))
    if growth(samples) >= ALLOWED:
        samples = asyncio.run(follow("nftables", EVENTS, SERVICES))
    assert samples[-1].events >= EVENTS
    assert growth(samples) < ALLOWED, samples


def leaking(bytes_an_event: int, larger_batch_at: int = EVENTS) -> list[Sample]:
    """What a daemon that leaks so much would show, after it has filled its caches; a larger batch takes 2 MB once."""
    return [
        Sample(
            events,
            40 + min(events, 4000) / 1000 + bytes_an_event * events / 1e6 + 2 * (events > larger_batch_at),
        )
        for events in range(500, EVENTS + 1, 500)
    ]


@pytest.mark.parametrize("larger_batch_at", [EVENTS, EVENTS * 5 // 8, EVENTS * 7 // 8])
def test_a_leak_would_be_seen_and_one_larger_batch_is_none(larger_batch_at: int) -> None:
    assert growth(leaking(0, larger_batch_at)) < ALLOWED
    assert growth(leaking(200, larger_batch_at)) > ALLOWED
