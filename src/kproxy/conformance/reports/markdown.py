"""Results as Markdown, for the summary of a CI job: totals, failures, differences.  Pure.

GitHub shows at most 1 MiB of a step's summary, so long lists are cut, with a line that counts the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kproxy.conformance.reports.comparison import Column, Comparison
from kproxy.conformance.reports.comparison_console import describe_environment, explain_result
from kproxy.conformance.reports.results import Result
from kproxy.conformance.reports.results_reader import ResultRead

SYMBOLS = {
    Result.PASSED: "✅",
    Result.FAILED: "❌",
    Result.DEVIATION: "⚠️",
    Result.UNSUPPORTED: "⏭️",
    Result.NOT_RUNNABLE: "⬜",
    Result.BROKEN: "💥",
}
MOST_FAILURES, MOST_ROWS = 50, 200
_LONGEST_CELL = 300


def render_markdown(comparison: Comparison) -> str:
    """The Markdown."""
    lines = ["## kproxy conformance", "", *_sums(comparison), *_failures(comparison)]
    if len(comparison.columns) > 1:
        lines += _differences(comparison)
    return "\n".join([*lines, *_deviations(comparison)]) + "\n"


def _sums(comparison: Comparison) -> Iterator[str]:
    kinds = [kind for kind in Result if any(column.counts.get(kind) for column in comparison.columns)]
    yield from _table(
        ["run", *(f"{SYMBOLS[kind]} {kind.value}" for kind in kinds), "seconds", "on"],
        [
            [
                _text(column.name),
                *(str(column.counts.get(kind, 0)) for kind in kinds),
                f"{column.run.seconds:.1f}",
                _text(describe_environment(column)),
            ]
            for column in comparison.columns
        ],
    )


def _failures(comparison: Comparison) -> Iterator[str]:
    wanted = (Result.FAILED, Result.BROKEN)
    found = [
        (column, entry)
        for column in comparison.columns
        for entry in column.run.results
        if entry.result in wanted
    ]
    for column, entry in found[:MOST_FAILURES]:
        yield from _failure(column, entry, comparison)
    if len(found) > MOST_FAILURES:
        yield f"\n… and {len(found) - MOST_FAILURES} more that failed or could not be observed.\n"


def _failure(column: Column, entry: ResultRead, comparison: Comparison) -> Iterator[str]:
    yield f"### {SYMBOLS[entry.result]} {_text(entry.id)} ({_text(column.name)})"
    yield ""
    yield _text(comparison.cases[entry.id].about)
    yield ""
    rows = [
        [
            f"{finding.family}, step {finding.step}: {_text(finding.action)}",
            _text(finding.lawful),
            _text(
                f"{finding.outcome} (known: {finding.deviation})" if finding.deviation else finding.outcome
            ),
            _text(", ".join(finding.clauses)),
        ]
        for finding in entry.findings
    ]
    yield from _table(["probe", "lawful", "outcome", "clauses"], rows) if rows else _quoted(entry.reason)
    if column.run.reproduce_command:
        yield from _code(f"{column.run.reproduce_command} --case '{entry.id}'")


def _differences(comparison: Comparison) -> Iterator[str]:
    yield f"### What differs: {len(comparison.differing)} of {len(comparison.cases)} cases"
    yield ""
    rows = [
        [_text(id), *(_cell(column.results.get(id)) for column in comparison.columns)]
        for id in comparison.differing[:MOST_ROWS]
    ]
    if rows:
        yield from _table(["case", *(_text(column.name) for column in comparison.columns)], rows)
    if len(comparison.differing) > MOST_ROWS:
        yield f"… and {len(comparison.differing) - MOST_ROWS} more.\n"


def _cell(entry: ResultRead | None) -> str:
    return f"{SYMBOLS[entry.result]} {entry.result.value}" if entry else ""


def _deviations(comparison: Comparison) -> Iterator[str]:
    rows = [
        [_text(entry.id), _text(column.name), _text(explain_result(entry))]
        for column in comparison.columns
        for entry in column.run.results
        if entry.result is Result.DEVIATION
    ]
    if rows:
        yield f"<details><summary>{len(rows)} known deviations</summary>"
        yield ""
        yield from _table(["case", "run", "what it does instead"], rows[:MOST_ROWS])
        yield "</details>"
        yield ""
    unused = [
        [_text(column.name), _text(part)]
        for column in comparison.columns
        for part in column.run.unused_deviations
    ]
    if unused:
        yield f"### {len(unused)} known deviations that did not occur: take them out of the subject's file"
        yield ""
        yield from _table(["run", "case and clause"], unused[:MOST_ROWS])


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    for cells in (head, ["---"] * len(head), *rows):
        yield f"| {' | '.join(cells)} |"
    yield ""


def _quoted(text: str) -> Iterator[str]:
    """A text of several lines, such as a log, unchanged."""
    yield from _code(text[-4000:])


def _code(text: str) -> Iterator[str]:
    fence = "```"
    while fence in text:
        fence += "`"
    yield from (f"{fence}text", text, fence, "")


def _text(text: str) -> str:
    """A text that Markdown shows as it is, on one line."""
    short = text if len(text) <= _LONGEST_CELL else text[: _LONGEST_CELL - 2].rsplit(" ", 1)[0] + " …"
    for character in "\\`*_[]|~":
        short = short.replace(character, "\\" + character)
    return " ".join(short.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").split())
