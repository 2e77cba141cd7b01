"""Shrinking: the shortest schedule found that still fails. Pure but for the function that plays schedules.

Greedy, as for worlds (`kproxy.conformance.generate.shrink`): each round plays schedules that are simpler by some things of
one kind, the simplest first (half of them, a quarter, ... one), and goes on with the first that fails. First everything
after the failure and all other probes go, then faults, changes, Services and endpoints. Any failure counts, since a
smaller schedule is another universe.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from kproxy.conformance.case import Apply, CaseService
from kproxy.conformance.generate.shrink import smaller_applies, without
from kproxy.universes.judge import Verdict
from kproxy.universes.schedule import Schedule
from kproxy.universes.schedule_files import InvalidSchedule, check_schedule

T = TypeVar("T")
FirstFailing = Callable[[Sequence[Schedule]], int | None]
"""Function that plays schedules and returns the number of the first that fails."""


def shrink_schedule(
    schedule: Schedule,
    verdict: Verdict,
    first_failing: FirstFailing,
    expired: Callable[[], bool] = lambda: False,
) -> Schedule:
    """Shortest failing schedule found; ``expired`` is called before each round and ends the search."""
    for start in _starts(schedule, verdict):
        if expired() or first_failing([start]) is not None:
            schedule = start
            break
    while not expired() and (tried := list(simpler_schedules(schedule))):
        failing = first_failing(tried)
        if failing is None:
            break
        schedule = tried[failing]
    return schedule


def _starts(schedule: Schedule, verdict: Verdict) -> Iterator[Schedule]:
    """Schedules up to the first violation: with its probe alone, and with all before it."""
    if not verdict.violations:
        return
    first = verdict.violations[0]
    until = replace(
        schedule,
        changes=tuple(change for change in schedule.changes if change.at <= first.at),
        faults=tuple(fault for fault in schedule.faults if fault.at <= first.at),
    )
    probes = tuple(probe for probe in schedule.probes if probe is first.sent)
    flows = tuple(flow for flow in schedule.flows if flow is first.sent)
    checks = tuple(check for check in schedule.checks if check is first.sent)
    yield replace(until, probes=probes, flows=flows, checks=checks)
    yield replace(until, probes=tuple(one for one in schedule.probes if one.at <= first.at))


def simpler_schedules(schedule: Schedule) -> Iterator[Schedule]:
    """Schedules with some things less; those that cannot be played are left out."""
    for draft in _cuts(schedule):
        try:
            check_schedule(draft)
        except InvalidSchedule:
            continue
        yield draft


def _cuts(schedule: Schedule) -> Iterator[Schedule]:
    yield from (replace(schedule, faults=fewer) for fewer in _fewer(schedule.faults))
    yield from (replace(schedule, changes=fewer) for fewer in _fewer(schedule.changes) if fewer)
    for number, change in enumerate(schedule.changes):
        if not isinstance(change.step, Apply):
            continue
        for step in smaller_applies(change.step, _plainer_services):
            changes = list(schedule.changes)
            changes[number] = replace(change, step=step)
            yield replace(schedule, changes=tuple(changes))
    yield from (replace(schedule, probes=fewer) for fewer in _fewer(schedule.probes) if fewer)


def _fewer(items: tuple[T, ...]) -> Iterator[tuple[T, ...]]:
    """The items without a part of them: first without each half, at last without each single one."""
    size = len(items)
    while size > 0:
        size = max(size // 2, 1)
        for begin in range(0, len(items), size):
            yield items[:begin] + items[begin + size :]
        if size == 1:
            return


def _plainer_services(service: CaseService) -> Iterator[CaseService]:
    plain = CaseService(
        name=service.name, type=service.type, ports=service.ports, endpoints=service.endpoints
    )
    if plain != service:
        yield plain
    for number in range(len(service.endpoints)):
        yield service.replace(endpoints=without(service.endpoints, number))
