"""Matrix run: a subject judged in every mode by one command, a process per run, each on the first kernel that can.

Runs on this machine's kernel follow each other, and so do runs in guests; the two sequences run side by side. Each
process is an ordinary run, except that its report goes to this one (`kproxy.conformance.engine.child_process`).
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from kproxy.conformance.case import Case
from kproxy.conformance.engine import child_process, modes, placement
from kproxy.conformance.engine.live_status import StatusBoard
from kproxy.conformance.options import RunOptions, run_arguments
from kproxy.conformance.reports import matrix_console
from kproxy.conformance.reports.results import CANNOT_RUN, CaseResult, Report, Result, RunOutcome
from kproxy.conformance.subjects.subject import Subject
from kproxy.lab.kernels.abilities import Ability, KernelName
from kproxy.lab.kernels.choice import Need, Surveyors
from kproxy.lab.processes import DIE_WITH_PARENT

INTERRUPTED = 130
_PATIENT_INTERRUPTS = 2
_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun:
    """Planned run: the options, the kernel chosen (``placement``, with the reason), or why none can run it (``refusal``).

    ``missing_needs``: what its kernel lacks for some of the cases.
    """

    options: RunOptions
    placement: str = ""
    missing_needs: frozenset[Need] = frozenset()
    refusal: str = ""
    in_guests: bool = False

    @property
    def name(self) -> str:
        """Name for reports."""
        return modes.run_name(self.options)


def plan_runs(wanted: Sequence[RunOptions], cases: Sequence[Case]) -> list[PlannedRun]:
    """Planned runs, one per mode, each with the first kernel that can run it."""
    runs = list(map(modes.as_child_run, wanted))
    if runs[0].testbed == "simulator":
        return [PlannedRun(options=run) for run in runs]
    kernels = placement.surveyors(runs[0], Ability)
    return [_place_run(run, cases, kernels) for run in runs]


def _place_run(options: RunOptions, cases: Sequence[Case], kernels: Surveyors) -> PlannedRun:
    try:
        chosen = placement.kernel_for_run(options, cases, kernels)
    except placement.NoKernel as reason:
        return PlannedRun(options=options, refusal=str(reason))
    name = chosen.survey.name
    return PlannedRun(
        options=replace(options, kernel=name.value),
        placement=str(chosen),
        missing_needs=chosen.without,
        in_guests=name in {KernelName.UML, KernelName.VM},
    )


def describe_placements(runs: Sequence[PlannedRun]) -> list[str]:
    """Lines with the kernels of runs; runs with the same kernel for the same reason share a line."""
    names: dict[str, list[str]] = {}
    for run in runs:
        if run.placement:
            names.setdefault(run.placement, []).append(run.name)
    lines = [f"{', '.join(those)}: {place}" for place, those in names.items()]
    guests = [run.name for run in runs if run.in_guests]
    if guests and len(guests) < len(runs):
        lines.append(
            f"{', '.join(guests)} takes minutes in a guest; `--kernel host --skip-missing-kernels` leaves it out"
        )
    return lines


def packages_to_install(wanted: Sequence[RunOptions], cases: Sequence[Case]) -> list[str]:
    """Debian packages for a kernel that one of these runs needs and does not find."""
    if wanted[0].testbed == "simulator":
        return []
    kernels = placement.surveyors(wanted[0], Ability)
    return sorted({name for run in wanted for name in placement.missing_kernel_packages(run, cases, kernels)})


def run_matrix(
    runs: Sequence[PlannedRun], subject: Subject, cases: Sequence[Case], board: StatusBoard
) -> list[RunOutcome]:
    """Execute all runs; returns their outcomes in order. Raises KeyboardInterrupt when interrupted."""
    return asyncio.run(_MatrixRunner(subject.name, cases, board).run_all(runs))


class _MatrixRunner:
    """Starts the processes and forwards signals to them: they have no terminal, so Ctrl-C reaches only this one."""

    def __init__(self, subject: str, cases: Sequence[Case], board: StatusBoard) -> None:
        self._subject, self._cases, self._board = subject, cases, board
        self._running: set[Process] = set()
        self._interrupts = 0
        self._failed = 0

    async def run_all(self, runs: Sequence[PlannedRun]) -> list[RunOutcome]:
        """See `kproxy.conformance.engine.matrix.run_matrix`."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._interrupt, number)
        here, in_guests = ([run for run in runs if run.in_guests is guest] for guest in (False, True))
        done = await asyncio.gather(
            self._run_sequence(here, more=bool(in_guests)), self._run_sequence(in_guests)
        )
        if self._interrupts:
            raise KeyboardInterrupt
        outcomes: Mapping[str, RunOutcome] = done[0] | done[1]
        return [outcomes[run.name] for run in runs]

    async def _run_sequence(self, runs: Sequence[PlannedRun], *, more: bool = False) -> dict[str, RunOutcome]:
        """Runs one after the other; ``more``: runs in guests go on, so the table of these is shown already."""
        outcomes: dict[str, RunOutcome] = {}
        for run in runs:
            if not self._interrupts:
                outcomes[run.name] = outcome = await self._outcome(run)
                self._failed += sum(entry.result is Result.FAILED for entry in outcome.report.results)
                self._board.finish(run.name, matrix_console.verdict_lines(outcome))
        if more and outcomes and not self._interrupts:
            self._board.show(matrix_console.early_table(list(outcomes.values()), self._board.width))
        return outcomes

    async def _outcome(self, run: PlannedRun) -> RunOutcome:
        if run.refusal:
            return self._without_report(run, Result.NOT_RUNNABLE, run.refusal, 0.0)
        if run.options.maxfail and self._failed >= run.options.maxfail:
            reason = f"not tried: {self._failed} cases had failed (--maxfail {run.options.maxfail})"
            return self._without_report(run, Result.NOT_RUNNABLE, reason, 0.0)
        begun = time.monotonic()
        log_tail = child_process.LogTail(partial(self._board.update, run.name))
        status, given = await self._run_child(run, log_tail)
        if status == INTERRUPTED:
            self._interrupt(signal.SIGINT)
        try:
            return RunOutcome(name=run.name, report=child_process.receive_report(given))
        except child_process.NoReport:
            kind = Result.NOT_RUNNABLE if status == CANNOT_RUN else Result.BROKEN
            return self._without_report(
                run, kind, log_tail.failure_reason() or f"exit {status}", time.monotonic() - begun
            )

    async def _run_child(self, run: PlannedRun, log_tail: child_process.LogTail) -> tuple[int, bytes]:
        """Exit status of a run's process, and its standard output."""
        process = await asyncio.create_subprocess_exec(
            *(*DIE_WITH_PARENT, sys.executable, "-m", "kproxy", *run_arguments(run.options)),
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=PIPE,
            env=child_process.child_environment(os.environ),
            start_new_session=True,
        )
        assert process.stdout
        assert process.stderr
        self._running.add(process)
        given, _ = await asyncio.gather(process.stdout.read(), _copy_stderr(process.stderr, log_tail))
        status = await process.wait()
        self._running.remove(process)
        return status, given

    def _without_report(self, run: PlannedRun, kind: Result, reason: str, seconds: float) -> RunOutcome:
        """Outcome of a run without a report."""
        results = (CaseResult(case=case, result=kind, seconds=0.0, reason=reason) for case in self._cases)
        report = Report(
            subject=self._subject,
            mode=run.options.mode,
            environment={},
            results=tuple(results),
            seconds=seconds,
        )
        return RunOutcome(name=run.name, report=report, refusal=reason if kind is Result.NOT_RUNNABLE else "")

    def _interrupt(self, number: int) -> None:
        """First and second signal: forwarded to the child processes, which clean up.

        Third: the children are killed.
        """
        self._interrupts += 1
        for process in self._running:
            with suppress(ProcessLookupError):
                if self._interrupts > _PATIENT_INTERRUPTS:
                    process.kill()
                else:
                    process.send_signal(number)


async def _copy_stderr(stream: asyncio.StreamReader, log_tail: child_process.LogTail) -> None:
    while data := await stream.read(_CHUNK):
        log_tail.feed(data)
