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
    """Fails whenever the probe is sent and its Service applied: all else is cut away, and what is left comes soon."""
    schedule = draw_schedule(seed)
    probe = schedule.probes[-1]

    def first_failing(candidates: Sequence[Schedule]) -> int | None:
        for number, one in enumerate(candidates):
            services = [s for c in one.changes if isinstance(c.step, Apply) for s in c.step.services]
            sent = any((p.sender, p.to) == (probe.sender, probe.to) for p in one.probes)
            if sent and any(service.name == probe.to.service for service in services):
                return number
        return None

    small = shrink_schedule(schedule, failed(schedule, len(schedule.probes) - 1), first_failing)
    assert (small.faults, small.flows, small.checks) == ((), (), ())
    (sent,) = small.probes
    assert (sent.sender, sent.to, sent.at < schedule.end / 2) == (probe.sender, probe.to, True)
    (change,) = small.changes
    assert isinstance(change.step, Apply)
    (service,) = change.step.services
    assert (service.name, service.endpoints) == (probe.to.service, ())


def test_a_failure_of_the_subject_keeps_what_fails_without_any_packet() -> None:
    schedule = draw_schedule(4)
    small = shrink_schedule(
        schedule, Verdict(judged=1, violations=(), unjudged={}), lambda tried: 0 if tried else None
    )
    assert (small.probes, small.flows, small.checks, small.faults) == ((), (), (), ())
    assert len(small.changes) == 1


def test_time_ends_the_search_with_what_is_known_to_fail() -> None:
    schedule = draw_schedule(4)
    assert shrink_schedule(schedule, failed(schedule, 10), lambda _: None, lambda: True) == schedule
