"""``kproxy conformance fuzz``: generated worlds for a subject, or for two of which only differences are told.

`kproxy.cli` parses words for it.  A run is repeated by its seed; a failing world becomes a small file.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from kproxy.conformance.bind import Instance
from kproxy.conformance.case import Case, Probe
from kproxy.conformance.command import CannotRun, cannot_run, largest_lab, testbed_of
from kproxy.conformance.fuzz.answers import answerable
from kproxy.conformance.fuzz.differential import Record, differences, recording
from kproxy.conformance.fuzz.generate import worlds
from kproxy.conformance.fuzz.shrink import shrunk
from kproxy.conformance.fuzz.source import source
from kproxy.conformance.options import RunOptions
from kproxy.conformance.reports.results import CaseResult, Report, Result
from kproxy.conformance.session import OpenTestbed, Session, conduct
from kproxy.conformance.subject import BadSubject, Subject, has_mode, load
from kproxy.console import Console

WALKED_AT_ONCE = 25
"""Worlds in one lab of the simulator: rules in memory are walked one by one, more would be slower."""
MOST_SHRUNK = 3
SHRINKING_SECONDS = 45.0
"""After so many no world of a run is made smaller any more: on a kernel each round of cuts costs labs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FuzzOptions:
    """What to generate, for whom.  ``only``: numbers of worlds, all if empty; ``against``: the other subject."""

    run: RunOptions
    worlds: int
    seed: int
    only: tuple[int, ...] = ()
    against: RunOptions | None = None
    directory: Path = Path("worlds")
    shrink: bool = True
    words: tuple[str, ...] = ()


def fuzz(options: FuzzOptions) -> int:
    """Run, report, make what fails small; 0 all lawful, 1 something was not, 2 it could not be run."""
    console = Console(width=None if sys.stdout.isatty() else 140)
    cases = list(islice(worlds(options.seed, options.worlds), options.worlds))
    if options.only:
        cases = [cases[number] for number in options.only if number < len(cases)]
    if options.run.testbed != "simulator":
        cases = [case for case in map(answerable, cases) if any(isinstance(s, Probe) for s in case.steps)]
    console.print(f"{len(cases)} worlds of seed {options.seed}", highlight=False)
    try:
        elsewhere = _elsewhere(options, cases)
        if elsewhere is not None:
            return elsewhere
        if options.against is not None:
            return asyncio.run(_compare(options, options.against, cases, console))
        return asyncio.run(_judge(options, cases, console))
    except (BadSubject, CannotRun) as reason:
        return cannot_run(reason)


def _elsewhere(options: FuzzOptions, cases: Sequence[Case]) -> int | None:
    """The exit status of the same command in another kernel; None when it is to run here."""
    run = options.run
    if run.testbed == "simulator" or run.kernel == "host":
        return None
    from kproxy.conformance import placement

    try:
        chosen = placement.choice(run, cases)
        again = ("--seed", str(options.seed), "--kernel", "host", "--time", "real")
        argv = [sys.executable, "-m", "kproxy", "conformance", "fuzz", *options.words, *again]
        return placement.go(chosen.survey.name, run, argv)
    except placement.NoKernel as reason:
        raise CannotRun(str(reason)) from reason


def _opened(options: RunOptions) -> tuple[Subject, OpenTestbed, dict[str, str]]:
    subject = load(options.proxy, options.binary)
    has_mode(subject, options.mode)
    return (subject, *testbed_of(options, subject))


async def _conduct(
    options: RunOptions, cases: Sequence[Case], record: Record | None = None
) -> list[CaseResult]:
    subject, opened, environment = _opened(options)
    walked = options.testbed == "simulator"
    session = Session(
        subject=subject,
        mode=options.mode,
        cases=cases,
        evidence=options.evidence,
        environment=environment,
        parallel=options.parallel,
        largest=WALKED_AT_ONCE if walked else largest_lab(options),
    )
    report = await conduct(session, recording(opened, record) if record else opened, lambda _: None)
    return list(report.results)


# ------------------------------------------------------------------------------ one subject


async def _judge(options: FuzzOptions, cases: Sequence[Case], console: Console) -> int:
    results = await _conduct(options.run, cases)
    failed = [entry for entry in results if entry.result is Result.FAILED]
    shown: set[tuple[str, ...]] = set()
    deadline = time.monotonic() + SHRINKING_SECONDS
    for entry in failed:
        _tell(entry, console)
        clauses = entry.findings[0].clauses
        if clauses not in shown and len(shown) < MOST_SHRUNK:
            shown.add(clauses)
            small = await _small(options.run, entry, deadline) if options.shrink else entry.case
            path = _keep(options, small, entry.case)
            console.print(f"  kept:    {path}", markup=False, highlight=False, soft_wrap=True)
    for entry in results:
        if entry.result is Result.BROKEN:
            console.print(f"broken {entry.case.id}: {entry.reason}", markup=False, highlight=False)
    report = Report(
        subject=options.run.proxy, mode=options.run.mode, environment={}, results=tuple(results), seconds=0.0
    )
    counts = {kind: sum(entry.result is kind for entry in results) for kind in Result}
    words = ", ".join(f"{number} {kind.value}" for kind, number in counts.items() if number)
    console.print(f"{options.run.proxy} ({options.run.mode}): {words}", highlight=False)
    return report.exit_code


async def _small(options: RunOptions, entry: CaseResult, deadline: float) -> Case:
    """The smallest case that was found in time and fails still."""

    async def fails(cases: Sequence[Case]) -> list[bool]:
        named = [replace(case, id=f"fuzz.cut-{number}") for number, case in enumerate(cases)]
        return [found.result is Result.FAILED for found in await _conduct(options, named)]

    return await shrunk(entry.case, entry.findings[0].step, fails, lambda: time.monotonic() > deadline)


def _tell(entry: CaseResult, console: Console) -> None:
    finding = entry.findings[0]
    lines = [
        f"failed {entry.case.id}: {finding.what}",
        f"  lawful:  {finding.lawful}",
        f"  seen:    {finding.seen}",
        f"  clauses: {', '.join(finding.clauses)}",
    ]
    console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)


def _keep(options: FuzzOptions, small: Case, case: Case) -> Path:
    """Write the small case as a module."""
    options.directory.mkdir(parents=True, exist_ok=True)
    path = options.directory / f"{case.id.replace('.', '_').replace('-', '_')}.py"
    run = options.run
    said = f"{run.proxy} --mode {run.mode} --seed {options.seed} --world {case.id.rpartition('-')[2]}"
    path.write_text(source(small, f"A generated world that fails: `kproxy conformance fuzz --proxy {said}`."))
    return path


# ------------------------------------------------------------------------------ two subjects


async def _compare(options: FuzzOptions, other: RunOptions, cases: Sequence[Case], console: Console) -> int:
    first, second = Record(), Record()
    results = [*await _conduct(options.run, cases, first), *await _conduct(other, cases, second)]
    names = [f"{run.proxy} ({run.mode})" for run in (options.run, other)]
    instances = {case.id: Instance(case, case.families[0], 0, 0) for case in cases}
    found = list(differences(instances, first, second))
    for one in found:
        lines = [f"{one.case} step {one.step}: {one.what}", f"  lawful: {one.lawful}"]
        for name, seen, bad in zip(names, one.seen, one.unlawful, strict=True):
            lines.append(f"  {name}: {seen}{' (unlawful)' if bad else ''}")
        console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)
    asked = len(first.answers.keys() & second.answers.keys())
    wrong = sum(any(one.unlawful) for one in found)
    console.print(
        f"{asked} packets, {len(found)} met different fates, {wrong} of them unlawful ones", highlight=False
    )
    if any(entry.result is Result.BROKEN for entry in results):
        return 2
    return 1 if wrong else 0
