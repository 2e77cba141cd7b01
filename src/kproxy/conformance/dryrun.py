"""What a run would do: which cases on which kernel, in which order, and why not the others.

Looks at kernels, and starts nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from kproxy.conformance import every
from kproxy.conformance.case import Case, Feature
from kproxy.conformance.cases import CATALOGUE
from kproxy.conformance.options import RunOptions
from kproxy.conformance.session import labs
from kproxy.conformance.subject import Subject

_SCTP = "sctp are left out"


def lines(
    wanted: Sequence[RunOptions], subject: Subject, cases: Sequence[Case], lacks: Callable[[Case], str]
) -> Iterator[str]:
    """The run in words; the labs of each mode in the order in which they are opened.

    ``lacks``: why the testbed cannot run a case, whatever the kernel; empty when it can.
    """
    for run in every.plan(wanted, cases):
        yield f"{subject.name} {run.name}"
        if run.refused:
            yield f"  cannot be judged here: {run.refused}"
            continue
        yield f"  {run.place or 'in the simulator'}"
        claimed = [case for case in cases if not subject.lacks(case, run.options.mode)]
        able = [case for case in claimed if not lacks(case)]
        sctp = [case for case in able if Feature.SCTP in case.features and _SCTP in run.place]
        for profile, members in labs([case for case in able if case not in sctp], 0):
            yield f"  lab {profile.name}: {len(members)} cases"
            yield from (f"    {case.id}" for case in members)
        yield from _left_out("the kernel has no sctp", sctp)
        yield from (f"  not run: {case.id}: {lacks(case)}" for case in claimed if lacks(case))
        for case in cases:
            if missing := subject.lacks(case, run.options.mode):
                names = ", ".join(sorted(feature.value for feature in missing))
                yield f"  not run: {case.id}: {subject.name} does not claim {names}"
    yield from _left_out("slow, and not asked for (--slow)", _slow(wanted[0], cases))


def _slow(options: RunOptions, cases: Sequence[Case]) -> list[Case]:
    return [case for case in CATALOGUE if case.slow and case not in cases and not options.globs]


def _left_out(why: str, cases: Sequence[Case]) -> Iterator[str]:
    yield from (f"  not run: {case.id}: {why}" for case in cases)
