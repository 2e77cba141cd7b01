"""``kproxy simulate``: universes of seeds, or of a file, for one subject, each judged; `kproxy.cli` parses its options."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kproxy.conformance.subjects.subject import InvalidSubject, Subject, check_mode, load_subject
from kproxy.console import Console
from kproxy.lab.kernels.uml import UmlKernel
from kproxy.lab.namespaces import LabError
from kproxy.universes import launch
from kproxy.universes.draw import draw_schedule
from kproxy.universes.judge import Verdict, Violation, judge_universe
from kproxy.universes.launch import UniverseRun
from kproxy.universes.schedule import Schedule
from kproxy.universes.schedule_files import InvalidSchedule, load_schedule, schedule_source
from kproxy.universes.shrink import shrink_schedule
from kproxy.universes.story import story_lines

SHRINKING_SECONDS = 120.0
"""Seconds after which a schedule is kept as short as it is by then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulateOptions:
    """Subject, and its universes: those of seeds, or of a file.

    ``mode`` empty: all of the subject's; ``parallel`` 0: one for each processor; ``directory``: for failing schedules.
    """

    proxy: str
    binary: str
    mode: str
    iptables: str
    seeds: range
    replay: Path | None
    parallel: int
    shrink: bool
    directory: Path
    uml_kernel: str


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

    @property
    def exit_status(self) -> int:
        """Status: 1 when something was unlawful, else 2 when a universe could not be judged, else 0."""
        return 1 if self.unlawful else 2 if self.broken else 0

    def __str__(self) -> str:
        """Text for the last line."""
        parts = [
            f"{self.universes} universes of {self.seconds:.0f} s together",
            f"{self.probes} packets judged",
        ]
        parts += [f"{self.unjudged} not judged"] if self.unjudged else []
        parts += [f"{self.known} of known deviations"] if self.known else []
        parts += [f"{self.unlawful} unlawful"] if self.unlawful else []
        parts += [f"{self.broken} broken"] if self.broken else []
        return ", ".join(parts)


def run_simulate(options: SimulateOptions) -> int:
    """Run, judge and print; 0 all lawful, 1 something was not, 2 it could not be run."""
    console = Console(width=None if sys.stdout.isatty() else 140)
    began = time.monotonic()
    try:
        subject = load_subject(options.proxy, launch.program_path(options.binary) if options.binary else "")
        check_mode(subject, options.mode)
        seeds = options.seeds
        schedules = [load_schedule(options.replay)] if options.replay else list(map(draw_schedule, seeds))
        campaign = Campaign(options, launch.find_kernel(options.uml_kernel), console)
        for mode in (options.mode,) if options.mode else subject.modes:
            campaign.run(schedules, subject, mode)
    except (InvalidSubject, InvalidSchedule, LabError) as reason:
        sys.stderr.write(f"kproxy: {reason}\n")
        return 2
    seconds = time.monotonic() - began
    rate = 3600 * campaign.tally.universes / seconds
    text = f"{subject.name}: {campaign.tally}; {seconds:.1f} s, {rate:.0f} universes an hour"
    console.print(text, highlight=False)
    return campaign.tally.exit_status


def _constant_name(proxy: str) -> str:
    """Name of the subject, or the absolute path of its file."""
    return str(Path(proxy).absolute()) if Path(proxy).exists() else proxy


@dataclass(slots=True)
class Campaign:
    """Universes of one command, with their counts."""

    options: SimulateOptions
    kernel: UmlKernel
    console: Console
    tally: Tally = field(default_factory=Tally)
    excuse: Callable[[Violation], str] = lambda _: ""

    def run(self, schedules: Sequence[Schedule], judged: Subject, mode: str) -> None:
        """Play schedules for one subject in one mode; failing ones are shrunk and written."""

        def excuse(violation: Violation) -> str:
            known = (
                d for d in judged.deviations if d.excuses_packet(mode, violation.clauses, violation.seen)
            )
            return next((deviation.text for deviation in known), "")

        self.excuse = excuse
        subject = f"{judged.name} ({mode})"
        arguments = (_constant_name(self.options.proxy), judged.binary, mode, self.options.iptables)
        verdicts = [(run.schedule, self._take(run, subject)) for run in self._play(schedules, arguments)]
        for schedule, verdict in verdicts:
            if self.options.shrink and verdict.unlawful:
                self._keep(schedule, verdict, subject, arguments)

    def _play(self, schedules: Sequence[Schedule], arguments: Sequence[str]) -> Iterator[UniverseRun]:
        parallel = self.options.parallel or os.cpu_count() or 1
        return launch.run_universes(self.kernel, schedules, arguments, parallel)

    def _take(self, run: UniverseRun, subject: str) -> Verdict:
        """Judge a universe, count it, and print it."""
        tally = self.tally
        tally.universes += 1
        tally.seconds += run.schedule.end
        seed = f"{subject}: seed {run.schedule.seed}"
        if run.recording is None:
            tally.broken += 1
            self._print(f"{seed}: broken: {run.error}")
            return Verdict(judged=0, violations=(), unjudged={}, failure=run.error)
        verdict = judge_universe(run.schedule, run.recording, self.excuse)
        tally.probes += verdict.judged
        tally.unjudged += sum(verdict.unjudged.values())
        tally.known += sum(verdict.known.values())
        tally.unlawful += verdict.unlawful
        broken = bool(verdict.failure) and not verdict.unlawful
        tally.broken += broken
        result = "unlawful" if verdict.unlawful else "broken" if broken else "lawful"
        self._print(f"{seed}: {result}, {verdict.judged} packets, digest {run.digest}")
        for line in story_lines(run.schedule, run.recording, verdict):
            self._print(line)
        return verdict

    def _keep(self, schedule: Schedule, verdict: Verdict, subject: str, arguments: Sequence[str]) -> None:
        """Write the shortest failing schedule that is found soon."""
        deadline = time.monotonic() + SHRINKING_SECONDS

        def first_failing(candidates: Sequence[Schedule]) -> int | None:
            for run in self._play(candidates, arguments):
                if run.recording and judge_universe(run.schedule, run.recording, self.excuse).unlawful:
                    return run.number
            return None

        small = shrink_schedule(schedule, verdict, first_failing, lambda: time.monotonic() > deadline)
        self.options.directory.mkdir(parents=True, exist_ok=True)
        proxy, _, mode, _ = arguments
        path = self.options.directory / f"{Path(proxy).stem}-{mode}-{schedule.seed}.py"
        about = (
            f"Unlawful for {subject}: `kproxy simulate --proxy {proxy} --mode {mode} --replay {path.name}`."
        )
        path.write_text(schedule_source(small, about))
        counts = f"{len(small.changes)} changes, {len(small.faults)} faults, {len(small.probes)} probes, {len(small.flows)} flows"
        self._print(f"kept: {path}: {counts}")

    def _print(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)
