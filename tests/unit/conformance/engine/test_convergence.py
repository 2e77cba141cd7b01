"""How long changes take, and which of that is the subject's: a resync that is waited for is, a slow machine is not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import pytest

from kproxy.conformance.case import Apply, CheckLatency
from kproxy.conformance.engine import convergence
from kproxy.conformance.engine.convergence import ISOLATED, ChangeKind, LatencySample
from kproxy.conformance.testbeds import lag as module
from kproxy.conformance.testbeds.lag import lag
from kproxy.model.network import Family
from tests.support.scripted_testbed import WEB, Scripted, findings, run_all, small_case

CLAUSE = "change.in-effect-soon"
STEPS = (Apply(WEB), CheckLatency(clauses=(CLAUSE,)))


def applied(seconds: float, kind: ChangeKind = ChangeKind.CREATED, **fields: float) -> LatencySample:
    return LatencySample(kind=kind, node="a", family=Family.IPV4, seconds=seconds, **fields)


def resynced(every: float, stalled: float = 0.0, slowness: float = 1.0) -> list[LatencySample]:
    return [applied(every * share, stalled=stalled, slowness=slowness) for share in (0.1, 0.4, 0.9, 1.0)]


def test_a_distribution_has_the_ends_the_middle_and_the_nearest_rank() -> None:
    found = convergence.summarise(map(float, range(1, 201)))
    assert (found.number, found.least, found.median, found.p99, found.most) == (200, 1, 100.5, 198, 200)
    assert str(convergence.summarise([0.5])) == "min 0.50, median 0.50, p99 0.50, max 0.50 s of 1"


@pytest.mark.parametrize(
    ("measured", "lawful"),
    [
        ([applied(0.1)] * 20, True),
        (resynced(30.0), False),
        ([applied(0.1)] * 99 + [applied(30.0)], True),
        ([applied(0.1)] * 97 + [applied(30.0)] * 3, False),
        ([applied(0.1), applied(30.0, ChangeKind.TOGETHER)], True),
        ([applied(12.0, slowness=3.0)] * 20, True),
        (resynced(30.0, slowness=3.0), False),
        ([applied(9.0, stalled=8.5)] * 20, True),
        (resynced(30.0, stalled=0.5), False),
    ],
)
def test_99_of_100_changes_that_come_alone_are_in_time_and_slowness_of_the_machine_is_taken_off(
    measured: list[LatencySample],
    lawful: bool,  # noqa: FBT001 (a parameter of the test)
) -> None:
    assert convergence.meets_objective(measured) is lawful


def test_changes_that_came_with_others_are_reported_apart() -> None:
    kinds = convergence.distributions_by_kind(
        [applied(1.0), applied(2.0, ChangeKind.MOVED), applied(9.0, ChangeKind.TOGETHER)]
    )
    assert {name: found.most for name, found in kinds.items()} == {
        ISOLATED: 2.0,
        ChangeKind.CREATED.value: 1.0,
        ChangeKind.MOVED.value: 2.0,
        ChangeKind.TOGETHER.value: 9.0,
    }


def met(measured: Sequence[LatencySample]) -> Scripted:
    testbed = Scripted()
    testbed.applied = measured
    return testbed


def test_a_late_change_is_found_with_its_clause_its_kind_and_its_node() -> None:
    (found,) = findings(met([applied(0.1), applied(30.0, ChangeKind.MOVED)]), *STEPS)
    assert (found.step, found.clauses, found.lawful) == (2, (CLAUSE,), convergence.latency_objective())
    assert found.seen.endswith("max 30.00 s of 2; the slowest, its endpoint changes: 30.00 s on node a")
    assert findings(met([applied(0.1)]), *STEPS) == []


def test_where_no_change_of_the_family_was_timed_nothing_is_reported() -> None:
    elsewhere = LatencySample(kind=ChangeKind.CREATED, node="a", family=Family.IPV6, seconds=0.1)
    for measured in ([], [applied(1.0, ChangeKind.TOGETHER)], [elsewhere]):
        (progress,) = run_all(met(measured), small_case(*STEPS))
        assert progress.harness_error == "no change that came alone was timed"


def test_the_time_in_which_the_harness_stands_still_is_known() -> None:
    async def stand_still() -> float:
        async with lag() as found:
            await asyncio.sleep(0.05)
            asyncio.get_running_loop().call_soon(time.sleep, 0.5)
            await asyncio.sleep(0.05)
            await asyncio.sleep(module.TICK)
            return found.stalled

    assert 0.35 < asyncio.run(stand_still()) < 5


@pytest.mark.parametrize(("work", "slower"), [("sleep 1", True), ("true", False)])
def test_a_machine_that_takes_long_for_a_fixed_piece_of_work_is_slow(
    work: str,
    slower: bool,  # noqa: FBT001 (a parameter of the test)
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "LONG", 0.05)
    monkeypatch.setattr(module, "USUAL", 0.5)
    monkeypatch.setattr(module, "WORK", ("sh", "-c", work))

    async def wait() -> float:
        async with lag() as found:
            await asyncio.sleep(1.5)
            return found.slowness

    assert (asyncio.run(wait()) >= 2) is slower
