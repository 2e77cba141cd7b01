import pytest

from kproxy.host import HostError, Reason
from kproxy.net import Family
from kproxy.plan import Plan
from kproxy.server import dataplane
from kproxy.server.config import Configuration, Mode
from kproxy.server.dataplane import UnusableMode, dataplanes, require_built
from kproxy.server.sync import Dataplane


class Plane:
    """Takes a backend's place."""

    def apply(self, plan: Plan) -> str:
        return str(plan)

    def missing(self) -> tuple[str, ...]:
        return ()

    def forget(self) -> None:
        pass


def machine(monkeypatch: pytest.MonkeyPatch, *, working: set[Family], ipv6: bool = True) -> None:
    def build(_: Configuration, family: Family) -> Dataplane:
        if family not in working:
            raise HostError(f"{family.value} tables", "not there", Reason.UNSUPPORTED)
        return Plane()

    monkeypatch.setattr(dataplane, "_iptables", build)
    monkeypatch.setattr(dataplane, "ipv6_enabled", lambda: ipv6)


BOTH = set(Family)


@pytest.mark.parametrize("primary", Family)
def test_both_families_are_served_where_both_work(monkeypatch: pytest.MonkeyPatch, primary: Family) -> None:
    machine(monkeypatch, working=BOTH)
    assert set(dataplanes(Configuration(), primary)) == BOTH


@pytest.mark.parametrize("primary", Family)
def test_a_second_family_that_does_not_work_is_left_out(
    monkeypatch: pytest.MonkeyPatch, primary: Family
) -> None:
    machine(monkeypatch, working={primary})
    assert set(dataplanes(Configuration(), primary)) == {primary}


@pytest.mark.parametrize("primary", Family)
def test_a_primary_family_that_does_not_work_is_fatal_and_says_why(
    monkeypatch: pytest.MonkeyPatch, primary: Family
) -> None:
    machine(monkeypatch, working=BOTH - {primary})
    with pytest.raises(UnusableMode, match="not there"):
        dataplanes(Configuration(), primary)


def test_ipv6_is_not_touched_where_the_machine_has_it_disabled(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, working=BOTH, ipv6=False)
    assert set(dataplanes(Configuration(), Family.IPV4)) == {Family.IPV4}
    with pytest.raises(UnusableMode, match="disabled"):
        dataplanes(Configuration(), Family.IPV6)


@pytest.mark.parametrize("mode", [Mode.IPVS, Mode.NFTABLES])
def test_a_mode_that_is_not_built_is_refused(mode: Mode) -> None:
    with pytest.raises(UnusableMode, match=f"{mode.value} is not built yet"):
        require_built(Configuration(mode=mode.value))
    require_built(Configuration())
