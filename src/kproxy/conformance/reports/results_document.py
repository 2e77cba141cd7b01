"""Results as JSON, by the schema `results.schema.json` beside this module.  Pure."""

from __future__ import annotations

import importlib.resources
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from kproxy.conformance.case import Case
from kproxy.conformance.case.descriptions import describe_expectation, describe_step
from kproxy.conformance.engine.convergence import BOUND, LatencySample, distributions_by_kind
from kproxy.conformance.engine.judging import Finding, Observed
from kproxy.conformance.reports.results import CaseResult, Report, RunOutcome

RESULTS_FORMAT, CATALOGUE_FORMAT = "kproxy-results/2", "kproxy-catalogue/1"
"""What ``format`` says; another number when readers would have to change."""
READABLE_FORMATS = ("kproxy-results/1",)
"""Formats of earlier results that can still be read; in the first, findings cite all clauses of their cases."""

Json = dict[str, Any]

_A_LINE_EACH = frozenset({"cases", "results", "runs"})


def run_document(report: Report) -> Json:
    """A run as JSON."""
    return {"format": RESULTS_FORMAT, **_run(report), "cases": _cases([report])}


def matrix_document(subject: str, outcomes: Sequence[RunOutcome], seconds: float) -> Json:
    """All runs as JSON: each as a run of its own would be, with its name; their cases together."""
    return {
        "format": RESULTS_FORMAT,
        "subject": subject,
        "seconds": round(seconds, 3),
        "runs": [{"name": outcome.name, **_run(outcome.report)} for outcome in outcomes],
        "cases": _cases(outcome.report for outcome in outcomes),
    }


def catalogue_document(cases: Iterable[Case]) -> Json:
    """The catalogue as JSON (``kproxy conformance list --json``)."""
    listed = [{"id": case.id, "clauses": sorted(case.clauses), **_case(case)} for case in cases]
    return {"format": CATALOGUE_FORMAT, "cases": listed}


def results_schema() -> str:
    """The JSON Schema of all of these."""
    return importlib.resources.files(__package__).joinpath("results.schema.json").read_text("utf-8")


def format_document(document: Json) -> bytes:
    """A document to be read by people as well: a line for each result and each case."""
    return "".join(_lines(document, "")).encode() + b"\n"


def _run(report: Report) -> Json:
    unneeded = {"unneeded": list(report.unneeded)} if report.unneeded else {}
    return {
        "subject": report.subject,
        "mode": report.mode,
        "environment": dict(report.environment),
        "seconds": round(report.seconds, 3),
        "again": report.reproduce_command,
        **({"convergence": _convergence(report.latency_samples)} if report.latency_samples else {}),
        **unneeded,
        "results": [_result(entry) for entry in report.results],
    }


def _convergence(applied: Sequence[LatencySample]) -> Json:
    return {
        "bound": BOUND,
        "slowness": round(max(one.slowness for one in applied), 1),
        "changes": [
            {
                "what": what,
                "number": found.number,
                "min": round(found.least, 3),
                "median": round(found.median, 3),
                "p99": round(found.p99, 3),
                "max": round(found.most, 3),
            }
            for what, found in distributions_by_kind(applied).items()
        ],
    }


def _result(entry: CaseResult) -> Json:
    document: Json = {
        "id": entry.case.id,
        "result": entry.result.value,
        "clauses": sorted(entry.case.clauses),
        "seconds": round(entry.seconds, 3),
    }
    if entry.reason:
        document["reason"] = entry.reason
    if entry.findings:
        document["findings"] = list(map(_finding, entry.findings))
    if entry.observed:
        document["observed"] = list(map(_observed, entry.observed))
    if entry.evidence:
        document["evidence"] = entry.evidence
        document["files"] = list(entry.files)
    return document


def _finding(finding: Finding) -> Json:
    return {
        "family": finding.instance.family.value,
        "step": finding.step,
        "what": finding.what,
        "lawful": finding.lawful,
        "seen": finding.seen,
        "clauses": list(finding.clauses),
        **({"known": finding.known} if finding.known else {}),
    }


def _observed(one: Observed) -> Json:
    times = {"at": round(one.at, 3), "seconds": round(one.seconds, 3)}
    return {"family": one.family.value, "step": one.step, "seen": one.seen, **times}


def _cases(reports: Iterable[Report]) -> Json:
    """What was asked, case by case, so that results can be read without the catalogue they were made with."""
    cases = {entry.case.id: entry.case for report in reports for entry in report.results}
    return {id: _case(case) for id, case in cases.items()}


def _case(case: Case) -> Json:
    return {
        "about": case.about,
        "features": sorted(feature.value for feature in case.features),
        "regressions": sorted(case.regressions),
        "profile": case.profile.name,
        "families": [family.value for family in case.families],
        "steps": [
            {
                "what": describe_step(step),
                **({"lawful": lawful} if (lawful := describe_expectation(step)) else {}),
            }
            for step in case.steps
        ],
    }


def _lines(value: object, indent: str) -> Iterator[str]:
    """Objects and lists that hold many things with a line for each, all else on one line."""
    deeper = indent + "  "
    match value:
        case Mapping() if _A_LINE_EACH & value.keys():
            parts = [_entry(key, item, deeper) for key, item in value.items()]
            yield _block("{", parts, "}", indent)
        case _:
            yield msgspec.json.encode(value).decode()


def _entry(key: str, value: object, indent: str) -> str:
    name = msgspec.json.encode(key).decode() + ": "
    if key not in _A_LINE_EACH:
        return name + "".join(_lines(value, indent))
    deeper = indent + "  "
    if isinstance(value, Mapping):
        parts = [_entry(inner, item, deeper) for inner, item in value.items()]
        return name + _block("{", parts, "}", indent)
    assert isinstance(value, Sequence)
    return name + _block("[", ["".join(_lines(item, deeper)) for item in value], "]", indent)


def _block(opening: str, parts: Sequence[str], closing: str, indent: str) -> str:
    inside = f",\n{indent}  ".join(parts)
    return f"{opening}\n{indent}  {inside}\n{indent}{closing}"
