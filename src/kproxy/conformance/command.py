"""``kproxy conformance run`` and ``list``: choose cases, open testbeds, report, exit code.

The conformance half's composition root; `kproxy.cli` only parses words for it.
"""

from __future__ import annotations

import asyncio
import fnmatch
import random
import signal
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import msgspec
from rich.console import Console
from rich.status import Status

from kproxy.conformance import report as reports
from kproxy.conformance.case import Case
from kproxy.conformance.cases import CATALOGUE
from kproxy.conformance.session import OpenTestbed, Session, conduct
from kproxy.conformance.subject import BadSubject, Subject, load

CANNOT_RUN = 2


class CannotRun(Exception):
    """What was asked cannot be run here; the message says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The words of ``kproxy conformance run``."""

    proxy: str = "kproxy"
    binary: str = ""
    mode: str = "iptables"
    testbed: str = "netns"
    variant: str = "nft"
    globs: tuple[str, ...] = ()
    slow: bool = False
    shuffle: int | None = None
    parallel: int = 2
    json: str = ""
    evidence: Path = Path("evidence")


def select(globs: Sequence[str], *, slow: bool) -> list[Case]:
    """Cases whose ID one of the globs matches (no glob: all); slow ones when asked for or named exactly."""
    chosen = [case for case in CATALOGUE if not globs or any(fnmatch.fnmatchcase(case.id, g) for g in globs)]
    return [case for case in chosen if slow or not case.slow or case.id in globs]


def run(options: RunOptions) -> int:
    """Run cases and report; 0 all lawful, 1 a case failed, 2 the environment cannot run it."""
    console = _console(stderr=options.json == "-")
    try:
        subject = load(options.proxy, options.binary)
        cases = _cases(options)
        open_testbed, environment = _testbed(options, subject)
    except (BadSubject, CannotRun) as reason:
        Console(stderr=True).print(
            f"kproxy conformance: {reason}", style="bold", highlight=False, markup=False
        )
        return CANNOT_RUN
    session = Session(
        subject=subject,
        mode=options.mode,
        cases=cases,
        evidence=options.evidence,
        environment=environment,
        parallel=options.parallel,
    )
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    with _live(console) as tick:
        report = asyncio.run(conduct(session, open_testbed, tick.update))
    reports.show(report, console)
    _write(report.document(), options.json)
    return report.exit_code


def _console(*, stderr: bool) -> Console:
    """A console; wide where a file or a log reads it."""
    console = Console(stderr=stderr)
    return console if console.is_terminal else Console(stderr=stderr, width=140)


def _cases(options: RunOptions) -> list[Case]:
    cases = select(options.globs, slow=options.slow)
    if not cases:
        message = f"no case matches {' '.join(options.globs)}; `kproxy conformance list` shows them all"
        raise CannotRun(message)
    if options.shuffle is not None:
        random.Random(options.shuffle).shuffle(cases)
    return cases


def _testbed(options: RunOptions, subject: Subject) -> tuple[OpenTestbed, dict[str, str]]:
    if options.mode not in subject.modes:
        message = f"--mode {options.mode}: {subject.name} has {', '.join(subject.modes)}"
        raise CannotRun(message)
    if options.testbed == "simulator":
        from kproxy.conformance.testbeds import simulator

        if subject.name != "kproxy":
            message = f"the simulator evaluates kproxy's own rules; it cannot run {subject.name}"
            raise CannotRun(message)
        return simulator.opener(options.mode), {"testbed": "simulator"}
    from kproxy.conformance.testbeds import environment, netns

    problems = environment.problems()
    if problems:
        raise CannotRun("; ".join(problems))
    variant = environment.variant(options.variant)
    return netns.opener(subject, options.mode, variant), environment.facts(subject, variant)


class _Line:
    """The live line; prints plain lines where there is no terminal."""

    def __init__(self, console: Console, status: Status | None) -> None:
        self._console, self._status = console, status

    def update(self, text: str) -> None:
        """Show what goes on."""
        if self._status is not None:
            self._status.update(text)
        else:
            self._console.print(text, style="dim", highlight=False)


class _Live(AbstractContextManager[_Line]):
    def __init__(self, console: Console) -> None:
        self._console = console
        self._status = console.status("starting") if console.is_terminal else None

    def __enter__(self) -> _Line:
        (self._status or nullcontext()).__enter__()
        return _Line(self._console, self._status)

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()


def _live(console: Console) -> _Live:
    return _Live(console)


def listing(globs: Sequence[str], *, slow: bool, json: str) -> int:
    """Print the catalogue."""
    cases = select(globs, slow=slow or not globs)
    if json:
        _write(reports.catalogue_document(cases), json)
        return 0
    console = Console()
    for case in cases:
        console.print(f"{case.id}  [dim]{case.about}[/]", highlight=False)
    console.print(f"\n{len(cases)} cases")
    return 0


def _write(document: object, where: str) -> None:
    if not where:
        return
    data = msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"
    if where == "-":
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    else:
        Path(where).write_bytes(data)
