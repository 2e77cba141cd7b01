"""Sequence of a run: the bare tool and each proxy start in turns, on the same cluster.

A proxy's changes come after its last start, each followed by the bare tool's.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from kproxy.lab.apiserver import ObjectStore
from tests.bench import world
from tests.bench.floors import IptablesFloor, NftablesFloor
from tests.bench.measured_proxy import MeasuredProxy
from tests.bench.parameters import Parameters
from tests.bench.results import Cost, Floor, Result
from tests.bench.stage import put
from tests.bench.world import LIVE_ENDPOINTS, Size


@dataclass(frozen=True, slots=True)
class Measured:
    """Results of a run: the proxies that were measured, in order, and by name the reasons why others were not."""

    results: tuple[Result, ...]
    troubles: Mapping[str, str]


async def measure(parameters: Parameters, progress: Callable[[str], None]) -> Measured:
    """Measure proxies in one mode at one size.

    Raises `kproxy.lab.namespaces.LabError` when this machine cannot.
    """
    with _floor(parameters) as floor:
        bare, store = BareTool(floor, progress), _filled(parameters.size)
        proxies = [
            MeasuredProxy(parameters, subject, store, bare, progress) for subject in parameters.subjects
        ]
        for turn in range(1, parameters.repeat + 1):
            bare.whole()
            for proxy in proxies:
                await proxy.turn(last=turn == parameters.repeat)
        found = bare.samples()
    return Measured(
        tuple(proxy.result(found) for proxy in proxies if not proxy.trouble),
        {proxy.name: proxy.trouble for proxy in proxies if proxy.trouble},
    )


class BareTool:
    """The floor's samples, as they are measured; none without a floor."""

    def __init__(self, floor: IptablesFloor | NftablesFloor | None, progress: Callable[[str], None]) -> None:
        """Start without samples."""
        self._floor, self._progress = floor, progress
        self._whole: dict[str, list[Cost]] = {}
        self._changes: list[float] = []

    def whole(self) -> None:
        """Write everything, in each way."""
        for way in self._floor.ways if self._floor else ():
            self._progress(f"the bare tool: {way.name}")
            assert self._floor is not None
            self._whole.setdefault(way.name, []).append(self._floor.whole(way))

    def change(self) -> None:
        """Write one change."""
        if self._floor is not None:
            self._changes.append(self._floor.service().seconds)

    def quickest(self) -> float:
        """Shortest time so far for writing everything, in seconds; 0 without a floor."""
        return min((cost.seconds for costs in self._whole.values() for cost in costs), default=0.0)

    def samples(self) -> Floor | None:
        """All that was measured."""
        return Floor(whole=self._whole, service=self._changes) if self._floor else None


@contextlib.contextmanager
def _floor(parameters: Parameters) -> Iterator[IptablesFloor | NftablesFloor | None]:
    """The floor of a mode, where it has one."""
    if parameters.mode not in {"iptables", "nftables"}:
        yield None
        return
    with (
        tempfile.TemporaryDirectory(prefix="kproxy-bench-floor-") as directory,
        contextlib.closing(_made(parameters, Path(directory))) as floor,
    ):
        yield floor


def _made(parameters: Parameters, directory: Path) -> IptablesFloor | NftablesFloor:
    live = world.standing(parameters.size)[0]
    plan = world.planned(world.documents(parameters.size), parameters.mode)
    if parameters.mode == "iptables":
        return IptablesFloor(plan, live, parameters.variant, directory)
    moved = world.planned((*world.documents(parameters.size), live.slice(LIVE_ENDPOINTS[1])), parameters.mode)
    return NftablesFloor(plan, moved, directory)


def _filled(size: Size) -> ObjectStore:
    store = ObjectStore()
    with store.batch():
        for document in world.documents(size):
            put(store, document)
    return store
