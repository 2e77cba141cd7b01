"""``python -m tests.mutants.simulate``: each mutant of `tests.mutants.histories` must be found by universes.

Seeds are played in order until one is unlawful, at most ``--seeds``: even ones with iptables-nft, odd ones with iptables-legacy,
which alone has a lock. First the control: the same subject without a defect must be
lawful in the first seeds of each mode. A universe that breaks ends the search for its mutant, and shows nothing of it.
Exit status: 0 at most `MISSED` of the table are missed, 1 more are, 2 the control failed or a universe broke.
"""

from __future__ import annotations

import argparse
import fnmatch
import math
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kproxy.conformance.subjects.subject import load_subject
from kproxy.lab.kernels.uml import UmlKernel
from kproxy.lab.namespaces import LabError
from kproxy.universes.command import excuses
from kproxy.universes.draw import draw_schedule
from kproxy.universes.judge import Verdict, Violation, judge_universe
from kproxy.universes.launch import find_kernel, run_universes
from tests.mutants.histories import HISTORIES
from tests.mutants.mutant import Mutant

ROOT = Path(__file__).parents[2]
FOUND, SURVIVED, CANNOT_RUN = 0, 1, 2
MISSED = 1
"""Mutants that may be missed."""
CONTROLS = 8
"""Seeds of the control in each mode."""
SUBJECT = Path(__file__).with_name("kproxy-mutant.toml")


class BrokenUniverse(Exception):
    """Universe that could not be judged; the message has the reason."""


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """How universes are played; ``length``: of a universe in seconds, at most."""

    kernel: UmlKernel
    parallel: int
    length: float


@dataclass(frozen=True, slots=True)
class Search:
    """Result of a search: the seed that was unlawful, None for none; ``broken``: a universe could not be judged."""

    mutant: Mutant
    seed: int | None
    seconds: float
    text: str
    broken: bool = False

    def __str__(self) -> str:
        where = f"seed {self.seed}" if self.seed is not None else "BROKEN" if self.broken else "NOT FOUND"
        return f"{self.mutant.name:42} {self.mutant.mode:9} {where:10} {self.seconds:6.1f} s  {self.text}"


def main() -> int:
    """Parse, search, print."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.simulate")
    parser.add_argument("names", nargs="*", metavar="GLOB", help="only these mutants")
    parser.add_argument("--seeds", type=int, default=200, metavar="N", help="seeds to play for each")
    parser.add_argument("--parallel", type=int, default=os.cpu_count() or 1, metavar="N")
    parser.add_argument(
        "--length", type=float, default=math.inf, metavar="SECONDS", help="of a universe, at most"
    )
    parser.add_argument("--no-control", dest="control", action="store_false", help="leave the control out")
    options = parser.parse_args()
    os.environ["PYTHONPATH"] = (
        f"{ROOT / 'src'}:{ROOT}"  # of the guest, and of the subject, which is `tests.mutants.proxy`
    )
    chosen = [one for one in HISTORIES if any(fnmatch.fnmatchcase(one.name, g) for g in options.names or "*")]
    try:
        search = SearchOptions(find_kernel(), options.parallel, options.length)
        if options.control and (problem := _failed_control(search, {one.mode for one in chosen})):
            print(problem)
            return CANNOT_RUN
        searches = []
        for one in chosen:
            searches.append(_search(search, one, options.seeds))
            print(searches[-1], flush=True)
    except (LabError, BrokenUniverse) as reason:
        print(reason)
        return CANNOT_RUN
    found = sum(search.seed is not None for search in searches)
    print(f"{len(searches)} mutants, {found} found within {options.seeds} seeds")
    if any(search.broken for search in searches):
        return CANNOT_RUN
    return FOUND if len(searches) - found <= MISSED else SURVIVED


def _failed_control(options: SearchOptions, modes: set[str]) -> str:
    """Why the subject without a defect is not lawful; empty if it is."""
    for mode in sorted(modes):
        for seed, verdict in _verdicts(options, "none", mode, range(CONTROLS)):
            if verdict.unlawful:
                return f"control, {mode}, seed {seed}: {_text(verdict)}"
        print(f"control, {mode}: {CONTROLS} seeds lawful", flush=True)
    return ""


def _search(options: SearchOptions, wrong: Mutant, seeds: int) -> Search:
    began = time.monotonic()
    at_once = 2 * options.parallel  # both variants keep all cores busy
    for start in range(0, seeds, at_once):
        some = range(start, min(start + at_once, seeds))
        try:
            verdicts = dict(_verdicts(options, wrong.name, wrong.mode, some))
        except BrokenUniverse as reason:
            return Search(wrong, None, time.monotonic() - began, str(reason), broken=True)
        if bad := [seed for seed in some if verdicts[seed].unlawful]:
            return Search(wrong, bad[0], time.monotonic() - began, _text(verdicts[bad[0]]))
    return Search(wrong, None, time.monotonic() - began, wrong.about)


def _verdicts(
    options: SearchOptions, name: str, mode: str, seeds: Sequence[int]
) -> Iterator[tuple[int, Verdict]]:
    for variant, some in (("nft", [s for s in seeds if s % 2 == 0]), ("legacy", [s for s in seeds if s % 2])):
        yield from _verdicts_with(options, name, (mode, variant), some)


def _verdicts_with(
    options: SearchOptions, name: str, how: tuple[str, str], seeds: Sequence[int]
) -> Iterator[tuple[int, Verdict]]:
    """Verdicts in a mode and with a variant of iptables."""
    mode, _ = how
    arguments = (str(SUBJECT), name, *how)
    excuse = excuses(load_subject("kproxy"), mode)
    schedules = (draw_schedule(seed, seconds=options.length) for seed in seeds)
    for run in run_universes(options.kernel, schedules, arguments, options.parallel):
        if run.recording is None:
            raise BrokenUniverse(f"{name}, {mode}, seed {run.schedule.seed}: {run.error}")
        verdict = judge_universe(run.schedule, run.recording, excuse)
        if verdict.failure and not verdict.violations:  # a mutant lives: one that ends shows nothing
            raise BrokenUniverse(f"{name}, {mode}, seed {run.schedule.seed}: {verdict.failure}")
        yield run.schedule.seed, verdict


def _text(verdict: Verdict) -> str:
    first: Violation = verdict.violations[0]
    return f"{first.sent.sender} at {first.at:.3f} s: {first.seen}"


if __name__ == "__main__":
    sys.exit(main())
