"""The jumps from builtin chains against what a real kube-proxy writes: either proxy must find the other's."""

import pytest

from kproxy.model.network import Family
from kproxy.proxy.backends.iptables import names
from kproxy.proxy.backends.iptables.static_rules import hook_rules
from kproxy.proxy.backends.xtables.rules import hook_specification
from tests.support.recorded_jumps import recorded_jumps


def own_jumps(family: Family) -> list[str]:
    found = hook_rules(localhost=family is Family.IPV4)
    return [f"{h.table.value} -A {h.hook.name} {hook_specification(rule)}" for h in found for rule in h.rules]


def test_jumps_are_byte_for_byte_those_of_kube_proxy() -> None:
    assert own_jumps(Family.IPV4) == recorded_jumps(Family.IPV4)


def test_of_ipv6_the_jumps_to_the_kubelets_empty_chain_alone_are_left_out() -> None:
    needed = [line for line in recorded_jumps(Family.IPV6) if not line.endswith(f"-j {names.FIREWALL}")]
    assert len(recorded_jumps(Family.IPV6)) - len(needed) == 2
    assert own_jumps(Family.IPV6) == needed


@pytest.mark.parametrize("family", list(Family))
def test_the_recording_has_jumps_with_and_without_conditions(family: Family) -> None:
    assert sum("--ctstate NEW" in line for line in recorded_jumps(family)) == 7
    assert len(recorded_jumps(family)) == 14
