"""userspace mode's rules and its route in the real kernel: written, repaired, and all gone after a clean-up."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path

import pytest

from kproxy.lab import namespaces
from kproxy.linux import host
from kproxy.model.network import Family
from kproxy.proxy.backends.userspace import names
from kproxy.proxy.backends.userspace.kernel import (
    UserspaceKernel,
    keeps_sources,
    remove_portals,
    withdraw_portals,
)
from kproxy.proxy.backends.xtables.kernel.tools import find_tools
from kproxy.proxy.plan import Exposure, Plan
from tests.support.plans import frontend, plan_of, pool, service

ADDRESSES = {Family.IPV4: ("10.96.0.1", "172.18.0.2:40001"), Family.IPV6: ("fd00:96::1", "fd00:18::2#40001")}


@pytest.fixture(params=list(Family), ids=lambda family: family.value)
def family(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Family]:
    """A family, inside a network namespace of this test alone."""
    monkeypatch.setenv("XTABLES_LOCKFILE", str(tmp_path / "lock"))
    namespace = namespaces.create_namespace("userspace")
    with namespace.entered():
        host.run_tool(("ip", "link", "set", "lo", "up"))
        yield request.param
    namespace.close()


def one_service(family: Family) -> Plan:
    address, socket = ADDRESSES[family]
    return plan_of(
        service(frontend(Exposure.CLUSTER_IP, address, 80, pool(socket))), family=family, detector=None
    )


def saved(family: Family) -> str:
    return host.run_tool((f"{find_tools(family).command}-save",))


def routing(family: Family) -> str:
    return host.run_tool(("ip", f"-{ip_address(ADDRESSES[family][0]).version}", "rule"))


def test_a_plan_is_written_and_a_clean_up_leaves_nothing(family: Family) -> None:
    before = routing(family)
    kernel = UserspaceKernel(family, keep_sources=keeps_sources(family))
    written = kernel.apply(one_service(family))
    assert written.rewritten
    assert f"--to-destination {ADDRESSES[family][1].replace('#', ']:')[:10]}" in saved(family).replace(
        "[", ""
    )
    assert routing(family).count("lookup 7500") == 1
    assert kernel.find_drift() == ()
    assert not kernel.apply(one_service(family)).changes
    assert remove_portals(family, running=False) == ()
    assert "KUBE-" not in saved(family)
    assert routing(family) == before


@pytest.mark.parametrize("what", ["rules", "jump"])
def test_what_another_program_removes_is_seen_and_written_again(family: Family, what: str) -> None:
    kernel = UserspaceKernel(family, keep_sources=True)
    kernel.apply(one_service(family))
    assert kernel.find_drift() == ()
    whole, command = saved(family), find_tools(family).command
    chain = names.PORTALS_CONTAINER if what == "rules" else "PREROUTING"
    host.run_tool((command, "-t", "nat", "-F", chain))
    assert kernel.find_drift() != ()
    kernel.forget()
    kernel.apply(one_service(family))
    assert kernel.find_drift() == kernel.find_drift() == ()
    assert _rules(saved(family)) == _rules(whole)


def test_chains_stay_while_the_mode_runs(family: Family) -> None:
    kernel = UserspaceKernel(family, keep_sources=True)
    kernel.apply(one_service(family))
    assert remove_portals(family, running=True) == ()
    assert kernel.find_drift() == ()


def test_after_a_withdrawal_there_is_what_brings_answers_to_clients_addresses_back(family: Family) -> None:
    kernel = UserspaceKernel(family, keep_sources=True)
    kernel.apply(one_service(family))
    withdraw_portals(family)
    chains = {line.split()[0] for line in saved(family).splitlines() if line.startswith(":KUBE-")}
    assert chains == {":KUBE-PORTALS-SOURCE", ":KUBE-PORTALS-ANSWER"}
    assert sum("-j KUBE-PORTALS-" in line for line in _rules(saved(family))) == 3
    assert routing(family).count("lookup 7500") == 1
    assert remove_portals(family, running=False) == ()
    assert "KUBE-" not in saved(family)


def _rules(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("-A")]
