"""Waiting for conditions without an event."""

from __future__ import annotations

import time
from collections.abc import Callable


def eventually(true: Callable[[], object], patience: float = 10.0, every: float = 0.02) -> bool:
    """True if the condition holds within ``patience`` seconds; evaluated every ``every`` seconds."""
    deadline = time.monotonic() + patience
    while not (came := bool(true())) and time.monotonic() < deadline:
        time.sleep(every)
    return came
