"""Comparison of the runs of any documents: a column for each run, a row for each case.  Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from kproxy.conformance.reports.results import Result
from kproxy.conformance.reports.results_reader import CaseRead, DocumentRead, ResultRead, RunRead

JUDGED = frozenset({Result.PASSED, Result.FAILED, Result.DEVIATION, Result.UNSUPPORTED})
"""Results that are verdicts on a subject; the others only report that nothing was observed."""

_DISTINGUISHING_FACTS = (
    "subject",
    "kernel-choice",
    "kernel",
    "iptables",
    "nft",
    "apiserver",
    "time",
    "testbed",
    "kproxy",
)
"""Facts of an environment that distinguish two runs of one name, the most informative first."""


@dataclass(frozen=True)
class Column:
    """A run, with a name that no other column has."""

    name: str
    run: RunRead
    where: str

    @cached_property
    def results(self) -> Mapping[str, ResultRead]:
        """Its results by case."""
        return {entry.id: entry for entry in self.run.results}

    @property
    def counts(self) -> Mapping[Result, int]:
        """Number of cases with each result."""
        return Counter(entry.result for entry in self.run.results)


@dataclass(frozen=True)
class Comparison:
    """Runs in the order of the documents; ``cases`` in that of the first document that has each."""

    columns: tuple[Column, ...]
    cases: Mapping[str, CaseRead]

    @cached_property
    def differing(self) -> tuple[str, ...]:
        """IDs of cases with different verdicts; results that are no verdict do not count."""
        return tuple(id for id in self.cases if self._differs(id))

    @cached_property
    def partly_judged(self) -> tuple[str, ...]:
        """IDs of cases that were judged in some columns and not in others."""
        return tuple(id for id in self.cases if 0 < len(self._judged(id)) < len(self.columns))

    @cached_property
    def clauses(self) -> Mapping[str, tuple[str, ...]]:
        """The clauses of each case."""
        found: dict[str, tuple[str, ...]] = {}
        for column in self.columns:
            for entry in column.run.results:
                found.setdefault(entry.id, entry.clauses)
        return found

    def _differs(self, id: str) -> bool:
        return len(set(self._judged(id))) > 1

    def _judged(self, id: str) -> list[Result]:
        results = [column.results[id].result for column in self.columns if id in column.results]
        return [result for result in results if result in JUDGED]


def differences_document(comparison: Comparison) -> dict[str, object]:
    """The comparison as data: each run with its counts, and the verdicts of each case that the runs differ in."""
    return {
        "schema": "kproxy-comparison/1",
        "runs": [
            {
                "name": column.name,
                "subject": column.run.subject,
                "mode": column.run.mode,
                "file": column.where,
                "environment": dict(column.run.environment),
                "counts": {result.value: number for result, number in column.counts.items()},
            }
            for column in comparison.columns
        ],
        "cases": len(comparison.cases),
        "partly_judged": list(comparison.partly_judged),
        "differing": [
            {
                "case": id,
                "clauses": list(comparison.clauses.get(id, ())),
                "results": {
                    column.name: column.results[id].result.value
                    for column in comparison.columns
                    if id in column.results
                },
            }
            for id in comparison.differing
        ],
    }


def compare_runs(documents: Sequence[DocumentRead]) -> Comparison:
    """The comparison of all runs of all documents."""
    columns = [
        Column(name=_name(run), run=run, where=document.where)
        for document in documents
        for run in document.runs
    ]
    cases: dict[str, CaseRead] = {}
    for document in documents:
        for id, case in document.cases.items():
            cases.setdefault(id, case)
        for run in document.runs:
            for entry in run.results:
                cases.setdefault(entry.id, CaseRead(about=""))
    return Comparison(columns=tuple(_with_distinct_names(columns)), cases=cases)


def _name(run: RunRead) -> str:
    return f"{run.subject} {run.name or run.mode}"


def _with_distinct_names(columns: Sequence[Column]) -> list[Column]:
    """The columns, those of one name with a distinguishing fact added: of their environment, their file, or a number."""
    names = Counter(column.name for column in columns)
    return [
        column if names[column.name] == 1 else replace(column, name=_distinct(column, columns))
        for column in columns
    ]


def _distinct(column: Column, columns: Iterable[Column]) -> str:
    alike = [other for other in columns if other.name == column.name]
    for fact in _DISTINGUISHING_FACTS:
        values = [other.run.environment.get(fact, "") for other in alike]
        if len(set(values)) == len(alike):
            return f"{column.name} ({column.run.environment.get(fact) or f'no {fact}'})"
    files = [other.where for other in alike]
    if len(set(files)) == len(alike):
        return f"{column.name} ({column.where})"
    at = next(number for number, other in enumerate(alike, 1) if other is column)
    return f"{column.name} (#{at})"
