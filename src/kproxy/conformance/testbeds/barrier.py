"""Barrier: waits until every node serves a sentinel Service in every family.

A proxy that serves it has applied all changes before it. Used by the testbed of namespaces and by the copy of a
cluster (`kproxy.tools.lab_session`).

Theory of operation. There is no API by which a proxy of any make reports that it has applied a change, and waiting a
fixed time is slow or wrong. But proxies apply changes in the order in which they receive them, each family and node
in a loop of its own. So a change can be observed by traffic: write the changes, then a Service with one endpoint that
always replies, and connect to its cluster IP from every node in every family until each connection is answered by
that endpoint (`wait_until_served`). Pairs that have served once are not probed again. Between rounds `check` raises
if the subject has ended, and after a time limit the pairs left are `Overdue`.

What to write, and the second sentinel that proves that the sync has ended, is `kproxy.conformance.testbeds.settling`;
the Services are `kproxy.conformance.testbeds.sentinel`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence

from kproxy.conformance.testbed import SubjectFailed
from kproxy.model.network import Family

POLL = 0.01
"""Seconds between two rounds of probes."""

Place = tuple[str, Family]
"""Node by its name, and a family that it serves."""


class Overdue(SubjectFailed):
    """Pairs that do not serve within the time limit, in ``waiting``."""

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
    """Probe the pairs that do not serve yet until none is left; ``check`` raises when a proxy has ended.

    ``seen`` is called with each as soon as it serves.

    Raises `Overdue` with the text of ``overdue`` for those left after ``seconds``, and the exceptions of ``check``.
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
