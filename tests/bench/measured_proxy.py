"""One proxy in a run: its starts, its changes, their cost, with timeouts for both."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from typing import Protocol

from kproxy.conformance.subjects.subject import Subject
from kproxy.conformance.testbed import HarnessError
from kproxy.lab.apiserver import ObjectStore
from tests.bench import rules, world
from tests.bench.parameters import Parameters
from tests.bench.process import Tree
from tests.bench.results import Cost, Floor, Result
from tests.bench.stage import Stage, open_stage, put, take_away
from tests.bench.world import LIVE_ENDPOINTS, Live

START_EVERY, CHANGE_EVERY = 0.02, 0.002
"""Seconds between connection attempts."""

_PAUSE = 0.1
"""Largest random pause before a change in seconds, so that changes meet a proxy's pacing at any moment."""


class Bare(Protocol):
    """The bare tool, which runs before each turn and after each change."""

    def quickest(self) -> float:
        """Shortest time so far for writing everything, in seconds; 0 without a bare tool."""

    def change(self) -> None:
        """Run the bare tool for one change."""


class MeasuredProxy:
    """The samples of one proxy, as they are measured.

    ``trouble``: reason why it is out of the run.  The store is restored at the end.
    """

    def __init__(
        self,
        parameters: Parameters,
        subject: Subject,
        store: ObjectStore,
        bare: Bare,
        progress: Callable[[str], None],
    ) -> None:
        """``progress`` gets a line of text at each step."""
        self.name, self.trouble = subject.name, ""
        self._parameters, self._subject, self._store = parameters, subject, store
        self._bare, self._progress = bare, progress
        self._lives = world.standing(parameters.size)
        self._starts: list[Cost] = []
        self._first: list[float] = []
        self._changes: list[float] = []
        self._additions: list[float] = []
        self._cpu_per_change = 0.0
        self._daemon_peak = self._tree_peak = 0
        self._rules: int | None = None
        self._done = False

    async def turn(self, *, last: bool) -> None:
        """Start once, and in the last turn measure changes too; a slow proxy has fewer turns."""
        if self._done:
            return
        parameters = self._parameters
        try:
            async with open_stage(self._subject, parameters.mode, parameters.variant, self._store) as stage:
                await self._turn(stage, last=last)
        except HarnessError as reason:
            self.trouble, self._done = str(reason), True

    def result(self, floor: Floor | None) -> Result:
        """All samples, with those of the bare tool."""
        return Result(
            subject=self.name,
            mode=self._parameters.mode,
            variant=self._parameters.variant.name.lower(),
            size=str(self._parameters.size),
            starts=self._starts,
            first=self._first,
            changes=self._changes,
            cpu_per_change=self._cpu_per_change,
            additions=self._additions,
            daemon_peak=self._daemon_peak,
            tree_peak=self._tree_peak,
            rules=self._rules,
            floor=floor,
        )

    def _report(self, text: str) -> None:
        self._progress(f"{self.name}: {text}")

    async def _turn(self, stage: Stage, *, last: bool) -> None:
        self._report("start")
        started = time.monotonic()
        tree = stage.start()
        with tree.watched():
            # no proxy is quicker than the bare tool, and polling takes processor time from the proxies
            await asyncio.sleep(self._bare.quickest())
            within = self._parameters.patience
            programmed = [
                await stage.answered(live, LIVE_ENDPOINTS[0], START_EVERY, within) for live in self._lives
            ]
            self._starts.append(Cost(max(programmed) - started, tree.cpu()))
            self._first.append(max(programmed) - stage.requested())
            if last or sum(cost.seconds for cost in self._starts) > self._parameters.budget:
                self._done = True
                await self._follow(stage, tree)
            self._daemon_peak = max(self._daemon_peak, tree.daemon_peak())
        self._tree_peak = max(self._tree_peak, tree.peak)

    async def _follow(self, stage: Stage, tree: Tree) -> None:
        try:
            await stage.still(tree)
            await self._change(stage, tree)
            await self._add(stage, tree)
        finally:
            self._restore_world()
        self._report("counting rules")
        self._rules = await rules.count(stage.node, self._parameters.variant)

    async def _change(self, stage: Stage, tree: Tree) -> None:
        """Move the one endpoint of a Service from pod to pod."""
        live, used, began = self._lives[0], 0.0, time.monotonic()
        for number in range(1, self._parameters.changes + 1):
            if time.monotonic() - began > self._parameters.budget:
                break
            self._report(f"endpoint change {number} of {self._parameters.changes}")
            before = await self._rested(stage, tree)
            endpoint = LIVE_ENDPOINTS[number % len(LIVE_ENDPOINTS)]
            started = time.monotonic()
            put(stage.store, live.slice(endpoint))
            ended = await stage.answered(live, endpoint, CHANGE_EVERY, self._parameters.patience)
            self._changes.append(ended - started)
            used += await stage.still(tree) - before
            self._bare.change()
        self._cpu_per_change = used / max(1, len(self._changes))

    async def _add(self, stage: Stage, tree: Tree) -> None:
        for number in range(self._parameters.additions):
            self._report(f"new Service {number + 1} of {self._parameters.additions}")
            await self._rested(stage, tree)
            started = time.monotonic()
            ended = await self._appear(stage, world.added(number))
            self._additions.append(ended - started)

    async def _appear(self, stage: Stage, live: Live) -> float:
        put(stage.store, live.service())
        put(stage.store, live.slice(LIVE_ENDPOINTS[0]))
        return await stage.answered(live, LIVE_ENDPOINTS[0], CHANGE_EVERY, self._parameters.patience)

    async def _rested(self, stage: Stage, tree: Tree) -> float:
        """CPU seconds so far, after an idle pause of random length."""
        used = await stage.still(tree)
        time.sleep(random.uniform(0, _PAUSE))  # noqa: ASYNC251, S311 - nobody else has anything to do
        return used

    def _restore_world(self) -> None:
        put(self._store, self._lives[0].slice(LIVE_ENDPOINTS[0]))
        for number in range(self._parameters.additions):
            live = world.added(number)
            take_away(self._store, live.service(), live.slice(LIVE_ENDPOINTS[0]))
