"""Two subjects side by side: what differs is repeated, and a side that cannot be probed ends the comparison."""

from __future__ import annotations

import multiprocessing
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager
from functools import partial

from kproxy.conformance.binding.bind import Instance
from kproxy.conformance.case import Probe
from kproxy.conformance.engine.differences import ProbeDifference
from kproxy.conformance.engine.side_by_side import (
    LONG,
    REPROBES,
    SHORT,
    CannotCompare,
    OpenSide,
    SideBySideResult,
    run_side_by_side,
)
from kproxy.conformance.testbed import HarnessError, Observation, SubjectFailed
from kproxy.spec.outcome import Failure, Outcome
from tests.support.copied_cases import copied, seen

Script = Mapping[str, Sequence[Failure]]
"""Outcomes of a subject's probes by the case's clause, one after the other; the last one stays."""

LAWFUL: frozenset[Outcome] = frozenset({Failure.REJECTED, Failure.DROPPED})


class ScriptedSide:
    """A subject whose outcomes are written down; its observations have the patience in their text."""

    unserved = ("web",)

    def __init__(self, script: Script) -> None:
        self.patience = 0.0
        self.left = {name: list(outcomes) for name, outcomes in script.items()}

    async def probe(self, instance: Instance, probe: Probe, count: int) -> Sequence[Observation]:  # noqa: ARG002
        """The next outcome of this case."""
        outcomes = self.left[probe.clauses[0]]
        if not outcomes:
            raise HarnessError("no evidence")
        outcome = outcomes.pop(0) if len(outcomes) > 1 else outcomes[0]
        return [Observation(seen(outcome).outcomes, f"{outcome.value} after {self.patience}")] * count


@asynccontextmanager
async def opened(script: Script | None) -> AsyncIterator[ScriptedSide]:
    if script is None:
        raise SubjectFailed("it ended with 3")
    yield ScriptedSide(script)


def settled_at_once(difference: ProbeDifference) -> bool:
    return difference.probe.clauses == ("settled",)


def compared(one: Script, other: Script | None) -> SideBySideResult | str:
    """The result, or the reason why there is none; a subject without a script fails."""
    instances = [copied(LAWFUL, (name,)) for name in one]
    sides: list[tuple[str, OpenSide]] = [
        ("one:a", partial(opened, one)),
        ("other:b", partial(opened, other)),
    ]
    try:
        return run_side_by_side(
            sides, lambda: [(each, each.probe) for each in instances], settled_at_once, lambda _: None
        )
    except CannotCompare as reason:
        return str(reason)


def in_a_process(one: Script, other: Script | None) -> SideBySideResult | str:
    """From a process of one thread, which alone may be forked."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(compared, one, other).result()


REJECTED, DROPPED = Failure.REJECTED, Failure.DROPPED


def test_what_differs_is_repeated_and_what_is_alike_or_settled_is_not() -> None:
    one: Script = {"alike": [REJECTED], "differs": [REJECTED], "settled": [REJECTED], "late": [REJECTED]}
    other: Script = {**one, "differs": [DROPPED], "settled": [DROPPED], "late": [DROPPED, REJECTED]}
    found = in_a_process(one, other)
    assert isinstance(found, SideBySideResult)
    assert (found.probed, found.broken, found.unserved) == (4, {}, ("web",))
    texts = {d.probe.clauses[0]: [[o.text for o in side] for side in d.seen] for d in found.differences}
    assert texts == {
        "differs": [[f"rejected after {LONG}"] * REPROBES, [f"dropped after {LONG}"] * REPROBES],
        "settled": [[f"rejected after {SHORT}"], [f"dropped after {SHORT}"]],
    }
    assert {d.unlawful for d in found.differences} == {(False, False)}


def test_a_probe_that_one_side_cannot_observe_is_no_difference_and_spoils_no_other() -> None:
    found = in_a_process(
        {"lost": [REJECTED], "differs": [REJECTED]}, {"lost": [], "differs": [Failure.UNTOUCHED]}
    )
    assert isinstance(found, SideBySideResult)
    assert found.broken == {0: "no evidence"}
    assert [(d.probe.clauses, d.unlawful) for d in found.differences] == [(("differs",), (False, True))]


def test_a_side_whose_subject_fails_is_named_with_its_reason() -> None:
    assert in_a_process({"alike": [REJECTED]}, None) == "other:b: it ended with 3"
