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
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from rich.markup import escape

from kproxy.conformance.case import Case
from kproxy.conformance.case.descriptions import describe_case_count
from kproxy.conformance.cases import CATALOGUE
from kproxy.conformance.engine import child_process, last_failed, live_status, modes
from kproxy.conformance.engine.last_failed import NoLastRun
from kproxy.conformance.engine.session import OpenTestbed, Session, run_session
from kproxy.conformance.generate.case_files import InvalidCaseFile
from kproxy.conformance.generate.case_files import load_case_file as read_case
from kproxy.conformance.options import RunOptions, reproduce_command
from kproxy.conformance.reports import console as pages
from kproxy.conformance.reports import matrix_console, provenance, results_document
from kproxy.conformance.reports.outputs import OutputError, write_results
from kproxy.conformance.reports.results import CANNOT_RUN, LAWFUL, Report, exit_code
from kproxy.conformance.subjects import expected_failures
from kproxy.conformance.subjects.expected_failures import InvalidXfails
from kproxy.conformance.subjects.subject import BUNDLED, InvalidSubject, Subject, check_mode, load_subject
from kproxy.console import Console
from kproxy.documents import TEXT, print_document
from kproxy.spec.regressions import REGRESSIONS
from kproxy.spec.topics import TOPICS


class ConformanceRunError(Exception):
    """A run that is impossible as requested; the message has the reason and the remedy."""


def matching_cases(globs: Sequence[str], skips: Sequence[str] = ()) -> list[Case]:
    """Cases whose ID one of ``globs`` matches, without globs all, and none of ``skips``; a topic's name stands for its cases.

    Raises `ConformanceRunError` when a glob matches none: a typing error would drop, or run, cases silently.
    """
    globs, skips = _expand_topics(globs), _expand_topics(skips)
    for option, patterns in (("--case", globs), ("--skip", skips)):
        _refuse_unmatched(option, patterns)
    return [case for case in CATALOGUE if (not globs or _matches(case, globs)) and not _matches(case, skips)]


def _matches(case: Case, globs: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(case.id, glob) for glob in globs)


def _expand_topics(globs: Sequence[str]) -> list[str]:
    """Globs, with those that match no case but name a topic replaced by globs of its cases."""
    return [found for glob in globs for found in ([glob] if _matched(glob) else _topic_globs(glob) or [glob])]


def _topic_globs(glob: str) -> list[str]:
    topic = TOPICS.get(glob.removesuffix(".*"))
    return [f"{group}.*" for group in topic.groups] if topic else []


def _matched(glob: str) -> bool:
    return any(fnmatch.fnmatchcase(case.id, glob) for case in CATALOGUE)


def _refuse_unmatched(option: str, globs: Sequence[str]) -> None:
    unmatched = [glob for glob in globs if not _matched(glob)]
    if unmatched:
        meant = "".join(f"did you mean {guess}? " for glob in unmatched if (guess := _nearest(glob)))
        raise ConformanceRunError(
            f"{option}: no case matches {' or '.join(unmatched)}; {meant}`kproxy conformance list` lists all cases"
        )


def _nearest(glob: str) -> str:
    """Nearest to a glob that matches nothing: a group's cases, or an ID that is spelt much like it; empty if nothing is near."""
    groups = {case.group: f"'{case.group}.*'" for case in CATALOGUE}
    if glob in groups:
        return groups[glob]
    ids = {case.id: case.id for case in CATALOGUE}
    known = groups | ids
    if glob.endswith(".*"):
        known = groups
    found = difflib.get_close_matches(glob.removesuffix(".*"), list(known), 1)
    return known[found[0]] if found else ""


def select_cases(globs: Sequence[str], skips: Sequence[str] = (), *, slow: bool) -> list[Case]:
    """The cases to run: all that match and are not skipped, slow ones only with ``slow`` or by their whole ID.

    Raises `ConformanceRunError` when nothing is left.
    """
    matching = matching_cases(globs, skips)
    chosen = [case for case in matching if slow or not case.slow or case.id in globs]
    if matching and not chosen:
        raise ConformanceRunError(f"--case: only slow cases match {' or '.join(globs)}; add --slow")
    if not chosen:
        raise ConformanceRunError(f"--skip: nothing is left without {' and '.join(skips)}")
    return chosen


def run_conformance(options: RunOptions) -> int:
    """Run cases and report; 0 all lawful, 1 a case failed, 2 the environment cannot run it."""
    console = live_status.make_console(
        stderr=options.outputs.takes_standard_output or child_process.is_child_process()
    )
    try:
        subject = load_subject(options.proxy, options.binary)
        check_mode(subject, options.mode)
        if options.last_failed and not (options := last_failed.with_last_failed(options, subject)).globs:
            _log(console, "--last-failed: nothing failed in the last run")
            return LAWFUL
        cases = _cases(options)
        options.outputs.check()
        expected_failures.read_xfails(options.xfails, _case_file_cases(options))
        runs = modes.runs_by_mode(options, subject)
        if not (options.print_missing_packages or options.dry_run):
            check_program(options, subject)
        if options.print_missing_packages:
            return _print_missing_packages(runs, cases)
        if options.dry_run:
            return _print_dry_run(runs, subject, cases, console)
        if len(runs) > 1:
            return _run_matrix(runs, subject, cases, console)
        return _run_one(runs[0], subject, cases, console)
    except (InvalidSubject, InvalidXfails, ConformanceRunError, OutputError, NoLastRun) as reason:
        return report_error(reason)


def check_program(options: RunOptions, subject: Subject) -> None:
    """Check that the subject's program can be run.  Raises `ConformanceRunError`."""
    from kproxy.conformance.testbeds import environment

    if options.testbed != "simulator" and (problem := environment.missing_program(subject)):
        raise ConformanceRunError(problem)


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
    last_failed.remember_failures(options, {outcome.name: outcome.report for outcome in outcomes})
    seconds = time.monotonic() - begun
    matrix_console.print_matrix(outcomes, console, seconds)
    _write_sealed(results_document.matrix_document(subject.name, outcomes, seconds), options)
    return exit_code(outcomes, skip_missing_kernels=options.skip_missing_kernels)


def _run_one(options: RunOptions, subject: Subject, cases: Sequence[Case], console: Console) -> int:
    if (elsewhere := _run_in_other_kernel(options, cases, console)) is not None:
        return elsewhere
    open_testbed, environment = choose_testbed(options, subject)
    _check_kernel(options, cases)
    session = Session(
        subject=subject,
        mode=options.mode,
        cases=cases,
        evidence=options.evidence,
        environment=environment,
        parallel_labs=options.parallel,
        lab_capacity=lab_capacity(options),
        maxfail=options.maxfail,
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
    last_failed.remember_failures(options, {modes.run_name(options): report})
    pages.print_report(report, console)
    _write_sealed(results_document.run_document(report), options)
    return report.exit_code


def _write_sealed(document: results_document.Json, options: RunOptions) -> None:
    """Write results with who, when and by which catalogue.  Raises `OutputError`."""
    if options.outputs.destinations:
        subject = load_subject(options.proxy, options.binary or "(not given)")
        write_results(provenance.sealed(document, subject, datetime.now(UTC)), options.outputs)


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
    globs, skips = _expand_topics(options.globs) or ["*"], _expand_topics(options.skips)
    cases = _case_file_cases(options)
    chosen = [case for case in cases if _matches(case, globs) and not _matches(case, skips)]
    if not chosen:
        raise ConformanceRunError(
            f"--case: no case of --case-file matches {' or '.join(globs)}; change or omit --case and --skip"
        )
    return chosen


def _cases(options: RunOptions) -> list[Case]:
    slow = options.slow or options.time == "virtual"
    if options.case_files:
        cases = _select_from_case_files(options)
    else:
        cases = select_cases(options.globs, options.skips, slow=slow)
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


def _check_kernel(options: RunOptions, cases: Sequence[Case]) -> None:
    """Check that this kernel has what the mode needs, before a lab is built.

    Raises `ConformanceRunError` with what is missing.
    """
    if options.testbed == "simulator" or child_process.is_child_process():
        return  # a run of several has been placed by its parent
    from kproxy.conformance.engine import placement

    try:
        placement.kernel_for_run(replace(options, kernel="host"), cases)
    except placement.NoKernel as reason:
        raise ConformanceRunError(
            f"--kernel host --mode {options.mode}: {reason}; without --kernel another is looked for,"
            " `kproxy lab doctor` lists them"
        ) from reason


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


def list_cases(
    globs: Sequence[str], regressions: Sequence[str] = (), skips: Sequence[str] = (), *, form: str = TEXT
) -> int:
    """Print the catalogue, or the requested cases; returns the exit status, 2 if there are none."""
    try:
        held = regression_ids(regressions)
        cases = [case for case in matching_cases(globs, skips) if not held or case.regressions & held]
    except ConformanceRunError as reason:
        return report_error(reason)
    if form == TEXT:
        _print_cases(cases, Console())
    else:
        print_document(results_document.catalogue_document(cases), form)
    return 0


def _outside_simulator(case: Case, mode: str = "iptables") -> str:
    """The reason why the simulator of a mode cannot run a case; empty if it can."""
    from kproxy.conformance.testbeds.simulator import Simulator

    return Simulator(case.profile, mode).not_runnable_reason(case) or ""


def print_case(name: str, form: str = TEXT) -> int:
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
    if form != TEXT:
        print_document(results_document.catalogue_document([case])["cases"][0], form)
        return 0
    subjects = [load_subject(known, "kube-proxy") for known in BUNDLED]
    for line in details.case_lines(case, _outside_simulator(case), subjects):
        sys.stdout.write(f"{line}\n")
    return 0


def _print_cases(cases: Sequence[Case], console: Console) -> None:
    """Print one line for each case, and their number."""
    for case in cases:
        slow = " (slow)" if case.slow else ""
        console.print(f"{case.id}  [dim]{escape(case.about)}{slow}[/]", highlight=False, soft_wrap=True)
    console.print(f"\n{describe_case_count(len(cases))}", highlight=False)
