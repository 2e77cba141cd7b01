"""Verification of submitted results: complete, unmodified, and nothing skipped that counts.  Pure.

``kproxy conformance verify`` prints what this module finds.  What it cannot find out is whether the run took place: the
`reproduce_command` of each run is for whoever doubts it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from kproxy.conformance.case import Case
from kproxy.conformance.cases import CATALOGUE
from kproxy.conformance.reports.profiles import ProfileVerdict, judge_profiles
from kproxy.conformance.reports.provenance import DIGEST, catalogue_facts, document_digest
from kproxy.conformance.reports.results import Result
from kproxy.conformance.reports.results_reader import InvalidResults, RunRead, parse_results

REQUIRED = ("project", "url", "version", "contact")
_SOME = 3


@dataclass(frozen=True, slots=True)
class Verification:
    """Findings: ``problems``, which make results unfit to be submitted, and the verdict on each run by its name."""

    problems: tuple[str, ...]
    verdicts: Mapping[str, ProfileVerdict]
    implementation: Mapping[str, str]
    date: str

    @property
    def conformant(self) -> bool:
        """True if every run has passed all of core."""
        return bool(self.verdicts) and all(verdict.word == "passed" for verdict in self.verdicts.values())


def verify(data: bytes, where: str) -> Verification:
    """Verification of a document.  Raises `InvalidResults` if it holds no results."""
    read = parse_results(data, where)
    document = msgspec.json.decode(data, type=dict[str, Any])
    if DIGEST not in document:
        raise InvalidResults(
            f"{where}: it has no digest: an earlier kproxy wrote it; make the results again with `kproxy conformance run --json FILE`"
        )
    verdicts = {run.name or run.mode: judge_profiles(run) for run in read.runs}
    problems = [*_document_problems(document, verdicts)]
    for run in read.runs:
        problems += (f"{run.name or run.mode}: {problem}" for problem in _run_problems(run))
    about = {name: str(value) for name, value in document.get("implementation", {}).items()}
    return Verification(tuple(problems), verdicts, about, str(document.get("date", "")))


def _document_problems(document: Mapping[str, Any], verdicts: Mapping[str, ProfileVerdict]) -> Iterator[str]:
    if document[DIGEST] != document_digest(document):
        yield "the digest is of another text: the document was changed after the run"
    about = document.get("implementation", {})
    if missing := [name for name in REQUIRED if not about.get(name)]:
        yield f"implementation lacks {', '.join(missing)}: give them in the subject file, under [implementation]"
    if not document.get("date"):
        yield "it has no date"
    if not verdicts:
        yield "it has no runs"
    facts, found = catalogue_facts(), document.get("catalogue", {})
    if found.get(DIGEST) != facts[DIGEST]:
        yield (
            f"it was made with another catalogue (of kproxy {found.get('kproxy', 'unknown')}, {found.get('size', 0)} cases); "
            f"this kproxy is {facts['kproxy']} with {facts['size']}"
        )
    if document.get("profiles") != {name: verdict.document() for name, verdict in verdicts.items()}:
        yield "the verdicts in `profiles` are not those of its results"


def _run_problems(run: RunRead) -> Iterator[str]:
    known = {entry.id: entry.result for entry in run.results}
    if len(known) != len(run.results):
        yield "a case is listed twice"
    if run.environment.get("testbed") == "simulator":
        yield "it was made in memory, by --testbed simulator: no packet was sent"
    if skipped := [case.id for case in CATALOGUE if not case.slow and case.id not in known]:
        yield f"cases were skipped: {_some(skipped)}; run all of the catalogue"
    if broken := [id for id, result in known.items() if result is Result.BROKEN]:
        yield f"cases were not observed: {_some(broken)}; run it again"
    if odd := [entry.id for entry in run.results if entry.result is Result.PASSED and entry.findings]:
        yield f"cases passed and have unlawful outcomes: {_some(odd)}"
    if set(known.values()) == {Result.NOT_RUNNABLE}:
        yield f"it was not judged ({run.results[0].reason}): run the other modes one by one, with --mode"
    elif not run.environment.get("kernel"):
        yield "it does not say on which kernel it was made"
    if wrong := [case.id for case in CATALOGUE if _changed(case, run)]:
        yield f"cases cite other clauses than in the catalogue: {_some(wrong)}"


def _changed(case: Case, run: RunRead) -> bool:
    return any(set(entry.clauses) != case.clauses for entry in run.results if entry.id == case.id)


def _some(ids: list[str]) -> str:
    more = f" and {len(ids) - _SOME} more" if len(ids) > _SOME else ""
    return ", ".join(ids[:_SOME]) + more
