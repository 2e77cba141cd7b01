"""Schedules that seeds give."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields, replace
from functools import cache
from itertools import pairwise

import pytest

from kproxy.conformance.case import Apply, CaseService, Delete
from kproxy.universes.draw import draw_schedule
from kproxy.universes.schedule import CONVERGENCE, OF_NODE, FaultKind, Schedule, TimedChange, present_services

SEEDS = range(100)
OF_WRITES = {
    FaultKind.WRITES_SLOW,
    FaultKind.WRITES_REFUSED,
    FaultKind.MEMORY_SHORT,
    FaultKind.PROXY_CRASHED,
    FaultKind.XTABLES_LOCKED,
}
drawn_schedule = cache(draw_schedule)


def test_a_seed_gives_one_schedule_and_another_gives_another() -> None:
    assert draw_schedule(3) == draw_schedule(3)
    assert len({drawn_schedule(seed).changes for seed in SEEDS}) == len(SEEDS)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_deleted_exists_and_probes_are_of_declared_services(seed: int) -> None:
    drawn = drawn_schedule(seed)
    there: set[str] = set()
    for change in drawn.changes:
        if isinstance(change.step, Apply):
            there |= {service.name for service in change.step.services}
        elif isinstance(change.step, Delete):
            assert change.step.service.name in there
            there.remove(change.step.service.name)
    assert [probe.at for probe in drawn.probes] == sorted(probe.at for probe in drawn.probes)
    assert drawn.probes[-1].at > drawn.end


def test_two_services_have_endpoints_in_common_all_the_time_or_never() -> None:
    """One that is so for a while only would get other endpoints by a change of something else."""
    shared: Counter[frozenset[str | None]] = Counter()
    for seed in SEEDS:
        forms = [
            service
            for change in drawn_schedule(seed).changes
            if isinstance(change.step, Apply)
            for service in change.step.services
        ]
        assert not any(one.same_target_ports_as for one in forms if one.name != "api")
        shared[frozenset(one.same_target_ports_as for one in forms if one.name == "api")] += 1
    assert set(shared) == {frozenset({"web"}), frozenset({None})}
    assert min(shared.values()) > len(SEEDS) / 3


def test_services_are_edited_in_one_field_alone_too() -> None:
    """What a proxy overlooks in such an edit is made good by any other change."""
    edited: Counter[str] = Counter()
    for seed in SEEDS:
        latest: dict[str, CaseService] = {}
        for change in drawn_schedule(seed).changes:
            for service in change.step.services if isinstance(change.step, Apply) else ():
                before = latest.get(service.name, service)
                different = [
                    f.name for f in fields(service) if getattr(service, f.name) != getattr(before, f.name)
                ]
                edited.update(different if len(different) == 1 else ())
                latest[service.name] = service
    assert min(edited[name] for name in ("internal_policy", "external_policy", "affinity_seconds")) > 20
    assert edited["source_ranges"] > 5


def test_many_faults_begin_beside_a_change() -> None:
    """By chance, few writes would meet a fault that is shorter than the pause between two changes."""
    beside, others = 0, 0
    for seed in SEEDS:
        drawn = drawn_schedule(seed)
        for fault in drawn.faults[:-3]:
            near = any(-0.02 <= change.at - fault.at <= 0.06 for change in drawn.changes)
            beside, others = beside + near, others + (not near)
    assert beside > 50
    assert others > 50


def ready_places(service: CaseService) -> set[str]:
    return {endpoint.on for endpoint in service.endpoints if endpoint.ready is not False}


def places(service: CaseService) -> list[str]:
    return [endpoint.on for endpoint in service.endpoints]


def latest(drawn: Schedule, change: TimedChange) -> CaseService | None:
    """The Service of a change as it was before, or None."""
    assert isinstance(change.step, Apply)
    forms = [
        service
        for earlier in drawn.changes[: drawn.changes.index(change)]
        if isinstance(earlier.step, Apply)
        for service in earlier.step.services
        if service.name == change.step.services[0].name
    ]
    return forms[-1] if forms else None


def before_the_link_goes(drawn: Schedule) -> list[TimedChange]:
    """Changes before the last fault of a universe."""
    return [change for change in drawn.changes if change.at < drawn.faults[-1].at]


def test_the_last_fault_is_a_link_that_is_down_alone_or_with_a_change() -> None:
    changes: Counter[int] = Counter()
    for seed in SEEDS:
        drawn = drawn_schedule(seed)
        *others, link = drawn.faults
        assert link.kind is FaultKind.LINK_DOWN
        assert link.at > max(fault.recovered for fault in others)
        during = [change for change in drawn.changes if change.at >= link.at]
        assert all(link.at < change.at < link.end for change in during)
        assert sum(probe.at > link.recovered for probe in drawn.probes) > 50
        changes[len(during)] += 1
    assert min(changes[0], changes[1]) > 20
    assert set(changes) == {0, 1}


def test_what_is_missed_in_the_last_faults_shows() -> None:
    """Or a client that misses a relist, or a change during a write, would be found by luck."""
    for seed in SEEDS:
        present: dict[str, CaseService] = {}
        changes = before_the_link_goes(drawn_schedule(seed))
        for number, change in enumerate(changes):
            match change.step:
                case Apply(services=services):
                    if number >= len(changes) - 3:
                        (one,) = services
                        assert one.name not in present or ready_places(present[one.name]) - ready_places(one)
                    present |= {service.name: service for service in services}
                case Delete(service=service):
                    del present[service.name]
                case _:
                    assert number < len(changes) - 3


def test_two_changes_come_together_in_a_fault_of_writes_that_nothing_follows() -> None:
    for seed in SEEDS:
        drawn = drawn_schedule(seed)
        *_, of_writes, of_api, _ = drawn.faults
        assert of_writes.kind in OF_WRITES
        assert [of_writes.at < change.at < of_writes.end for change in before_the_link_goes(drawn)[-3:]] == [
            True,
            True,
            False,
        ]
        assert of_api.at >= of_writes.recovered
        quiet = [probe for probe in drawn.probes if of_writes.recovered <= probe.at < of_api.at]
        assert len(quiet) > 50


def test_some_changes_in_the_last_faults_leave_all_numbers_as_they_are() -> None:
    """Or a proxy that counts its rules would make good what it missed before a packet shows it."""
    moved = Counter(
        len(change.step.services[0].endpoints) == len(before.endpoints)
        for seed in SEEDS
        for change in before_the_link_goes(drawn_schedule(seed))[-3:]
        if isinstance(change.step, Apply)
        for before in [latest(drawn_schedule(seed), change)]
        if before is not None and set(places(before)) != set(places(change.step.services[0]))
    )
    assert moved[True] > moved[False] > 0


def test_every_fault_occurs_and_those_of_one_place_do_not_overlap() -> None:
    kinds: Counter[FaultKind] = Counter()
    for seed in SEEDS:
        faults = drawn_schedule(seed).faults
        kinds.update(fault.kind for fault in faults)
        assert all(bool(fault.node) is (fault.kind in OF_NODE) for fault in faults)
        for place in {fault.node for fault in faults}:
            ends = [(one.at, one.end) for one in faults if one.node == place]
            assert all(end < begin for (_, end), (begin, _) in pairwise(ends))
    assert kinds.keys() == set(FaultKind) - {FaultKind.PROXY_REPLACED}


def test_with_two_versions_a_proxy_is_replaced_and_back_when_no_other_fault_holds() -> None:
    nodes: Counter[str] = Counter()
    for seed in SEEDS:
        drawn = draw_schedule(seed, versions=True)
        there, back = (fault for fault in drawn.faults if fault.kind is FaultKind.PROXY_REPLACED)
        others = tuple(fault for fault in drawn.faults if fault not in {there, back})
        assert replace(drawn, faults=others) == drawn_schedule(seed)
        assert there.node == back.node
        assert there.at + CONVERGENCE / 2 < back.at
        for fault in (there, back):
            assert all(other.recovered < fault.at or fault.recovered < other.at for other in others)
        nodes[there.node] += 1
    assert min(nodes["a"], nodes["b"]) > 20


@pytest.mark.parametrize("seconds", [30.0, 60.0, 150.0])
def test_a_shorter_universe_ends_in_time_and_has_changes_and_faults(seconds: float) -> None:
    """What is left must be in effect before the end, and there are packets after that."""
    drawn = [draw_schedule(seed, seconds=seconds) for seed in SEEDS]
    for schedule in drawn:
        present_services(schedule.changes)
        assert len(schedule.changes) > 1
        assert schedule.end < schedule.probes[-1].at <= seconds
    assert sum(len(schedule.faults) for schedule in drawn) > len(SEEDS) / 4
    assert sum(schedule.probes[-1].at > 0.9 * seconds for schedule in drawn) > len(SEEDS) / 2


def test_a_universe_without_a_bound_is_that_of_a_long_one() -> None:
    assert draw_schedule(3, seconds=10_000) == drawn_schedule(3)
