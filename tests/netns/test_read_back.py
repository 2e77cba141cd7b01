"""What we write to the kernel by our own bytes, read back by pyroute2, which shares no line with us, and compared with what was meant.

nftables, connection tracking and addresses here; IPVS, ipsets and the service device in a guest (`tests/uml/guest/ipvs_read_back.py`).
"""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Iterable, Iterator
from ipaddress import ip_address
from typing import Any

import pytest
from pyroute2 import Conntrack, IPRoute
from pyroute2.nftables.main import NFTables

from kproxy.lab import namespaces
from kproxy.lab.namespaces import Namespace
from kproxy.linux import conntrack, host
from kproxy.linux.node_addresses import list_addresses
from kproxy.model.network import Family
from kproxy.proxy.backends.nftables.desired_state import desired_state
from kproxy.proxy.backends.nftables.diff import diff
from kproxy.proxy.backends.nftables.kernel import NftablesKernel, remove_table
from kproxy.proxy.backends.nftables.static_rules import Options
from kproxy.proxy.plan import Exposure, Plan
from tests.support.nftables_table import SimulatedTable
from tests.support.plans import frontend, plan_of, pool, service

NUMBER = {Family.IPV4: socket.AF_INET, Family.IPV6: socket.AF_INET6}
TABLE = "kube-proxy"


@pytest.fixture(params=list(Family), ids=lambda family: family.value)
def family(request: pytest.FixtureRequest) -> Family:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(autouse=True)
def namespace() -> Iterator[Namespace]:
    own = namespaces.create_namespace("read-back")
    with own.entered():
        host.run_tool(("ip", "link", "set", "lo", "up"))
        yield own
    own.close()


# ------------------------------------------------------------------------------ nftables


def small_plan(family: Family, *, affinity: int | None = None) -> Plan:
    v4 = family is Family.IPV4
    reached = pool(*(("10.0.0.1:80", "10.0.0.2:80") if v4 else ("fd00:10::1#80", "fd00:10::2#80")))
    cluster_ip, external = ("10.96.0.1", "192.0.2.9") if v4 else ("fd00:96::1", "2001:db8::9")
    return plan_of(
        service(
            frontend(Exposure.CLUSTER_IP, cluster_ip, 80, reached),
            frontend(Exposure.EXTERNAL_IP, external, 80, reached),
            frontend(Exposure.NODE_PORT, None, 30001, reached),
            affinity=affinity,
        ),
        service(frontend(Exposure.CLUSTER_IP, cluster_ip[:-1] + "2", 53, pool()), name="ns/nobody:dns"),
        family=family,
    )


def names(messages: Iterable[Any], attribute: str, table: str) -> list[str]:
    """Names in messages about our table."""
    return [m.get_attr(attribute) for m in messages if m.get_attr(table) == TABLE]


@pytest.mark.parametrize("affinity", [None, 60], ids=["", "affinity"])
def test_nftables(family: Family, affinity: int | None) -> None:
    wanted = small_plan(family, affinity=affinity)
    model = SimulatedTable(family)
    model.apply(diff(None, desired_state(wanted, Options())))
    assert NftablesKernel(family).apply(wanted).refused is None
    with NFTables(nfgen_family=NUMBER[family]) as reader:
        chains = list(reader.get_chains())
        assert sorted(names(chains, "NFTA_CHAIN_NAME", "NFTA_CHAIN_TABLE")) == sorted(model.chains)
        hooked = {
            chain.get_attr("NFTA_CHAIN_NAME"): chain.get_attr("NFTA_CHAIN_HOOK").get_attr(
                "NFTA_HOOK_PRIORITY"
            )
            for chain in chains
            if chain.get_attr("NFTA_CHAIN_HOOK")
        }
        assert hooked == {name: chain.hook.priority for name, chain in model.chains.items() if chain.hook}
        rules = Counter(names(reader.get_rules(), "NFTA_RULE_CHAIN", "NFTA_RULE_TABLE"))
        assert rules == Counter(
            {name: len(chain.rules) for name, chain in model.chains.items() if chain.rules}
        )
        sets = names(reader.get_sets(), "NFTA_SET_NAME", "NFTA_SET_TABLE")
        assert {name for name in sets if not name.startswith("__")} == set(model.collections)
        remove_table(family)
        assert names(reader.get_chains(), "NFTA_CHAIN_NAME", "NFTA_CHAIN_TABLE") == []


# ------------------------------------------------------------------------------ connection tracking


Flow = tuple[tuple[str, int], tuple[str, int]]


def tracked() -> set[Flow]:
    """UDP entries as pyroute2 lists them: destination of the client's packets, source of the answers."""
    with Conntrack() as reader:
        return {
            (
                (entry.tuple_orig.daddr, entry.tuple_orig.dport),
                (entry.tuple_reply.saddr, entry.tuple_reply.sport),
            )
            for entry in reader.dump_entries()
            if entry.tuple_orig.proto == socket.IPPROTO_UDP
        }


def listed(flows: Iterable[conntrack.UdpFlow]) -> set[Flow]:
    return {
        ((str(flow.destination[0]), flow.destination[1]), (str(flow.reply_source[0]), flow.reply_source[1]))
        for flow in flows
    }


def test_connection_tracking() -> None:
    """Entries that we list and find are those that pyroute2 lists; those that we delete are gone to it, and no others."""
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("127.0.0.1", 0))
    port = server.getsockname()[1]
    rules = "add table ip t; add chain ip t o {type nat hook output priority -100;}; "
    rules += f"add rule ip t o udp dport 5301-5302 dnat to 127.0.0.1:{port}"
    host.run_tool(("nft", "-f", "-"), [rules.encode()])
    clients = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(3)]
    for client, number in zip(clients, (5301, 5302, port), strict=True):
        client.sendto(b"x", ("127.0.0.1", number))
    meant = {(("127.0.0.1", number), ("127.0.0.1", port)) for number in (5301, 5302, port)}
    flows = list(conntrack.list_udp_flows(Family.IPV4, lambda _: True))
    assert tracked() == listed(flows) == meant
    assert conntrack.delete_flows(flow for flow in flows if flow.destination[1] == 5301) == 1
    assert tracked() == {flow for flow in meant if flow[0][1] != 5301}
    second, third = ((ip_address("127.0.0.1"), client.getsockname()[1]) for client in clients[1:])
    nobody, answering = (ip_address("127.0.0.9"), 9), (ip_address("127.0.0.1"), port)
    assert conntrack.find_destinations(answering, [nobody, second, third]) == {
        second: (ip_address("127.0.0.1"), 5302),
        third: answering,
    }
    conntrack.delete_flows_answered_by(answering, [nobody, second])
    assert tracked() == {flow for flow in meant if flow[0][1] == port}
    conntrack.delete_flows_answered_by(answering, [third])
    assert tracked() == set()
    for one in (*clients, server):
        one.close()


# ------------------------------------------------------------------------------ addresses


def test_addresses(family: Family) -> None:
    written = "192.0.2.7/24" if family is Family.IPV4 else "2001:db8::7/64"
    host.run_tool(("ip", "link", "add", "uplink", "type", "bridge"))
    host.run_tool(("ip", "addr", "add", written, "dev", "uplink"))
    with IPRoute() as reader:
        found = {ip_address(m.get_attr("IFA_ADDRESS")) for m in reader.get_addr(family=NUMBER[family])}
    ours = list_addresses(family, "kube-ipvs0")
    loopback = ip_address("127.0.0.1" if family is Family.IPV4 else "::1")
    assert found == set(ours.node) == {ip_address(written.partition("/")[0]), loopback}
