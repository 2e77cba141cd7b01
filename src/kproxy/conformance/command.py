"""``kproxy conformance run`` and ``list``: choose cases, open testbeds, report, exit code.

The conformance half's composition root; `kproxy.cli` only parses words for it.
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

from kproxy.conformance import live, modes, part, xfails
from kproxy.conformance.attached import BadCaseFile
from kproxy.conformance.attached import load as read_case
from kproxy.conformance.case import Case
from kproxy.conformance.cases import CATALOGUE
from kproxy.conformance.options import RunOptions, again
from kproxy.conformance.regressions import REGRESSIONS
from kproxy.conformance.reports import console as pages
from kproxy.conformance.reports import document, overview
from kproxy.conformance.reports.outputs import CannotWrite, Outputs, put, write
from kproxy.conformance.reports.results import CANNOT_RUN, Report, exit_code
from kproxy.conformance.session import OpenTestbed, Session, conduct
from kproxy.conformance.subject import BUNDLED, BadSubject, Subject, has_mode, load
from kproxy.conformance.xfails import BadXfails
from kproxy.console import Console


class CannotRun(Exception):
    """What was asked cannot be run here; the message says what to do."""


def matching(globs: Sequence[str]) -> list[Case]:
    """Cases whose ID one of the globs matches; without globs all.

    Raises `CannotRun` when a glob matches none: a case that was meant would not be run.
    """
    idle = [glob for glob in globs if not fnmatch.filter((case.id for case in CATALOGUE), glob)]
    if idle:
        groups = {case.group for case in CATALOGUE}
        meant = "".join(f"did you mean '{glob}.*'? " for glob in idle if glob in groups)
        raise CannotRun(
            f"no case matches {' or '.join(idle)}; {meant}`kproxy conformance list` shows them all"
        )
    return [case for case in CATALOGUE if not globs or any(fnmatch.fnmatchcase(case.id, g) for g in globs)]


def select(globs: Sequence[str], *, slow: bool) -> list[Case]:
    """The cases to run: what matches, slow ones only when asked for or named exactly.

    Raises `CannotRun` when nothing is left.
    """
    chosen = [case for case in matching(globs) if slow or not case.slow or case.id in globs]
    if not chosen:
        raise CannotRun(f"only slow cases match {' or '.join(globs)}: add --slow")
    return chosen


def run(options: RunOptions) -> int:
    """Run cases and report; 0 all lawful, 1 a case failed, 2 the environment cannot run it."""
    console = live.console(stderr=options.outputs.takes_standard_output or part.wanted())
    try:
        subject = load(options.proxy, options.binary)
        has_mode(subject, options.mode)
        cases = _cases(options)
        options.outputs.check()
        xfails.read(options.xfails, _attached(options))
        runs = modes.each(options, subject)
        if options.lacking_packages:
            return _print_lacking_packages(runs, cases)
        if options.dryrun:
            return _print_dryrun(runs, subject, cases, console)
        if len(runs) > 1:
            return _run_every(runs, subject, cases, console)
        return _run_one(runs[0], subject, cases, console)
    except (BadSubject, BadXfails, CannotRun, CannotWrite) as reason:
        return cannot_run(reason)


def _print_lacking_packages(runs: Sequence[RunOptions], cases: Sequence[Case]) -> int:
    from kproxy.conformance import every

    packages = every.lacking_packages(runs, cases)
    sys.stdout.write(f"{' '.join(packages)}\n")
    return 0


def _print_dryrun(
    runs: Sequence[RunOptions], subject: Subject, cases: Sequence[Case], console: Console
) -> int:
    from kproxy.conformance import dryrun

    simulated = runs[0].testbed == "simulator"
    for line in dryrun.lines(runs, subject, cases, _outside_simulator if simulated else lambda _: ""):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    return 0


def _run_every(
    wanted: Sequence[RunOptions], subject: Subject, cases: Sequence[Case], console: Console
) -> int:
    """Several runs as one; the exit status of all."""
    from kproxy.conformance import every

    begun = time.monotonic()
    options = wanted[0]
    runs = every.plan(wanted, cases)
    for line in every.places(runs):
        _tell(console, line)
    with live.live(console, [run.name for run in runs]) as board:
        outcomes = every.conduct(runs, subject, cases, board)
    seconds = time.monotonic() - begun
    overview.show(outcomes, console, seconds)
    write(document.of_runs(subject.name, outcomes, seconds), options.outputs)
    return exit_code(outcomes, where_possible=options.where_possible)


def _run_one(options: RunOptions, subject: Subject, cases: Sequence[Case], console: Console) -> int:
    if (elsewhere := _elsewhere(options, cases, console)) is not None:
        return elsewhere
    open_testbed, environment = testbed_of(options, subject)
    session = Session(
        subject=subject,
        mode=options.mode,
        cases=cases,
        evidence=options.evidence,
        environment=environment,
        parallel=options.parallel,
        largest=largest_lab(options),
        ask_again=True,
        again=shlex.join(again(options, environment)),
        chance=None if options.testbed == "simulator" else random.Random(),
    )
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    with live.live(console) as board:
        tell = partial(board.tell, "")
        report = _left_alone(options, lambda: asyncio.run(conduct(session, open_testbed, tell)))
    return finish(xfails.applied(report, xfails.read(options.xfails, _attached(options))), options, console)


def _left_alone(options: RunOptions, work: Callable[[], Report]) -> Report:
    """The report of a run; where this machine was changed meanwhile nothing has passed."""
    if options.testbed == "simulator":
        return work()
    from kproxy.conformance.testbeds import bystander

    return bystander.left_alone(work)


def finish(report: Report, options: RunOptions, console: Console) -> int:
    """Print and write a report, or give it to who waits for it; the exit status."""
    if part.wanted():
        part.give(report)
        return report.exit_code
    pages.show(report, console)
    write(document.of_run(report), options.outputs)
    return report.exit_code


def cannot_run(reason: Exception) -> int:
    """Say why, and the exit status for it."""
    console = Console(stderr=True)
    console.print(f"{part.REFUSAL}{reason}", style="bold", highlight=False, markup=False, soft_wrap=True)
    return CANNOT_RUN


def _attached(options: RunOptions) -> list[Case]:
    """The cases of ``--case-file``.  Raises `CannotRun`."""
    try:
        cases = [read_case(path) for path in options.case_files]
    except BadCaseFile as reason:
        raise CannotRun(str(reason)) from reason
    if twice := [id for id, number in Counter(case.id for case in cases).items() if number > 1]:
        raise CannotRun(
            f"--case-file: several files have a case called {' or '.join(twice)}; run one at a time"
        )
    return cases


def _from_files(options: RunOptions) -> list[Case]:
    """The cases of ``--case-file``, or those of them that ``--case`` matches.  Raises `CannotRun`."""
    globs = options.globs or ("*",)
    chosen = [c for c in _attached(options) if any(fnmatch.fnmatchcase(c.id, g) for g in globs)]
    if not chosen:
        raise CannotRun(f"no case of these files matches {' or '.join(globs)}")
    return chosen


def _cases(options: RunOptions) -> list[Case]:
    slow = options.slow or options.time == "virtual"
    cases = _from_files(options) if options.case_files else select(options.globs, slow=slow)
    if options.shuffle is not None:
        random.Random(options.shuffle).shuffle(cases)
    return cases


def _elsewhere(options: RunOptions, cases: Sequence[Case], console: Console) -> int | None:
    """Run it in another kernel and return the exit status; None when it is to run in this process."""
    if options.testbed == "simulator" or (options.kernel, options.time) == ("host", "real"):
        return None
    from kproxy.conformance import guests, placement

    try:
        chosen = placement.choice(options, cases)
        if not part.wanted():
            _tell(console, str(chosen))
        number = guests.count(options, cases, len(os.sched_getaffinity(0)))
        if not placement.shareable(chosen) or number == 1:
            return placement.go(chosen.survey.name, options)
        with live.live(console) as board:
            report = guests.run(options, cases, number, partial(board.tell, ""))
    except placement.NoKernel as reason:
        raise CannotRun(str(reason)) from reason
    return finish(report, options, console)


def _tell(console: Console, text: str) -> None:
    console.print(text, style="dim", highlight=False, markup=False, soft_wrap=True)


def testbed_of(options: RunOptions, subject: Subject) -> tuple[OpenTestbed, dict[str, str]]:
    """How to open the testbed that was asked for, and facts about it.  Raises `CannotRun`."""
    if options.testbed == "simulator":
        from kproxy.conformance.testbeds import simulator

        if subject.name != "kproxy":
            message = f"the simulator evaluates kproxy's own rules; it cannot run {subject.name}"
            raise CannotRun(message)
        return simulator.opener(options.mode), {"testbed": "simulator"}
    from kproxy.conformance.testbeds import environment, netns

    problems = environment.problems() or [
        environment.missing_program(subject),
        environment.missing_api_server(options.apiserver),
    ]
    if any(problems):
        raise CannotRun("; ".join(filter(None, problems)))
    variant = environment.variant(options.iptables)
    assets = environment.assets(options.apiserver)
    try:
        facts = environment.facts(subject, variant, assets)
    except environment.Unmountable as reason:
        raise CannotRun(str(reason)) from reason
    sandboxed = facts["isolation"] == environment.ISOLATED
    open_testbed = netns.opener(subject, options.mode, variant, options.patience, assets, sandboxed=sandboxed)
    return open_testbed, facts


def holding(names: Sequence[str]) -> frozenset[str]:
    """The ids of the reports that are called so.

    Raises `CannotRun` when there is none of a name, or when no case holds it.
    """
    found: set[str] = set()
    for name in names:
        meant = [regression for regression in REGRESSIONS.values() if regression.called(name)]
        if not meant:
            raise CannotRun(
                f"--regression {name}: no report is called so; docs/spec/regressions.md has them all"
            )
        unheld = [r for r in meant if not any(r.id in case.regressions for case in CATALOGUE)]
        if unheld == meant:
            raise CannotRun(f"--regression {name}: no case holds it ({unheld[0].reason})")
        found |= {regression.id for regression in meant}
    return frozenset(found)


def largest_lab(options: RunOptions) -> int:
    """How many cases one lab can hold; 0 for any number."""
    if options.testbed == "simulator":
        return 0
    from kproxy.conformance.testbeds import environment

    return environment.largest_lab()


def listing(globs: Sequence[str], regressions: Sequence[str] = (), *, json: str) -> int:
    """Print the catalogue, or the cases that were asked for; 2 when there are none."""
    try:
        held = holding(regressions)
        cases = [case for case in matching(globs) if not held or case.regressions & held]
        Outputs(json=json).check()
        if json:
            put(document.text(document.of_catalogue(cases)), json)
        else:
            _print_cases(cases, Console())
    except (CannotRun, CannotWrite) as reason:
        return cannot_run(reason)
    return 0


def _outside_simulator(case: Case) -> str:
    """Why the simulator cannot run a case; empty when it can."""
    from kproxy.conformance.testbeds.simulator import Simulator

    return Simulator(case.profile).lacks(case) or ""


def show(name: str) -> int:
    """Print all about one case; 2 when there is none of that name."""
    from kproxy.conformance import show as shown

    case = next((case for case in CATALOGUE if case.id == name), None)
    if case is None:
        near = difflib.get_close_matches(name, [case.id for case in CATALOGUE], 3)
        meant = f"did you mean {' or '.join(near)}?" if near else "`kproxy conformance list` shows them all"
        return cannot_run(CannotRun(f"no case is called {name}; {meant}"))
    subjects = [load(known, "kube-proxy") for known in BUNDLED]
    for line in shown.lines(case, _outside_simulator(case), subjects):
        sys.stdout.write(f"{line}\n")
    return 0


def _print_cases(cases: Sequence[Case], console: Console) -> None:
    """One line for each, and the sum."""
    for case in cases:
        slow = " (slow)" if case.slow else ""
        console.print(f"{case.id}  [dim]{escape(case.about)}{slow}[/]", highlight=False, soft_wrap=True)
    console.print(f"\n{len(cases)} cases", highlight=False)
