"""Results as JSON.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kproxy.conformance.case import Case
from kproxy.conformance.reports.results import CaseResult, Outcome, Report


def of_run(report: Report) -> dict[str, Any]:
    """A run as JSON."""
    return {
        "subject": report.subject,
        "mode": report.mode,
        "environment": dict(report.environment),
        "seconds": round(report.seconds, 3),
        "results": [_document(entry) for entry in report.results],
    }


def of_runs(subject: str, outcomes: Sequence[Outcome], seconds: float) -> dict[str, Any]:
    """All runs as JSON: each as a run of its own would be, with its name."""
    runs = [{"name": outcome.name, **of_run(outcome.report)} for outcome in outcomes]
    return {"subject": subject, "seconds": round(seconds, 3), "runs": runs}


def _document(entry: CaseResult) -> dict[str, Any]:
    document: dict[str, Any] = {
        "id": entry.case.id,
        "result": entry.result.value,
        "clauses": sorted(entry.case.clauses),
        "seconds": round(entry.seconds, 3),
    }
    if entry.reason:
        document["reason"] = entry.reason
    if entry.findings:
        document["findings"] = [
            {
                "family": finding.instance.family.value,
                "step": finding.step,
                "what": finding.what,
                "lawful": finding.lawful,
                "seen": finding.seen,
                "clauses": list(finding.clauses),
            }
            for finding in entry.findings
        ]
    if entry.evidence:
        document["evidence"] = entry.evidence
    return document


def of_catalogue(cases: Iterable[Case]) -> dict[str, Any]:
    """The catalogue as JSON (``kproxy conformance list --json``)."""
    return {
        "cases": [
            {
                "id": case.id,
                "about": case.about,
                "clauses": sorted(case.clauses),
                "features": sorted(feature.value for feature in case.features),
                "regressions": sorted(case.regressions),
            }
            for case in cases
        ]
    }
