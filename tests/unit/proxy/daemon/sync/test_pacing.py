import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy.proxy.daemon.cluster.store import Pending
from kproxy.proxy.daemon.sync.pacing import REPAIR_LASTED, Action, Due, SyncPeriods, SyncScheduler

PACE = SyncPeriods(
    min_sync_period=1.0, sync_period=30.0, settle_time=0.01, max_settle_time=0.03, first_retry=0.5
)
NEW = SyncScheduler(periods=PACE)


def one(at: float) -> Pending:
    return Pending(at, at)


def test_the_first_sync_is_due_at_once_whether_or_not_anything_changed() -> None:
    assert NEW.due(None) == Due(float("-inf"), Action.SYNC)


def test_nothing_to_do_means_a_look_at_the_kernel_after_the_sync_period() -> None:
    assert NEW.record_write(100.0).due(None) == Due(130.0, Action.CHECK)


def test_what_the_kernel_reports_is_looked_at_soon_but_not_all_the_time() -> None:
    checked = NEW.record_write(100.0).record_check(130.0)
    assert checked.due(None) == Due(160.0, Action.CHECK)
    notified = checked.record_notification()
    assert notified.due(None) == Due(130.5, Action.CHECK)
    assert notified.record_check(130.5).due(None) == Due(160.0, Action.CHECK)


def test_a_look_that_the_kernel_caused_puts_off_no_thorough_one() -> None:
    """Or rules that another program removed would come back after two periods where addresses come and go."""
    pacer, thorough = NEW.record_write(100.0), []
    for now in (101.0, 115.0, 129.9):
        assert not pacer.is_thorough_check_due(now)
        pacer = pacer.record_notification().record_check(now)
    for _ in range(3):
        due = pacer.due(None)
        assert due.action is Action.CHECK
        if pacer.is_thorough_check_due(due.at):
            thorough.append(due.at)
        pacer = pacer.record_check(due.at)
    assert thorough == [130.0, 160.0, 190.0]


def test_the_first_change_after_quiet_time_is_applied_at_once() -> None:
    assert NEW.record_write(100.0).due(one(120.0)) == Due(120.01, Action.SYNC)


def test_a_burst_is_one_sync_that_waits_no_longer_than_its_patience() -> None:
    pacer = NEW.record_write(100.0)
    assert pacer.due(Pending(110.0, 110.005)).at == pytest.approx(110.015)
    assert pacer.due(Pending(110.0, 110.5)).at == pytest.approx(110.03)


def test_the_shortest_period_passes_between_the_end_of_a_sync_and_the_next() -> None:
    assert NEW.record_write(100.0).due(one(100.2)) == Due(101.0, Action.SYNC)


def test_a_sync_that_wrote_nothing_delays_no_other() -> None:
    assert NEW.record_write(100.0).record_noop(110.0).due(one(110.1)).at == pytest.approx(110.11)


def test_a_failed_sync_is_tried_again_soon_but_not_before_the_shortest_period() -> None:
    assert NEW.record_failure(100.0).due(None) == Due(101.0, Action.SYNC)


def test_failures_back_off_up_to_the_sync_period() -> None:
    pacer, delays = NEW.record_check(0.0), []
    for number in range(9):
        pacer = pacer.record_failure(100.0 * number).record_check(100.0 * number)
        delays.append(pacer.due(None).at - 100.0 * number)
    assert delays == [1.0, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]


def test_a_change_shortens_the_wait_after_a_failure() -> None:
    pacer = NEW
    for _ in range(5):
        pacer = pacer.record_failure(100.0)
    assert pacer.due(None).at == 108.0
    assert pacer.due(one(103.0)) == Due(103.01, Action.SYNC)


def test_a_success_ends_the_back_off() -> None:
    assert NEW.record_failure(100.0).record_failure(101.0).record_write(102.0).due(None) == Due(
        130.0, Action.CHECK
    )


def test_constant_changes_do_not_keep_the_kernel_from_being_looked_at() -> None:
    pacer, now, seen = NEW.record_write(0.0), 0.0, []
    for _ in range(200):
        due = pacer.due(one(now))
        now = max(now, due.at)
        seen.append((due.action, now))
        pacer = pacer.record_check(now) if due.action is Action.CHECK else pacer.record_write(now)
    checks = [at for action, at in seen if action is Action.CHECK]
    assert checks
    assert all(later - earlier <= 31.1 for earlier, later in itertools.pairwise([0.0, *checks]))


def test_what_is_wanted_is_done_as_soon_as_the_shortest_period_allows() -> None:
    assert NEW.record_write(100.0).request_sync(100.5).due(None) == Due(101.0, Action.SYNC)
    assert NEW.record_write(100.0).request_sync(120.0).due(None) == Due(120.0, Action.SYNC)
    assert (
        NEW.record_write(100.0).request_sync(120.0).record_write(120.1).record_check(120.2).due(None).action
        is Action.CHECK
    )


def repairs(undone_after: float, count: int) -> list[float]:
    """When all is written again while somebody undoes each repair so many seconds later."""
    pacer, now, times = NEW.record_write(0.0, full=True), 0.0, []
    for _ in range(count):
        now += undone_after
        pacer = pacer.record_drift(now)
        now = pacer.next_repair
        times.append(now)
        pacer = pacer.record_write(now, full=True)
    return times


def test_the_first_damage_is_repaired_at_once() -> None:
    assert NEW.record_write(100.0).record_drift(110.0).due(None) == Due(110.0, Action.REPAIR)


def test_repairs_that_do_not_last_back_off_to_a_minute() -> None:
    times = repairs(0.0, 12)
    waits = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0, 60.0, 60.0]


def test_repairs_that_last_are_made_at_once_however_many_there_were() -> None:
    assert repairs(REPAIR_LASTED + 1, 4) == [121.0, 242.0, 363.0, 484.0]


def test_two_proxies_that_undo_each_other_do_so_twice_a_minute_in_the_end() -> None:
    first, second = NEW.record_write(0.0, full=True), NEW.record_write(0.0, full=True).record_drift(0.0)
    now, rewrites = 0.0, []
    while now < 1200:
        now = max(now, second.next_repair)
        second = second.record_write(now, full=True)
        rewrites.append(now)
        first, second = second, first.record_drift(now)
    assert len([at for at in rewrites if at <= 10]) <= 8
    assert len([at for at in rewrites if 600 <= at < 1200]) <= 21


def test_changes_are_written_while_a_repair_waits_and_do_not_end_the_wait() -> None:
    pacer = NEW.record_drift(100.0).record_write(100.0, full=True).record_drift(100.5).record_check(100.5)
    assert pacer.due(None) == Due(101.0, Action.REPAIR)
    pacer = pacer.record_drift(100.5).record_write(101.0, full=True).record_drift(101.1).record_check(101.1)
    assert pacer.due(one(101.5)) == Due(102.0, Action.SYNC)
    assert pacer.record_write(102.0).due(None) == Due(103.0, Action.REPAIR)
    assert pacer.record_write(102.0, full=True).record_check(102.0).due(None).action is Action.CHECK


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
            pacer = pacer.record_check(now)
            continue
        ends.append(now)
        pacer = pacer.record_write(now) if succeeds else pacer.record_failure(now)
    assert all(later - earlier >= PACE.min_sync_period - 1e-9 for earlier, later in itertools.pairwise(ends))


def test_a_repair_that_fails_backs_off_as_a_sync_does() -> None:
    without_pause = SyncPeriods(
        min_sync_period=0.0, sync_period=20.0, first_retry=0.5, drift_check_period=60.0
    )
    pacer, now, delays = SyncScheduler(periods=without_pause).record_write(0.0).record_drift(10.0), 10.0, []
    assert pacer.due(None) == Due(10.0, Action.REPAIR)
    for _ in range(7):
        pacer = pacer.record_failure(now).record_check(now)
        while (due := pacer.due(None)).action is Action.CHECK:
            pacer = pacer.record_check(due.at)
        assert due.action is Action.REPAIR
        delays.append(due.at - now)
        now = due.at
    assert delays == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 20.0]
