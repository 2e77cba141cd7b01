"""Cases in the simulator: findings by mode."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from itertools import groupby

from kproxy.conformance.binding.bind import bind_cases
from kproxy.conformance.case import Case
from kproxy.conformance.engine.judging import Finding
from kproxy.conformance.engine.runner import run_instances
from kproxy.conformance.subjects.deviations import find_excuse
from kproxy.conformance.subjects.subject import load_subject
from kproxy.conformance.testbeds.simulator import Simulator

AT_ONCE = 20
KPROXY = load_subject("kproxy")


def findings(cases: Sequence[Case], mode: str) -> list[Finding]:
    """Findings that are no known deviation, with the rules of a mode, of cases that rules alone can pass."""
    able = [
        case
        for case in cases
        if not KPROXY.missing_features(case, mode)
        and not Simulator(case.profile, mode).not_runnable_reason(case)
    ]
    progress = [
        one
        for lab in labs(able)
        for one in asyncio.run(run_instances(Simulator(lab[0].profile, mode), bind_cases(lab)))
    ]
    return [
        finding
        for one in progress
        for finding in one.findings
        if find_excuse(KPROXY.deviations, mode, finding) is None
    ]


def labs(cases: Sequence[Case]) -> Iterator[list[Case]]:
    """Cases of one configuration, few enough for rules that are walked one by one."""
    for _, group in groupby(sorted(cases, key=lambda c: c.profile.name), key=lambda c: c.profile):
        members = list(group)
        yield from (members[at : at + AT_ONCE] for at in range(0, len(members), AT_ONCE))
