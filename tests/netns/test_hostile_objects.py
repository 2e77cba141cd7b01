"""Hostile objects on a real kernel: nothing but our own rules changes, and a good Service is served all the while."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings

from kproxy.lab import namespaces
from kproxy.lab.namespaces import Namespace
from kproxy.linux import host
from kproxy.model.network import Family
from kproxy.proxy.backends.iptables.kernel import IptablesKernel, find_tools, machine_options
from kproxy.proxy.backends.nftables.kernel import NftablesKernel
from tests.support.hostile_flood import flood
from tests.support.hostile_objects import Document
from tests.support.hostile_worlds import WORLDS, planned, world

FOREIGN = """
*filter
:FOREIGN - [0:0]
-A INPUT -p tcp -j FOREIGN
-A FOREIGN -p tcp -j ACCEPT
COMMIT
*nat
-A POSTROUTING -o foreign0 -j MASQUERADE
COMMIT
"""
FAMILIES = {Family.IPV4: "iptables", Family.IPV6: "ip6tables"}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Namespace]:
    namespace = namespaces.create_namespace("hostile")
    namespace.run(("ip", "link", "set", "lo", "up"))
    for command in FAMILIES.values():
        namespace.run((f"{command}-restore", "--noflush"), stdin=FOREIGN)
    namespace.run(("nft", "add", "table", "inet", "foreign"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XTABLES_LOCKFILE", str(tmp_path_factory.mktemp("lock") / "lock"))
        yield namespace
    namespace.close()


def not_ours(command: str) -> list[str]:
    """All rules, but those of our chains and the jumps to them, and all chains that no kernel begins with."""
    lines = (line.split(" [")[0] for line in host.run_tool((f"{command}-save",)).splitlines())
    return [line for line in lines if "KUBE-" not in line and (line.startswith("-") or line.endswith(" -"))]


@given(hostile=WORLDS)
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
def test_the_kernel_takes_all_that_is_left_and_nothing_else_changes(
    node: Namespace, hostile: list[Document]
) -> None:
    cluster = world(hostile)
    with node.entered():
        before = [not_ours(command) for command in FAMILIES.values()]
        tables = host.run_tool(("nft", "list", "tables")).split("\n")
        for family, command in FAMILIES.items():
            tools = find_tools(family)
            kernel = IptablesKernel(tools)
            kernel.apply(planned(cluster, family), machine_options(tools, 14))
            assert kernel.find_drift() == ()
            served = host.run_tool((f"{command}-save", "-t", "nat"))
            assert served.count('"good/web:http -> ') == 4
            NftablesKernel(family).apply(planned(cluster, family, "nftables"))
            assert "affinity-" in host.run_tool(("nft", "list", "table", _word(family), "kube-proxy"))
        assert [not_ours(command) for command in FAMILIES.values()] == before
        new = set(host.run_tool(("nft", "list", "tables")).split("\n")) - set(tables)
        assert new <= {
            f"table {_word(family)} {name}" for family in Family for name in ("kube-proxy", "mangle")
        }


def _word(family: Family) -> str:
    return "ip" if family is Family.IPV4 else "ip6"


@pytest.mark.parametrize("mode", ["iptables", "nftables"])
def test_a_good_service_is_served_meanwhile_and_every_refused_object_is_named(mode: str) -> None:
    asyncio.run(flood(mode))
