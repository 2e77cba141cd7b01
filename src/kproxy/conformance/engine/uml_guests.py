"""Several User-Mode Linux guests share the cases of one run: each has one processor, most machines have more.

Each guest runs its share as a run of its own; here their reports are merged.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from kproxy.conformance.case import Case
from kproxy.conformance.engine import child_process
from kproxy.conformance.engine.child_process import LogLine
from kproxy.conformance.engine.placement import NoKernel, options_inside_kernel, uml_job
from kproxy.conformance.options import RunOptions, run_arguments
from kproxy.conformance.reports.results import CaseResult, Report, Result
from kproxy.lab.kernels import boot
from kproxy.lab.kernels.uml import UmlJob
from kproxy.lab.namespaces import LabError

FEWEST_CASES = 40
"""Least number of cases per guest, below which booting another does not pay."""
MOST_GUESTS = 4
INTERRUPTED = 130


def guest_count(options: RunOptions, cases: Sequence[Case], processors: int) -> int:
    """Number of guests for these cases; the option overrides it."""
    return options.guests or max(1, min(MOST_GUESTS, processors, len(cases) // FEWEST_CASES))


def split_cases(cases: Sequence[Case], guests: int) -> list[list[Case]]:
    """Cases divided into parts of about one size; a profile that fits into one part is not divided.

    Each profile is a lab: dividing it costs another lab.
    """
    profiles: dict[str, list[Case]] = {}
    for case in cases:
        profiles.setdefault(case.profile.name, []).append(case)
    capacity = -(-len(cases) // guests)
    parts: list[list[Case]] = [[] for _ in range(guests)]
    for members in sorted(profiles.values(), key=len):
        waiting = members
        while waiting:
            smallest = min(parts, key=len)
            free = max(capacity - len(smallest), 1)
            smallest += waiting[:free]
            waiting = waiting[free:]
    return [part for part in parts if part]


def run_in_guests(options: RunOptions, cases: Sequence[Case], guests: int, log: LogLine) -> Report:
    """Run the cases in that many guests and merge their reports.

    The cases of a guest whose kernel died are `Result.BROKEN`. Raises `NoKernel` when a guest gives no report
    otherwise or all have died, KeyboardInterrupt when they were interrupted.
    """
    begun = time.monotonic()
    case_shares = split_cases(cases, guests)
    report_bytes = [bytearray() for _ in case_shares]
    log_tails = [child_process.LogTail(_prefixed(log, number)) for number, _ in enumerate(case_shares, 1)]
    jobs = [
        (_guest_job(options, share), boot.Sinks(report.extend, log_tail.feed))
        for share, report, log_tail in zip(case_shares, report_bytes, log_tails, strict=True)
    ]
    try:
        statuses = boot.run_all(jobs)
        if INTERRUPTED in statuses:
            raise KeyboardInterrupt
        if all(isinstance(end, boot.GuestDied) for end in statuses):
            raise NoKernel(str(statuses[0]))
        reports = [
            child_process.receive_report(report)
            for report, end in zip(report_bytes, statuses, strict=True)
            if not isinstance(end, boot.GuestDied)
        ]
        lost = results_of_dead_guests(case_shares, statuses)
        dead = replace(reports[0], results=lost, latency_samples=())
        return merge_reports([*reports, dead], cases, begun, len(case_shares))
    except LabError as reason:
        raise NoKernel(str(reason)) from reason
    except child_process.NoReport as nothing:
        reasons = (
            log_tail.failure_reason()
            for log_tail, report in zip(log_tails, report_bytes, strict=True)
            if not report
        )
        raise NoKernel("a guest gave no report: " + "; ".join(reasons)) from nothing


def _guest_job(options: RunOptions, share: Sequence[Case]) -> UmlJob:
    own_options = replace(
        options_inside_kernel(options.without_outputs()), globs=tuple(case.id for case in share)
    )
    job_of_options = uml_job(options, [sys.executable, "-m", "kproxy", *run_arguments(own_options)])
    return replace(job_of_options, environment=child_process.child_environment(job_of_options.environment))


def _prefixed(log: LogLine, number: int) -> LogLine:
    return lambda line: log(f"guest {number}: {line}")


def results_of_dead_guests(
    shares: Sequence[Sequence[Case]], statuses: Sequence[int | boot.GuestDied]
) -> tuple[CaseResult, ...]:
    """Results of the cases whose guests died."""
    return tuple(
        CaseResult(case=case, result=Result.BROKEN, seconds=0.0, reason=f"guest {number}: {end}")
        for number, (share, end) in enumerate(zip(shares, statuses, strict=True), 1)
        if isinstance(end, boot.GuestDied)
        for case in share
    )


def merge_reports(reports: Sequence[Report], cases: Sequence[Case], begun: float, guests: int) -> Report:
    """One report of several, in the order of the cases; ``begun``: the monotonic clock at the start."""
    results = {entry.case.id: entry for part in reports for entry in part.results}
    environment: Mapping[str, str] = {**reports[0].environment, "guests": str(guests)}
    ordered = tuple(results[case.id] for case in cases)
    return replace(
        reports[0],
        environment=environment,
        results=ordered,
        seconds=time.monotonic() - begun,
        latency_samples=tuple(applied for part in reports for applied in part.latency_samples),
    )
