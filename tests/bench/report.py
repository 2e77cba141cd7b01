"""Results for people: a table, and a plot where matplotlib is installed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import zip_longest
from math import nan
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.bench.results import MEGABYTE, Cost, Floor, Result, median


def show(console: Console, results: Sequence[Result]) -> None:
    """A column for each result, and one for its floor."""
    table = Table(title="times in s, memory in MB", title_justify="left")
    table.add_column("", no_wrap=True)
    columns: list[Sequence[str]] = [_MEASURES]
    for result in results:
        table.add_column(f"{result.subject} {result.tools}\n{result.size}", justify="right")
        columns.append(_own(result))
        if result.floor is not None:
            table.add_column(f"bare tool\n({result.floor.best_way})", justify="right", style="dim")
            columns.append(_bare(result.floor))
    for row in zip_longest(*columns, fillvalue=""):
        table.add_row(*row)
    console.print(table)


def verdicts(console: Console, result: Result, *, binding: bool) -> None:
    """The goals; where they do not bind, only the figures."""
    where = f"{result.subject} {result.tools} {result.size}"
    for goal in result.goals():
        word = ("[green]reached[/]" if goal.reached else "[red]missed[/]") if binding else ""
        text = f"{where}: {goal.name} {goal.value:.2f} (goal {goal.most:g}) {word}"
        console.print(text, highlight=False, soft_wrap=True)
    if (ratio := result.start_cpu_ratio) is not None:
        text = f"{where}: start to programmed / floor in CPU seconds {ratio:.2f}"
        console.print(text, highlight=False, soft_wrap=True)


def plot(results: Sequence[Result], path: Path) -> bool:
    """Draw starts and endpoint changes beside their floors; False without matplotlib."""
    try:
        from matplotlib.figure import Figure  # type: ignore[import-not-found,unused-ignore] # noqa: PLC0415 - optional
    except ImportError:
        return False
    figure = Figure(figsize=(10, 1.5 + 0.8 * len(results)), layout="constrained")
    names = [f"{r.subject} {r.tools}\n{r.size}" for r in results]
    panels: tuple[tuple[str, Callable[[Result], float], Callable[[Floor], float]], ...] = (
        ("first programming, s", lambda r: min(r.first), lambda f: f.best.seconds),
        ("endpoint change, s (median)", lambda r: median(r.changes), lambda f: median(f.service)),
    )
    for axes, (title, own, bare) in zip(figure.subplots(1, len(panels), sharey=True), panels, strict=True):
        axes.set_title(title)
        axes.barh(names, [own(result) for result in results], height=0.6, label="proxy")
        floors = [bare(result.floor) if result.floor else 0.0 for result in results]
        axes.barh(names, floors, height=0.25, label="bare tool")
    axes.invert_yaxis()
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    figure.savefig(path)
    return True


_MEASURES = (
    "first programming",
    "start to programmed",
    "CPU from the start",
    "endpoint change, median",
    "endpoint change, worst",
    "CPU for one change",
    "new Service, median",
    "peak memory, daemon",
    "peak memory, with children",
    "rules",
)


def _own(result: Result) -> Sequence[str]:
    return (
        _range(result.first),
        _best(result.starts),
        f"{result.best_start.cpu:.2f}",
        f"{median(result.changes):.3f}",
        f"{max(result.changes, default=nan):.3f}",
        f"{result.cpu_per_change:.3f}",
        f"{median(result.additions):.3f}",
        f"{result.daemon_peak / MEGABYTE:.0f}",
        f"{result.tree_peak / MEGABYTE:.0f}",
        "?" if result.rules is None else str(result.rules),
    )


def _bare(floor: Floor) -> Sequence[str]:
    """In the order of `_MEASURES`, as far as there are any."""
    whole = _best(floor.whole[floor.best_way])
    return (
        whole,
        whole,
        f"{floor.best.cpu:.2f}",
        f"{median(floor.service):.3f}",
        f"{max(floor.service, default=nan):.3f}",
    )


def _best(costs: Sequence[Cost]) -> str:
    return _range([cost.seconds for cost in costs])


def _range(samples: Sequence[float]) -> str:
    seconds = sorted(samples)
    return f"{seconds[0]:.2f}" + (f" (..{seconds[-1]:.2f})" if len(seconds) > 1 else "")
