"""``kproxy simulate``: universes of seeds, or of a file, for one subject, each judged; `kproxy.cli` parses its options."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from kproxy.conformance.generate.case_source import case_source
from kproxy.conformance.subjects.deviations import PacketFinding
from kproxy.conformance.subjects.subject import InvalidSubject, Subject, check_mode, load_subject
from kproxy.conformance.testbeds import environment
from kproxy.console import Console
from kproxy.documents import TEXT, print_document
from kproxy.lab.kernels.uml import UmlKernel
from kproxy.lab.namespaces import LabError
from kproxy.lab.topology import NODES
from kproxy.universes import launch
from kproxy.universes.conformance_case import InexpressibleSchedule, case_of_schedule
from kproxy.universes.judge import Verdict, Violation, judge_universe
from kproxy.universes.launch import UniverseRun
from kproxy.universes.recording import Recording
from kproxy.universes.results import UniverseResult, append_result, state_files, universe_result
from kproxy.universes.schedule import FaultKind, Schedule
from kproxy.universes.schedule_files import InvalidSchedule, load_schedule, schedule_source
from kproxy.universes.shell import PROMPT, shell_outputs
from kproxy.universes.shrink import shrink_schedule
from kproxy.universes.simulate_options import SimulateOptions
from kproxy.universes.stop import Stop
from kproxy.universes.story import describe_sent, story_lines
from kproxy.universes.timeline import timeline_html

MOST_PRINTED = 40
"""Universes of a mode of which each is printed; of more, those that are not lawful, and the progress."""
PROGRESS_SECONDS = 60.0
JUST_AFTER = 0.001
"""Seconds after an unlawful packet at which the state is read."""
SHRINKING_SECONDS = 240.0
"""Seconds after which a schedule is kept as short as it is by then."""


@dataclass(slots=True)
class Tally:
    """Counts of the universes that have ended."""

    universes: int = 0
    unlawful: int = 0
    broken: int = 0
    probes: int = 0
    unjudged: int = 0
    known: int = 0
    """Packets that show known deviations."""
    seconds: float = 0.0
    """Seconds that passed in them."""

    def add(self, schedule: Schedule, verdict: Verdict) -> None:
        """Count a universe."""
        self.universes += 1
        self.seconds += schedule.end
        self.probes += verdict.judged
        self.unjudged += sum(verdict.unjudged.values())
        self.known += sum(verdict.known.values())
        self.unlawful += verdict.unlawful
        self.broken += verdict.result == "broken"

    @property
    def exit_status(self) -> int:
        """Status: 1 when something was unlawful, else 2 when a universe could not be judged, else 0."""
        return 1 if self.unlawful else 2 if self.broken else 0

    def __str__(self) -> str:
        """Text for the last line."""
        parts = [
            f"{self.universes} universes of {self.seconds / 3600:.2f} h together",
            f"{self.probes} packets judged",
        ]
        parts += [f"{self.unjudged} not judged"] if self.unjudged else []
        parts += [f"{self.known} of known deviations"] if self.known else []
        parts += [f"{self.unlawful} unlawful"] if self.unlawful else []
        parts += [f"{self.broken} broken"] if self.broken else []
        return ", ".join(parts)


def run_simulate(options: SimulateOptions) -> int:
    """Run, judge and print; 0 all lawful, 1 something was not, 2 it could not be run.

    Where a document is printed, lines go to standard error.  Raises KeyboardInterrupt; what ended before has been printed.
    """
    console = Console(stderr=options.form != TEXT, width=None if sys.stdout.isatty() else 140)
    began = time.monotonic()
    if problem := options.problem:
        sys.stderr.write(f"kproxy: {problem}\n")
        return 2
    try:
        subject = _subject(options.proxy, options.binary, options.mode)
        other = _other(options) if options.has_other else None
        replayed = [load_schedule(options.replay)] if options.replay else []
        campaign = Campaign(options, launch.find_kernel(options.uml_kernel), console, other)
        try:
            for mode in (options.mode,) if options.mode else subject.modes:
                features = frozenset.intersection(
                    *(one.claimed_features(mode) for one in (subject, other) if one)
                )
                schedules = replayed or options.schedules(features)
                campaign.run(schedules, len(replayed or options.seeds), subject, mode)
        except KeyboardInterrupt:
            console.print(f"{subject.name}: interrupted after {campaign.tally}", highlight=False)
            raise
    except (InvalidSubject, InvalidSchedule, LabError) as reason:
        sys.stderr.write(f"kproxy: {reason}\n")
        return 2
    seconds = time.monotonic() - began
    rate = 3600 * campaign.tally.universes / seconds
    text = f"{subject.name}: {campaign.tally}; {seconds:.1f} s, {rate:.0f} universes an hour"
    console.print(text, highlight=False)
    if options.form != TEXT:
        document = {
            "schema": "kproxy-simulate/1",
            "subject": subject.name,
            "counts": campaign.tally,
            "universes": campaign.results,
        }
        print_document(document, options.form)
    return campaign.tally.exit_status


def _other(options: SimulateOptions) -> Subject:
    """The other version of the subject. Raises `InvalidSubject`."""
    same_program = options.binary if not options.other_proxy else ""
    other = _subject(options.other_proxy or options.proxy, options.other_binary or same_program, options.mode)
    if not options.other_proxy and not other.runs_binary:
        raise InvalidSubject(
            f"--other-binary: the commands of {options.proxy} have no {{binary}}: "
            "give --other-proxy, a subject file whose command starts the other version"
        )
    return other


def _subject(proxy: str, binary: str, mode: str) -> Subject:
    """Subject whose program is there, and that has a mode.  Raises `InvalidSubject`."""
    subject = load_subject(proxy, launch.program_path(binary) if binary else "")
    check_mode(subject, mode)
    if problem := environment.missing_program(subject):
        raise InvalidSubject(problem)
    return subject


def excuses(subject: Subject, mode: str) -> Callable[[Violation], str]:
    """Function that returns the known deviation of a subject that a violation shows, empty for none. Raises `InvalidSubject`."""
    for name in (name for one in subject.deviations for excuse in one.universes for name in excuse.during):
        if name not in FaultKind.__members__:
            known = ", ".join(FaultKind.__members__)
            raise InvalidSubject(f"{subject.name}: there is no fault {name!r} (in `during`); known: {known}")

    def excuse(violation: Violation) -> str:
        found = PacketFinding(
            clauses=violation.clauses,
            packet=describe_sent(violation),
            seen=violation.seen,
            established=violation.established,
            source_only=violation.source_only,
            changing=violation.changing,
            faults=[kind.name for kind in violation.faults],
        )
        known = (one.text for one in subject.deviations if one.excuses_packet(mode, found))
        return next(known, "")

    return excuse


def _constant_name(proxy: str) -> str:
    """Name of the subject, or the absolute path of its file."""
    return str(Path(proxy).absolute()) if Path(proxy).exists() else proxy


@dataclass(slots=True)
class Campaign:
    """Universes of one command, with their counts."""

    options: SimulateOptions
    kernel: UmlKernel
    console: Console
    other: Subject | None = None
    tally: Tally = field(default_factory=Tally)
    results: list[UniverseResult] = field(default_factory=list)
    """Results for the document, if one is printed."""
    excuse: Callable[[Violation], str] = lambda _: ""
    mode_began: float = 0.0
    done_before: int = 0
    """Universes of earlier modes."""
    printed_at: float = 0.0

    def run(self, schedules: Iterable[Schedule], number: int, judged: Subject, mode: str) -> None:
        """Play so many schedules for one subject in one mode; failing ones are shrunk and written.

        A schedule that is replayed was kept for what it shows, so nothing is excused there.
        """
        if not self.options.replay:
            known = [excuses(subject, mode) for subject in (judged, self.other) if subject]
            self.excuse = lambda violation: next(filter(None, (excuse(violation) for excuse in known)), "")
        subject = f"{judged.name} ({mode})"
        self.mode_began, self.done_before = time.monotonic(), self.tally.universes
        arguments = [_constant_name(self.options.proxy), judged.binary, mode, self.options.iptables]
        if self.other:
            name = _constant_name(self.options.other_proxy or self.options.proxy)
            arguments += [name, self.other.binary]
        stop = self.options.stop
        played = self._play(schedules, arguments, stop)
        verdicts = ((run.schedule, self._take(run, judged.name, mode, number)) for run in played)
        unlawful = []
        for schedule, verdict in verdicts:
            if verdict.unlawful:
                unlawful.append((schedule, verdict))
            if stop and self.options.shell:
                self._serve_shell(schedule, stop.until, arguments)
        if self.options.shrink and not stop:
            for schedule, verdict in unlawful:
                self._keep(schedule, verdict, subject, arguments)

    def _serve_shell(self, schedule: Schedule, until: float, arguments: Sequence[str]) -> None:
        """Run commands of standard input at a moment of a universe."""

        def visit(command: str) -> Recording | None:
            (run,) = self._play([schedule], arguments, Stop(until, (command,)))
            return run.recording

        def lines() -> Iterator[str]:
            with suppress(EOFError):
                while True:
                    yield input(PROMPT if sys.stdin.isatty() else "")

        for text in shell_outputs(lines(), visit):
            output = sys.stdout if self.options.form == TEXT else sys.stderr
            output.write(text)
            output.flush()

    def _play(
        self, schedules: Iterable[Schedule], arguments: Sequence[str], stop: Stop | None = None
    ) -> Iterator[UniverseRun]:
        parallel = self.options.parallel or os.cpu_count() or 1
        return launch.run_universes(self.kernel, schedules, arguments, parallel, stop)

    def _take(self, run: UniverseRun, name: str, mode: str, number: int) -> Verdict:
        """Judge a universe, one of ``number``; count, print and write it."""
        verdict = self._judge(run)
        self.tally.add(run.schedule, verdict)
        result = universe_result(name, mode, self.options.length, run, verdict)
        if self.options.results:
            append_result(self.options.results, result)
        if self.options.form != TEXT:
            self.results.append(result)
        seed = f"{name} ({mode}): seed {run.schedule.seed}"
        if number <= MOST_PRINTED or verdict.result != "lawful":
            self._print(f"{seed}: {verdict.result}, {verdict.judged} packets, digest {run.digest}")
        if verdict.failure:
            self._print(f"  {verdict.failure}")
        if run.recording:
            for line in story_lines(run.schedule, run.recording, verdict):
                self._print(line)
            if verdict.unlawful:
                self._write_timeline(
                    run.schedule, run.recording, verdict, f"{name}-{mode}-seed-{run.schedule.seed}"
                )
            if self.options.until:
                self._write_state(
                    run.recording, f"{name}-{mode}-seed-{run.schedule.seed}", self.options.until
                )
        if number > MOST_PRINTED:
            self._print_progress(f"{name} ({mode})", number)
        return verdict

    def _judge(self, run: UniverseRun) -> Verdict:
        if run.recording is None:
            return Verdict(judged=0, violations=(), unjudged={}, failure=run.error)
        return judge_universe(run.schedule, run.recording, self.excuse)

    def _print_progress(self, subject: str, number: int) -> None:
        """Print how far it is, once a minute."""
        now, began = time.monotonic(), self.mode_began
        if now - self.printed_at < PROGRESS_SECONDS:
            return
        self.printed_at = now
        done = self.tally.universes - self.done_before
        left = (number - done) * (now - began) / done / 60
        self._print(f"{subject}: {done} of {number} universes; {self.tally}; {left:.0f} min left")

    def _write_timeline(self, schedule: Schedule, recording: Recording, verdict: Verdict, name: str) -> None:
        """Write the timeline of a universe in which something was unlawful."""
        self.options.directory.mkdir(parents=True, exist_ok=True)
        path = self.options.directory / f"{name}.html"
        path.write_text(timeline_html(name, schedule, recording, verdict))
        self._print(f"  its timeline: {path}")

    def _write_state(self, recording: Recording, name: str, until: float) -> None:
        """Write what was read where a universe was stopped."""
        folder = self.options.directory / f"{name}-at-{until:g}"
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in state_files(recording, NODES):
            (folder / file).write_text(text)
        self._print(f"  its state: {folder}")

    def _keep(self, schedule: Schedule, verdict: Verdict, subject: str, arguments: Sequence[str]) -> None:
        """Write the shortest failing schedule that is found soon."""
        deadline = time.monotonic() + SHRINKING_SECONDS

        def first_failing(candidates: Sequence[Schedule]) -> int | None:
            for run in self._play(candidates, arguments):
                if run.recording and judge_universe(run.schedule, run.recording, self.excuse).unlawful:
                    return run.number
                if time.monotonic() > deadline:
                    break
            return None

        small = shrink_schedule(schedule, verdict, first_failing, lambda: time.monotonic() > deadline)
        self.options.directory.mkdir(parents=True, exist_ok=True)
        proxy, _, mode, _, *other = arguments
        path = self.options.directory / f"{Path(proxy).stem}-{mode}-{schedule.seed}.py"
        given = zip(
            ("--proxy", "--mode", "--other-proxy", "--other-binary"), (proxy, mode, *other), strict=False
        )
        options = " ".join(f"{name} {text}" for name, text in given if text)
        about = f"Unlawful for {subject}: `kproxy simulate {options} --replay {path.name}`."
        path.write_text(schedule_source(small, about))
        counts = f"{len(small.changes)} changes, {len(small.faults)} faults, {len(small.probes)} probes, {len(small.flows)} flows"
        self._print(f"kept: {path}: {counts}")
        self._look_at(small, path.stem, arguments)

    def _look_at(self, small: Schedule, name: str, arguments: Sequence[str]) -> None:
        """Write the timeline of a shortened schedule, and the state of its nodes when it first was unlawful."""
        (run,) = self._play([small], arguments)
        verdict = self._judge(run)
        if run.recording is None:
            return
        if not verdict.violations:
            self._print("no case: none can show how a proxy ends, nor what its cleanup leaves")
            return
        self._write_timeline(small, run.recording, verdict, name)
        self._write_case(small, run.recording, verdict, name, arguments)
        until = round(verdict.violations[0].at + JUST_AFTER, 6)
        (stopped,) = self._play([small], arguments, Stop(until))
        if stopped.recording:
            self._write_state(stopped.recording, name, until)

    def _write_case(
        self,
        small: Schedule,
        recording: Recording,
        verdict: Verdict,
        name: str,
        arguments: Sequence[str],
    ) -> None:
        """Write a shortened schedule as a conformance case, if that fails too; else print why there is none."""
        path = self.options.directory / f"{name}-case.py"
        proxy, _, mode, *_ = arguments
        try:
            found = case_of_schedule(small, recording, verdict.violations[0])
        except InexpressibleSchedule as reason:
            self._print(f"no case: {reason}")
            return
        options = f"--proxy {proxy} --mode {mode} --case-file {path.name}"
        path.write_text(
            case_source(found, f"Universe {small.seed} as a case: `kproxy conformance run {options}`.")
        )
        if why := launch.reason_against_case(self.kernel, path, arguments):
            path.unlink()
            self._print(f"no case: {why}")
        else:
            self._print(f"its case, which fails too: {path}")

    def _print(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)
