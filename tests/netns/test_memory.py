"""The daemon's memory over many changes, in short; ``./run churn`` runs a day of them."""

from __future__ import annotations

import asyncio

from tests.bench.churn import Sample, follow, growth

EVENTS, SERVICES = 20_000, 300
ALLOWED = 1.0
"""MB over the second half: some 100 bytes an event, less than any object would cost that is not forgotten."""


def test_memory_is_flat_over_20000_changes() -> None:
    samples = asyncio.run(follow("nftables", EVENTS, SERVICES))
    assert samples[-1].events >= EVENTS
    assert growth(samples) < ALLOWED, samples


def leaking(bytes_an_event: int) -> list[Sample]:
    """What a daemon that leaks so much would show, after it has filled its caches."""
    return [
        Sample(events, 40 + min(events, 4000) / 1000 + bytes_an_event * events / 1e6)
        for events in range(500, EVENTS + 1, 500)
    ]


def test_a_leak_would_be_seen() -> None:
    assert growth(leaking(0)) < ALLOWED
    assert growth(leaking(200)) > ALLOWED
