"""Connections of a node with itself, its metrics port's for one, when a proxy's first rules arrive.

With these rules the kernel begins to track connections.  One that is open is picked up in the middle, but not by its
last segments: a FIN or RST of a connection that nobody knows is INVALID (nf_conntrack_proto_tcp.c, ``tcp_conntracks``).
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kproxy.backends.iptables.kernel import IptablesKernel, Variant, find_tools, machine_options
from kproxy.backends.nftables.kernel import NftablesKernel
from kproxy.lab import namespaces
from kproxy.lab.namespaces import Namespace
from kproxy.net import Family
from kproxy.plan import Plan
from tests.netns.test_iptables_kernel import numbered, plan

SOON, AT_ONCE = 5.0, 0.5
"""Seconds."""
ANSWER = b"answer"
LOOPBACK = {Family.IPV4: (socket.AF_INET, "127.0.0.1"), Family.IPV6: (socket.AF_INET6, "::1")}
INVALID_IS_DROPPED = """
table inet control {
    chain input {
        type filter hook input priority 10
        meta l4proto tcp ct state invalid drop
    }
}
"""

Program = Callable[[Plan, Path], object]


def by_iptables(wanted: Plan, folder: Path) -> None:
    tools = find_tools(wanted.family, Variant.NFT, {"XTABLES_LOCKFILE": str(folder / "lock")})
    IptablesKernel(tools).apply(wanted, machine_options(tools, 14))


def by_nftables(wanted: Plan, _: Path) -> None:
    NftablesKernel(wanted.family).apply(wanted)


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    own = namespaces.create("own")
    own.run(("ip", "link", "set", "lo", "up"))
    with own.entered():
        yield own
    own.close()


def connected(family: Family) -> tuple[socket.socket, socket.socket]:
    """Both ends of a connection over which something was said."""
    kind, address = LOOPBACK[family]
    with socket.create_server((address, 0), family=kind) as server:
        client = socket.create_connection(server.getsockname()[:2], SOON)
        served, _ = server.accept()
    served.sendall(ANSWER)
    assert client.recv(len(ANSWER)) == ANSWER
    return client, served


@pytest.mark.usefixtures("namespace")
@pytest.mark.parametrize("family", Family, ids=lambda family: family.value)
@pytest.mark.parametrize("program", [by_iptables, by_nftables])
def test_the_end_of_one_that_was_open_before_the_first_rules_is_heard(
    program: Program, family: Family, tmp_path: Path
) -> None:
    client, served = connected(family)
    program(plan(family, numbered(family, 1, 1)), tmp_path)
    served.close()
    with client:
        assert client.recv(1) == b""


@pytest.mark.parametrize("family", Family, ids=lambda family: family.value)
def test_control_it_is_not_heard_where_all_that_is_invalid_is_dropped(
    family: Family, namespace: Namespace
) -> None:
    client, served = connected(family)
    namespace.run(("nft", "-f", "-"), INVALID_IS_DROPPED)
    served.close()
    client.settimeout(AT_ONCE)
    with client, pytest.raises(TimeoutError):
        client.recv(1)
