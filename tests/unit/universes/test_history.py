"""States that a node's rules may reflect at a time."""

from __future__ import annotations

import pytest

from kproxy.conformance.case import Apply, Delete, pods, service
from kproxy.model import api
from kproxy.model.network import Family
from kproxy.universes import history as module
from kproxy.universes.history import ObjectHistory, TooManyStates
from kproxy.universes.schedule import FaultKind, Schedule, TimedChange, TimedFault

WEB = service("web", "a1")
API = service("api", "b1")


def schedule(*changes: tuple[float, Apply | Delete], faults: tuple[TimedFault, ...] = ()) -> Schedule:
    timed = tuple(TimedChange(at=at, step=step) for at, step in changes)
    return Schedule(seed=1, family=Family.IPV4, changes=timed, faults=faults)


def endpoints(cluster: api.Cluster) -> tuple[int, int]:
    """Number of Services, and of endpoints of all slices."""
    return len(cluster.services), sum(len(one.endpoints or ()) for one in cluster.slices.values())


TWO = schedule((0.0, Apply(WEB)), (20.0, Apply(WEB.replace(endpoints=pods("a1", "b1")))))


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        (19.0, [(1, 1)]),
        (20.0, [(1, 2), (1, 1)]),
        (24.9, [(1, 2), (1, 1)]),
        (25.1, [(1, 2)]),
    ],
)
def test_until_it_must_be_in_effect_a_change_may_be_or_not(
    at: float, expected: list[tuple[int, int]]
) -> None:
    history = ObjectHistory(TWO)
    states = history.clusters("web", history.window("a", at), at)
    assert list(dict.fromkeys(map(endpoints, states))) == expected


def test_each_object_may_be_old_or_new_by_itself() -> None:
    history = ObjectHistory(schedule((0.0, Apply(WEB)), (20.0, Delete(WEB))))
    states = set(map(endpoints, history.clusters("web", 15.0, 20.0)))
    assert states == {(1, 1), (1, 0), (0, 1), (0, 0)}


def test_states_in_which_no_object_is_behind_another_come_first_and_each_state_once() -> None:
    history = ObjectHistory(
        schedule(
            (0.0, Apply(WEB)), (18.0, Apply(WEB.replace(endpoints=pods("a1", "b1")))), (20.0, Delete(WEB))
        )
    )
    states = list(map(endpoints, history.clusters("web", 15.0, 20.0)))
    assert states[:3] == [(0, 0), (1, 2), (1, 1)]
    assert set(states) == {(services, count) for services in (0, 1) for count in (0, 1, 2)}
    ids = [id(cluster) for cluster in history.clusters("web", 15.0, 20.0)]
    assert len(ids) == len(set(ids)) == len(states)


def test_objects_of_other_services_are_as_they_are_now() -> None:
    history = ObjectHistory(schedule((0.0, Apply(WEB, API)), (20.0, Delete(API))))
    assert len(list(history.clusters("web", 15.0, 20.0))) == 1
    assert len(list(history.clusters("api", 15.0, 20.0))) == 4


def fault(node: str, kind: FaultKind = FaultKind.PROXY_STOPPED) -> TimedFault:
    return TimedFault(at=30.0, seconds=10.0, kind=kind, node=node)


@pytest.mark.parametrize(
    ("at", "begin"),
    [(29.9, 24.9), (30.0, 25.0), (39.0, 25.0), (44.9, 25.0), (45.0, 40.0), (50.0, 45.0)],
)
def test_a_fault_extends_the_window_until_what_was_missed_must_be_in_effect(at: float, begin: float) -> None:
    history = ObjectHistory(schedule((0.0, Apply(WEB)), faults=(fault("a"),)))
    assert history.window("a", at) == pytest.approx(begin)
    assert history.window("b", at) == pytest.approx(at - 5.0)


def test_a_fault_of_the_api_server_concerns_every_node() -> None:
    history = ObjectHistory(schedule((0.0, Apply(WEB)), faults=(fault("", FaultKind.WATCHES_STALL),)))
    assert history.window("a", 39.0) == history.window("b", 39.0) == 25.0
    assert history.window("a", 104.9) == 25.0
    assert history.window("a", 105.0) == 100.0


def test_of_faults_that_follow_each_other_the_first_begins_the_window() -> None:
    later = TimedFault(at=44.0, seconds=1.0, kind=FaultKind.PROXY_KILLED, node="a")
    history = ObjectHistory(schedule((0.0, Apply(WEB)), faults=(fault("a"), later)))
    assert history.window("a", 49.0) == 25.0
    assert history.window("a", 50.0) == 45.0


@pytest.mark.parametrize(
    ("at", "changes"), [(9.9, False), (14.0, True), (25.5, True), (65.0, False), (71.0, True)]
)
def test_a_mode_changes_until_the_proxy_could_take_over(at: float, changes: bool) -> None:  # noqa: FBT001
    history = ObjectHistory(
        schedule(
            faults=(
                TimedFault(at=10.0, seconds=60.0, kind=FaultKind.MODE_CHANGED, node="a"),
                TimedFault(at=12.0, seconds=9.0, kind=FaultKind.PROXY_STOPPED, node="a"),
                TimedFault(at=30.0, seconds=9.0, kind=FaultKind.PROXY_STOPPED, node="a"),
            )
        )
    )
    assert history.changes_mode("a", at) is changes
    assert not history.changes_mode("b", at)


@pytest.mark.parametrize(
    ("kind", "changed", "unseen"),
    [
        (FaultKind.PROXY_KILLED, 9.9, False),
        (FaultKind.PROXY_KILLED, 12.0, True),
        (FaultKind.PROXY_KILLED, 24.0, True),
        (FaultKind.PROXY_KILLED, 25.5, False),
        (FaultKind.MODE_CHANGED, 16.0, False),
        (FaultKind.MODE_CHANGED, 22.0, True),
        (FaultKind.PROXY_STOPPED, 12.0, False),
    ],
)
def test_a_change_is_unseen_where_no_proxy_ran_or_none_had_served_yet(
    kind: FaultKind,
    changed: float,
    unseen: bool,  # noqa: FBT001
) -> None:
    fault = TimedFault(at=10.0, seconds=10.0, kind=kind, node="a")
    history = ObjectHistory(schedule((0.0, Apply(WEB)), (changed, Delete(WEB)), faults=(fault,)))
    assert history.changes("web", 40.0) == [changed, 0.0]
    assert history.changes("web", 5.0) == [0.0]
    assert history.changes("api", 40.0) == []
    assert history.is_unseen("a", changed) is unseen
    assert not history.is_unseen("b", changed)


@pytest.mark.parametrize(
    ("changed", "unseen"),
    [(5.0, False), (6.5, True), (30.0, True), (50.0, True), (55.0, False), (61.0, True)],
)
def test_a_change_is_unseen_by_a_proxy_that_a_fault_holds_back_until_it_ends(
    changed: float,
    unseen: bool,  # noqa: FBT001
) -> None:
    """The lock is held from 6 s; the proxy of node a is killed before it need have written, that of b is not."""
    faults = (
        TimedFault(at=6.0, seconds=10.0, kind=FaultKind.XTABLES_LOCKED),
        TimedFault(at=40.0, seconds=1.0, kind=FaultKind.PROXY_KILLED, node="a"),
        TimedFault(at=60.0, seconds=2.0, kind=FaultKind.PROXY_KILLED, node="a"),
    )
    history = ObjectHistory(schedule((0.0, Apply(WEB)), (changed, Delete(WEB)), faults=faults))
    assert history.is_unseen("a", changed) is unseen
    assert not history.is_unseen("b", changed)


def test_too_many_states_are_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_STATES", 1)
    states = ObjectHistory(TWO).clusters("web", 15.0, 20.0)
    seen: list[object] = []
    with pytest.raises(TooManyStates):
        seen.extend(map(endpoints, states))
    assert seen == [(1, 2), (1, 1)], "those of one time come all the same"


@pytest.mark.parametrize(("at", "lost"), [(11.9, False), (52.0, True), (59.9, True), (60.1, False)])
def test_rules_are_lost_until_a_proxy_that_was_stopped_has_written_them_again(at: float, lost: bool) -> None:  # noqa: FBT001
    faults = (
        TimedFault(at=12.0, seconds=0.2, kind=FaultKind.RULES_LOST, node="a"),
        TimedFault(at=15.0, seconds=40.0, kind=FaultKind.PROXY_STOPPED, node="a"),
        TimedFault(at=50.0, seconds=40.0, kind=FaultKind.API_REFUSES),
    )
    history = ObjectHistory(schedule((0.0, Apply(WEB)), faults=faults))
    assert history.has_lost_rules("a", at) is lost
    assert not history.has_lost_rules("b", at)
