"""The event loop inside a universe."""

from __future__ import annotations

import asyncio
import time

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
