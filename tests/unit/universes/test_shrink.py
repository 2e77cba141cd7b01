"""Search for the shortest schedule that fails."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kproxy.conformance.case import Apply
from kproxy.universes.draw import draw_schedule
from kproxy.universes.judge import Verdict, Violation
from kproxy.universes.schedule import Schedule
from kproxy.universes.shrink import shrink_schedule


def failed(schedule: Schedule, number: int) -> Verdict:
    probe = schedule.probes[number]
    found = Violation(at=probe.at, since=0.0, sent=probe, established=False, lawful=(), seen="", clauses=())
    return Verdict(judged=1, violations=(found,), unjudged={})


@pytest.mark.parametrize("seed", [2, 4, 11])
def test_what_does_not_matter_goes(seed: int) -> None:
    """Fails whenever the probed Service is applied: all else is cut away."""
    schedule = draw_schedule(seed)
    probe = schedule.probes[-1]

    def first_failing(candidates: Sequence[Schedule]) -> int | None:
        for number, one in enumerate(candidates):
            services = [s for c in one.changes if isinstance(c.step, Apply) for s in c.step.services]
            if any(service.name == probe.to.service for service in services):
                return number
        return None

    small = shrink_schedule(schedule, failed(schedule, len(schedule.probes) - 1), first_failing)
    assert (small.probes, small.faults, small.flows) == ((probe,), (), ())
    (change,) = small.changes
    assert isinstance(change.step, Apply)
    (service,) = change.step.services
    assert (service.name, service.endpoints) == (probe.to.service, ())


def test_time_ends_the_search() -> None:
    schedule = draw_schedule(4)
    small = shrink_schedule(schedule, failed(schedule, 10), lambda _: None, lambda: True)
    assert small.probes == (schedule.probes[10],)
