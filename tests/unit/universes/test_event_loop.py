"""The event loop inside a universe."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from types import SimpleNamespace

import pytest

from kproxy.universes.event_loop import UniverseLoop


async def readings() -> tuple[float, float, float, float]:
    """The loop's time at the begin and end of a callback that takes 20 ms, then after a sleep of 50 ms, and the real one."""
    loop = asyncio.get_running_loop()
    begin = loop.time()
    time.sleep(0.02)  # noqa: ASYNC251 (what computes does not wait)
    end = loop.time()
    await asyncio.sleep(0.05)
    return begin, end, loop.time(), time.monotonic()


def test_time_stands_still_between_two_waits_and_then_is_the_clock() -> None:
    with asyncio.Runner(loop_factory=UniverseLoop) as runner:
        begin, end, later, real = runner.run(readings())
    assert begin == end
    assert begin + 0.05 <= later <= real
    assert real - later < 1


def test_no_timer_is_early_by_the_resolution_of_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A timer comes 2 ms after the begin; asyncio would run the one of 50 ms with it."""
    monkeypatch.setattr(time, "get_clock_info", lambda _: SimpleNamespace(resolution=0.1))

    async def time_left() -> float:
        loop = asyncio.get_running_loop()
        moment = loop.time() + 0.05
        earlier = asyncio.create_task(asyncio.sleep(0.002))
        with suppress(TimeoutError):
            async with asyncio.timeout_at(moment):
                await asyncio.Event().wait()
        await earlier
        return moment - loop.time()

    with asyncio.Runner(loop_factory=UniverseLoop) as runner:
        assert runner.run(time_left()) <= 0
