"""Waiting until a subject has applied all that was written: a sentinel Service that answers on both nodes.

Proxies apply changes in order, so what came before a sentinel is applied when it answers.  A second one then proves
that the sync which served the first has ended, clean-up included (a proxy's syncs do not overlap).
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from kproxy.conformance.testbed import Broken, NeverServed, SubjectFailed
from kproxy.conformance.testbeds.barrier import Overdue, Place, served
from kproxy.conformance.testbeds.sentinel import SENTINEL_POD, SENTINEL_PORT, Sentinel
from kproxy.conformance.world import Change, Put, Remove
from kproxy.lab import topology
from kproxy.lab.observation import Answered, Observation, ProbeRequest
from kproxy.net import Family

_PATIENCE = 0.3
_DIRECT = 5.0
"""Seconds to wait for a sentinel, and for its pod without a Service."""
_SENTINELS = 2
_OF_THE_TIME = 1 / 4
"""That a proxy has to apply changes: for those that it could not write before."""


class Settling:
    """Made of how to write, how to ask from a node, and what to say of who is late after ``seconds``."""

    def __init__(
        self,
        write: Callable[[Sequence[Change]], Awaitable[None]],
        ask: Callable[[ProbeRequest], Awaitable[Observation]],
        overdue: Callable[[Sequence[Place], float], str],
        seconds: float,
        families: Sequence[Family] = tuple(Family),
    ) -> None:
        self._write, self._ask, self._overdue = write, ask, overdue
        self._seconds = seconds
        self._numbers = itertools.count()
        self._standing: list[Sentinel] = []
        self._served = self._works = False
        self._unwritable: set[str] = set()
        self._caught_up = True
        self.families = tuple(families)

    def excuse(self, node: str) -> None:
        """The proxy of this node cannot write: it is not waited for."""
        self._unwritable.add(node)

    def expect(self, node: str) -> None:
        """It can write again, and is to apply by itself what it could not."""
        self._caught_up = self._caught_up and node not in self._unwritable
        self._unwritable.discard(node)

    def _places(self) -> list[Place]:
        nodes = [node for node in topology.NODES if node not in self._unwritable]
        return list(itertools.product(nodes, self.families))

    async def settle(self, check: Callable[[], None] = lambda: None) -> None:
        """Return when both proxies have applied all that was written, and have ended the sync that did.

        ``check`` finds a proxy that has ended.  Raises `SubjectFailed` when they do not, `NeverServed` when they have
        never done so yet, and `Broken` when the control fails.
        """
        try:
            await self._settle(check)
        except SubjectFailed as reason:
            if isinstance(reason, Overdue) and not self._works:
                await self.control()
            raise reason if self._served else NeverServed(str(reason)) from reason
        self._served = True

    async def control(self) -> None:
        """Reach the sentinels' pod from every node in every family, without a Service; raises `Broken`.

        Where that arrives before the subject is started, the lab works, and what does not arrive later is the subject's.
        """
        for node, family in self._places():
            to = topology.POD_ADDRESS[SENTINEL_POD][family]
            direct = ProbeRequest(sender=node, destination=to, port=SENTINEL_PORT, patience=_DIRECT)
            if not _from_sentinel(seen := await self._ask(direct)):
                reason = (
                    f"node {node} does not reach pod {SENTINEL_POD} by {family.value}, without any Service"
                )
                raise Broken(f"{reason}: {seen}")
        self._works = True

    async def _settle(self, check: Callable[[], None]) -> None:
        if not self._caught_up and not await self._catches_up(check):
            return
        await self._write([Remove(key) for old in self._standing for key in old.keys])
        self._standing = []
        for _ in range(_SENTINELS):
            sentinel = Sentinel(next(self._numbers), families=self.families)
            self._standing.append(sentinel)
            await self._write([Put(document) for document in sentinel.documents])
            await served(self._places(), partial(self._serves, sentinel), check, self._late, self._seconds)

    async def _catches_up(self, check: Callable[[], None]) -> bool:
        """Whether a proxy that can write again applies what it could not; a new sentinel would make it write anyway.

        Where it does not, the questions show it.
        """
        self._caught_up = True
        last = partial(self._serves, self._standing[-1])
        try:
            await served(self._places(), last, check, self._late, self._seconds * _OF_THE_TIME)
        except Overdue:
            return False
        return True

    def _late(self, waiting: Sequence[Place]) -> str:
        return self._overdue(waiting, self._seconds)

    async def _serves(self, sentinel: Sentinel, node: str, family: Family) -> bool:
        to = sentinel.cluster_ip(family)
        asked = ProbeRequest(sender=node, destination=to, port=sentinel.port, patience=_PATIENCE)
        return _from_sentinel(await self._ask(asked))


def _from_sentinel(seen: Observation) -> bool:
    return isinstance(seen, Answered) and seen.who == SENTINEL_POD
