"""Settling: waits until a subject has applied everything that was written, with sentinel Services.

Theory of operation, on top of `kproxy.conformance.testbeds.barrier`. `Settling.settle` is called after the changes of
a round:

1. The sentinels of the last round are deleted and a new one is created.  Proxies apply changes in order, so when it is
   served on a node, in a family, all changes before it are applied there.
2. They need not be *finished*: a proxy may remove stale rules or conntrack entries after it has written the new
   ones.  So a second change follows.  A proxy's syncs do not overlap; when the second change is in effect, the sync of
   the first has ended, clean-up included.
3. The second change is isolated, nothing else is written with it, so the time it takes is the network programming latency of
   one change (`LatencySample`, `kproxy.conformance.engine.convergence`).  With ``varied`` it is in turn a moved endpoint,
   a deletion, another port, a creation.

A sentinel has a fresh name and cluster IP, so the reply of an old one cannot be taken for it. Probes time out after
30 ms at first, so that silence does not blur the measured time, and after up to 0.3 s on slow machines.

If a sentinel is overdue, the cause has to be known: `control` connects to the sentinels' pod directly. If that fails
the lab is broken (`HarnessError`), else the subject is (`SubjectFailed`, `NothingServed` if it has never served).

In a profile with ``lone_changes`` no sentinel follows from the second round on, so that a change which a proxy has missed
stays missed: `pass_time` waits several times as long as changes that came alone have taken in the first round,
and as long as the subject's minSyncPeriod allows.

A proxy whose writes fail by injection is excused; if those of one family fail, it has half of the time to serve the
other, since every system call of it and of its tools is traced meanwhile. When it can write again it has to apply the
backlog by itself, so it first has a quarter of the time to serve the last sentinel, before a new one would trigger a
write (`_catches_up`); likewise where its rules were removed by another program, after a wait as for a change alone.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial

from kproxy.conformance.binding.world import Change, Put, Remove
from kproxy.conformance.engine.convergence import BOUND, ChangeKind, LatencySample
from kproxy.conformance.testbed import HarnessError, NothingServed, SubjectFailed
from kproxy.conformance.testbeds.barrier import Overdue, Place, wait_until_served
from kproxy.conformance.testbeds.lag import lag
from kproxy.conformance.testbeds.sentinel import MOVED, MOVED_PORT, SENTINEL_PORT, Sentinel
from kproxy.lab.probes.observation import Answered, Observation, ProbeRequest
from kproxy.lab.topology import LAB, Topology
from kproxy.model.network import Family

_FIRST_PATIENCE, _PATIENCE = 0.03, 0.3
_DIRECT = 5.0
"""Seconds to wait for the sentinels' pod without a Service."""
_OF_THE_TIME = 1 / 4
"""Fraction of the time limit that a proxy has to apply what it could not write before."""
_WHILE_TRACED = 1 / 2
"""Fraction that it has to apply what it can write while it cannot write all."""
_ALONE = 1 / 12
"""Fraction that the restoring of rules, and a change which comes alone, may take at most: by default that of `kproxy.conformance.engine.convergence.BOUND`."""
_LEAST, _TIMES_THE_SLOWEST = 1.0, 5
"""Shortest wait for such a change, in seconds, and the wait in units of the slowest that was timed."""
_PACED = 2
"""Times that a change alone may wait for the subject's minSyncPeriod: for what came before it, and for one that it is put off by."""
_SECOND = (ChangeKind.MOVED, ChangeKind.DELETED, ChangeKind.PORT, ChangeKind.CREATED)
"""Kinds of the second change, in turn: each an isolated change."""

Check = Callable[[], None]


class Settling:
    """Made of functions to write changes, to probe, and to describe overdue pairs after ``seconds``."""

    def __init__(
        self,
        write: Callable[[Sequence[Change]], Awaitable[None]],
        probe: Callable[[ProbeRequest], Awaitable[Observation]],
        overdue: Callable[[Sequence[Place], float], str],
        seconds: float,
        topology: Topology = LAB,
        *,
        varied: bool = False,
    ) -> None:
        """``varied``: the second change is of another kind each time; the pod must listen on both of its ports then."""
        self._write, self._probe, self._overdue = write, probe, overdue
        self._seconds = seconds
        self._numbers = itertools.count()
        self._standing: list[Sentinel] = []
        self._works = False
        self.served = False
        """True once the subject has served a Service everywhere."""
        self._unwritable: set[Place] = set()
        self._caught_up = True
        self._restored_within = 0.0
        """Seconds for removed rules to be back; 0: none were removed."""
        self._topology, self.families = topology, topology.families
        self.applied: list[LatencySample] = []
        """Every change that was awaited, except the first of all, which waits for the subject's start."""
        self._begun = 0.0
        self._second = itertools.cycle(_SECOND if varied else (ChangeKind.CREATED,))

    def excuse(self, node: str, family: Family | None = None) -> None:
        """Do not wait for this node's proxy, which cannot write, in one family or (None) any."""
        self._unwritable |= set(itertools.product([node], [family] if family else Family))

    def expect(self, node: str) -> None:
        """Wait for this node's proxy again, which has to apply by itself what it could not write."""
        excused = set(itertools.product([node], Family)) & self._unwritable
        self._caught_up = self._caught_up and not excused
        self._unwritable -= excused

    def expect_restored(self, *, without_change: bool, within: float = BOUND) -> None:
        """Wait until what was served is served again, by proxies that no change makes write, or else one after some time.

        A sentinel does not show all of it: IPVS serves on without the rules that masquerade and reject.  ``within``: seconds
        for it, where changes are not slower.  The time limit, which may be an hour, is for a subject that is late.
        """
        self._caught_up, self._restored_within = self._caught_up and not without_change, within

    def _places(self) -> list[Place]:
        places = itertools.product(self._topology.nodes, self.families)
        return [place for place in places if place not in self._unwritable]

    async def settle(self, check: Check = lambda: None) -> None:
        """Return when both proxies have applied everything that was written, and have ended the sync that did.

        ``check`` raises when a proxy has ended. Raises `SubjectFailed` when they do not, `NothingServed` when they
        have never done so yet, and `HarnessError` when the control fails.
        """
        try:
            await self._settle(check)
        except SubjectFailed as reason:
            if isinstance(reason, Overdue) and not self._works:
                await self.control()
            raise reason if self.served else NothingServed(str(reason)) from reason
        self.served = True

    async def pass_time(self, check: Check, min_sync_seconds: float = 0.0) -> None:
        """Return when a change that came alone must be in effect, judged by those that were timed here; write nothing.

        ``min_sync_seconds``: of the subject's configuration.  A change may wait for so long, and for a sync that has begun meanwhile.
        """
        await self._several_times_the_slowest(_LEAST, _PACED * min_sync_seconds)
        check()

    async def _several_times_the_slowest(self, least: float, longer: float = 0.0) -> None:
        """Sleep for the time that a change alone may take, at least ``least`` seconds, and ``longer``; the most if none was timed."""
        slowest = max((sample.seconds for sample in self.applied if sample.isolated), default=self._seconds)
        seconds = max(_TIMES_THE_SLOWEST * slowest, least) + longer
        await asyncio.sleep(min(seconds, self._seconds * _ALONE))

    async def control(self) -> None:
        """Reach the sentinels' pod from every node in every family, without a Service; raises `HarnessError`.

        If it is reached before the subject is started, the lab works, and a later failure is the subject's.
        """
        for node, family in self._places():
            pod = self._topology.sentinel_pod
            to = self._topology.pod_address[pod][family]
            direct = ProbeRequest(sender=node, destination=to, port=SENTINEL_PORT, patience=_DIRECT)
            if not _answered(seen := await self._probe(direct), pod):
                reason = f"node {node} does not reach pod {pod} by {family.value}, without any Service"
                raise HarnessError(f"{reason}: {seen}")
        self._works = True

    async def _settle(self, check: Check) -> None:
        if self._restored_within:
            await self._several_times_the_slowest(self._restored_within)
            self._restored_within = 0.0
        if not self._caught_up and not await self._catches_up(check):
            return
        await self.remove_sentinels()
        first = await self._created(ChangeKind.TOGETHER, check)
        match next(self._second):
            case ChangeKind.MOVED:
                await self._replaced(ChangeKind.MOVED, replace(first, target=MOVED_PORT), check)
            case ChangeKind.PORT:
                await self._replaced(ChangeKind.PORT, replace(first, port=first.port + 1), check)
            case ChangeKind.DELETED:
                await self._created(ChangeKind.CREATED, check)
                await self._deleted(first, check)
            case _:
                await self._created(ChangeKind.CREATED, check)

    async def remove_sentinels(self) -> None:
        """Delete the sentinels that there are."""
        await self._write([Remove(key) for old in self._standing for key in old.keys])
        self._standing = []

    async def _created(self, kind: ChangeKind, check: Check) -> Sentinel:
        sentinel = Sentinel(next(self._numbers), families=self.families, topology=self._topology)
        self._standing.append(sentinel)
        await self._changed(kind, sentinel, check)
        return sentinel

    async def _replaced(self, kind: ChangeKind, sentinel: Sentinel, check: Check) -> None:
        self._standing[-1] = sentinel
        await self._changed(kind, sentinel, check)

    async def _changed(self, kind: ChangeKind, sentinel: Sentinel, check: Check) -> None:
        await self._write([Put(document) for document in sentinel.documents])
        await self._measured(kind, partial(self._serves, sentinel), check)

    async def _deleted(self, sentinel: Sentinel, check: Check) -> None:
        self._standing.remove(sentinel)
        await self._write([Remove(key) for key in sentinel.keys])
        await self._measured(ChangeKind.DELETED, partial(self._is_gone, sentinel), check)

    async def _measured(
        self, kind: ChangeKind, done: Callable[[str, Family], Awaitable[bool]], check: Check
    ) -> None:
        """Wait until a change that was just committed is in effect everywhere, and record its latency."""
        self._begun, starting = time.monotonic(), kind is ChangeKind.TOGETHER and not self.served
        async with lag() as slow:

            def seen(place: Place) -> None:
                taken = time.monotonic() - self._begun
                node, family = place
                applied = LatencySample(
                    kind=kind,
                    node=node,
                    family=family,
                    seconds=taken,
                    stalled=slow.stalled,
                    slowness=slow.slowness,
                )
                self.applied += [] if starting else [applied]

            wait = partial(wait_until_served, probe=done, check=check, overdue=self._late, seen=seen)
            disturbed = {node for node, _ in self._unwritable}
            other_families = {place for place in self._places() if place[0] in disturbed}
            await asyncio.gather(
                wait(set(self._places()) - other_families, seconds=self._seconds),
                self._unless_late(wait(other_families, seconds=self._seconds * _WHILE_TRACED)),
            )

    async def _unless_late(self, wait: Awaitable[None]) -> None:
        """Wait for nodes that cannot write another family, and go on without those that are late: the case's checks show it."""
        try:
            await wait
        except Overdue as late:
            self._unwritable |= set(late.waiting)

    async def _catches_up(self, check: Check) -> bool:
        """True if a proxy that can write again applies what it could not, or what it lost; a new sentinel would make it write anyway.

        If it does not, the case's checks show it.
        """
        self._caught_up = True
        last = partial(self._serves, self._standing[-1])
        try:
            await wait_until_served(self._places(), last, check, self._late, self._seconds * _OF_THE_TIME)
        except Overdue:
            return False
        return True

    def _late(self, waiting: Sequence[Place]) -> str:
        return self._overdue(waiting, self._seconds)

    async def _serves(self, sentinel: Sentinel, node: str, family: Family) -> bool:
        seen = await self._probed(sentinel, node, family, self._patience)
        return _answered(seen, sentinel.topology.sentinel_pod if sentinel.target == SENTINEL_PORT else MOVED)

    async def _is_gone(self, sentinel: Sentinel, node: str, family: Family) -> bool:
        seen = await self._probed(sentinel, node, family, _PATIENCE)
        return not _answered(seen, sentinel.topology.sentinel_pod, MOVED)

    async def _probed(self, sentinel: Sentinel, node: str, family: Family, patience: float) -> Observation:
        to = sentinel.cluster_ip(family)
        request = ProbeRequest(sender=node, destination=to, port=sentinel.port, patience=patience)
        return await self._probe(request)

    @property
    def _patience(self) -> float:
        """Patience of a probe in seconds, as an unallocated address may be silent.

        Short at first, so that silence does not blur the measured time, longer on slow machines.
        """
        return min(max(time.monotonic() - self._begun, _FIRST_PATIENCE), _PATIENCE)


def _answered(seen: Observation, *who: str) -> bool:
    return isinstance(seen, Answered) and seen.who in who
