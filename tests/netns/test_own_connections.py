"""Connections of a node's own processes that are open when a proxy's first rules arrive: with itself, and with others.

With these rules the kernel begins to track connections.  One that is open is picked up in the middle, but not by its
last segments: a FIN or RST of a connection that nobody knows is INVALID (nf_conntrack_proto_tcp.c, ``tcp_conntracks``).
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from kproxy.lab import namespaces
from kproxy.lab.namespaces import Namespace
from kproxy.linux import host
from kproxy.model.network import Family
from kproxy.proxy.backends.iptables.kernel import IptablesKernel, Variant, find_tools, machine_options
from kproxy.proxy.backends.nftables.kernel import NftablesKernel
from kproxy.proxy.backends.nftables.kernel import machine_options as nftables_options
from kproxy.proxy.plan import Plan
from tests.support.numbered_plans import numbered, plan

SOON, AT_ONCE = 5.0, 0.5
"""Seconds."""
ANSWER = b"answer"
SOCKETS = {Family.IPV4: socket.AF_INET, Family.IPV6: socket.AF_INET6}
LOOPBACK = {Family.IPV4: "127.0.0.1", Family.IPV6: "::1"}
OWN = {Family.IPV4: "192.0.2.1", Family.IPV6: "2001:db8::1"}
OTHERS = {Family.IPV4: "192.0.2.2", Family.IPV6: "2001:db8::2"}
LOOSE = "net/netfilter/nf_conntrack_tcp_loose"
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
    NftablesKernel(wanted.family, nftables_options(14)).apply(wanted)


@dataclass(frozen=True)
class Peer:
    """Whom the node's process is connected with, and at which addresses."""

    namespace: Namespace
    addresses: Mapping[Family, str]


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    own = namespaces.create_namespace("own")
    own.run(("ip", "link", "set", "lo", "up"))
    with own.entered():
        yield own
    own.close()


@pytest.fixture
def itself(namespace: Namespace) -> Peer:
    return Peer(namespace, LOOPBACK)


@pytest.fixture
def another(namespace: Namespace) -> Iterator[Peer]:
    other = namespaces.create_namespace("other")
    namespace.run(("ip", "link", "add", "up0", "type", "veth", "peer", "name", "up0", "netns", other.path))
    for end, addresses in ((namespace, OWN), (other, OTHERS)):
        end.run(("ip", "address", "add", f"{addresses[Family.IPV4]}/24", "dev", "up0"))
        end.run(("ip", "address", "add", f"{addresses[Family.IPV6]}/64", "dev", "up0", "nodad"))
        end.run(("ip", "link", "set", "up0", "up"))
    yield Peer(other, OTHERS)
    other.close()


def connected(family: Family, own: Namespace, peer: Peer) -> tuple[socket.socket, socket.socket]:
    """Both ends of a connection over which data was sent."""
    client = own.socket(SOCKETS[family], socket.SOCK_STREAM)
    client.settimeout(SOON)
    with peer.namespace.socket(SOCKETS[family], socket.SOCK_STREAM) as server:
        server.bind((peer.addresses[family], 0))
        server.listen()
        client.connect(server.getsockname()[:2])
        served, _ = server.accept()
    served.sendall(ANSWER)
    assert client.recv(len(ANSWER)) == ANSWER
    return client, served


@pytest.mark.parametrize("family", Family, ids=lambda family: family.value)
@pytest.mark.parametrize("program", [by_iptables, by_nftables])
@pytest.mark.parametrize("whom", ["itself", "another"])
def test_the_end_of_one_that_was_open_before_the_first_rules_is_received(
    whom: str,
    program: Program,
    family: Family,
    namespace: Namespace,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    client, served = connected(family, namespace, request.getfixturevalue(whom))
    program(plan(family, numbered(family, 1, 1)), tmp_path)
    served.close()
    with client:
        assert client.recv(1) == b""


@pytest.mark.parametrize("family", Family, ids=lambda family: family.value)
@pytest.mark.parametrize("whom", ["itself", "another"])
def test_control_it_is_not_received_where_all_that_is_invalid_is_dropped(
    whom: str, family: Family, namespace: Namespace, request: pytest.FixtureRequest
) -> None:
    client, served = connected(family, namespace, request.getfixturevalue(whom))
    namespace.run(("nft", "-f", "-"), INVALID_IS_DROPPED)
    served.close()
    client.settimeout(AT_ONCE)
    with client, pytest.raises(TimeoutError):
        client.recv(1)


def exchange(client: socket.socket, served: socket.socket, within: float) -> None:
    client.settimeout(within)
    served.sendall(ANSWER)
    assert client.recv(len(ANSWER)) == ANSWER


@pytest.mark.parametrize("family", Family, ids=lambda family: family.value)
@pytest.mark.parametrize("program", [by_iptables, by_nftables])
def test_one_that_tracking_does_not_know_goes_on_where_it_is_not_loose(
    program: Program, family: Family, namespace: Namespace, another: Peer, tmp_path: Path
) -> None:
    host.write_sysctl(LOOSE, "0")
    client, served = connected(family, namespace, another)
    program(plan(family, numbered(family, 1, 1)), tmp_path)
    with client, served:
        exchange(client, served, SOON)


@pytest.mark.parametrize("family", Family, ids=lambda family: family.value)
def test_control_it_stalls_where_all_that_is_invalid_is_dropped(
    family: Family, namespace: Namespace, another: Peer
) -> None:
    host.write_sysctl(LOOSE, "0")
    client, served = connected(family, namespace, another)
    namespace.run(("nft", "-f", "-"), INVALID_IS_DROPPED)
    with client, served, pytest.raises(TimeoutError):
        exchange(client, served, AT_ONCE)
