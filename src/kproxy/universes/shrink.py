"""Shrinking: the shortest schedule found that still fails. Pure but for the function that plays schedules.

Theory of operation. The first attempts leave out what has ended before the failure: the last few changes and faults stay,
and of the history before them what is there then, applied in the beginning. So a failure after minutes becomes one after
seconds, and each further attempt is as short. Then, greedily, as for worlds (`kproxy.conformance.generate.shrink`): of
one kind after the other (flows, checks, faults, changes, Services and endpoints, packets) schedules are played that have
some less, large cuts first, and the first that fails is gone on with, until nothing of any kind can go. Any failure
counts, since a smaller schedule is another universe.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from kproxy.conformance.case import AddNodeAddress, AddServiceCidr, Apply, CaseService, SetTaints, SetZone
from kproxy.conformance.generate.shrink import smaller_applies, without
from kproxy.universes.judge import Verdict
from kproxy.universes.schedule import CONVERGENCE, ChangeStep, Schedule, TimedChange, present_services
from kproxy.universes.schedule_files import InvalidSchedule, check_schedule

FEWEST_SINGLES = 16
"""Number of things of a kind up to which single ones are left out; of more, eighths at least."""
LAST_EVENTS = (1, 2, 4)
"""Numbers of last changes and faults before a failure that are tried alone."""

_SETTLED = CONVERGENCE + 1.0

T = TypeVar("T")
FirstFailing = Callable[[Sequence[Schedule]], int | None]
"""Function that plays schedules and returns the number of one that fails; None also where time is up."""


def shrink_schedule(
    schedule: Schedule,
    verdict: Verdict,
    first_failing: FirstFailing,
    expired: Callable[[], bool] = lambda: False,
) -> Schedule:
    """Shortest failing schedule found; ``expired`` ends the search."""
    shorter = _first_failing_of(_starts(schedule, verdict), first_failing) or schedule
    done = None
    while shorter is not done and not expired():
        done = shorter
        for cuts in _CUTS:
            while not expired() and (found := _first_failing_of(cuts(shorter), first_failing)):
                shorter = found
    return shorter


def _first_failing_of(candidates: Iterable[Schedule], first_failing: FirstFailing) -> Schedule | None:
    tried = [one for one in candidates if _can_be_played(one)]
    number = first_failing(tried) if tried else None
    return None if number is None else tried[number]


def _can_be_played(schedule: Schedule) -> bool:
    try:
        check_schedule(schedule)
    except InvalidSchedule:
        return False
    return True


def _starts(schedule: Schedule, verdict: Verdict) -> Iterator[Schedule]:
    """Schedules up to a violation, the shortest history first; each without faults and flows, and with them.

    The last violation comes before the first: what lasts is easier to repeat than a moment between two writes.
    """
    ends = dict.fromkeys((*verdict.violations[-1:], *verdict.violations[:1]))
    for at in [end.at for end in ends] or [schedule.end]:
        until = replace(
            schedule,
            changes=tuple(change for change in schedule.changes if change.at <= at),
            faults=tuple(fault for fault in schedule.faults if fault.at <= at),
            probes=tuple(probe for probe in schedule.probes if probe.at <= at),
        )
        for start in (*(_begin_with(until, since) for since in _last_events(until)), until):
            yield replace(start, faults=(), flows=(), checks=())
            yield start


def _last_events(schedule: Schedule) -> Iterator[float]:
    """Times of last changes and faults, the latest first."""
    events = sorted({one.at for kind in (schedule.changes, schedule.faults) for one in kind})
    return (events[-number] for number in LAST_EVENTS if number <= len(events) and events[-number] > _SETTLED)


def _begin_with(schedule: Schedule, since: float) -> Schedule:
    """The schedule from a time on: it comes soon, and what was there then is applied in the beginning."""

    def moved(at: float) -> float:
        return round(max(at - since + _SETTLED, _SETTLED), 6)

    before = [change for change in schedule.changes if change.at < since]
    return replace(
        schedule,
        changes=(
            *(TimedChange(at=0.0, step=step) for step in _summary(before)),
            *(replace(one, at=moved(one.at)) for one in schedule.changes if one.at >= since),
        ),
        faults=tuple(replace(one, at=moved(one.at)) for one in schedule.faults if one.at >= since),
        probes=tuple(replace(one, at=moved(one.at)) for one in schedule.probes if one.at >= since),
        flows=tuple(replace(one, at=moved(one.at)) for one in schedule.flows),
        checks=tuple(replace(one, at=moved(one.at)) for one in schedule.checks if one.at >= since),
    )


def _summary(changes: Sequence[TimedChange]) -> Iterator[ChangeStep]:
    """Steps with the same effect as all of these changes."""
    of_nodes: dict[tuple[type, str], ChangeStep] = {}
    for change in changes:
        match change.step:
            case SetZone(node=node) | SetTaints(node=node):
                of_nodes[type(change.step), node] = change.step
            case AddNodeAddress() | AddServiceCidr():
                yield change.step
            case _:
                pass
    yield from of_nodes.values()
    if services := present_services(changes):
        yield Apply(*services.values())


def _fewer_probes(schedule: Schedule) -> Iterator[Schedule]:
    return (replace(schedule, probes=fewer) for fewer in _without_parts(schedule.probes))


def _fewer_flows(schedule: Schedule) -> Iterator[Schedule]:
    return (replace(schedule, flows=fewer) for fewer in _without_parts(schedule.flows))


def _fewer_checks(schedule: Schedule) -> Iterator[Schedule]:
    return (replace(schedule, checks=fewer) for fewer in _without_parts(schedule.checks))


def _fewer_faults(schedule: Schedule) -> Iterator[Schedule]:
    return (replace(schedule, faults=fewer) for fewer in _without_parts(schedule.faults))


def _fewer_changes(schedule: Schedule) -> Iterator[Schedule]:
    return (replace(schedule, changes=fewer) for fewer in _without_parts(schedule.changes) if fewer)


def _plainer_changes(schedule: Schedule) -> Iterator[Schedule]:
    for number, change in enumerate(schedule.changes):
        if not isinstance(change.step, Apply):
            continue
        for step in smaller_applies(change.step, _plainer_services):
            changes = list(schedule.changes)
            changes[number] = replace(change, step=step)
            yield replace(schedule, changes=tuple(changes))


_CUTS = (_fewer_flows, _fewer_checks, _fewer_faults, _fewer_changes, _plainer_changes, _fewer_probes)
"""Ways to leave something out. Packets go last: where an endpoint is chosen at random, a few may be lawful by chance."""


def _without_parts(items: tuple[T, ...]) -> Iterator[tuple[T, ...]]:
    """The items without a part of them: first without all, then without each half, and so on."""
    size = len(items)
    smallest = 1 if size <= FEWEST_SINGLES else size // 8
    while size:
        for begin in range(0, len(items), size):
            yield items[:begin] + items[begin + size :]
        size = size // 2 if size // 2 >= smallest else 0


def _plainer_services(service: CaseService) -> Iterator[CaseService]:
    plain = CaseService(
        name=service.name, type=service.type, ports=service.ports, endpoints=service.endpoints
    )
    if plain != service:
        yield plain
    for number in range(len(service.endpoints)):
        yield service.replace(endpoints=without(service.endpoints, number))
