"""Judging of a mutant: the cases that fail with it, if they cite a clause of the mutant.

A finding counts if it cites a clause of the mutant *and* the expectation that was not met rests on that clause: the
oracle names it for that very packet, or only histories can show it.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from unittest import mock

from kproxy.conformance.binding.world import World
from kproxy.conformance.case import DEFAULT, Case, Open, Probe
from kproxy.conformance.engine import session
from kproxy.conformance.engine.judging import Finding
from kproxy.conformance.engine.session import OpenTestbed, Session, run_session
from kproxy.conformance.reports.results import CaseResult, Report, Result
from kproxy.conformance.subjects.subject import Subject, load_subject
from kproxy.conformance.testbeds import netns, probe_transport, simulator
from kproxy.lab.processes import Xtables
from kproxy.spec.clauses import TRANSITION_CLAUSES
from kproxy.spec.oracle import expect
from tests.mutants.mutant import Mutant, applied
from tests.support.paths import ROOT

PATIENCE, SLOW_PATIENCE = 2.0, 4.0
"""Seconds to wait for a reply, the second on an emulated kernel: less than in a conformance run."""
AT_ONCE = 500
"""Concurrent probes: more than in a conformance run, since most of these only wait."""
FEW = 10
"""Number of cases that a mutant is judged by at first."""

Run = Callable[[Mutant, Sequence[Case]], Awaitable[Report]]
"""Runs cases on a testbed against a mutant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """Result of a mutant.

    ``killers``: IDs of failed cases that cite ``clauses`` (or a test).  ``requested``: how many
    cases were put to it.  ``trouble``: why it could not be judged.
    """

    mutant: Mutant
    killers: tuple[str, ...] = ()
    clauses: frozenset[str] = frozenset()
    requested: int = 0
    seconds: float = 0.0
    trouble: str = ""


def runner_on_kernel(variant: Xtables, parallel: int) -> Run:
    """Runner in network namespaces: the mutant is the proxy of both nodes."""

    async def run(wrong: Mutant, cases: Sequence[Case]) -> Report:
        return await _conduct(wrong, cases, netns.opener(subject_of(wrong), wrong.mode, variant), parallel)

    return run


async def run_in_simulator(wrong: Mutant, cases: Sequence[Case]) -> Report:
    """Runner in memory: this process is patched, so one mutant at a time."""
    with applied(wrong):
        return await _conduct(wrong, cases, simulator.opener(wrong.mode), 1)


def subject_of(wrong: Mutant) -> Subject:
    """The mutant as a subject."""
    command = ("{python}", "-m", "tests.mutants.proxy", wrong.name, "run", "--config", "{config}")
    return replace(load_subject("kproxy"), command=command, environment={"PYTHONPATH": str(ROOT)})


async def _conduct(wrong: Mutant, cases: Sequence[Case], open_testbed: OpenTestbed, parallel: int) -> Report:
    with tempfile.TemporaryDirectory(prefix="kproxy-mutants-") as directory:
        wanted = Session(
            subject=subject_of(wrong),
            mode=wrong.mode,
            cases=cases,
            evidence=Path(directory),
            environment={},
            parallel_labs=parallel,
        )
        return await run_session(wanted, open_testbed, lambda _: None)


@contextmanager
def hurried() -> Iterator[None]:
    """Settings of a conformance run for mutants, which often drop packets and fail many cases."""
    evidence = mock.AsyncMock(return_value={})
    with (
        mock.patch.object(session, "_keep_evidence", evidence),
        mock.patch.multiple(netns, PATIENCE=PATIENCE, SLOW_PATIENCE=SLOW_PATIENCE),
        mock.patch.object(probe_transport, "MAX_CONCURRENT_PROBES", AT_ONCE),
    ):
        yield


async def judge(wrong: Mutant, cases: Iterable[Case], run: Run) -> Judgement:
    """Judge a mutant by cases, a few first, and the others if it survives these."""
    started = time.monotonic()
    requested = 0
    trouble = ""
    for stage in stages(cases):
        report = await run(wrong, stage)
        requested += len(stage)
        killers = {entry.case.id: _cited(entry.findings, wrong) for entry in report.results}
        killers = {id: clauses for id, clauses in killers.items() if clauses}
        if killers:
            cited = frozenset().union(*killers.values())
            return Judgement(
                mutant=wrong,
                killers=tuple(killers),
                clauses=cited,
                requested=requested,
                seconds=time.monotonic() - started,
            )
        trouble = trouble or next((e.reason for e in report.results if _judged_nothing(e)), "")
    return Judgement(mutant=wrong, requested=requested, seconds=time.monotonic() - started, trouble=trouble)


def _judged_nothing(entry: CaseResult) -> bool:
    """True if a result has a reason in place of findings: the lab failed, or the mutant is no proxy at all."""
    return entry.result is Result.BROKEN or (entry.result is Result.FAILED and not entry.findings)


def stages(cases: Iterable[Case]) -> list[list[Case]]:
    """The shortest cases of the default profile, its others, and those that need labs of their own."""
    ordered = sorted(cases, key=lambda case: len(case.steps))
    default = [case for case in ordered if case.profile == DEFAULT]
    others = [case for case in ordered if case.profile != DEFAULT]
    return [stage for stage in (default[:FEW], default[FEW:], others) if stage]


def citing(wrong: Mutant, cases: Iterable[Case]) -> list[Case]:
    """The cases that cite a clause of the mutant's; slow ones only if there are no others."""
    found = [case for case in cases if case.clauses & wrong.clauses]
    return [case for case in found if not case.slow] or found


def _cited(findings: Iterable[Finding], wrong: Mutant) -> frozenset[str]:
    """The mutant's clauses that these findings cite and that their expectations rest on."""
    found: frozenset[str] = frozenset()
    for finding in findings:
        cited = wrong.clauses.intersection(finding.clauses)
        if cited - found:
            found |= cited & (TRANSITION_CLAUSES | _grounds(finding))
    return found


def _grounds(finding: Finding) -> frozenset[str]:
    """The clauses by which the oracle decides the finding's packet; none if it was not a new connection."""
    instance = finding.instance
    step = instance.case.steps[finding.step - 1]
    if not isinstance(step, Probe | Open):
        return frozenset()
    world = World(instance)
    for earlier in instance.case.steps[: finding.step]:
        world.apply_step(earlier)
    question = instance.bound_packet(step.sender, step.to)
    return frozenset(
        expect(world.cluster(question.node), world.facts(question.node), question.packet).clauses
    )


async def judge_by_test(wrong: Mutant) -> Judgement:
    """Judge a mutant that no packet can show by a test, which must fail with it and pass without."""
    assert wrong.unseen is not None
    started = time.monotonic()
    test = wrong.unseen.test
    healthy, ill = await asyncio.gather(_pytest("none", test), _pytest(wrong.name, test))
    trouble = ""
    if (healthy, ill) not in {(0, 0), (0, 1)}:
        trouble = f"{test}: pytest ended with {healthy} without the mutant, with {ill} against it"
    killers = (test.partition("::")[2],) if (healthy, ill) == (0, 1) else ()
    return Judgement(
        mutant=wrong, killers=killers, requested=1, seconds=time.monotonic() - started, trouble=trouble
    )


async def _pytest(name: str, test: str) -> int:
    quiet = asyncio.subprocess.DEVNULL
    command = (sys.executable, "-m", "tests.mutants.tested", name, test)
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=quiet, stderr=quiet)
    return await process.wait()
