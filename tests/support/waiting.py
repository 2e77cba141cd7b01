"""Waiting for what no event tells."""

from __future__ import annotations

import time
from collections.abc import Callable


def eventually(true: Callable[[], object], patience: float = 10.0, every: float = 0.02) -> bool:
    """Whether it comes true within so many seconds; looked at so often."""
    deadline = time.monotonic() + patience
    while not true() and time.monotonic() < deadline:
        time.sleep(every)
    return bool(true())
