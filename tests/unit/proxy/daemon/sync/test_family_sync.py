import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from typing import Any, NoReturn

import pytest

from kproxy.linux.host import HostError, Reason
from kproxy.model.api import Cluster, EndpointSlice, Service
from kproxy.model.network import Family
from kproxy.proxy.backends import Applied
from kproxy.proxy.daemon.cluster.store import ClusterStore, Kind, Removed
from kproxy.proxy.daemon.sync.family_sync import FULL_SYNC_SECONDS, FamilySync
from kproxy.proxy.daemon.sync.pacing import SyncPeriods, SyncScheduler
from kproxy.proxy.plan import Plan, PlanSettings
from tests.support.objects import service

PACE = SyncPeriods(
    min_sync_period=1.0, sync_period=30.0, settle_time=0.01, max_settle_time=0.03, first_retry=0.5
)


class Clock:
    """Time that passes only when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Kernel:
    """Takes the kernel's place: remembers the plans it was given, and fails while it has ``trouble``."""

    plans: list[Plan] = field(default_factory=list)
    forgotten: int = 0
    trouble: Exception | None = None
    gone: tuple[str, ...] = ()
    looks: list[bool] = field(default_factory=list)
    contested: bool = False
    """Whether somebody changes what is written as soon as it is."""
    sysctls_changed: bool = False
    partly: bool = False

    def apply(self, plan: Plan) -> Applied:
        if self.trouble is not None:
            raise self.trouble
        self.plans.append(plan)
        self.gone = ("chain X",) if self.contested else ()
        return Applied(rewritten=not self.partly)

    def find_drift(self, *, thorough: bool) -> tuple[str, ...]:
        self.looks.append(thorough)
        return self.gone

    def notifiers(self) -> tuple[int, ...]:
        return ()

    def refresh_options(self) -> bool:
        changed, self.sysctls_changed = self.sysctls_changed, False
        return changed

    def forget(self) -> None:
        self.forgotten += 1

    @property
    def names(self) -> list[list[str]]:
        return [[item.name.name for item in plan.services] for plan in self.plans]


@dataclass
class Cleaner:
    """Takes the place of the connection table."""

    plans: list[Plan] = field(default_factory=list)
    trouble: Exception | None = None
    forgotten: int = 0

    def forget(self) -> None:
        self.forgotten += 1

    def remove(self, plan: Plan) -> int:
        if self.trouble is not None:
            raise self.trouble
        self.plans.append(plan)
        return 0


@dataclass
class Daemon:
    """A sync with everything around it under control."""

    clock: Clock
    store: ClusterStore
    kernel: Kernel
    cleaner: Cleaner
    sync: FamilySync
    settings: dict[str, PlanSettings]

    def until(self, seconds: float) -> None:
        """Let time pass, doing whatever is due on the way."""
        end = self.clock.now + seconds
        while True:
            due = self.sync._scheduler.due(self.sync.progress.subscription.pending)
            if due.at > end:
                break
            self.clock.now = max(self.clock.now, due.at)
            self.sync.step_safely()
        self.clock.now = end

    def apply(self, *items: Service | Removed) -> None:
        self.store.apply(Service, items)


Make = Callable[[Family], Daemon]


def make(
    family: Family = Family.IPV4, store: ClusterStore | None = None, clock: Clock | None = None
) -> Daemon:
    clock = clock or Clock()
    store = store or ClusterStore(clock)
    kernel, cleaner = Kernel(), Cleaner()
    current = {"settings": PlanSettings(family=family, node="a")}

    def settings(_: Cluster) -> PlanSettings:
        return current["settings"]

    sync = FamilySync(family, store, kernel, cleaner, settings, PACE, clock)
    sync.progress.subscription.activate(clock.now)
    return Daemon(clock, store, kernel, cleaner, sync, current)


@pytest.fixture
def daemon() -> Daemon:
    """One that has synced an empty cluster, some time ago."""
    daemon = make()
    daemon.store.replace(Service, [], [])
    daemon.store.replace(EndpointSlice, [], [])
    daemon.until(20)
    assert len(daemon.kernel.plans) == 1
    return daemon


BROKEN = HostError("iptables-restore", "no", Reason.OTHER)


@pytest.mark.parametrize("first", [Service, EndpointSlice])
def test_nothing_is_written_before_services_and_slices_have_both_been_listed(
    first: type[Service] | type[EndpointSlice],
) -> None:
    store = ClusterStore(lambda: 0.0)
    daemon = make(store=store)
    ready = threading.Event()

    def wait() -> None:
        daemon.sync.wait_for_lists()
        ready.set()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    store.replace(first, [], [])
    assert not ready.wait(0.1)
    store.replace(EndpointSlice if first is Service else Service, [], [])
    assert ready.wait(5)
    thread.join()


def test_a_list_that_completes_just_after_it_was_requested_is_not_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    daemon = make()
    daemon.store.replace(Service, [], [])
    listed = daemon.store.listed

    def then_complete(*kinds: Kind) -> bool:
        answer = listed(*kinds)
        daemon.store.replace(EndpointSlice, [], [])
        return answer

    monkeypatch.setattr(daemon.store, "listed", then_complete)
    thread = threading.Thread(target=daemon.sync.wait_for_lists, daemon=True)
    thread.start()
    thread.join(5)
    assert not thread.is_alive()


def test_a_sync_answers_for_changes_from_the_moment_the_lists_are_complete() -> None:
    clock = Clock()
    store = ClusterStore(clock)
    sync = FamilySync(Family.IPV4, store, Kernel(), Cleaner(), unused_settings, PACE, clock)
    store.replace(Service, [], [])
    store.replace(EndpointSlice, [], [])
    assert sync.progress.subscription.waiting_since is None
    clock.now += 500
    sync.wait_for_lists()
    assert sync.progress.subscription.waiting_since == clock.now


def unused_settings(_: Cluster) -> PlanSettings:
    raise AssertionError


def test_an_empty_cluster_is_written_too_for_it_may_leave_old_rules() -> None:
    daemon = make()
    daemon.until(0)
    assert daemon.kernel.names == [[]]


def test_the_first_change_after_quiet_time_is_applied_at_once(daemon: Daemon) -> None:
    daemon.apply(service("a"))
    daemon.until(0.02)
    assert daemon.kernel.names == [[], ["a"]]


def test_a_burst_is_one_sync(daemon: Daemon) -> None:
    for number in range(100):
        daemon.apply(service(f"s{number:02}", cluster_ips=(f"10.96.1.{number}",)))
    daemon.until(5)
    assert [len(names) for names in daemon.kernel.names] == [0, 100]


def test_changes_all_the_time_are_synced_no_more_often_than_the_shortest_period(daemon: Daemon) -> None:
    for number in range(100):
        daemon.apply(service(f"s{number:02}", cluster_ips=(f"10.96.1.{number}",)))
        daemon.until(0.1)
    daemon.until(2)
    assert len(daemon.kernel.names[-1]) == 100
    assert 8 <= len(daemon.kernel.plans) <= 13


def test_what_does_not_change_the_plan_is_not_written(daemon: Daemon) -> None:
    daemon.apply(service("a", type="ExternalName", cluster_ips=()))
    daemon.until(5)
    assert len(daemon.kernel.plans) == 1
    assert daemon.sync.progress.subscription.waiting_since is None


def test_a_service_that_comes_and_goes_between_syncs_was_never_there(daemon: Daemon) -> None:
    daemon.apply(service("a"))
    daemon.apply(Removed(("test", "a")))
    daemon.until(5)
    assert daemon.kernel.names == [[]]


def test_unchanged_services_are_the_same_objects_in_the_next_plan(daemon: Daemon) -> None:
    daemon.apply(service("a"))
    daemon.until(5)
    daemon.apply(service("b", cluster_ips=("10.96.0.2",)))
    daemon.until(5)
    before, after = daemon.kernel.plans[-2:]
    assert before.services[0] is after.services[0]


def test_a_failed_sync_is_repeated_until_it_succeeds_and_nothing_is_believed_meanwhile(
    daemon: Daemon,
) -> None:
    daemon.kernel.trouble = BROKEN
    daemon.apply(service("a"))
    daemon.until(10)
    assert daemon.kernel.names == [[]]
    assert daemon.kernel.forgotten >= 3
    assert daemon.sync.progress.subscription.waiting_since is not None
    daemon.kernel.trouble = None
    daemon.until(30)
    assert daemon.kernel.names == [[], ["a"]]
    assert daemon.sync.progress.subscription.waiting_since is None


def test_a_crash_inside_a_sync_does_not_end_the_loop_and_nothing_of_it_is_kept(daemon: Daemon) -> None:
    daemon.apply(service("a"))
    daemon.until(5)
    daemon.kernel.trouble = ZeroDivisionError()
    daemon.apply(service("b", cluster_ips=("10.96.0.2",)))
    daemon.until(2)
    daemon.kernel.trouble = None
    daemon.until(30)
    assert daemon.kernel.names == [[], ["a"], ["a", "b"]]
    assert daemon.kernel.plans[1].services[0] == daemon.kernel.plans[2].services[0]
    assert daemon.kernel.plans[1].services[0] is not daemon.kernel.plans[2].services[0]


def test_rules_that_were_taken_away_are_written_again_within_the_sync_period(daemon: Daemon) -> None:
    daemon.kernel.gone = ("chain X",)
    daemon.until(PACE.sync_period + PACE.min_sync_period)
    assert daemon.kernel.forgotten == 1
    assert len(daemon.kernel.plans) == 2
    assert daemon.cleaner.forgotten == 1, "flows may have passed by the rules that were missing"


def test_what_the_kernel_reports_is_looked_at_without_waiting_for_the_period(daemon: Daemon) -> None:
    daemon.until(5)
    reading, writing = os.pipe()
    daemon.sync.notifiers = lambda: (reading,)
    try:
        daemon.kernel.gone = ("chain X",)
        os.write(writing, b"x")
        daemon.sync.step()
        daemon.until(0.1)
        assert len(daemon.kernel.looks) == 1
        assert daemon.kernel.forgotten == 1, "and repaired"
    finally:
        os.close(reading)
        os.close(writing)
    daemon.sync.notifiers = tuple
    daemon.until(PACE.sync_period - 26)  # of which 20 s, and 5, had passed
    assert len(daemon.kernel.looks) == 1, "without a report there is no look before the period is over"


def test_checks_do_not_hurry_what_waits_to_be_tried_again(daemon: Daemon) -> None:
    daemon.sync.periods = replace(PACE, drift_check_period=0.5)
    daemon.sync._scheduler = SyncScheduler(periods=daemon.sync.periods)
    watching = daemon.sync.observer = Watching()
    daemon.kernel.trouble = BROKEN
    daemon.apply(service("a"))
    daemon.until(60)
    assert 5 <= len([one for one in watching.calls if one[0] == "refused"]) <= 9, "without a pause it were 60"


def test_repairs_that_do_not_last_are_made_ever_more_seldom_and_each_is_counted_and_logged(
    daemon: Daemon, caplog: pytest.LogCaptureFixture
) -> None:
    watching = daemon.sync.observer = Watching()
    daemon.sync.periods = replace(PACE, drift_check_period=0.5)
    daemon.sync._scheduler = SyncScheduler(periods=daemon.sync.periods)
    daemon.kernel.contested, daemon.kernel.gone = True, ("chain X",)
    daemon.until(60)
    assert 5 <= len(daemon.kernel.plans) <= 9, "without a pause it were 60"
    assert 5 <= watching.calls.count(("damaged",)) <= 9
    assert (
        "in 16 s, as the last 5 repairs did not last; does another service proxy run on this node?: chain X"
        in (caplog.text)
    )


def test_a_change_is_written_at_once_while_a_repair_waits(daemon: Daemon) -> None:
    daemon.sync.periods = replace(PACE, drift_check_period=0.5)
    daemon.sync._scheduler = SyncScheduler(periods=daemon.sync.periods)
    daemon.kernel.contested, daemon.kernel.gone = True, ("chain X",)
    daemon.until(40)
    daemon.apply(service("a"))
    daemon.until(PACE.min_sync_period + 0.1)
    assert daemon.kernel.names[-1] == ["a"]


def test_all_is_written_again_when_the_machine_decides_otherwise(daemon: Daemon) -> None:
    daemon.kernel.sysctls_changed = True
    daemon.until(PACE.sync_period + PACE.min_sync_period)
    assert daemon.kernel.forgotten == 1
    assert len(daemon.kernel.plans) == 2


def test_rules_that_are_all_there_are_left_alone(daemon: Daemon) -> None:
    daemon.until(10 * PACE.sync_period)
    assert len(daemon.kernel.plans) == 1
    assert daemon.kernel.forgotten == 0


def test_everything_is_written_again_once_an_hour(daemon: Daemon) -> None:
    daemon.until(FULL_SYNC_SECONDS + 2 * PACE.sync_period)
    assert daemon.kernel.forgotten == 1
    assert len(daemon.kernel.plans) == 2


def test_stale_connections_go_after_the_rules_are_written(daemon: Daemon) -> None:
    daemon.apply(service("a"))
    daemon.kernel.trouble = BROKEN
    daemon.until(1)
    assert daemon.cleaner.plans == daemon.kernel.plans
    daemon.kernel.trouble = None
    daemon.until(5)
    assert len(daemon.kernel.plans) == 2
    assert daemon.cleaner.plans == daemon.kernel.plans


def test_stale_connections_that_cannot_go_do_no_harm_and_are_tried_again(daemon: Daemon) -> None:
    daemon.cleaner.trouble = HostError("conntrack", "no", Reason.OTHER)
    daemon.apply(service("a"))
    daemon.until(1)
    assert len(daemon.kernel.plans) == 2
    assert daemon.sync.progress.subscription.waiting_since is None
    daemon.cleaner.trouble = None
    daemon.until(PACE.sync_period)
    assert daemon.cleaner.plans[-1] is daemon.kernel.plans[-1]
    assert daemon.kernel.forgotten == 0


def test_a_change_of_the_machines_addresses_is_found_within_the_sync_period(daemon: Daemon) -> None:
    daemon.settings["settings"] = PlanSettings(family=Family.IPV4, node="b")
    daemon.apply(service("a"))
    daemon.until(1)
    assert len(daemon.kernel.plans) == 2
    daemon.settings["settings"] = PlanSettings(family=Family.IPV4, node="b", masquerade_all=True)
    daemon.until(PACE.sync_period + PACE.min_sync_period)
    assert len(daemon.kernel.plans) == 3


def test_a_sync_is_no_line_of_the_log_unless_everything_was_written(
    daemon: Daemon, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    daemon.kernel.partly = True
    daemon.apply(service("a"))
    daemon.until(5)
    assert len(daemon.kernel.plans) == 2
    assert caplog.text == ""
    daemon.kernel.partly = False
    daemon.apply(service("b"))
    daemon.until(5)
    assert "synced in" in caplog.text


def test_trouble_in_one_family_does_not_hold_up_the_other() -> None:
    four = make(Family.IPV4)
    six = make(Family.IPV6, four.store, four.clock)
    four.kernel.trouble = BROKEN
    four.apply(service("a", cluster_ips=("10.96.0.1", "fd00::1")))
    four.until(1)
    six.until(1)
    assert four.kernel.plans == []
    assert six.kernel.names == [["a"]]
    assert four.sync.progress.subscription.waiting_since is not None
    assert six.sync.progress.subscription.waiting_since is None


def test_a_note_is_logged_once_until_it_goes_away(daemon: Daemon, caplog: pytest.LogCaptureFixture) -> None:
    bad = service("bad", external_ips=["no address"])
    good = service("good", cluster_ips=("10.96.0.9",))
    for items in ((bad,), (good,), (Removed(("test", "bad")),), (bad,)):
        daemon.apply(*items)
        daemon.until(5)
    reported = [record for record in caplog.records if "no address" in record.getMessage()]
    assert len(reported) == 2


def test_the_first_success_is_announced_once() -> None:
    daemon = make()
    announced: list[None] = []
    daemon.sync.on_first_sync = lambda: announced.append(None)
    daemon.kernel.trouble = BROKEN
    daemon.until(3)
    assert announced == []
    daemon.kernel.trouble = None
    daemon.until(60)
    daemon.apply(service("a"))
    daemon.until(5)
    assert announced == [None]


def test_the_loop_sleeps_until_a_change_and_then_syncs() -> None:
    store = ClusterStore(time.monotonic)
    store.replace(Service, [], [])
    store.replace(EndpointSlice, [], [])
    done = threading.Event()

    class Announcing(Kernel):
        def apply(self, plan: Plan) -> Applied:
            if plan.services:
                done.set()
            return super().apply(plan)

    kernel = Announcing()
    sync = FamilySync(
        Family.IPV4,
        store,
        kernel,
        Cleaner(),
        lambda _: PlanSettings(family=Family.IPV4, node="a"),
        SyncPeriods(min_sync_period=0.0, sync_period=30.0),
        time.monotonic,
    )
    threading.Thread(target=sync.run, daemon=True).start()
    assert not done.wait(0.1)
    store.apply(Service, [service("a")])
    assert done.wait(5)


@dataclass
class Watching:
    """Records the calls."""

    calls: list[tuple[object, ...]] = field(default_factory=list)

    def attempted(self, seconds: float, *, full: bool) -> None:
        assert seconds == 0.0  # the test's clock stands still during a sync
        self.calls.append(("attempted", full))

    def refused(self, *, full: bool) -> None:
        self.calls.append(("refused", full))

    def applied(self, written: Applied | None, triggers: Sequence[float]) -> None:
        assert not triggers
        self.calls.append(("applied", str(written) if written else None))

    def cleaned(self, _: float, removed: int) -> None:
        self.calls.append(("cleaned", removed))

    def drifted(self) -> None:
        self.calls.append(("damaged",))


def test_an_observer_gets_each_attempt_and_its_result(daemon: Daemon) -> None:
    watching = daemon.sync.observer = Watching()
    daemon.apply(service("a"))
    daemon.until(2)
    assert watching.calls == [("attempted", True), ("applied", "all written: nothing"), ("cleaned", 0)]
    watching.calls.clear()
    daemon.apply(service("b", type="ExternalName", cluster_ips=()))
    daemon.until(2)
    assert watching.calls == [("attempted", False), ("applied", None)]
    watching.calls.clear()
    daemon.kernel.trouble = BROKEN
    daemon.apply(service("c", cluster_ips=("10.96.0.3",)))
    daemon.until(2)
    assert watching.calls[:4] == [
        ("refused", False),
        ("attempted", False),
        ("refused", True),
        ("attempted", True),
    ]


def test_trouble_before_the_kernel_is_queried_is_no_refusal(daemon: Daemon) -> None:
    def unreadable(_: Cluster) -> PlanSettings:
        raise BROKEN

    watching = daemon.sync.observer = Watching()
    daemon.sync.settings = unreadable
    daemon.apply(service("a"))
    daemon.until(1)
    assert watching.calls
    assert {call[0] for call in watching.calls} == {"attempted"}


def test_the_kernel_is_looked_at_often_but_closely_only_every_sync_period(daemon: Daemon) -> None:
    daemon.sync.periods = replace(PACE, drift_check_period=0.5)
    daemon.sync._scheduler = SyncScheduler(periods=daemon.sync.periods)
    daemon.sync.wait_for_lists()
    daemon.until(3 * PACE.sync_period + 1.0)
    close = [number for number, closely in enumerate(daemon.kernel.looks, start=1) if closely]
    assert close == [60, 120, 180], "twice a second"


@pytest.mark.parametrize("what", ["look", "announcement", "clean-up"])
def test_an_unforeseen_error_ends_no_sync_and_is_made_good(
    what: str, daemon: Daemon, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object, **__: object) -> NoReturn:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as broken:
        match what:
            case "look":
                broken.setattr(daemon.kernel, "find_drift", fail)
            case "announcement":
                broken.setattr(daemon.sync, "on_applied", fail)
            case _:
                broken.setattr(daemon.cleaner, "remove", fail)
        daemon.apply(service("a"))
        daemon.until(PACE.sync_period * 2)
    assert "what was due failed" in caplog.text
    daemon.apply(service("b"))
    daemon.until(PACE.sync_period * 2)
    assert daemon.kernel.names[-1] == ["a", "b"]


def test_stale_connections_are_looked_for_again_only_while_that_failed(daemon: Daemon) -> None:
    watching = daemon.sync.observer = Watching()
    daemon.cleaner.trouble = BROKEN
    daemon.apply(service("a"))
    daemon.until(PACE.sync_period * 2)
    assert ("cleaned", 0) not in watching.calls
    daemon.cleaner.trouble = None
    daemon.until(PACE.sync_period * 4)
    assert watching.calls.count(("cleaned", 0)) == 1


def test_a_plan_is_announced_only_when_the_kernel_holds_it_and_again_at_each_look(daemon: Daemon) -> None:
    announced: list[int] = []
    daemon.sync.on_applied = lambda plan: announced.append(len(plan.services))
    daemon.kernel.trouble = BROKEN
    daemon.apply(service("a"))
    daemon.until(5)
    assert announced == []
    daemon.kernel.trouble = None
    daemon.until(10)
    assert set(announced) == {1}
    already = len(announced)
    daemon.until(PACE.sync_period)
    assert len(announced) == already + 1


def test_a_health_check_that_changes_alone_is_applied(daemon: Daemon) -> None:
    balanced: dict[str, Any] = {"type": "LoadBalancer", "external_traffic_policy": "Local"}
    for port in (30000, 30001):
        daemon.apply(service("a", health_check_node_port=port, **balanced))
        daemon.until(2)
    before, after = daemon.kernel.plans[-2:]
    assert before.services == after.services
    assert [check.port for check in (*before.health_checks, *after.health_checks)] == [30000, 30001]


@pytest.mark.parametrize(("address", "applied"), [("192.0.2.8", True), ("169.254.0.8", False)])
def test_a_node_address_that_came_is_applied_though_the_plan_is_the_same(
    daemon: Daemon,
    address: str,
    applied: bool,  # noqa: FBT001
) -> None:
    """A link that goes down takes its addresses, and what is written meanwhile is written without them.  Link-local ones serve nothing."""
    before = len(daemon.kernel.plans)
    daemon.settings["settings"] = PlanSettings(
        family=Family.IPV4, node="a", node_addresses=(ip_address(address),)
    )
    daemon.until(40)
    assert (len(daemon.kernel.plans) > before) is applied
    assert len(set(map(str, daemon.kernel.plans))) == 1
