"""Conformance session: cases grouped by profile, a testbed for each, results merged into one report.

Labs run side by side, as many at once as configured.  What fails as a whole is divided afterwards: the cases that cost the
others their verdicts are found by running parts of the lab, each in a lab of its own (`LabRun`).
"""

from __future__ import annotations

import asyncio
import enum
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path

from kproxy.conformance.binding.bind import Instance, bind_cases
from kproxy.conformance.case import Case, Profile, Wait
from kproxy.conformance.engine.convergence import LatencySample
from kproxy.conformance.engine.judging import Finding, InstanceProgress
from kproxy.conformance.engine.progress import RunProgress
from kproxy.conformance.engine.runner import run_instances, split_rounds
from kproxy.conformance.reports.results import CaseResult, Report, Result
from kproxy.conformance.subjects.deviations import excuse_usage, find_excuse
from kproxy.conformance.subjects.subject import Subject
from kproxy.conformance.testbed import HarnessError, NothingServed, SubjectFailed, Testbed

_LABS_TO_TRY = 2
_PARTS = 8
"""Number of parts into which a lab is divided that failed as a whole."""
_MOST_DIVISIONS = 24
"""Divisions of a session: each may take as long as a subject has to apply a change."""

OpenTestbed = Callable[[Profile, Sequence[Instance]], AbstractAsyncContextManager[Testbed]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """Input of one run: subject, mode, cases, evidence directory, number of labs at once.

    ``lab_capacity``: the most cases that a lab may hold, 0 for any number. ``reproduce_command``: the command that
    runs all of it, printed with a failing case. ``maxfail``: failed cases after which no further lab is opened, 0 for
    any number. ``rng``: picks one case whose feature the subject does not claim, to
    run it anyway and report whether it would pass; None: no such case is run. ``reprobe``: repeat checks with
    unlawful results, for evidence.
    """

    subject: Subject
    mode: str
    cases: Sequence[Case]
    evidence: Path
    environment: Mapping[str, str]
    parallel_labs: int = 4
    lab_capacity: int = 0
    maxfail: int = 0
    reproduce_command: str = "kproxy conformance run"
    rng: random.Random | None = None
    reprobe: bool = False


class LabEnd(enum.Enum):
    """How a lab ended."""

    VERDICTS = enum.auto()
    """Each case has a verdict of its own, or none by a fault of the harness."""
    FAILED_AS_A_WHOLE = enum.auto()
    NOT_TRIED = enum.auto()
    """It was not opened, as the subject had served nothing in others."""


@dataclass(frozen=True, slots=True)
class LabRun:
    """Results of a lab's cases, and how it ended."""

    results: Sequence[CaseResult]
    end: LabEnd = LabEnd.VERDICTS


@dataclass(slots=True, kw_only=True)
class Labs:
    """Labs of a session, as many at once as it says; none is opened any more when the first two profiles end unserved."""

    session: Session
    open_testbed: OpenTestbed
    log: Callable[[str], None]
    semaphore: asyncio.Semaphore
    progress: RunProgress = field(default_factory=RunProgress)
    any_served: bool = False
    failed_profiles: dict[str, str] = field(default_factory=dict)
    """Reasons, by the names of the profiles in which nothing was served."""
    latency_samples: list[LatencySample] = field(default_factory=list)
    """Latencies of changes in the labs that have finished."""
    divisions: int = 0
    """Number of labs that were divided."""

    @property
    def closed_reason(self) -> str:
        """Reason why no further lab is opened; empty as long as one may be."""
        if self.any_served or len(self.failed_profiles) < _LABS_TO_TRY:
            return ""
        first = next(iter(self.failed_profiles.values()))
        return f"not tried: the subject has served nothing in the profiles {', '.join(self.failed_profiles)}: {first}"

    @property
    def enough_failed(self) -> bool:
        """True if as many cases have failed as the session lets fail."""
        return 0 < self.session.maxfail <= self.progress.failed

    async def run(self, cases: Sequence[Case]) -> LabRun:
        """Run cases of one profile in one testbed."""
        async with self.semaphore:
            if self.closed_reason:
                failed = [_unobserved(case, Result.FAILED, self.closed_reason) for case in cases]
                return LabRun(failed, LabEnd.NOT_TRIED)
            if self.enough_failed:
                limit = f"--maxfail {self.session.maxfail}"
                enough = f"not tried: {self.progress.failed} cases had failed ({limit})"
                return LabRun([_unobserved(case, Result.NOT_RUNNABLE, enough) for case in cases])
            profile = cases[0].profile.name
            try:
                results = await self._run(cases)
            except SubjectFailed as reason:
                if isinstance(reason, NothingServed):
                    self.failed_profiles[profile] = str(reason).partition("\n")[0]
                self.progress.add(len(cases), len(cases))
                failed = [_unobserved(case, Result.FAILED, f"profile {profile}: {reason}") for case in cases]
                return LabRun(failed, LabEnd.FAILED_AS_A_WHOLE)
            except HarnessError as reason:
                broken = f"profile {profile}: {reason}"
                return LabRun([_unobserved(case, Result.BROKEN, broken) for case in cases])
        self.any_served = True
        self.progress.add(len(results), sum(entry.result is Result.FAILED for entry in results))
        return LabRun(results)

    async def _run(self, cases: Sequence[Case]) -> list[CaseResult]:
        profile, bound = cases[0].profile, bind_cases(cases)
        async with self.open_testbed(profile, bound) as testbed:
            lacking = {case.id: reason for case in cases if (reason := testbed.not_runnable_reason(case))}
            able = [instance for instance in bound if instance.case.id not in lacking]
            progress = [
                entry
                for together in _in_turn(testbed, able)
                for entry in await run_instances(
                    testbed,
                    together,
                    lambda text: self.log(f"{self.progress}; {profile.name}: {text}"),
                    reprobe=self.session.reprobe,
                )
            ]
            self.latency_samples += testbed.convergence()
            folders = await _keep_evidence(self.session, testbed, progress, self.log)
        return [_result(self.session, case, progress, lacking.get(case.id, ""), folders) for case in cases]

    async def complete(self, lab: LabRun) -> Sequence[CaseResult]:
        """Results of a lab that has run; of one that was not tried, where another was served after all, it is run.

        One that failed as a whole is run again in parts, each in a lab of its own, which is completed likewise. Where every
        part fails as well, or none does, the lab's own results remain: its cases fail together.
        """
        cases = [entry.case for entry in lab.results]
        if lab.end is LabEnd.NOT_TRIED and self.any_served:
            lab = await self.run(cases)
        if lab.end is not LabEnd.FAILED_AS_A_WHOLE or not self._may_divide(cases):
            return lab.results
        self.divisions += 1
        self.progress.add(-len(cases), -len(cases))
        parts = _parts(cases)
        profile = cases[0].profile.name
        self.log(f"{profile}: {len(cases)} cases failed together; running {len(parts)} parts of them")
        runs = await asyncio.gather(*map(self.run, parts))
        failed = [run.end is LabEnd.FAILED_AS_A_WHOLE for run in runs]
        if all(failed):
            return lab.results
        if not any(failed):
            together = f"in one lab with {len(cases) - 1} other cases, but not in smaller labs"
            return [replace(entry, reason=f"{together}: {entry.reason}") for entry in lab.results]
        return [entry for run in runs for entry in await self.complete(run)]

    def _may_divide(self, cases: Sequence[Case]) -> bool:
        """True if parts of a lab may be run: a subject that has served nothing at all would not serve those."""
        return (
            len(cases) > 1 and self.any_served and not self.enough_failed and self.divisions < _MOST_DIVISIONS
        )


def _parts(cases: Sequence[Case]) -> list[Sequence[Case]]:
    """Parts that a lab is divided into, none empty."""
    size = -(-len(cases) // _PARTS)
    return [cases[start : start + size] for start in range(0, len(cases), size)]


async def run_session(session: Session, open_testbed: OpenTestbed, log: Callable[[str], None]) -> Report:
    """Run all cases of the session and return the report; never raises for a subject's failure."""
    started = time.monotonic()
    results: dict[str, CaseResult] = {}
    for case in session.cases:
        if missing := session.subject.missing_features(case, session.mode):
            names = ", ".join(sorted(feature.value for feature in missing))
            reason = f"{session.subject.name} does not claim {names}"
            results[case.id] = CaseResult(case=case, result=Result.UNSUPPORTED, seconds=0.0, reason=reason)
    able = [case for case in session.cases if case.id not in results]
    labs = Labs(
        session=session,
        open_testbed=open_testbed,
        log=log,
        semaphore=asyncio.Semaphore(session.parallel_labs),
        progress=RunProgress(total=len(able)),
    )
    longest_first = sorted(group_into_labs(able, session.lab_capacity), key=_rounds, reverse=True)
    runs = [labs.run(cases) for _, cases in longest_first]
    runs.insert(_LABS_TO_TRY, _run_one_unclaimed(labs))
    done = await asyncio.gather(*map(labs.complete, await asyncio.gather(*runs)))
    results.update({entry.case.id: entry for group in done for entry in group})
    return Report(
        subject=session.subject.name,
        mode=session.mode,
        environment=session.environment,
        results=tuple(results[case.id] for case in session.cases),
        seconds=time.monotonic() - started,
        reproduce_command=session.reproduce_command,
        latency_samples=tuple(labs.latency_samples),
    )


async def _run_one_unclaimed(labs: Labs) -> LabRun:
    """Run one random case whose features the subject does not claim: its result stays ``unsupported``.

    The reason records whether it passed, which keeps claims of "unsupported" honest. It runs after the first labs and
    beside the others, since unserved probes may take all of their time; skipped when a lab of claimed features served
    nothing.
    """
    session = labs.session
    unclaimed = [case for case in session.cases if session.subject.missing_features(case, session.mode)]
    features = sorted(
        {f.value for case in unclaimed for f in session.subject.missing_features(case, session.mode)}
    )
    if session.rng is None or not features:
        return LabRun(())
    feature = session.rng.choice(features)
    candidates = [
        c
        for c in unclaimed
        if feature in {f.value for f in session.subject.missing_features(c, session.mode)}
    ]
    case = session.rng.choice(candidates)
    with tempfile.TemporaryDirectory() as scratch:
        own = Labs(  # which count neither for nor against the subject
            session=replace(session, evidence=Path(scratch), reprobe=False),
            open_testbed=labs.open_testbed,
            log=lambda _: None,
            semaphore=asyncio.Semaphore(1),
        )
        async with labs.semaphore:
            if labs.failed_profiles:
                return LabRun(())
            labs.log(f"{case.profile.name}: running what is not claimed: {feature}")
            (entry,) = (await own.run([case])).results
    came = {Result.PASSED: "it passes", Result.FAILED: "it fails", Result.DEVIATION: "it fails"}
    what = came.get(entry.result, f"it is {entry.result.value}")
    seen = f": {entry.reason}" if entry.reason else ""
    reason = f"{session.subject.name} does not claim {feature}; run all the same, {what}{seen}"
    unsupported = CaseResult(case=case, result=Result.UNSUPPORTED, seconds=entry.seconds, reason=reason)
    return LabRun([unsupported])


def group_into_labs(cases: Sequence[Case], capacity: int) -> list[tuple[Profile, list[Case]]]:
    """Labs: one for each profile, or several of about one size where it has too many cases."""
    groups: dict[Profile, list[Case]] = {}
    for case in cases:
        groups.setdefault(case.profile, []).append(case)
    return [
        (profile, members[start::number])
        for profile, members in groups.items()
        for number in [-(-len(members) // (capacity or len(members)))]
        for start in range(number)
    ]


def _rounds(lab: tuple[Profile, Sequence[Case]]) -> int:
    """Rounds of a lab's longest case, by which its time is estimated: one that begins last would be waited for alone."""
    return max(sum(1 for _ in split_rounds(case.steps)) for case in lab[1])


def _in_turn(testbed: Testbed, instances: Sequence[Instance]) -> list[list[Instance]]:
    """Instances that run side by side: one group, or two where a round is long beside the times that cases wait for."""
    if not testbed.has_long_rounds:
        return [list(instances)]
    waiting = [one for one in instances if any(isinstance(step, Wait) for step in one.case.steps)]
    return [[one for one in instances if one not in waiting], waiting]


def _unobserved(case: Case, result: Result, reason: str) -> CaseResult:
    """Result of a case whose lab failed."""
    return CaseResult(case=case, result=result, seconds=0.0, reason=reason)


async def _keep_evidence(
    session: Session, testbed: Testbed, progress: Sequence[InstanceProgress], log: Callable[[str], None]
) -> Mapping[str, Path]:
    folders: dict[str, Path] = {}
    for entry in progress:
        if entry.findings or entry.harness_error:
            case = entry.instance.case.id
            if case not in folders:
                shutil.rmtree(session.evidence / case, ignore_errors=True)  # from an earlier run
            folder = session.evidence / case / entry.instance.family.value
            try:
                folder.mkdir(parents=True, exist_ok=True)
                await testbed.evidence(entry.instance, folder)
            except OSError as error:  # a full disk must not change a verdict
                log(f"no evidence of {entry.instance.name}: {error}")
            else:
                folders[case] = folder.parent
    return folders


def _files(folder: Path) -> tuple[str, ...]:
    return tuple(sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()))


def _result(
    session: Session,
    case: Case,
    progress: Sequence[InstanceProgress],
    lacking: str,
    folders: Mapping[str, Path],
) -> CaseResult:
    if lacking:
        return CaseResult(case=case, result=Result.NOT_RUNNABLE, seconds=0.0, reason=lacking)
    own = [entry for entry in progress if entry.instance.case is case]
    findings = _with_deviations(session, [finding for entry in own for finding in entry.findings])
    observed = tuple(one for entry in own for one in entry.observed)
    seconds = max((entry.seconds for entry in own), default=0.0)
    broken = next((entry.harness_error for entry in own if entry.harness_error), "")
    folder = folders.get(case.id)
    evidence, files = (str(folder), _files(folder)) if folder else ("", ())
    seen = CaseResult(
        case=case,
        result=Result.PASSED,
        seconds=seconds,
        evidence=evidence,
        files=files,
        observed=observed,
        findings=findings,
    )
    if new := [finding for finding in findings if not finding.known]:
        return replace(
            seen, result=Result.FAILED, reason=new[0].seen, excuse_usage=_needs(session, case, findings)
        )
    if broken:
        return replace(seen, result=Result.BROKEN, reason=broken)
    seen = replace(seen, excuse_usage=_needs(session, case, findings))
    if findings:
        reasons = dict.fromkeys(finding.known for finding in findings)
        return replace(seen, result=Result.DEVIATION, reason="; ".join(reasons))
    return seen


def _with_deviations(session: Session, findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Findings, each with the text of the subject's deviation that excuses it, if any."""
    known = session.subject.deviations
    found = [(finding, find_excuse(known, session.mode, finding)) for finding in findings]
    return tuple(replace(finding, known=str(why)) if why else finding for finding, why in found)


def _needs(session: Session, case: Case, findings: Sequence[Finding]) -> tuple[tuple[str, bool], ...]:
    return tuple(excuse_usage(session.subject.deviations, session.mode, case.id, findings))
