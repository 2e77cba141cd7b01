"""A comparison on the console: the cases that differ, then the totals of each run.  Pure but for `print_comparison`, which prints."""

from __future__ import annotations

from collections.abc import Iterator
from string import ascii_uppercase

from rich.console import Console
from rich.markup import escape

from kproxy.conformance.reports.comparison import Column, Comparison
from kproxy.conformance.reports.console import COLOURS
from kproxy.conformance.reports.results import Result
from kproxy.conformance.reports.results_reader import ResultRead


def print_comparison(comparison: Comparison, console: Console) -> None:
    """Print the cases whose results differ, each with reasons, and the totals."""
    letters = _letters(len(comparison.columns))
    for id in comparison.differing:
        _print_case(comparison, letters, id, console)
    for line in (*_remarks(comparison), *_sums(comparison, letters)):
        console.print(line, highlight=False, soft_wrap=True)


def _print_case(comparison: Comparison, letters: list[str], id: str, console: Console) -> None:
    console.print(
        f"[bold]{escape(id)}[/]  [dim]{escape(comparison.cases[id].about)}[/]",
        highlight=False,
        soft_wrap=True,
    )
    met: dict[tuple[Result, str], list[str]] = {}
    for letter, column in zip(letters, comparison.columns, strict=True):
        if entry := column.results.get(id):
            met.setdefault((entry.result, explain_result(entry)), []).append(letter)
    width = max(len(" ".join(those)) for those in met.values())
    for (result, why), those in met.items():
        result_text = f"[{COLOURS[result]}]{result.value}[/]" + (f"  {escape(why)}" if why else "")
        console.print(f"  {' '.join(those):{width}}  {result_text}", highlight=False, soft_wrap=True)
    console.print()


def explain_result(entry: ResultRead) -> str:
    """Why a result is not a pass, in one line; of a failure its first finding."""
    if entry.result is Result.FAILED and entry.findings:
        first = entry.findings[0]
        more = f" (and {len(entry.findings) - 1} more)" if len(entry.findings) > 1 else ""
        return f"{first.family}, step {first.step}: {first.action}: lawful {first.lawful}; seen {first.outcome}{more}"
    return entry.reason.partition("\n")[0]


def _remarks(comparison: Comparison) -> Iterator[str]:
    if len(comparison.columns) > 1:
        number = len(comparison.differing)
        yield f"{number or 'none'} of {len(comparison.cases)} cases {'differs' if number == 1 else 'differ'}"
    if number := len(comparison.partly_judged):
        yield f"{number} {'was' if number == 1 else 'were'} judged in some runs only"


def _sums(comparison: Comparison, letters: list[str]) -> Iterator[str]:
    """A line for each run: its letter, name, results and environment."""
    several = len(letters) > 1
    width = max((len(column.name) for column in comparison.columns), default=0)
    for letter, column in zip(letters, comparison.columns, strict=True):
        counts = ", ".join(
            f"{column.counts[kind]} {kind.value}" for kind in Result if column.counts.get(kind)
        )
        line = f"{column.name:{width}}  {counts} in {column.run.seconds:.1f} s"
        where = describe_environment(column)
        line += f" on {where}" if where else ""
        yield escape(f"{letter}  {line}" if several else line)


def describe_environment(column: Column) -> str:
    """The environment of a run in short: kernel or testbed, virtual time, the subject's version."""
    facts = column.run.environment
    where = " ".join(filter(None, (facts.get("kernel-choice"), facts.get("kernel"))))
    time = "virtual time" if facts.get("time") == "virtual" else ""
    version = facts.get("subject", "").replace("unknown", "")
    return ", ".join(filter(None, (where or facts.get("testbed", ""), time, version)))


def _letters(number: int) -> list[str]:
    singles = list(ascii_uppercase)
    return (singles + [a + b for a in singles for b in singles])[:number]
