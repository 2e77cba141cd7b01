"""Data of the HTML page as JSON: each text once, cells as short lists.  Pure.

`page.js` reads it and explains the fields where it uses them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kproxy.conformance.binding.manifests import manifests_by_step
from kproxy.conformance.case.descriptions import describe_expectation, describe_step
from kproxy.conformance.cases import CATALOGUE
from kproxy.conformance.reports.comparison import Column, Comparison
from kproxy.conformance.reports.comparison_console import describe_environment
from kproxy.conformance.reports.results import Result
from kproxy.conformance.reports.results_reader import CaseRead, ResultRead, StepRead
from kproxy.spec.clauses import CLAUSES, ClauseId

Json = dict[str, Any]

_KINDS = tuple(Result)
_BY_ID = {case.id: case for case in CATALOGUE}


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceFolder:
    """An evidence folder that exists: its path from the page, and the texts of its files that the page shows."""

    at: str = ""
    texts: Mapping[str, str] = field(default_factory=dict)


class _Texts:
    """Texts by number: most occur many times."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        return self._numbers.setdefault(text, len(self._numbers))

    @property
    def all(self) -> Sequence[str]:
        return tuple(self._numbers)


def page_data(comparison: Comparison, evidence: Mapping[str, EvidenceFolder]) -> Json:
    """The data of a comparison; ``evidence``: see `kproxy.conformance.reports.page.render_html`."""
    texts = _Texts()
    cases = [_case(id, comparison, texts) for id in comparison.cases]
    cells = [
        [_cell(column.results.get(id), evidence, texts) for column in comparison.columns]
        for id in comparison.cases
    ]
    return {
        "results": [kind.value for kind in _KINDS],
        "columns": list(map(_column, comparison.columns)),
        "clauses": _clauses(comparison),
        "differing": list(comparison.differing),
        "cases": cases,
        "cells": cells,
        "texts": texts.all,
    }


def _column(column: Column) -> Json:
    run = column.run
    facts = {"mode": run.mode, **run.environment}
    return {
        "name": column.name,
        "on": describe_environment(column),
        "facts": facts,
        "seconds": run.seconds,
        "reproduce": run.reproduce_command,
        "convergence": list(map(str, run.convergence.changes)) if run.convergence else [],
        "unused": list(run.unused_deviations),
    }


def _clauses(comparison: Comparison) -> Json:
    cited = {ClauseId(id) for ids in comparison.clauses.values() for id in ids}
    return {
        id: {
            "level": found.level.value,
            "text": found.text,
            "by": found.authority.value,
            "sources": found.source,
        }
        for id in sorted(cited)
        if (found := CLAUSES.get(id))
    }


def _case(id: str, comparison: Comparison, texts: _Texts) -> Json:
    case = comparison.cases[id]
    objects = _objects(id, case)
    return {
        "id": id,
        "about": case.about,
        "clauses": list(comparison.clauses.get(id, ())),
        "features": list(case.features),
        "regressions": list(case.regressions),
        "profile": case.profile,
        "families": list(case.families),
        "steps": [
            [texts(step.action), texts(step.lawful), *([texts(objects[number])] if number in objects else [])]
            for number, step in enumerate(case.steps, 1)
        ],
    }


def _objects(id: str, read: CaseRead) -> Mapping[int, str]:
    """Manifests of the steps, from the catalogue, since results do not hold them; none if the case has changed since."""
    case = _BY_ID.get(id)
    if case is None or read.steps != tuple(
        StepRead(describe_step(step), describe_expectation(step)) for step in case.steps
    ):
        return {}
    return manifests_by_step(case)


def _cell(entry: ResultRead | None, kept: Mapping[str, EvidenceFolder], texts: _Texts) -> Json | None:
    if entry is None:
        return None
    cell: Json = {"r": _KINDS.index(entry.result), "s": round(entry.seconds, 2)}
    if entry.reason:
        cell["why"] = texts(entry.reason)
    if entry.findings:
        cell["f"] = [
            [
                f.family,
                f.step,
                texts(f.action),
                texts(f.lawful),
                texts(f.outcome),
                f.clauses,
                texts(f.deviation),
            ]
            for f in entry.findings
        ]
    if entry.observations:
        cell["o"] = [[o.family[-1], o.step, texts(o.outcome), round(o.at, 2)] for o in entry.observations]
    if entry.evidence:
        found = kept.get(entry.evidence, EvidenceFolder())
        shown = [[name, texts(text)] for name, text in found.texts.items() if text]
        cell["e"] = {"folder": entry.evidence, "files": entry.files, "at": found.at, "shown": shown}
    return cell
