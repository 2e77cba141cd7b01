"""Results as a table, and as a plot where matplotlib is installed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from math import nan
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.bench.results import MEGABYTE, Cost, Floor, Goal, Result, median

_MEASURES = (
    "start to\nprogrammed",
    "of it first\nprogramming",
    "CPU from\nthe start",
    "endpoint change,\nmedian",
    "\nworst",
    "\nof",
    "CPU for\none change",
    "new Service,\nmedian",
    "peak memory,\ndaemon",
    "with\nchildren",
    "\nrules",
)


def show(console: Console, results: Sequence[Result]) -> None:
    """A row for each result; below those of one size and mode, their floor."""
    table = Table(title="times in s, memory in MB", title_justify="left")
    for name in ("", "Services x\nendpoints"):
        table.add_column(name, no_wrap=True)
    for name in _MEASURES:
        table.add_column(name, justify="right")
    for size, group in _side_by_side(results):
        for result in group:
            table.add_row(f"{result.subject} {result.tools}", size, *_own(result))
        if floor := group[0].floor:
            table.add_row(f"bare tool ({floor.best_way})", size, *_bare(floor), style="dim")
        table.add_section()
    console.print(table)


def _side_by_side(results: Sequence[Result]) -> Iterable[tuple[str, list[Result]]]:
    for (size, _), group in groupby(results, key=lambda result: (result.size, result.tools)):
        yield size, list(group)


def verdicts(console: Console, result: Result, *, binding: bool) -> None:
    """The goals; where they do not bind, only the figures."""
    where = f"{result.subject} {result.tools} {result.size}"
    for goal in result.goals():
        _verdict(console, f"{where}: ", goal, binding=binding)
    if (ratio := result.start_cpu_ratio) is not None:
        text = f"{where}: start to programmed / floor in CPU seconds {ratio:.2f}"
        console.print(text, highlight=False, soft_wrap=True)


def growth_verdicts(console: Console, goals: Iterable[Goal]) -> None:
    """Verdicts on the cost of changes at growing size."""
    for goal in goals:
        _verdict(console, "", goal, binding=True)


def _verdict(console: Console, where: str, goal: Goal, *, binding: bool) -> None:
    word = ""
    if binding:
        reached = "[green]reached[/]" if goal.reached else "[red]missed[/]"
        word = f"(goal {goal.most:g}) {reached}"
    console.print(f"{where}{goal.name} {goal.value:.2f} {word}", highlight=False, soft_wrap=True)


def plot(results: Sequence[Result], path: Path) -> bool:
    """Draw starts, endpoint changes and memory, with their floors; False without matplotlib."""
    try:
        from matplotlib.figure import Figure  # type: ignore[import-not-found,unused-ignore] # noqa: PLC0415 - optional
    except ImportError:
        return False
    figure = Figure(figsize=(12, 1.5 + 0.6 * len(results)), layout="constrained")
    names = [f"{r.subject} {r.tools}\n{r.size}" for r in results]
    panels: tuple[tuple[str, Callable[[Result], float], Callable[[Floor], float]], ...] = (
        ("start to programmed, s", lambda r: r.best_start.seconds, lambda f: f.best.seconds),
        ("endpoint change, s (median)", lambda r: median(r.changes), lambda f: median(f.service)),
        ("peak memory of the daemon, MB", lambda r: r.daemon_peak / MEGABYTE, lambda _: nan),
    )
    for axes, (title, own, bare) in zip(figure.subplots(1, len(panels), sharey=True), panels, strict=True):
        values = [own(result) for result in results]
        axes.set_title(title)
        axes.barh(names, values, height=0.6, label="proxy")
        floors = [bare(result.floor) if result.floor else nan for result in results]
        axes.barh(names, floors, height=0.25, label="bare tool")
        if max(values) > _WIDE * min(values):
            axes.set_xscale("log")
    axes.invert_yaxis()
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    figure.savefig(path)
    return True


_WIDE = 20
"""Ratio of figures from which on a logarithmic axis is used: the smallest bar would be invisible."""


def _own(result: Result) -> Sequence[str]:
    """In the order of `_MEASURES`."""
    return (
        _best(result.starts),
        _range(result.first),
        f"{result.best_start.cpu:.2f}",
        f"{median(result.changes):.3f}",
        f"{max(result.changes, default=nan):.3f}",
        str(len(result.changes)),
        f"{result.cpu_per_change:.3f}",
        f"{median(result.additions):.3f}",
        f"{result.daemon_peak / MEGABYTE:.0f}",
        f"{result.tree_peak / MEGABYTE:.0f}",
        "?" if result.rules is None else str(result.rules),
    )


def _bare(floor: Floor) -> Sequence[str]:
    """Likewise, as far as there are any."""
    return (
        _best(floor.whole[floor.best_way]),
        "",
        f"{floor.best.cpu:.2f}",
        f"{median(floor.service):.3f}",
        f"{max(floor.service, default=nan):.3f}",
        str(len(floor.service)),
    )


def _best(costs: Sequence[Cost]) -> str:
    return _range([cost.seconds for cost in costs])


def _range(samples: Sequence[float]) -> str:
    seconds = sorted(samples)
    return f"{seconds[0]:.2f}" + (f" (..{seconds[-1]:.2f})" if len(seconds) > 1 else "")
