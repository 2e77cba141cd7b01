"""``kproxy conformance fuzz``: generated worlds for one subject, or differences between two.

`kproxy.cli` parses its options. A run is reproduced by its seed; a failing world is shrunk to a small file.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from kproxy.conformance.binding.bind import Instance
from kproxy.conformance.case import Case, Probe
from kproxy.conformance.command import (
    ConformanceRunError,
    check_program,
    choose_testbed,
    lab_capacity,
    report_error,
)
from kproxy.conformance.engine.session import OpenTestbed, Session, run_session
from kproxy.conformance.generate.case_source import case_source
from kproxy.conformance.generate.differential import ProbeLog, differing_probes, recording_testbed
from kproxy.conformance.generate.generate import generate_worlds
from kproxy.conformance.generate.oracle_answers import without_unanswerable_probes
from kproxy.conformance.generate.shrink import shrink_case
from kproxy.conformance.options import RunOptions
from kproxy.conformance.reports.results import CaseResult, Report, Result
from kproxy.conformance.subjects.subject import InvalidSubject, Subject, check_mode, load_subject
from kproxy.console import Console
from kproxy.documents import TEXT, print_document

SIMULATOR_LAB_CASES = 25
"""Number of worlds in one lab of the simulator, which walks the rules in memory one by one: more would be slower."""
MOST_SHRUNK = 3
SHRINKING_SECONDS = 45.0
"""Seconds of a run after which no further world is shrunk: on a real kernel each round of cuts costs labs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FuzzOptions:
    """Worlds to generate, and subjects.

    ``only``: numbers of worlds, all if empty; ``other_run``: the other subject.
    """

    run: RunOptions
    worlds: int
    seed: int
    only: tuple[int, ...] = ()
    other_run: RunOptions | None = None
    directory: Path = Path("worlds")
    shrink: bool = True
    form: str = TEXT
    arguments: tuple[str, ...] = ()


def run_fuzz(options: FuzzOptions) -> int:
    """Run, report, shrink failures; 0 all lawful, 1 something was not, 2 it could not be run.

    Where a document is printed, lines go to standard error.
    """
    console = Console(stderr=options.form != TEXT, width=None if sys.stdout.isatty() else 140)
    try:
        _check(options)
    except (InvalidSubject, ConformanceRunError) as reason:
        return report_error(reason)
    cases = list(islice(generate_worlds(options.seed, options.worlds), options.worlds))
    if options.only:
        cases = [cases[number] for number in options.only]
    if options.run.testbed != "simulator":
        cases = [
            case
            for case in map(without_unanswerable_probes, cases)
            if any(isinstance(s, Probe) for s in case.steps)
        ]
    console.print(f"{len(cases)} worlds of seed {options.seed}", highlight=False)
    try:
        elsewhere = _run_in_other_kernel(options, cases)
        if elsewhere is not None:
            return elsewhere
        if options.other_run is not None:
            return asyncio.run(_compare(options, options.other_run, cases, console))
        return asyncio.run(_judge(options, cases, console))
    except (InvalidSubject, ConformanceRunError) as reason:
        return report_error(reason)


def _check(options: FuzzOptions) -> None:
    """Check what was given, before worlds are generated.  Raises `InvalidSubject` and `ConformanceRunError`."""
    if unknown := [number for number in options.only if not 0 <= number < options.worlds]:
        raise ConformanceRunError(
            f"--world {unknown[0]}: there is no such world, with --worlds {options.worlds} they are 0 to {options.worlds - 1}"
        )
    for run in filter(None, (options.run, options.other_run)):
        subject = load_subject(run.proxy, run.binary)
        check_mode(subject, run.mode)
        check_program(run, subject)


def _run_in_other_kernel(options: FuzzOptions, cases: Sequence[Case]) -> int | None:
    """Exit status of the same command in another kernel; None when it is to run here."""
    run = options.run
    if run.testbed == "simulator" or run.kernel == "host":
        return None
    from kproxy.conformance.engine import placement

    try:
        chosen = placement.kernel_for_run(run, cases)
        repeat = ("--seed", str(options.seed), "--kernel", "host", "--time", "real", "--output", "-")
        argv = [sys.executable, "-m", "kproxy", "conformance", "fuzz", *options.arguments, *repeat]
        return placement.rerun_in_kernel(chosen.survey.name, run, argv)
    except placement.NoKernel as reason:
        raise ConformanceRunError(str(reason)) from reason


def _open_subject(options: RunOptions) -> tuple[Subject, OpenTestbed, dict[str, str]]:
    subject = load_subject(options.proxy, options.binary)
    check_mode(subject, options.mode)
    return (subject, *choose_testbed(options, subject))


async def _run_cases(
    options: RunOptions, cases: Sequence[Case], record: ProbeLog | None = None
) -> list[CaseResult]:
    subject, opened, environment = _open_subject(options)
    walked = options.testbed == "simulator"
    session = Session(
        subject=subject,
        mode=options.mode,
        cases=cases,
        evidence=options.evidence,
        environment=environment,
        parallel_labs=options.parallel,
        lab_capacity=SIMULATOR_LAB_CASES if walked else lab_capacity(options),
    )
    report = await run_session(
        session, recording_testbed(opened, record) if record else opened, lambda _: None
    )
    return list(report.results)


# ------------------------------------------------------------------------------ one subject


async def _judge(options: FuzzOptions, cases: Sequence[Case], console: Console) -> int:
    results = await _run_cases(options.run, cases)
    failed = [entry for entry in results if entry.result is Result.FAILED]
    shown: set[tuple[str, ...]] = set()
    kept: dict[str, str] = {}
    deadline = time.monotonic() + SHRINKING_SECONDS
    for entry in failed:
        _print_failure(entry, console)
        clauses = entry.findings[0].clauses
        if clauses not in shown and len(shown) < MOST_SHRUNK:
            shown.add(clauses)
            small = await _shrink(options.run, entry, deadline) if options.shrink else entry.case
            path = _write_case(options, small, entry.case)
            kept[entry.case.id] = str(path)
            console.print(f"  kept:    {path}", markup=False, highlight=False, soft_wrap=True)
    for entry in results:
        if entry.result is Result.BROKEN:
            console.print(f"broken {entry.case.id}: {entry.reason}", markup=False, highlight=False)
    report = Report(
        subject=options.run.proxy, mode=options.run.mode, environment={}, results=tuple(results), seconds=0.0
    )
    counts = {kind: sum(entry.result is kind for entry in results) for kind in Result}
    summary = ", ".join(f"{number} {kind.value}" for kind, number in counts.items() if number)
    console.print(f"{options.run.proxy} ({options.run.mode}): {summary}", highlight=False)
    if options.form != TEXT:
        print_document(_judged_document(options, results, kept), options.form)
    return report.exit_code


def _judged_document(
    options: FuzzOptions, results: Sequence[CaseResult], kept: Mapping[str, str]
) -> dict[str, object]:
    """Results as data; ``kept``: the file of each world that was kept."""
    failed = [entry for entry in results if entry.result is Result.FAILED]
    return {
        "schema": "kproxy-fuzz/1",
        "subject": options.run.proxy,
        "mode": options.run.mode,
        "seed": options.seed,
        "worlds": len(results),
        "counts": Counter(entry.result.value for entry in results),
        "failed": [
            {
                "world": entry.case.id,
                "what": entry.findings[0].what,
                "lawful": entry.findings[0].lawful,
                "seen": entry.findings[0].seen,
                "clauses": list(entry.findings[0].clauses),
                "file": kept.get(entry.case.id, ""),
            }
            for entry in failed
        ],
        "broken": {entry.case.id: entry.reason for entry in results if entry.result is Result.BROKEN},
    }


async def _shrink(options: RunOptions, entry: CaseResult, deadline: float) -> Case:
    """Smallest case found before the deadline that still fails."""

    async def fails(cases: Sequence[Case]) -> list[bool]:
        named = [replace(case, id=f"fuzz.cut-{number}") for number, case in enumerate(cases)]
        return [found.result is Result.FAILED for found in await _run_cases(options, named)]

    return await shrink_case(entry.case, entry.findings[0].step, fails, lambda: time.monotonic() > deadline)


def _print_failure(entry: CaseResult, console: Console) -> None:
    finding = entry.findings[0]
    lines = [
        f"failed {entry.case.id}: {finding.what}",
        f"  lawful:  {finding.lawful}",
        f"  seen:    {finding.seen}",
        f"  clauses: {', '.join(finding.clauses)}",
    ]
    console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)


def _write_case(options: FuzzOptions, small: Case, case: Case) -> Path:
    """Write the shrunk case as a module."""
    options.directory.mkdir(parents=True, exist_ok=True)
    path = options.directory / f"{case.id.replace('.', '_').replace('-', '_')}.py"
    run = options.run
    command = f"{run.proxy} --mode {run.mode} --seed {options.seed} --world {case.id.rpartition('-')[2]}"
    path.write_text(
        case_source(small, f"A generated world that fails: `kproxy conformance fuzz --proxy {command}`.")
    )
    return path


# ------------------------------------------------------------------------------ two subjects


async def _compare(options: FuzzOptions, other: RunOptions, cases: Sequence[Case], console: Console) -> int:
    first, second = ProbeLog(), ProbeLog()
    results = [*await _run_cases(options.run, cases, first), *await _run_cases(other, cases, second)]
    names = [f"{run.proxy} ({run.mode})" for run in (options.run, other)]
    instances = {case.id: Instance(case, case.families[0], 0, 0) for case in cases}
    found = list(differing_probes(instances, first, second))
    for one in found:
        lines = [f"{one.case} step {one.step}: {one.step_text}", f"  lawful: {one.lawful}"]
        for name, seen, bad in zip(names, one.seen, one.unlawful, strict=True):
            lines.append(f"  {name}: {seen}{' (unlawful)' if bad else ''}")
        console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)
    compared = len(first.outcomes.keys() & second.outcomes.keys())
    wrong = sum(any(one.unlawful) for one in found)
    console.print(
        f"{compared} packets, {len(found)} with different outcomes, {wrong} of them unlawful ones",
        highlight=False,
    )
    if options.form != TEXT:
        document = {
            "schema": "kproxy-fuzz-differences/1",
            "subjects": names,
            "seed": options.seed,
            "worlds": len(cases),
            "packets": compared,
            "unlawful": wrong,
            "differences": found,
        }
        print_document(document, options.form)
    if any(entry.result is Result.BROKEN for entry in results):
        return 2
    return 1 if wrong else 0
