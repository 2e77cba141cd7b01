from dataclasses import replace

import pytest

from kproxy.linux.host import HostError, Reason
from kproxy.model.network import Family
from kproxy.proxy.backends import Applied, Dataplane
from kproxy.proxy.backends.iptables.backend import BACKEND as IPTABLES
from kproxy.proxy.backends.iptables.kernel import dataplane as iptables_dataplane
from kproxy.proxy.backends.iptables.kernel.dataplane import IptablesDataplane
from kproxy.proxy.backends.iptables.static_rules import Options
from kproxy.proxy.backends.xtables.rules import PacketCounter
from kproxy.proxy.daemon.config.configuration import Configuration
from kproxy.proxy.daemon.sync import dataplane
from kproxy.proxy.daemon.sync.dataplane import Takeover, UnusableMode, _TakeoverDataplane, open_dataplanes
from kproxy.proxy.plan import Plan
from tests.support.plans import plan_of

PLAN = plan_of(detector=None)


class Plane:
    """Takes a backend's place."""

    def apply(self, plan: Plan) -> Applied:
        return Applied(changes={str(plan): 1})

    def find_drift(self, **_: bool) -> tuple[str, ...]:
        return ()

    def notifiers(self) -> tuple[int, ...]:
        return ()

    def refresh_options(self) -> bool:
        return False

    def forget(self) -> None:
        pass


def machine(monkeypatch: pytest.MonkeyPatch, *, working: set[Family], ipv6: bool = True) -> None:
    def build(_: Configuration, family: Family) -> Dataplane:
        if family not in working:
            raise HostError(f"{family.value} tables", "not there", Reason.UNSUPPORTED)
        return Plane()

    monkeypatch.setattr(IPTABLES, "open_dataplane", build)
    monkeypatch.setattr(dataplane, "ipv6_enabled", lambda: ipv6)


BOTH = set(Family)


@pytest.mark.parametrize("primary", Family)
def test_both_families_are_served_where_both_work(monkeypatch: pytest.MonkeyPatch, primary: Family) -> None:
    machine(monkeypatch, working=BOTH)
    assert set(open_dataplanes(Configuration(), primary)) == BOTH


@pytest.mark.parametrize("primary", Family)
def test_a_second_family_that_does_not_work_is_left_out(
    monkeypatch: pytest.MonkeyPatch, primary: Family
) -> None:
    machine(monkeypatch, working={primary})
    assert set(open_dataplanes(Configuration(), primary)) == {primary}


@pytest.mark.parametrize("primary", Family)
def test_a_primary_family_that_does_not_work_is_fatal_and_reports_why(
    monkeypatch: pytest.MonkeyPatch, primary: Family
) -> None:
    machine(monkeypatch, working=BOTH - {primary})
    with pytest.raises(UnusableMode, match="not there"):
        open_dataplanes(Configuration(), primary)


def test_ipv6_is_not_touched_where_the_machine_has_it_disabled(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, working=BOTH, ipv6=False)
    assert set(open_dataplanes(Configuration(), Family.IPV4)) == {Family.IPV4}
    with pytest.raises(UnusableMode, match="disabled"):
        open_dataplanes(Configuration(), Family.IPV6)


class Recorder(Plane):
    """Logs when it is applied; fails the given number of times."""

    def __init__(self, log: list[str], failures: int = 0) -> None:
        self.log, self.failures = log, failures

    def apply(self, plan: Plan) -> Applied:
        self.failures -= 1
        if self.failures >= 0:
            raise HostError("apply", "not now", Reason.BUSY)
        self.log.append("applied")
        return Applied(changes={plan.family.value: 1})


def test_what_another_mode_left_goes_once_and_only_when_our_own_rules_stand() -> None:
    log: list[str] = []

    def clear(_: Plan, drain: bool) -> Takeover:  # noqa: FBT001 - as the dataplane calls it
        log.append("cleared, drained" if drain else "cleared")
        return Takeover()

    plane = _TakeoverDataplane(Recorder(log, failures=1), clear, lambda: log.append("way made"))
    with pytest.raises(HostError):
        plane.apply(PLAN)
    assert log == ["way made"]
    log.clear()
    assert plane.apply(PLAN) == Applied(changes={"IPv4": 1})
    plane.apply(PLAN)
    assert log == ["way made", "applied", "cleared, drained", "applied"]
    assert plane.find_drift(thorough=True) == ()
    assert log[-1] == "applied", "nothing was left"


def test_what_holds_another_modes_connections_goes_with_the_last_of_them_or_after_ten_minutes() -> None:
    drained: list[bool] = []
    now, held = 1000.0, True

    def take_over(_: Plan, drain: bool) -> Takeover:  # noqa: FBT001 - as the dataplane calls it
        drained.append(drain)
        return Takeover(draining=held and drain)

    def looks_at(*seconds: float) -> list[bool]:
        nonlocal now
        drained.clear()
        plane = _TakeoverDataplane(Recorder([]), take_over, lambda: None, lambda: now)
        start = now
        plane.apply(PLAN)
        for at in seconds:
            now = start + at
            plane.find_drift(thorough=True)
        return drained

    assert looks_at(1, 30, 31, 60, 599, 600, 700) == [True, True, True, True, False]
    held = False
    assert looks_at(1, 30, 700) == [True]


def test_what_the_plan_serves_no_longer_goes_from_another_modes_rules_before_ours() -> None:
    """A virtual server of ipvs mode that stood longer would refuse what nobody serves."""
    log: list[str] = []

    def clear(plan: Plan, _: bool) -> Takeover:  # noqa: FBT001 - as the dataplane calls it
        log.append(f"cleared for {len(plan.services)}")
        return Takeover(draining=True)

    plane = _TakeoverDataplane(Recorder(log), clear, lambda: None)
    plane.apply(PLAN)
    plane.apply(PLAN)
    assert log == ["applied", "cleared for 0", "cleared for 0", "applied"]


def test_a_machine_without_the_other_modes_tools_is_served() -> None:
    def clear(_: Plan, __: bool) -> Takeover:  # noqa: FBT001 - as the dataplane calls it
        raise HostError("iptables --version", "command not found", Reason.UNSUPPORTED)

    assert _TakeoverDataplane(Recorder([]), clear, lambda: None).apply(PLAN) == Applied(changes={"IPv4": 1})


def test_what_stays_of_another_mode_is_a_warning_each(caplog: pytest.LogCaptureFixture) -> None:
    stays = [HostError(f"iptables -t {table}", "a chain stays", Reason.BUSY) for table in ("nat", "filter")]
    plane = _TakeoverDataplane(Recorder([]), lambda *_: Takeover(tuple(stays)), lambda: None)
    assert plane.apply(PLAN) == Applied(changes={"IPv4": 1})
    warned = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert [str(problem) in text for problem, text in zip(stays, warned, strict=True)] == [True, True]


class Counting:
    """An iptables kernel that takes no rule that counts, if so it was made."""

    def __init__(self, *, refuses: bool) -> None:
        self.refuses = refuses
        self.given: list[frozenset[PacketCounter]] = []

    def apply(self, _: Plan, options: Options) -> Applied:
        self.given.append(options.counters)
        if self.refuses and options.counters:
            raise HostError("iptables-restore", "no such match", Reason.UNSUPPORTED)
        return Applied()


def counting(monkeypatch: pytest.MonkeyPatch, kernel: Counting, *, works: bool) -> IptablesDataplane:
    """The dataplane above a kernel; ``works``: a rule that counts is taken when tried alone."""
    plane = IptablesDataplane.__new__(IptablesDataplane)
    plane._kernel, plane._tools = kernel, None  # type: ignore[assignment]
    plane._options = Options(counters=frozenset(PacketCounter))
    monkeypatch.setattr(
        iptables_dataplane,
        "without_broken_counters",
        lambda _, options: options if works else replace(options, counters=frozenset()),
    )
    return plane


@pytest.mark.parametrize(
    ("refuses", "works", "given"),
    [(False, True, [2, 2]), (True, False, [2, 0, 0])],
    ids=["taken", "refused"],
)
def test_where_rules_that_count_are_refused_they_are_written_without(
    monkeypatch: pytest.MonkeyPatch,
    refuses: bool,  # noqa: FBT001 - a table
    works: bool,  # noqa: FBT001
    given: list[int],
) -> None:
    kernel = Counting(refuses=refuses)
    plane = counting(monkeypatch, kernel, works=works)
    for _ in range(2):
        plane.apply(PLAN)
    assert [len(counters) for counters in kernel.given] == given


def test_rules_that_are_refused_for_another_reason_are_not_tried_without_counters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernel = Counting(refuses=True)
    plane = counting(monkeypatch, kernel, works=True)
    with pytest.raises(HostError):
        plane.apply(PLAN)
    assert len(kernel.given) == 1
