"""CPU time and memory of proxies that have nothing to do: an idle node, or changes in the cluster that concern no rule of it.

All proxies of a run stand in labs of their own at the same time, so that what else the machine does meets all alike.  Their nodes
have some hundred further interfaces with addresses, as nodes with many pods have.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from itertools import islice

from rich.console import Console
from rich.table import Table

from kproxy.conformance.testbed import HarnessError
from kproxy.lab.apiserver import ObjectStore
from kproxy.lab.namespaces import Namespace
from tests.bench import world
from tests.bench.measured_proxy import START_EVERY
from tests.bench.parameters import Parameters
from tests.bench.process import Tree
from tests.bench.stage import open_stage, put
from tests.bench.world import LIVE_ENDPOINTS

INTERFACES = 500
"""Further interfaces of the node; each has two addresses of IPv4 and one of IPv6."""

_SETTLE_SECONDS = 35.0
"""Seconds after the start until all is done that a start brings with it, the first look after a syncPeriod (30 s) included."""

_WRITE_EVERY = 0.02
"""Seconds between two writes of changes that concern no rule."""

_MEGABYTE = 1_000_000


@dataclass(frozen=True, slots=True)
class Idle:
    """One proxy over the time: CPU seconds, children's included, and bytes of memory, the most it ever had included."""

    subject: str
    mode: str
    variant: str
    size: str
    seconds: float
    changes: int
    """Changes in the cluster meanwhile, none of which concerns a rule."""
    cpu: float
    resident: int
    peak: int

    @property
    def share(self) -> float:
        """CPU time in percent of one processor."""
        return 100 * self.cpu / self.seconds


@dataclass(frozen=True, slots=True)
class Measured:
    """Results, and by name the reasons why a proxy was not measured."""

    results: tuple[Idle, ...]
    troubles: Mapping[str, str]


async def measure(
    parameters: Parameters, seconds: float, rate: int, progress: Callable[[str], None]
) -> Measured:
    """Measure all proxies for so many seconds, while ``rate`` changes a second are written that concern none of them.

    Raises `kproxy.lab.namespaces.LabError` when this machine cannot.
    """
    store, troubles, trees = _filled(parameters), dict[str, str](), dict[str, Tree]()
    async with AsyncExitStack() as stack:
        for subject in parameters.subjects:
            progress(f"{subject.name}: start")
            try:
                stage = await stack.enter_async_context(
                    open_stage(subject, parameters.mode, parameters.variant, store)
                )
                _add_interfaces(stage.node)
                tree = stage.start()
                for live in world.standing(parameters.size):
                    await stage.answered(live, LIVE_ENDPOINTS[0], START_EVERY, parameters.patience)
                trees[subject.name] = tree
            except HarnessError as reason:
                troubles[subject.name] = str(reason)
        await asyncio.sleep(_SETTLE_SECONDS)
        progress(f"idle for {seconds:g} s")
        loop = asyncio.get_running_loop()
        before, began = {name: tree.cpu() for name, tree in trees.items()}, loop.time()
        changes = await _write_unrelated(store, rate, began + seconds)
        took = loop.time() - began
        tools = parameters.mode, parameters.variant.name.lower(), str(parameters.size)
        results = tuple(
            Idle(
                name,
                *tools,
                took,
                changes,
                tree.cpu() - before[name],
                tree.daemon_resident(),
                tree.daemon_peak(),
            )
            for name, tree in trees.items()
        )
    return Measured(results, troubles)


def show(console: Console, results: Sequence[Idle]) -> None:
    """A row for each proxy and size."""
    table = Table(title="idle proxies", title_justify="left")
    for name in (
        "",
        "Services x\nendpoints",
        "seconds",
        "unrelated\nchanges/s",
        "CPU, s",
        "CPU, %",
        "MB",
        "peak MB",
    ):
        table.add_column(name, no_wrap=True, justify="left" if not name else "right")
    for each in results:
        table.add_row(
            f"{each.subject} {each.mode} {each.variant}",
            each.size,
            f"{each.seconds:.0f}",
            f"{each.changes / each.seconds:.0f}",
            f"{each.cpu:.2f}",
            f"{each.share:.2f}",
            f"{each.resident / _MEGABYTE:.0f}",
            f"{each.peak / _MEGABYTE:.0f}",
        )
    console.print(table)


def document(results: Sequence[Idle], environment: Mapping[str, str]) -> dict[str, object]:
    """All results, for JSON."""
    return {"environment": dict(environment), "results": [asdict(each) for each in results]}


async def _write_unrelated(store: ObjectStore, rate: int, until: float) -> int:
    """Write ``rate`` changes a second until then; returns how many were written: what the API server cannot do is not made up for."""
    loop, changes, written = asyncio.get_running_loop(), world.unrelated(), 0
    began = loop.time()
    while (now := loop.time()) < until:
        due = round((now - began) * rate) - written
        for change in islice(changes, min(due, rate)):
            put(store, change)
        written += max(0, min(due, rate))
        await asyncio.sleep(min(_WRITE_EVERY, max(0.0, until - loop.time())) if rate else until - now)
    return written


def _add_interfaces(node: Namespace) -> None:
    names = [f"idle{number}" for number in range(INTERFACES)]
    lines = [
        f"link add {one} type veth peer name {other}"
        for one, other in zip(names[::2], names[1::2], strict=True)
    ]
    for number, name in enumerate(names):
        high, low = divmod(number, 250)
        lines += [
            f"address add 198.18.{high}.{low}/32 dev {name}",
            f"address add 198.18.{high + 8}.{low}/32 dev {name}",
            f"address add 2001:db8:1d1e::{number + 1:x}/128 dev {name} nodad",
        ]
    node.run(("ip", "-batch", "-"), "\n".join(lines) + "\n")


def _filled(parameters: Parameters) -> ObjectStore:
    store = ObjectStore()
    with store.batch():
        for each in world.documents(parameters.size):
            put(store, each)
    return store
