"""Console report of one run: groups and cases with verdicts, then every failure in full, then the totals.

Pure but for `print_report` and `print_details`, which print to the console they are given.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from kproxy.conformance.case.descriptions import describe_case_count
from kproxy.conformance.engine.convergence import BOUND, ISOLATED, distributions_by_kind
from kproxy.conformance.reports.results import CaseResult, Report, Result

COLOURS = {
    Result.PASSED: "green",
    Result.FAILED: "bold red",
    Result.DEVIATION: "yellow",
    Result.UNSUPPORTED: "dim",
    Result.NOT_RUNNABLE: "dim",
    Result.BROKEN: "bold magenta",
}


VERDICT_WIDTH = max(len(kind.value) for kind in Result)
TIME_WIDTH = 6

MOST_NAMED = 5
"""Most case IDs listed for a reason that many cases share."""


def print_report(report: Report, console: Console) -> None:
    """Print groups and cases with verdicts and times, then every failure in full, then the totals."""
    console.print(_table(report.results, console.width))
    print_details(report, console)
    console.print(summary_line(report), highlight=False, markup=False, soft_wrap=True)


def print_details(report: Report, console: Console, name: str = "") -> None:
    """Print every failure in full, and what could not be observed; ``name``: of the run, where there are several."""
    whose = f"{name}: " if name else ""
    for entry in report.results:
        if entry.result is Result.FAILED and not _nothing_observed(entry):
            heading = f"{whose}{entry.case.id}: {entry.case.about}"
            _print_result(console, entry.result, heading, failure_lines(entry, report))
    for (result, reason), entries in _by_reason(report.results).items():
        _print_result(console, result, whose + reason, _lines_of_all(entries, report))
    if report.unneeded:
        heading = f"{whose}known deviation that did not occur in this run: take it out of the subject's file"
        _print_result(console, Result.DEVIATION, heading, report.unneeded)


def _table(results: Sequence[CaseResult], width: int) -> Table:
    widest = max((len(case_name(entry)) for entry in results), default=0)
    note_width = max(width - widest - VERDICT_WIDTH - TIME_WIDTH - 6, 0)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("case", no_wrap=True, min_width=widest)
    table.add_column("verdict", no_wrap=True, min_width=VERDICT_WIDTH)
    table.add_column("time", justify="right", no_wrap=True, min_width=TIME_WIDTH)
    table.add_column("", no_wrap=True)
    for name, members in results_by_group(results).items():
        table.add_row(f"[bold]{name}[/]", passed_count(members))
        for entry in members:
            _add_case(table, entry, note_width)
    return table


def _add_case(table: Table, entry: CaseResult, note_width: int) -> None:
    note = (
        textwrap.shorten(entry.reason or entry.case.about, note_width, placeholder="...")
        if note_width
        else ""
    )
    table.add_row(
        case_name(entry), coloured_result(entry), f"{entry.seconds:.2f}s", f"[dim]{escape(note)}[/]"
    )


def results_by_group(results: Iterable[CaseResult]) -> dict[str, list[CaseResult]]:
    """Results by the group of their cases, in the order of their first case."""
    groups: dict[str, list[CaseResult]] = {}
    for entry in results:
        groups.setdefault(entry.case.group, []).append(entry)
    return groups


def case_name(entry: CaseResult) -> str:
    """A case within its group, for a table."""
    return "  " + entry.case.id.partition(".")[2]


def coloured_result(entry: CaseResult) -> str:
    """A result in its colour, in rich's markup."""
    return f"[{COLOURS[entry.result]}]{entry.result.value}[/]"


def passed_count(members: Sequence[CaseResult]) -> str:
    """Number of cases of a group that passed, and of all, for a table."""
    good = sum(entry.result is Result.PASSED for entry in members)
    return f"{good}/{len(members)}"


def _nothing_observed(entry: CaseResult) -> bool:
    """True if nothing was observed of the case itself."""
    return not (entry.findings or entry.observed)


def _by_reason(results: Sequence[CaseResult]) -> dict[tuple[Result, str], list[CaseResult]]:
    """Cases that could not be observed or failed with their lab, by reason: all cases of a lab share it."""
    groups: dict[tuple[Result, str], list[CaseResult]] = {}
    for entry in results:
        if entry.result is Result.BROKEN or (entry.result is Result.FAILED and _nothing_observed(entry)):
            groups.setdefault((entry.result, entry.reason), []).append(entry)
    return groups


def _print_result(console: Console, result: Result, heading: str, lines: Iterable[str]) -> None:
    console.print(
        f"\n[{COLOURS[result]}]{result.value}[/] {escape(heading)}", highlight=False, soft_wrap=True
    )
    for line in lines:
        console.print(f"  {line}", highlight=False, markup=False, soft_wrap=True)


def failure_lines(entry: CaseResult, report: Report) -> Iterator[str]:
    """Lawful outcomes, the outcome, the clauses, the folder of evidence, and the command that runs the case again."""
    if not entry.findings:
        yield entry.reason
    for finding in entry.findings:
        yield f"{finding.instance.family.value}, step {finding.step}: {finding.what}"
        yield f"  lawful:  {finding.lawful}"
        yield f"  seen:    {finding.seen}"
        yield f"  clauses: {', '.join(finding.clauses)}"
        if finding.known:
            yield f"  known:   {finding.known}"
    yield from _evidence_and_command(entry, report)


def _lines_of_all(entries: Sequence[CaseResult], report: Report) -> Iterator[str]:
    ids = [entry.case.id for entry in entries]
    more = [f"and {len(ids) - MOST_NAMED} more"] if len(ids) > MOST_NAMED else []
    yield f"cases:    {', '.join([*ids[:MOST_NAMED], *more])}"
    yield from _evidence_and_command(entries[0], report)


def _evidence_and_command(entry: CaseResult, report: Report) -> Iterator[str]:
    if entry.evidence:
        yield f"evidence: {entry.evidence}"
    yield f"rerun:    {report.reproduce_command} --case '{entry.case.id}'"


def summary_line(report: Report) -> str:
    """Number of cases with each result, and the duration, in one line."""
    return f"\n{report.subject} ({report.mode}): {describe_case_count(len(report.results))}: {count_results(report)}{latency_line(report)}"


def latency_line(report: Report, indent: str = "") -> str:
    """Lines on the latency of changes, if measured, and on changes of the machine, if any; each begins with a line break."""
    machine = f"\n{indent}{report.environment['machine']}" if "machine" in report.environment else ""
    measured = distributions_by_kind(report.latency_samples)
    if not (alone := measured.get(ISOLATED)):
        return machine
    return f"{machine}\n{indent}changes that came alone were in effect after: {alone} (99 of 100 within {BOUND:g} s)"


def count_results(report: Report) -> str:
    """Number of cases with each result, and the duration."""
    numbers = {kind: sum(entry.result is kind for entry in report.results) for kind in Result}
    numbers_text = ", ".join(f"{number} {kind.value}" for kind, number in numbers.items() if number)
    return f"{numbers_text} in {report.seconds:.1f} s"
