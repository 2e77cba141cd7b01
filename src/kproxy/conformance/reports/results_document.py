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

RESULTS_FORMAT, CATALOGUE_FORMAT = "kproxy-results/3", "kproxy-catalogue/2"
"""Values of ``format``; the number rises when readers have to change."""

Json = dict[str, Any]

_A_LINE_EACH = frozenset({"cases", "results", "runs"})


def run_document(report: Report) -> Json:
    """A run as JSON."""
    return {"format": RESULTS_FORMAT, **_run(report), "cases": _cases([report])}


def matrix_document(subject: str, outcomes: Sequence[RunOutcome], seconds: float) -> Json:
    """Several runs as JSON: each as in a document of its own, with its name; their cases together."""
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
    """The JSON Schema of results and of the catalogue."""
    return importlib.resources.files(__package__).joinpath("results.schema.json").read_text("utf-8")


def format_document(document: Json) -> bytes:
    """A document as text, with a line for each result and each case, so that people can read it as well."""
    return "".join(_lines(document, "")).encode() + b"\n"


def _run(report: Report) -> Json:
    unused = {"unused_deviations": list(report.unneeded)} if report.unneeded else {}
    return {
        "subject": report.subject,
        "mode": report.mode,
        "environment": dict(report.environment),
        "seconds": round(report.seconds, 3),
        "reproduce_command": report.reproduce_command,
        **({"convergence": _convergence(report.latency_samples)} if report.latency_samples else {}),
        **unused,
        "results": [_result(entry) for entry in report.results],
    }


def _convergence(applied: Sequence[LatencySample]) -> Json:
    return {
        "bound": BOUND,
        "slowdown": round(max(one.slowness for one in applied), 1),
        "changes": [
            {
                "kind": kind,
                "count": found.number,
                "min": round(found.least, 3),
                "median": round(found.median, 3),
                "p99": round(found.p99, 3),
                "max": round(found.most, 3),
            }
            for kind, found in distributions_by_kind(applied).items()
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
        document["observations"] = list(map(_observation, entry.observed))
    if entry.evidence:
        document["evidence"] = entry.evidence
        document["files"] = list(entry.files)
    return document


def _finding(finding: Finding) -> Json:
    return {
        "family": finding.instance.family.value,
        "step": finding.step,
        "action": finding.what,
        "lawful": finding.lawful,
        "outcome": finding.seen,
        "clauses": list(finding.clauses),
        **({"deviation": finding.known} if finding.known else {}),
    }


def _observation(one: Observed) -> Json:
    times = {"at": round(one.at, 3), "seconds": round(one.seconds, 3)}
    return {"family": one.family.value, "step": one.step, "outcome": one.seen, **times}


def _cases(reports: Iterable[Report]) -> Json:
    """The cases, so that results can be read without the catalogue that they were made with."""
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
                "action": describe_step(step),
                **({"lawful": lawful} if (lawful := describe_expectation(step)) else {}),
            }
            for step in case.steps
        ],
    }


def _lines(value: object, indent: str) -> Iterator[str]:
    """Fields of `_A_LINE_EACH` with a line for each item, all else on one line."""
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
