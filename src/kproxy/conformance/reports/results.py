"""Results as values.  Pure."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kproxy.conformance.case import Case
from kproxy.conformance.engine.convergence import LatencySample
from kproxy.conformance.engine.judging import Finding, Observed

LAWFUL, UNLAWFUL, CANNOT_RUN = 0, 1, 2
"""Exit statuses of a run."""


class Result(enum.Enum):
    """The verdict on a subject in one case; the values are those of the JSON."""

    PASSED = "passed"
    FAILED = "failed"
    DEVIATION = "deviation"
    """Failed, but only as the subject's file lists it, with a link."""
    UNSUPPORTED = "unsupported"
    """The subject does not claim a feature of the case."""
    NOT_RUNNABLE = "not-runnable"
    """This testbed cannot run it."""
    BROKEN = "broken"
    """The harness could not observe."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """The result of one case over all its families.

    ``reason``: for every result but passed.  ``observed``: the outcome of each probe, family by family.
    ``evidence``: the folder, ``files`` what is in it.  ``excuse_usage``: parts of the subject's deviations that are about the
    case, each with whether a finding needed it; none where the case was not judged.
    """

    case: Case
    result: Result
    seconds: float
    reason: str = ""
    findings: tuple[Finding, ...] = ()
    evidence: str = ""
    files: tuple[str, ...] = ()
    observed: tuple[Observed, ...] = ()
    excuse_usage: tuple[tuple[str, bool], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One run."""

    subject: str
    mode: str
    environment: Mapping[str, str]
    results: tuple[CaseResult, ...]
    seconds: float
    reproduce_command: str = "kproxy conformance run"
    latency_samples: tuple[LatencySample, ...] = ()
    """Latencies of changes, over all labs."""

    @property
    def exit_code(self) -> int:
        """0: all lawful; 1: a case failed; 2: the harness could not observe something."""
        kinds = {entry.result for entry in self.results}
        if Result.FAILED in kinds:
            return UNLAWFUL
        return CANNOT_RUN if Result.BROKEN in kinds else LAWFUL

    @property
    def judges(self) -> bool:
        """True if a case was judged."""
        return any(entry.result in {Result.PASSED, Result.FAILED, Result.DEVIATION} for entry in self.results)

    @property
    def unneeded(self) -> tuple[str, ...]:
        """Parts of deviations that apply to cases of this run and excused no finding."""
        needs = [need for entry in self.results for need in entry.excuse_usage]
        needed = {part for part, was in needs if was}
        return tuple(dict.fromkeys(part for part, _ in needs if part not in needed))

    def invalidated(self, reason: str) -> Report:
        """The same report with ``BROKEN`` in the place of ``PASSED``, for a run that proves nothing."""
        entries = (
            replace(entry, result=Result.BROKEN, reason=reason) if entry.result is Result.PASSED else entry
            for entry in self.results
        )
        return replace(self, results=tuple(entries))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    """Outcome of one run; ``refusal``: the reason if it was impossible here, then its cases are not runnable."""

    name: str
    report: Report
    refusal: str = ""


def exit_code(outcomes: Sequence[RunOutcome], *, skip_missing_kernels: bool) -> int:
    """1 when a case failed; 2 when something was not judged, but for runs that may be left out; else 0.

    Where every run was impossible, or has no case that could be run, nothing was judged, whatever may be left out.
    """
    judged = [outcome for outcome in outcomes if not outcome.refusal]
    codes = {outcome.report.exit_code for outcome in judged}
    if UNLAWFUL in codes:
        return UNLAWFUL
    complete = any(outcome.report.judges for outcome in judged) and (
        skip_missing_kernels or len(judged) == len(outcomes)
    )
    return max(codes) if complete else CANNOT_RUN
