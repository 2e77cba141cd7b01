"""Which cases a mutant turns red, and whether they cite what it broke.

A finding counts when it cites a clause of the mutant's *and* the answer that was contradicted rests on that
clause: the oracle names it for that very question, or only histories can show it.
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
from kproxy.conformance.reports.results import Report, Result
from kproxy.conformance.subjects.subject import Subject, load_subject
from kproxy.conformance.testbeds import netns, probe_transport, simulator
from kproxy.lab.processes import Xtables
from kproxy.spec.clauses import TRANSITION_CLAUSES
from kproxy.spec.oracle import expect
from tests.mutants.mutant import Mutant, applied
from tests.support.paths import ROOT

PATIENCE, SLOW_PATIENCE = 2.0, 4.0
"""Seconds to wait for an answer, the second on an emulated kernel: less than a conformance run gives."""
AT_ONCE = 500
"""Probes under way at the same time: more than a conformance run sends, for most of these only wait."""
FEW = 10
"""How many cases a mutant meets at first."""

Run = Callable[[Mutant, Sequence[Case]], Awaitable[Report]]
"""Runs cases on a testbed against a mutant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What became of a mutant.

    ``killers``: what turned red and cites ``clauses``, IDs of cases (or a test).  ``asked``: how many
    cases were put to it.  ``trouble``: why it could not be judged.
    """

    mutant: Mutant
    killers: tuple[str, ...] = ()
    clauses: frozenset[str] = frozenset()
    requested: int = 0
    seconds: float = 0.0
    trouble: str = ""


def runner_on_kernel(variant: Xtables, parallel: int) -> Run:
    """Runs in network namespaces: the mutant is the proxy of both nodes."""

    async def run(wrong: Mutant, cases: Sequence[Case]) -> Report:
        return await _conduct(wrong, cases, netns.opener(subject_of(wrong), wrong.mode, variant), parallel)

    return run


async def run_in_simulator(wrong: Mutant, cases: Sequence[Case]) -> Report:
    """Runs in memory: the mutant is this very process, so one at a time."""
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
    """A conformance run's habits for a session of mutants, which are often silent and fail many cases."""
    evidence = mock.AsyncMock(return_value={})
    with (
        mock.patch.object(session, "_keep_evidence", evidence),
        mock.patch.multiple(netns, PATIENCE=PATIENCE, SLOW_PATIENCE=SLOW_PATIENCE),
        mock.patch.object(probe_transport, "MAX_CONCURRENT_PROBES", AT_ONCE),
    ):
        yield


async def judge(wrong: Mutant, cases: Iterable[Case], run: Run) -> Judgement:
    """Put a mutant to cases, a few first and the others if it survives these."""
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
        trouble = trouble or next((e.reason for e in report.results if e.result is Result.BROKEN), "")
    return Judgement(mutant=wrong, requested=requested, seconds=time.monotonic() - started, trouble=trouble)


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
    """The mutant's clauses that these findings cite with reason."""
    found: frozenset[str] = frozenset()
    for finding in findings:
        cited = wrong.clauses.intersection(finding.clauses)
        if cited - found:
            found |= cited & (TRANSITION_CLAUSES | _grounds(finding))
    return found


def _grounds(finding: Finding) -> frozenset[str]:
    """The clauses that the oracle answers the finding's question by; none where it was not a new connection."""
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
    """Put a mutant that no packet can show to the test that must fail; without the mutant it must pass."""
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
