"""What the kernel returns of iptables-legacy's tables changes with the rules, and not with the packets that they count."""

import socket
from collections.abc import Iterator

import pytest

from kproxy.lab import namespaces
from kproxy.linux import host
from kproxy.linux.legacy_tables import LegacyTables
from kproxy.model.network import Family

LOOPBACK = {Family.IPV4: "127.0.0.1", Family.IPV6: "::1"}
DOMAIN = {Family.IPV4: socket.AF_INET, Family.IPV6: socket.AF_INET6}
COMMAND = {Family.IPV4: "iptables-legacy", Family.IPV6: "ip6tables-legacy"}


@pytest.fixture(autouse=True)
def namespace() -> Iterator[None]:
    """A network namespace of this test alone."""
    namespace = namespaces.create_namespace("legacy")
    with namespace.entered():
        host.run_tool(("ip", "link", "set", "lo", "up"))
        yield
    namespace.close()


@pytest.fixture(params=list(Family), ids=lambda family: family.value)
def family(request: pytest.FixtureRequest) -> Family:
    return request.param  # type: ignore[no-any-return]


def write(family: Family, arguments: str) -> None:
    host.run_tool((COMMAND[family], *arguments.split()))


def send(family: Family) -> None:
    with socket.socket(DOMAIN[family], socket.SOCK_DGRAM) as sender:
        sender.sendto(b"counted", (LOOPBACK[family], 9))


def counted(family: Family) -> int:
    listed = host.run_tool((COMMAND[family], "-t", "filter", "-vxnL", "COUNTED"))
    return sum(int(line.split()[0]) for line in listed.splitlines()[2:])


def test_no_table_exists_until_it_is_read_and_none_is_made(family: Family) -> None:
    tables = LegacyTables(family)
    assert (tables.names(), tables.sizes(), tables.digest()) == ([], b"", b"")
    assert tables.names() == []


def test_packets_change_nothing_and_rules_do(family: Family) -> None:
    tables = LegacyTables(family)
    for arguments in (
        "-t filter -N COUNTED",
        "-t filter -A COUNTED -p udp --dport 9 -j ACCEPT",
        "-t filter -A COUNTED -p udp -m comment --comment of-another-size -j ACCEPT",
        "-t filter -I OUTPUT -j COUNTED",
    ):
        write(family, arguments)
    sizes, digest = tables.sizes(), tables.digest()
    send(family)
    assert counted(family) > 0, "the rules have counted a packet"
    assert (tables.sizes(), tables.digest()) == (sizes, digest)
    write(family, "-t filter -R COUNTED 1 -p udp --dport 8 -j ACCEPT")
    assert tables.sizes() == sizes, "a rule of the same size"
    assert tables.digest() != digest
    write(family, "-t filter -R COUNTED 1 -p udp --dport 9 -j ACCEPT")
    assert tables.digest() == digest
    write(family, "-t filter -D COUNTED 2")
    assert tables.sizes() != sizes


def test_each_table_counts(family: Family) -> None:
    tables = LegacyTables(family)
    write(family, "-t nat -S")
    one = tables.sizes(), tables.digest()
    write(family, "-t filter -S")
    assert sorted(tables.names()) == ["filter", "nat"]
    assert tables.sizes() != one[0]
    assert tables.digest() != one[1]
