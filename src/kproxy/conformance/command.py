"""``kproxy conformance run``, ``list`` and ``show``: choose cases, open testbeds, report, exit status.

Composition root of the conformance half; `kproxy.cli` parses arguments into its options.
"""

from __future__ import annotations

import asyncio
import difflib
import fnmatch
import os
import random
import shlex
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

from rich.markup import escape

from kproxy.conformance.case import Case
from kproxy.conformance.cases import CATALOGUE
from kproxy.conformance.engine import child_process, live_status, modes
from kproxy.conformance.engine.session import OpenTestbed, Session, run_session
from kproxy.conformance.generate.case_files import InvalidCaseFile
from kproxy.conformance.generate.case_files import load_case_file as read_case
from kproxy.conformance.options import RunOptions, reproduce_command
from kproxy.conformance.reports import console as pages
from kproxy.conformance.reports import matrix_console, results_document
from kproxy.conformance.reports.outputs import OutputError, Outputs, write_bytes, write_results
from kproxy.conformance.reports.results import CANNOT_RUN, Report, exit_code
from kproxy.conformance.subjects import expected_failures
from kproxy.conformance.subjects.expected_failures import InvalidXfails
from kproxy.conformance.subjects.subject import BUNDLED, InvalidSubject, Subject, check_mode, load_subject
from kproxy.console import Console
from kproxy.spec.regressions import REGRESSIONS


class ConformanceRunError(Exception):
    """A run that is impossible as requested; the message has the reason and the remedy."""


def matching_cases(globs: Sequence[str]) -> list[Case]:
    """Cases whose ID one of the globs matches; without globs all.

    Raises `ConformanceRunError` when a glob matches none: a typing error would drop cases silently.
    """
    unmatched = [glob for glob in globs if not fnmatch.filter((case.id for case in CATALOGUE), glob)]
    if unmatched:
        groups = {case.group for case in CATALOGUE}
        meant = "".join(f"did you mean '{glob}.*'? " for glob in unmatched if glob in groups)
        raise ConformanceRunError(
            f"--case: no case matches {' or '.join(unmatched)}; {meant}`kproxy conformance list` lists all cases"
        )
    return [case for case in CATALOGUE if not globs or any(fnmatch.fnmatchcase(case.id, g) for g in globs)]


def select_cases(globs: Sequence[str], *, slow: bool) -> list[Case]:
    """The cases to run: all that match, slow ones only with ``slow`` or by their whole ID.

    Raises `ConformanceRunError` when nothing is left.
    """
    chosen = [case for case in matching_cases(globs) if slow or not case.slow or case.id in globs]
    if not chosen:
        raise ConformanceRunError(f"--case: only slow cases match {' or '.join(globs)}; add --slow")
    return chosen


def run_conformance(options: RunOptions) -> int:
    """Run cases and report; 0 all lawful, 1 a case failed, 2 the environment cannot run it."""
    console = live_status.make_console(
        stderr=options.outputs.takes_standard_output or child_process.is_child_process()
    )
    try:
        subject = load_subject(options.proxy, options.binary)
        check_mode(subject, options.mode)
        cases = _cases(options)
        options.outputs.check()
        expected_failures.read_xfails(options.xfails, _case_file_cases(options))
        runs = modes.runs_by_mode(options, subject)
        if options.print_missing_packages:
            return _print_missing_packages(runs, cases)
        if options.dry_run:
            return _print_dry_run(runs, subject, cases, console)
        if len(runs) > 1:
            return _run_matrix(runs, subject, cases, console)
        return _run_one(runs[0], subject, cases, console)
    except (InvalidSubject, InvalidXfails, ConformanceRunError, OutputError) as reason:
        return report_error(reason)


def _print_missing_packages(runs: Sequence[RunOptions], cases: Sequence[Case]) -> int:
    from kproxy.conformance.engine import matrix

    packages = matrix.packages_to_install(runs, cases)
    sys.stdout.write(f"{' '.join(packages)}\n")
    return 0


def _print_dry_run(
    runs: Sequence[RunOptions], subject: Subject, cases: Sequence[Case], console: Console
) -> int:
    from kproxy.conformance.engine import dry_run

    simulated = runs[0].testbed == "simulator"
    for line in dry_run.dry_run_lines(
        runs, subject, cases, partial(_outside_simulator, mode=runs[0].mode) if simulated else lambda _: ""
    ):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    return 0


def _run_matrix(
    wanted: Sequence[RunOptions], subject: Subject, cases: Sequence[Case], console: Console
) -> int:
    """Several runs as one; the exit status of all."""
    from kproxy.conformance.engine import matrix

    begun = time.monotonic()
    options = wanted[0]
    runs = matrix.plan_runs(wanted, cases)
    for line in matrix.describe_placements(runs):
        _log(console, line)
    with live_status.live_status(console, [run.name for run in runs]) as board:
        outcomes = matrix.run_matrix(runs, subject, cases, board)
    seconds = time.monotonic() - begun
    matrix_console.print_matrix(outcomes, console, seconds)
    write_results(results_document.matrix_document(subject.name, outcomes, seconds), options.outputs)
    return exit_code(outcomes, skip_missing_kernels=options.skip_missing_kernels)


def _run_one(options: RunOptions, subject: Subject, cases: Sequence[Case], console: Console) -> int:
    if (elsewhere := _run_in_other_kernel(options, cases, console)) is not None:
        return elsewhere
    open_testbed, environment = choose_testbed(options, subject)
    session = Session(
        subject=subject,
        mode=options.mode,
        cases=cases,
        evidence=options.evidence,
        environment=environment,
        parallel_labs=options.parallel,
        lab_capacity=lab_capacity(options),
        reprobe=True,
        reproduce_command=shlex.join(reproduce_command(options, environment)),
        rng=None if options.testbed == "simulator" else random.Random(),
    )
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    with live_status.live_status(console) as board:
        log = partial(board.update, "")
        report = _guard_machine(options, lambda: asyncio.run(run_session(session, open_testbed, log)))
    return deliver_report(
        expected_failures.apply_xfails(
            report, expected_failures.read_xfails(options.xfails, _case_file_cases(options))
        ),
        options,
        console,
    )


def _guard_machine(options: RunOptions, work: Callable[[], Report]) -> Report:
    """The report of a run; if another process changed this machine meanwhile, nothing in it has passed."""
    if options.testbed == "simulator":
        return work()
    from kproxy.conformance.testbeds import machine_changes

    return machine_changes.report_machine_changes(work)


def deliver_report(report: Report, options: RunOptions, console: Console) -> int:
    """Print and write a report, or send it to the parent process; returns the exit status."""
    if child_process.is_child_process():
        child_process.send_report(report)
        return report.exit_code
    pages.print_report(report, console)
    write_results(results_document.run_document(report), options.outputs)
    return report.exit_code


def report_error(reason: Exception) -> int:
    """Print the reason on standard error; returns the exit status for it."""
    console = Console(stderr=True)
    console.print(
        f"{child_process.ERROR_PREFIX}{reason}", style="bold", highlight=False, markup=False, soft_wrap=True
    )
    return CANNOT_RUN


def _case_file_cases(options: RunOptions) -> list[Case]:
    """The cases of ``--case-file``.  Raises `ConformanceRunError`."""
    try:
        cases = [read_case(path) for path in options.case_files]
    except InvalidCaseFile as reason:
        raise ConformanceRunError(str(reason)) from reason
    if twice := [id for id, number in Counter(case.id for case in cases).items() if number > 1]:
        raise ConformanceRunError(
            f"--case-file: several files have a case with the ID {' or '.join(twice)}; give one of them at a time"
        )
    return cases


def _select_from_case_files(options: RunOptions) -> list[Case]:
    """The cases of ``--case-file``, or those of them that ``--case`` matches.  Raises `ConformanceRunError`."""
    globs = options.globs or ("*",)
    chosen = [c for c in _case_file_cases(options) if any(fnmatch.fnmatchcase(c.id, g) for g in globs)]
    if not chosen:
        raise ConformanceRunError(
            f"--case: no case of --case-file matches {' or '.join(globs)}; change or omit --case"
        )
    return chosen


def _cases(options: RunOptions) -> list[Case]:
    slow = options.slow or options.time == "virtual"
    cases = _select_from_case_files(options) if options.case_files else select_cases(options.globs, slow=slow)
    if options.shuffle is not None:
        random.Random(options.shuffle).shuffle(cases)
    return cases


def _run_in_other_kernel(options: RunOptions, cases: Sequence[Case], console: Console) -> int | None:
    """Run in another kernel and return the exit status; None if this process is to run it."""
    if options.testbed == "simulator" or (options.kernel, options.time) == ("host", "real"):
        return None
    from kproxy.conformance.engine import placement, uml_guests

    try:
        chosen = placement.kernel_for_run(options, cases)
        if not child_process.is_child_process():
            _log(console, str(chosen))
        number = uml_guests.guest_count(options, cases, len(os.sched_getaffinity(0)))
        if not placement.can_share_run(chosen) or number == 1:
            return placement.rerun_in_kernel(chosen.survey.name, options)
        with live_status.live_status(console) as board:
            report = uml_guests.run_in_guests(options, cases, number, partial(board.update, ""))
    except placement.NoKernel as reason:
        raise ConformanceRunError(str(reason)) from reason
    return deliver_report(report, options, console)


def _log(console: Console, text: str) -> None:
    console.print(text, style="dim", highlight=False, markup=False, soft_wrap=True)


def choose_testbed(options: RunOptions, subject: Subject) -> tuple[OpenTestbed, dict[str, str]]:
    """The function that opens the requested testbed, and facts about it.  Raises `ConformanceRunError`."""
    if options.testbed == "simulator":
        from kproxy.conformance.testbeds import simulator

        if subject.name != "kproxy":
            message = f"--testbed simulator: it evaluates kproxy's own rules and cannot run {subject.name}; use --testbed netns"
            raise ConformanceRunError(message)
        return simulator.opener(options.mode), {"testbed": "simulator"}
    from kproxy.conformance.testbeds import environment, netns

    problems = environment.missing_prerequisites() or [
        environment.missing_program(subject),
        environment.missing_api_server(options.apiserver),
    ]
    if any(problems):
        raise ConformanceRunError("; ".join(filter(None, problems)))
    variant = environment.iptables_variant(options.iptables)
    assets = environment.assets(options.apiserver)
    try:
        facts = environment.environment_facts(subject, variant, assets)
    except environment.Unmountable as reason:
        raise ConformanceRunError(str(reason)) from reason
    sandboxed = facts["isolation"] == environment.ISOLATED
    open_testbed = netns.opener(
        subject, options.mode, variant, options.sync_timeout, assets, sandboxed=sandboxed
    )
    return open_testbed, facts


def regression_ids(names: Sequence[str]) -> frozenset[str]:
    """IDs of the reported bugs with these names.

    Raises `ConformanceRunError` for an unknown name, and for a bug that no case guards.
    """
    found: set[str] = set()
    for name in names:
        meant = [regression for regression in REGRESSIONS.values() if regression.matches(name)]
        if not meant:
            raise ConformanceRunError(
                f"--regression {name}: no reported bug has this name; docs/spec/regressions.md lists all"
            )
        unguarded = [r for r in meant if not any(r.id in case.regressions for case in CATALOGUE)]
        if unguarded == meant:
            raise ConformanceRunError(
                f"--regression {name}: no case guards against it ({unguarded[0].reason})"
            )
        found |= {regression.id for regression in meant}
    return frozenset(found)


def lab_capacity(options: RunOptions) -> int:
    """Number of cases that fit into one lab; 0 for any number."""
    if options.testbed == "simulator":
        return 0
    from kproxy.conformance.testbeds import environment

    return environment.largest_lab()


def list_cases(globs: Sequence[str], regressions: Sequence[str] = (), *, json: str) -> int:
    """Print the catalogue, or the requested cases; returns the exit status, 2 if there are none."""
    try:
        held = regression_ids(regressions)
        cases = [case for case in matching_cases(globs) if not held or case.regressions & held]
        Outputs(json=json).check()
        if json:
            write_bytes(results_document.format_document(results_document.catalogue_document(cases)), json)
        else:
            _print_cases(cases, Console())
    except (ConformanceRunError, OutputError) as reason:
        return report_error(reason)
    return 0


def _outside_simulator(case: Case, mode: str = "iptables") -> str:
    """The reason why the simulator of a mode cannot run a case; empty if it can."""
    from kproxy.conformance.testbeds.simulator import Simulator

    return Simulator(case.profile, mode).not_runnable_reason(case) or ""


def print_case(name: str) -> int:
    """Print all about one case; returns the exit status, 2 if no case has this ID."""
    from kproxy.conformance.case import details

    case = next((case for case in CATALOGUE if case.id == name), None)
    if case is None:
        similar = difflib.get_close_matches(name, [case.id for case in CATALOGUE], 3)
        meant = (
            f"did you mean {' or '.join(similar)}?"
            if similar
            else "`kproxy conformance list` lists all cases"
        )
        return report_error(ConformanceRunError(f"no case has the ID {name}; {meant}"))
    subjects = [load_subject(known, "kube-proxy") for known in BUNDLED]
    for line in details.case_lines(case, _outside_simulator(case), subjects):
        sys.stdout.write(f"{line}\n")
    return 0


def _print_cases(cases: Sequence[Case], console: Console) -> None:
    """Print one line for each case, and their number."""
    for case in cases:
        slow = " (slow)" if case.slow else ""
        console.print(f"{case.id}  [dim]{escape(case.about)}{slow}[/]", highlight=False, soft_wrap=True)
    console.print(f"\n{len(cases)} cases", highlight=False)
