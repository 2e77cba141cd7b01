"""Slowness of the machine while a subject is awaited: the control that keeps it from counting against the subject.

Two things are measured. How long the harness was stalled: its own timer fires late. And, once the wait is no longer a
short one, how long a fixed piece of work takes: a shell that is started and counts. A proxy that sleeps until its
resync leaves the machine idle and is not excused; one that gets no processor waits as long as that shell does.  Where
others keep the machine busy the two cannot be told apart, and a wait by a timer is divided as well.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from kproxy.linux.host import run_tool

TICK = 0.1
LONG = 1.0
"""Seconds of waiting after which the machine's speed is measured, and between later measurements."""
WORK = ("sh", "-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done")
USUAL = 0.1
"""Seconds that the work takes at most on a healthy machine; idle, some 0.03 (2 GHz)."""


@dataclass(slots=True)
class Lag:
    """Measurements up to now."""

    stalled: float = 0.0
    worked: float = 0.0
    works: int = 0

    @property
    def slowness(self) -> float:
        """Mean time of the work in units of `USUAL`, at least 1. The mean: one stall counts as long as it lasted."""
        return max(self.worked / (USUAL * self.works), 1.0) if self.works else 1.0

    async def _tick(self) -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(TICK)
            self.stalled += max(time.monotonic() - before - TICK, 0.0)

    async def _try(self) -> None:
        while True:
            await asyncio.sleep(LONG)
            before = time.monotonic()
            await asyncio.to_thread(
                run_tool, WORK
            )  # not asyncio's process: cancelled while it starts, that never ends
            self.worked += time.monotonic() - before
            self.works += 1


@asynccontextmanager
async def lag() -> AsyncIterator[Lag]:
    """Measure for the length of the context."""
    found = Lag()
    tasks = [asyncio.create_task(found._tick()), asyncio.create_task(found._try())]  # noqa: SLF001 (this module's own)
    try:
        yield found
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
