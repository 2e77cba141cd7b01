"""The wait for sentinels: only those that do not serve yet are probed again, and not for ever."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

import pytest

from kproxy.conformance.testbed import SubjectFailed
from kproxy.conformance.testbeds.barrier import Overdue, Place, wait_until_served
from kproxy.model.network import Family

A, B = ("a", Family.IPV4), ("b", Family.IPV4)


def wait(
    needed: dict[Place, int], check: Callable[[], None] = lambda: None, seconds: float = 5
) -> Counter[Place]:
    """``needed``: how often each place is probed until it serves."""
    requested: Counter[Place] = Counter()

    async def probe(node: str, family: Family) -> bool:
        requested[node, family] += 1
        return requested[node, family] >= needed[node, family]

    asyncio.run(wait_until_served(needed, probe, check, lambda left: f"left: {left}", seconds))
    return requested


def test_who_serves_is_queried_no_more() -> None:
    assert wait({A: 1, B: 3}) == {A: 1, B: 3}


def test_what_never_serves_is_reported() -> None:
    with pytest.raises(Overdue) as reported:
        wait({A: 1, B: 1 << 30}, seconds=0.02)
    assert str(reported.value) == f"left: {[B]}"
    assert reported.value.waiting == (B,)


def test_a_proxy_that_has_ended_is_not_waited_for() -> None:
    def check() -> None:
        raise SubjectFailed("its proxy has ended")

    with pytest.raises(SubjectFailed, match="has ended"):
        wait({A: 1 << 30}, check)
