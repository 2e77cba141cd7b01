"""Several User-Mode Linux guests share the cases of one run: each has one processor, most machines have more.

Each guest runs its share as a run of its own and writes its report as a part; here the parts become one report.
"""

from __future__ import annotations

import os
import pickle
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from kproxy.conformance.case import Case
from kproxy.conformance.options import RunOptions, words
from kproxy.conformance.placement import NoKernel, inside, job
from kproxy.conformance.report import Report
from kproxy.lab.kernels import boot
from kproxy.lab.kernels.uml import Job, visible_scratch
from kproxy.lab.namespaces import LabError

PART = "KPROXY_REPORT_PART"
"""Where a guest's run leaves its report, for this module alone."""

FEWEST = 40
"""Cases that are worth a guest."""
MOST = 4
INTERRUPTED = 130

Tick = Callable[[str], None]


def count(options: RunOptions, cases: Sequence[Case], processors: int) -> int:
    """How many guests are worth their while; an option that says it is right."""
    return options.guests or max(1, min(MOST, processors, len(cases) // FEWEST))


def shares(cases: Sequence[Case], guests: int) -> list[list[Case]]:
    """The cases in parts of about one size; a profile that fits into one part is not torn apart.

    A profile is a lab: torn, it costs another.
    """
    profiles: dict[str, list[Case]] = {}
    for case in cases:
        profiles.setdefault(case.profile.name, []).append(case)
    room = -(-len(cases) // guests)
    parts: list[list[Case]] = [[] for _ in range(guests)]
    for members in sorted(profiles.values(), key=len):
        waiting = members
        while waiting:
            smallest = min(parts, key=len)
            free = max(room - len(smallest), 1)
            smallest += waiting[:free]
            waiting = waiting[free:]
    return [part for part in parts if part]


def run(options: RunOptions, cases: Sequence[Case], guests: int, tick: Tick) -> Report:
    """Run the cases in that many guests and put their reports together.

    Raises `NoKernel` when a guest gives none, KeyboardInterrupt when they were interrupted.
    """
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kproxy-parts-", dir=visible_scratch()) as folder:
        parts = [Path(folder, f"{number}") for number, _ in enumerate(shares(cases, guests), 1)]
        errors = bytearray()
        jobs = [
            (_job(options, share, part), boot.Sinks(_lines(tick, part.name), errors.extend))
            for share, part in zip(shares(cases, guests), parts, strict=True)
        ]
        try:
            statuses = boot.run(jobs)
        except LabError as reason:
            raise NoKernel(str(reason)) from reason
        if INTERRUPTED in statuses:
            raise KeyboardInterrupt
        if not all(part.exists() for part in parts):
            raise NoKernel(f"a guest gave no report: {errors.decode(errors='replace').strip()}")
        return together([pickle.loads(part.read_bytes()) for part in parts], cases, begun)  # noqa: S301 (our own)


def _job(options: RunOptions, share: Sequence[Case], part: Path) -> Job:
    mine = replace(inside(options), globs=tuple(case.id for case in share), json="")
    whole = job(options, [sys.executable, "-m", "kproxy", *words(mine)])
    plain = {name: value for name, value in whole.environment.items() if name != "FORCE_COLOR"}
    return replace(whole, environment={**plain, PART: str(part)})


def _lines(tick: Tick, name: str) -> boot.Sink:
    """Pass on whole lines, with the guest's name."""
    rest = b""

    def sink(data: bytes) -> None:
        nonlocal rest
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            tick(f"guest {name}: {line.decode(errors='replace')}")

    return sink


def together(parts: Sequence[Report], cases: Sequence[Case], begun: float) -> Report:
    """One report of several, in the order of the cases; ``begun``: the monotonic clock at the start."""
    results = {entry.case.id: entry for part in parts for entry in part.results}
    environment: Mapping[str, str] = {**parts[0].environment, "guests": str(len(parts))}
    ordered = tuple(results[case.id] for case in cases)
    return replace(parts[0], environment=environment, results=ordered, seconds=time.monotonic() - begun)


def keep_part(report: Report) -> bool:
    """In a guest that has a share: write its report for the one who waits for it; whether this was such a guest."""
    if PART not in os.environ:
        return False
    Path(os.environ[PART]).write_bytes(pickle.dumps(report))
    return True
