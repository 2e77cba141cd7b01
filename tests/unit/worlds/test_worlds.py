"""Two thousand generated worlds, in every mode: what compiled rules do is what the oracle allows.

Always the same worlds: others come by ``kproxy conformance fuzz --testbed simulator``, which tells its seed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import groupby

import pytest

from kproxy.conformance.bind import instances
from kproxy.conformance.case import DROPPED, REJECTED, Case, Probe, Step
from kproxy.conformance.fuzz.generate import worlds
from kproxy.conformance.run import Finding, run
from kproxy.conformance.subject import load
from kproxy.conformance.testbeds.simulator import BACKENDS, Simulator

SEED, PART, PARTS = 2026, 200, 10
AT_ONCE = 20
KPROXY = load("kproxy")


@cache
def part(number: int) -> tuple[Case, ...]:
    """So many of the two thousand."""
    return tuple(worlds(SEED + number, PART))


def labs(cases: Sequence[Case]) -> Iterator[list[Case]]:
    """Cases of one configuration, few enough for rules that are walked one by one."""
    for _, group in groupby(sorted(cases, key=lambda c: c.profile.name), key=lambda c: c.profile):
        members = list(group)
        yield from (members[at : at + AT_ONCE] for at in range(0, len(members), AT_ONCE))


def findings(cases: Sequence[Case], mode: str) -> list[Finding]:
    """What is not lawful and no known deviation, in rules of a mode."""
    able = [case for case in cases if not KPROXY.lacks(case, mode)]
    progress = [
        one for lab in labs(able) for one in asyncio.run(run(Simulator(lab[0].profile, mode), instances(lab)))
    ]
    return [
        finding
        for one in progress
        for finding in one.findings
        if KPROXY.deviation(one.instance.case, mode, [finding.clauses]) is None
    ]


def told(finding: Finding) -> str:
    _, seed, number = finding.instance.case.id.rsplit("-", 2)
    again = f"kproxy conformance fuzz --testbed simulator --seed {seed} --world {number}"
    return f"{finding.what}: lawful {finding.lawful}, seen {finding.seen}; small: `{again}`"


@pytest.mark.parametrize("mode", BACKENDS)
@pytest.mark.parametrize("number", range(PARTS))
def test_what_rules_do_in_any_world_is_lawful(number: int, mode: str) -> None:
    wrong = findings(part(number), mode)
    assert not wrong, "\n".join(map(told, wrong[:5]))


def test_worlds_have_much_to_ask_about() -> None:
    """Or their agreement would say little."""
    asked = {clause for case in part(0) for clause in case.clauses}
    assert asked >= {
        "endpoints.none.rejected",
        "endpoints.terminating.used-when-none-ready",
        "external-policy.local.drop-without-local-endpoint",
        "internal-policy.local.same-node",
        "load-balancer.ip-mode-proxy.untouched",
        "slices.merged",
        "source-ranges.outside-dropped",
        "topology.same-zone",
    }
    assert len(asked) > 70


def test_the_same_seed_makes_the_same_worlds_and_another_others() -> None:
    assert tuple(worlds(SEED, 5)) == part(0)[:5]
    assert tuple(worlds(SEED + 1, 5)) != part(0)[:5]


@pytest.mark.parametrize("mode", BACKENDS)
def test_a_wrong_answer_would_be_found(mode: str) -> None:
    """The positive control: answers that say the opposite are not met."""
    turned = [replace(case, steps=tuple(map(opposite, case.steps))) for case in part(0)[:20]]
    assert len(findings(turned, mode)) > 20


def opposite(step: Step) -> Step:
    if not isinstance(step, Probe):
        return step
    return replace(step, expect=DROPPED if step.expect & REJECTED else REJECTED)
