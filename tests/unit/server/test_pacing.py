import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy.server.pacing import Action, Due, Pace, Pacer
from kproxy.server.store import Pending

PACE = Pace(shortest=1.0, longest=30.0, quiet=0.01, patience=0.03, first_retry=0.5)
NEW = Pacer(pace=PACE)


def one(at: float) -> Pending:
    return Pending(at, at)


def test_the_first_sync_is_due_at_once_whether_or_not_anything_changed() -> None:
    assert NEW.due(None) == Due(float("-inf"), Action.SYNC)


def test_nothing_to_do_means_a_look_at_the_kernel_after_the_sync_period() -> None:
    assert NEW.wrote(100.0).due(None) == Due(130.0, Action.CHECK)


def test_the_first_change_after_quiet_time_is_applied_at_once() -> None:
    assert NEW.wrote(100.0).due(one(120.0)) == Due(120.01, Action.SYNC)


def test_a_burst_is_one_sync_that_waits_no_longer_than_its_patience() -> None:
    pacer = NEW.wrote(100.0)
    assert pacer.due(Pending(110.0, 110.005)).at == pytest.approx(110.015)
    assert pacer.due(Pending(110.0, 110.5)).at == pytest.approx(110.03)


def test_the_shortest_period_passes_between_the_end_of_a_sync_and_the_next() -> None:
    assert NEW.wrote(100.0).due(one(100.2)) == Due(101.0, Action.SYNC)


def test_a_sync_that_wrote_nothing_delays_no_other() -> None:
    assert NEW.wrote(100.0).idled(110.0).due(one(110.1)).at == pytest.approx(110.11)


def test_a_failed_sync_is_tried_again_soon_but_not_before_the_shortest_period() -> None:
    assert NEW.failed(100.0).due(None) == Due(101.0, Action.SYNC)


def test_failures_back_off_up_to_the_sync_period() -> None:
    pacer, delays = NEW.looked(0.0), []
    for number in range(9):
        pacer = pacer.failed(100.0 * number).looked(100.0 * number)
        delays.append(pacer.due(None).at - 100.0 * number)
    assert delays == [1.0, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]


def test_a_change_shortens_the_wait_after_a_failure() -> None:
    pacer = NEW
    for _ in range(5):
        pacer = pacer.failed(100.0)
    assert pacer.due(None).at == 108.0
    assert pacer.due(one(103.0)) == Due(103.01, Action.SYNC)


def test_a_success_ends_the_back_off() -> None:
    assert NEW.failed(100.0).failed(101.0).wrote(102.0).due(None) == Due(130.0, Action.CHECK)


def test_constant_changes_do_not_keep_the_kernel_from_being_looked_at() -> None:
    pacer, now, seen = NEW.wrote(0.0), 0.0, []
    for _ in range(200):
        due = pacer.due(one(now))
        now = max(now, due.at)
        seen.append((due.action, now))
        pacer = pacer.looked(now) if due.action is Action.CHECK else pacer.wrote(now)
    checks = [at for action, at in seen if action is Action.CHECK]
    assert checks
    assert all(later - earlier <= 31.1 for earlier, later in itertools.pairwise([0.0, *checks]))


def test_what_is_wanted_is_done_as_soon_as_the_shortest_period_allows() -> None:
    assert NEW.wrote(100.0).want(100.5).due(None) == Due(101.0, Action.SYNC)
    assert NEW.wrote(100.0).want(120.0).due(None) == Due(120.0, Action.SYNC)
    assert NEW.wrote(100.0).want(120.0).wrote(120.1).looked(120.2).due(None).action is Action.CHECK


@given(st.lists(st.tuples(st.floats(0, 5), st.booleans()), min_size=1, max_size=40))
def test_two_syncs_that_write_are_never_closer_than_the_shortest_period(
    changes: list[tuple[float, bool]],
) -> None:
    pacer, now, ends = NEW, 0.0, []
    for gap, succeeds in changes:
        now += gap
        due = pacer.due(one(now))
        now = max(now, due.at)
        if due.action is Action.CHECK:
            pacer = pacer.looked(now)
            continue
        ends.append(now)
        pacer = pacer.wrote(now) if succeeds else pacer.failed(now)
    assert all(later - earlier >= PACE.shortest - 1e-9 for earlier, later in itertools.pairwise(ends))
