"""A failing world becomes small, stays lawful, and can be read as Python."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from kproxy.conformance.case import Apply, Case, CaseService, Probe
from kproxy.conformance.generate.case_source import case_source
from kproxy.conformance.generate.generate import generate_worlds
from kproxy.conformance.generate.oracle_answers import with_oracle_answers
from kproxy.conformance.generate.shrink import shrink_case, smaller_cases

WORLDS = tuple(generate_worlds(6, 30))


def services(case: Case) -> list[CaseService]:
    return [service for step in case.steps if isinstance(step, Apply) for service in step.services]


@pytest.mark.parametrize("case", WORLDS[:5], ids=lambda case: case.id)
def test_what_is_smaller_still_has_the_oracles_answers(case: Case) -> None:
    found = list(smaller_cases(case))
    assert found
    assert all(one == with_oracle_answers(one) and one != case for one in found)


def test_only_what_makes_it_fail_is_left() -> None:
    """A made-up bug: a terminating endpoint beside anything at all."""

    def buggy(case: Case) -> bool:
        requested = any(isinstance(step, Probe) for step in case.steps)
        return requested and any(b.terminating for service in services(case) for b in service.endpoints)

    async def fails(cases: Sequence[Case]) -> list[bool]:
        return [buggy(case) for case in cases]

    case = next(case for case in WORLDS if buggy(case) and len(case.steps) > 8)
    at = next(n for n, step in enumerate(case.steps, 1) if isinstance(step, Probe))
    small = asyncio.run(shrink_case(case, at, fails))
    assert buggy(small)
    assert len(small.steps) == 2
    (service,) = services(small)
    (endpoint,) = service.endpoints
    assert endpoint.terminating
    assert service == CaseService(name=service.name, endpoints=service.endpoints)


def test_it_ends_when_it_is_enough_with_what_it_has() -> None:
    rounds: list[int] = []

    async def fails(cases: Sequence[Case]) -> list[bool]:
        rounds.append(len(cases))
        return [True for _ in cases]

    case = WORLDS[0]
    at = next(n for n, step in enumerate(case.steps, 1) if isinstance(step, Probe))
    small = asyncio.run(shrink_case(case, at, fails, lambda: len(rounds) > 1))
    assert rounds[0] == 1
    assert len(rounds) == 2
    assert len(small.steps) < len(case.steps)


@pytest.mark.parametrize("case", WORLDS, ids=lambda case: case.id)
def test_the_source_of_a_world_makes_that_world(case: Case) -> None:
    found: dict[str, Case] = {}
    exec(case_source(case, "A world."), found)  # noqa: S102 (what a person would run)
    assert with_oracle_answers(found["WORLD"]) == case
