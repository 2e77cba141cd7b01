"""The order of a run: floors and starts turn by turn, then changes, each followed by its floor."""

from __future__ import annotations

import contextlib
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kproxy.conformance.subject import Subject
from kproxy.lab.apiserver import Store
from kproxy.lab.processes import Xtables
from tests.bench import rules, world
from tests.bench.floors import IptablesFloor, NftablesFloor
from tests.bench.process import Tree
from tests.bench.results import Cost, Floor, Result
from tests.bench.stage import Stage, open_stage, put
from tests.bench.world import BACKENDS, Live, Size

START_WITHIN = 600.0
CHANGE_WITHIN = 120.0
START_EVERY, CHANGE_EVERY = 0.02, 0.002
"""Seconds between connection attempts."""

_PAUSE = 0.1
"""Changes come after a pause of up to so long, to meet any pacing at any moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is to be measured; ``repeat`` starts, ``changes`` endpoint changes, ``additions`` new Services."""

    subject: Subject
    mode: str
    variant: Xtables
    size: Size
    repeat: int
    changes: int
    additions: int


async def measure(order: Order, say: Callable[[str], None]) -> Result:
    """Measure one proxy in one mode at one size.

    Raises `kproxy.conformance.testbed.Broken` when the proxy does not do its work,
    `kproxy.lab.namespaces.LabError` when this machine cannot.
    """
    return await _Run(order, say).result()


@contextlib.contextmanager
def _floor(order: Order) -> Iterator[IptablesFloor | NftablesFloor | None]:
    """The floor of a mode, where it has one."""
    if order.mode not in {"iptables", "nftables"}:
        yield None
        return
    with (
        tempfile.TemporaryDirectory(prefix="kproxy-bench-floor-") as directory,
        contextlib.closing(_made(order, Path(directory))) as floor,
    ):
        yield floor


def _made(order: Order, directory: Path) -> IptablesFloor | NftablesFloor:
    live = world.standing(order.size)[0]
    plan = world.planned(world.documents(order.size), order.mode)
    if order.mode == "iptables":
        return IptablesFloor(plan, live, order.variant, directory)
    moved = world.planned((*world.documents(order.size), live.slice(BACKENDS[1])), order.mode)
    return NftablesFloor(plan, moved, directory)


class _Run:
    """The samples of one order as they come in."""

    def __init__(self, order: Order, say: Callable[[str], None]) -> None:
        self._order, self._say = order, say
        self._lives = world.standing(order.size)
        self._starts: list[Cost] = []
        self._first: list[float] = []
        self._changes: list[float] = []
        self._additions: list[float] = []
        self._cpu_per_change = 0.0
        self._daemon_peak = self._tree_peak = 0
        self._rules: int | None = None
        self._whole: dict[str, list[Cost]] = {}
        self._service: list[float] = []

    async def result(self) -> Result:
        """Take all samples."""
        order = self._order
        with _floor(order) as floor:
            store = _filled(order.size)
            for turn in range(order.repeat):
                self._restore(floor)
                last = turn == order.repeat - 1
                async with open_stage(order.subject, order.mode, order.variant, store) as stage:
                    await self._start(stage, floor if last else None, last=last)
            found = Floor(whole=self._whole, service=self._service) if floor else None
        return Result(
            subject=order.subject.name,
            mode=order.mode,
            variant=order.variant.name.lower(),
            size=str(order.size),
            starts=self._starts,
            first=self._first,
            changes=self._changes,
            cpu_per_change=self._cpu_per_change,
            additions=self._additions,
            daemon_peak=self._daemon_peak,
            tree_peak=self._tree_peak,
            rules=self._rules,
            floor=found,
        )

    def _restore(self, floor: IptablesFloor | NftablesFloor | None) -> None:
        if floor is None:
            return
        for way in floor.ways:
            self._say(f"the bare tool: {way.name}")
            self._whole.setdefault(way.name, []).append(floor.whole(way))

    async def _start(self, stage: Stage, floor: IptablesFloor | NftablesFloor | None, *, last: bool) -> None:
        self._say(f"{self._order.subject.name} starts")
        started = time.monotonic()
        tree = stage.start()
        with tree.watched():
            programmed = [
                await stage.answered(live, BACKENDS[0], START_EVERY, START_WITHIN) for live in self._lives
            ]
            self._starts.append(Cost(max(programmed) - started, tree.cpu()))
            self._first.append(max(programmed) - stage.asked())
            if last:
                await stage.still(tree)
                await self._change(stage, tree, floor)
                await self._add(stage, tree)
                self._say("counting rules")
                self._rules = await rules.count(stage.node, self._order.variant)
            self._daemon_peak = max(self._daemon_peak, tree.daemon_peak())
        self._tree_peak = max(self._tree_peak, tree.peak)

    async def _change(self, stage: Stage, tree: Tree, floor: IptablesFloor | NftablesFloor | None) -> None:
        """Move the one endpoint of a Service from pod to pod."""
        live, used = self._lives[0], 0.0
        for number in range(1, self._order.changes + 1):
            self._say(f"endpoint change {number} of {self._order.changes}")
            before = await self._rested(stage, tree)
            backend = BACKENDS[number % len(BACKENDS)]
            started = time.monotonic()
            put(stage.store, live.slice(backend))
            ended = await stage.answered(live, backend, CHANGE_EVERY, CHANGE_WITHIN)
            self._changes.append(ended - started)
            used += await stage.still(tree) - before
            if floor is not None:
                self._service.append(floor.service().seconds)
        self._cpu_per_change = used / max(1, self._order.changes)

    async def _add(self, stage: Stage, tree: Tree) -> None:
        for number in range(self._order.additions):
            self._say(f"new Service {number + 1} of {self._order.additions}")
            await self._rested(stage, tree)
            started = time.monotonic()
            ended = await self._appear(stage, world.added(number))
            self._additions.append(ended - started)

    async def _appear(self, stage: Stage, live: Live) -> float:
        put(stage.store, live.service())
        put(stage.store, live.slice(BACKENDS[0]))
        return await stage.answered(live, BACKENDS[0], CHANGE_EVERY, CHANGE_WITHIN)

    async def _rested(self, stage: Stage, tree: Tree) -> float:
        """CPU seconds up to now, after a pause of random length in which nothing was done."""
        used = await stage.still(tree)
        time.sleep(random.uniform(0, _PAUSE))  # noqa: ASYNC251, S311 - nobody else has anything to do
        return used


def _filled(size: Size) -> Store:
    store = Store()
    with store.batch():
        for document in world.documents(size):
            put(store, document)
    return store
