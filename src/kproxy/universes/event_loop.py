"""Event loop of the process inside a universe, which reads the clock once for each wait.

Computing takes no time there: between two waits the clock stands still, except for the 256 ns by which the kernel moves it at
each reading. A reading is a system call, and asyncio makes several for each event.
"""

from __future__ import annotations

import asyncio
import selectors
import time


class _Selector(selectors.EpollSelector):
    """Selector that remembers when it last returned, in seconds of the monotonic clock."""

    def __init__(self) -> None:
        super().__init__()
        self.now = time.monotonic()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(timeout)
        if timeout != 0:
            self.now = time.monotonic()
        return events


class UniverseLoop(asyncio.SelectorEventLoop):
    """Event loop whose time is that of its last wait: a callback that itself waits, for a process, makes timers early."""

    def __init__(self) -> None:
        self._clock = _Selector()
        super().__init__(self._clock)

    def time(self) -> float:
        """Seconds of the monotonic clock."""
        return self._clock.now
