"""Console report of several runs: a column for each, then every failure, then a line for each run.

Pure but for `print_matrix`, which prints to the console it is given.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from kproxy.conformance.case.descriptions import describe_case_count
from kproxy.conformance.reports.console import (
    COLOURS,
    VERDICT_WIDTH,
    case_name,
    coloured_result,
    count_results,
    latency_line,
    passed_count,
    print_details,
    results_by_group,
)
from kproxy.conformance.reports.results import CaseResult, Result, RunOutcome

_EXPLAINED = (Result.DEVIATION, Result.UNSUPPORTED, Result.NOT_RUNNABLE)
_TIMED_CELL = 16
"""Width of a verdict with its time, and the gap."""


def print_matrix(outcomes: Sequence[RunOutcome], console: Console, seconds: float) -> None:
    """Print cases with a verdict for each run, every failure in full, and the totals."""
    judged = [outcome for outcome in outcomes if not outcome.refusal]
    if judged:
        console.print(_table(judged, console.width))
    console.print()
    for line in _remarks(judged):
        console.print(line, highlight=False, soft_wrap=True)
    for outcome in judged:
        print_details(outcome.report, console, outcome.name)
    console.print()
    for line in _summary_lines(outcomes, seconds):
        console.print(line, highlight=False, soft_wrap=True)


def early_table(outcomes: Sequence[RunOutcome], width: int) -> Table | str:
    """The table of the runs that have ended, while others go on; empty if none of them was judged."""
    judged = [outcome for outcome in outcomes if not outcome.refusal]
    return _table(judged, width) if judged else ""


def _table(outcomes: Sequence[RunOutcome], width: int) -> Table:
    columns = [{entry.case.id: entry for entry in outcome.report.results} for outcome in outcomes]
    results = outcomes[0].report.results
    widest = max((len(case_name(entry)) for entry in results), default=0)
    timed = width >= widest + _TIMED_CELL * len(outcomes)
    table = Table(box=None, pad_edge=False, collapse_padding=not timed, header_style="bold")
    table.add_column("case", no_wrap=timed, overflow="ellipsis")
    for outcome in outcomes:
        table.add_column("\n".join(outcome.name.split()), no_wrap=True, min_width=VERDICT_WIDTH)
    for name, members in results_by_group(results).items():
        own = [[column[entry.case.id] for entry in members] for column in columns]
        table.add_row(f"[bold]{name}[/]", *map(passed_count, own))
        for entry in members:
            table.add_row(case_name(entry), *(_cell(column, entry, timed=timed) for column in columns))
    return table


def _cell(column: Mapping[str, CaseResult], entry: CaseResult, *, timed: bool) -> str:
    own = column[entry.case.id]
    seconds = f" {own.seconds:.2f}s" if timed and own.seconds else ""
    return coloured_result(own) + seconds


def _remarks(outcomes: Iterable[RunOutcome]) -> Iterator[str]:
    """A line for each reason why cases neither passed nor failed, with the runs it applies to."""
    cases: dict[tuple[Result, str], set[str]] = {}
    names: dict[tuple[Result, str], dict[str, None]] = {}
    for outcome in outcomes:
        for entry in outcome.report.results:
            if entry.result in _EXPLAINED:
                key = (entry.result, entry.reason)
                cases.setdefault(key, set()).add(entry.case.id)
                names.setdefault(key, {})[outcome.name] = None
    for (kind, reason), ids in sorted(cases.items(), key=lambda item: _EXPLAINED.index(item[0][0])):
        which = next(iter(ids)) if len(ids) == 1 else describe_case_count(len(ids))
        runs = ", ".join(names[kind, reason])
        yield f"[{COLOURS[kind]}]{kind.value}[/] {runs}: {which}: {escape(reason)}"


def _summary_lines(outcomes: Sequence[RunOutcome], seconds: float) -> Iterator[str]:
    """A line for each run, and one for all of them."""
    width = max(len(outcome.name) for outcome in outcomes)
    for outcome in outcomes:
        yield f"{outcome.name:{width}}  {_run_summary(outcome)}"
    subject = outcomes[0].report.subject
    cases = sum(len(outcome.report.results) for outcome in outcomes)
    runs = f"{len(outcomes)} {'run' if len(outcomes) == 1 else 'runs'}"
    yield f"{subject}: {runs}, {describe_case_count(cases)} in {seconds:.1f} s: {_overall_summary(outcomes)}"


def verdict_lines(outcome: RunOutcome) -> Iterator[str]:
    """One run's result as soon as it is there, while others go on: its sums, and which cases failed.

    Lines hold markup of `rich`; details follow in the matrix at the end.
    """
    yield f"{outcome.name}: {_run_summary(outcome)}"
    for kind in () if outcome.refusal else (Result.FAILED, Result.BROKEN):
        names = [entry.case.id for entry in outcome.report.results if entry.result is kind]
        if names:
            yield f"{outcome.name}: [{COLOURS[kind]}]{kind.value}[/]: {escape(', '.join(names))}"


def _run_summary(outcome: RunOutcome) -> str:
    if outcome.refusal:
        return f"[{COLOURS[Result.BROKEN]}]cannot be judged here[/]: {escape(outcome.refusal)}"
    environment = outcome.report.environment
    where = " ".join(environment.get(key, "") for key in ("kernel-choice", "kernel")).strip()
    time = " in virtual time" if environment.get("time") == "virtual" else ""
    return (
        count_results(outcome.report)
        + (f" on {where}{time}" if where else "")
        + escape(latency_line(outcome.report, "  "))
    )


def _overall_summary(outcomes: Sequence[RunOutcome]) -> str:
    results = [
        entry.result for outcome in outcomes if not outcome.refusal for entry in outcome.report.results
    ]
    refused = [outcome.name for outcome in outcomes if outcome.refusal]
    parts = [
        f"{results.count(kind)} {kind.value}" for kind in (Result.FAILED, Result.BROKEN) if kind in results
    ]
    parts += [f"{', '.join(refused)} not judged"] if refused else []
    return ", ".join(parts) or "all that could be judged was lawful"
