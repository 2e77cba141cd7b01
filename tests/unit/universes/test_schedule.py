"""Times of a schedule."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kproxy.conformance.case import Apply, pod, service
from kproxy.model.network import Family
from kproxy.universes.schedule import BUSY, Schedule, TimedChange, TimedFlow

WEB = service("web", "a1")
CHANGES = (TimedChange(at=0.0, step=Apply(WEB)), TimedChange(at=20.0, step=Apply(WEB), lag=2.0))
FLOW = TimedFlow(at=6.0, sender=pod("a2"), to=WEB.cluster_ip, pause=3.0, busy_pause=0.1)
SCHEDULE = Schedule(seed=1, family=Family.IPV4, changes=CHANGES, flows=(FLOW,))


@pytest.mark.parametrize(
    ("last", "following"),
    [
        (6.0, 9.0),
        (18.0, 20.0),
        (20.0, 20.1),
        (20.0 + BUSY, 22.0),
        (22.0 + BUSY / 2, 22.1 + BUSY / 2),
        (22.0 + BUSY, 25.0 + BUSY),
    ],
    ids=["at rest", "up to a change", "after it", "up to its slices", "after these", "at rest again"],
)
def test_a_flow_is_in_a_hurry_while_a_change_takes_effect(last: float, following: float) -> None:
    assert SCHEDULE.next_exchange(FLOW, last) == pytest.approx(following)
    assert SCHEDULE.next_exchange(replace(FLOW, busy_pause=0.0), last) == pytest.approx(last + 3.0)
