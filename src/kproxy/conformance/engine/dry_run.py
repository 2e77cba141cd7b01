"""Plan of a run as text: which cases on which kernel, in which order, and why not the others.

Surveys kernels, and starts nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from kproxy.conformance.case import Case
from kproxy.conformance.case.descriptions import describe_case_count
from kproxy.conformance.cases import CATALOGUE
from kproxy.conformance.engine import matrix
from kproxy.conformance.engine.session import group_into_labs
from kproxy.conformance.options import RunOptions
from kproxy.conformance.subjects.subject import Subject
from kproxy.conformance.testbeds.environment import case_needs
from kproxy.lab.kernels.choice import describe_needs


def dry_run_lines(
    wanted: Sequence[RunOptions], subject: Subject, cases: Sequence[Case], lacks: Callable[[Case], str]
) -> Iterator[str]:
    """Lines of the plan; the labs of each mode in the order in which they are opened.

    ``lacks``: why the testbed cannot run a case, whatever the kernel; empty when it can.
    """
    for run in matrix.plan_runs(wanted, cases):
        yield f"{subject.name} {run.name}"
        if run.refusal:
            yield f"  cannot be judged here: {run.refusal}"
            continue
        yield f"  {run.placement or 'in the simulator'}"
        claimed = [case for case in cases if not subject.missing_features(case, run.options.mode)]
        able = [case for case in claimed if not lacks(case)]
        lacking = {case: case_needs(case, run.options.mode) & run.missing_needs for case in able}
        for profile, members in group_into_labs([case for case in able if not lacking[case]], 0):
            yield f"  lab {profile.name}: {describe_case_count(len(members))}"
            yield from (f"    {case.id}" for case in members)
        for case in able:
            if lacking[case]:
                yield f"  not run: {case.id}: the kernel has no {describe_needs(lacking[case])}"
        yield from (f"  not run: {case.id}: {lacks(case)}" for case in claimed if lacks(case))
        for case in cases:
            if missing := subject.missing_features(case, run.options.mode):
                names = ", ".join(sorted(feature.value for feature in missing))
                yield f"  not run: {case.id}: {subject.name} does not claim {names}"
    yield from _left_out("slow, and not requested (--slow)", _slow(wanted[0], cases))


def _slow(options: RunOptions, cases: Sequence[Case]) -> list[Case]:
    """Slow cases that a run of the whole catalogue leaves out."""
    if options.globs or options.case_files:
        return []
    return [case for case in CATALOGUE if case.slow and case not in cases]


def _left_out(why: str, cases: Sequence[Case]) -> Iterator[str]:
    yield from (f"  not run: {case.id}: {why}" for case in cases)
