"""The wait until every node serves a sentinel Service in every family: a proxy that does has applied what came before it.

Used by the testbed of namespaces and by the copy of a cluster (`kproxy.tools.lab_session`), which have sentinels of their own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence

from kproxy.conformance.testbed import SubjectFailed
from kproxy.model.network import Family

POLL = 0.01
"""Seconds between two looks."""

Place = tuple[str, Family]
"""A node by its name, and a family that it serves."""


class Overdue(SubjectFailed):
    """Places that do not serve within their time; ``waiting``: which."""

    def __init__(self, reason: str, waiting: Sequence[Place]) -> None:
        super().__init__(reason)
        self.waiting = tuple(waiting)


async def wait_until_served(
    places: Iterable[Place],
    probe: Callable[[str, Family], Awaitable[bool]],
    check: Callable[[], None],
    overdue: Callable[[Sequence[Place]], str],
    seconds: float,
    seen: Callable[[Place], None] = lambda _: None,
) -> None:
    """Ask the places that do not serve yet until none is left; ``check`` finds a proxy that has ended.

    ``seen`` is called with each as soon as it serves.

    Raises `Overdue` with what ``overdue`` says of those left after ``seconds``, and what ``check`` raises.
    """
    deadline = time.monotonic() + seconds
    waiting = set(places)

    async def serves(place: Place) -> bool:
        if answer := await probe(*place):
            seen(place)
        return answer

    while waiting:
        pending = sorted(waiting, key=str)
        answers = await asyncio.gather(*map(serves, pending))
        waiting -= {place for place, serves in zip(pending, answers, strict=True) if serves}
        check()
        if waiting and time.monotonic() > deadline:
            late = sorted(waiting, key=str)
            raise Overdue(overdue(late), late)
        await asyncio.sleep(POLL if waiting else 0)
