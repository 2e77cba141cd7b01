"""Members of ipsets, written and read by netlink, beside what the ``ipset`` tool reads.  `tests/uml/test_ipvs.py` runs this in a guest."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kproxy.lab import namespaces
from kproxy.linux import host
from kproxy.linux.host import HostError, Reason
from kproxy.model.network import Family
from kproxy.proxy.backends.ipvs.diff import ChangeMembers
from kproxy.proxy.backends.ipvs.kernel import ipsets
from kproxy.proxy.backends.ipvs.names import IpSet, set_name
from kproxy.proxy.backends.ipvs.rules import Member


@pytest.fixture(autouse=True)
def node() -> Iterator[None]:
    namespace = namespaces.create_namespace("ipsets")
    with namespace.entered():
        yield
    namespace.close()


MEMBERS = {
    Family.IPV4: {
        IpSet.CLUSTER_IP: "10.96.0.1,tcp:80",
        IpSet.NODE_PORT_SCTP: "192.0.2.7,sctp:30080",
        IpSet.EXTERNAL_IP: "203.0.113.1,udp:53",
        IpSet.LOOP_BACK: "10.0.0.1,tcp:8080,10.0.0.1",
        IpSet.LOAD_BALANCER_SOURCE_CIDR: "203.0.113.2,tcp:80,10.0.0.0/8",
        IpSet.NODE_PORT_TCP: "30080",
        IpSet.IPVS_IPS: "10.96.0.1",
        IpSet.SHORTCUT: "203.0.113.2,tcp:80 skbmark 0x4b000001/0xffffbfff",
    },
    Family.IPV6: {
        IpSet.CLUSTER_IP: "fd00:96::1,tcp:80",
        IpSet.LOOP_BACK: "fd00:10::1,sctp:8080,fd00:10::1",
        IpSet.LOAD_BALANCER_SOURCE_CIDR: "fd00:96::2,udp:80,2001:db8::/32",
        IpSet.HEALTH_CHECK_NODE_PORT: "30999",
        IpSet.IPVS_IPS: "fd00:96::1",
        IpSet.SHORTCUT: "fd00:96::2,tcp:80 skbmark 0x4b000001/0xffffbfff",
    },
}
"""Of each type one member, as the ``ipset`` tool prints it."""


def saved_members(family: Family) -> set[Member]:
    """Members as ``ipset save`` prints them."""
    by_name = {set_name(which, family): which for which in IpSet}
    added = (line.split(" ", 2) for line in host.run_tool(("ipset", "save")).splitlines())
    return {Member(by_name[name], text) for what, name, text in added if what == "add"}


def test_all_sets_are_listed_by_name() -> None:
    assert ipsets.list_set_names() == frozenset()
    ipsets.create_missing_sets(Family.IPV4)
    host.run_tool(("ipset", "create", "FOREIGN", "hash:ip"))
    assert ipsets.list_set_names() == frozenset(host.run_tool(("ipset", "list", "-name")).split())
    assert "FOREIGN" in ipsets.list_set_names()


@pytest.mark.parametrize("family", Family)
def test_members_of_each_type_are_what_the_tool_reads(family: Family) -> None:
    ipsets.create_missing_sets(family)
    members = tuple(Member(which, text) for which, text in MEMBERS[family].items())
    for _ in range(2):
        ipsets.change_members(ChangeMembers(family, (), members))
        assert ipsets.read_members(family) == set(members) == saved_members(family)
    marked = Member(IpSet.SHORTCUT, members[-1].element + " skbmark 0x4b000002/0xffffbfff")
    ipsets.change_members(ChangeMembers(family, (), (marked,)))
    assert ipsets.read_members(family) == {*members[:-1], marked} == saved_members(family)
    for _ in range(2):
        ipsets.change_members(ChangeMembers(family, (*members[:-1], marked), ()))
        assert ipsets.read_members(family) == set()


def test_more_members_than_a_message_holds_are_read() -> None:
    ipsets.create_missing_sets(Family.IPV4)
    members = tuple(Member(IpSet.CLUSTER_IP, f"10.96.{n >> 8}.{n & 255},tcp:80") for n in range(5000))
    assert not ipsets.change_members(ChangeMembers(Family.IPV4, (), members))
    assert ipsets.read_members(Family.IPV4) == set(members) == saved_members(Family.IPV4)


def test_protocols_that_services_do_not_have_are_read_and_removed() -> None:
    ipsets.create_missing_sets(Family.IPV4)
    host.run_tool(("ipset", "add", "KUBE-CLUSTER-IP", "10.96.0.1,udplite:80"))
    (member,) = ipsets.read_members(Family.IPV4)
    assert member == Member(IpSet.CLUSTER_IP, "10.96.0.1,136:80")
    ipsets.change_members(ChangeMembers(Family.IPV4, (member,), ()))
    assert ipsets.read_members(Family.IPV4) == set()


def test_a_set_of_another_type_has_no_members_of_ours() -> None:
    ipsets.create_missing_sets(Family.IPV4)
    for line in (
        "destroy KUBE-CLUSTER-IP",
        "create KUBE-CLUSTER-IP list:set",
        "add KUBE-CLUSTER-IP KUBE-LOOP-BACK",
    ):
        host.run_tool(("ipset", *line.split()))
    member = Member(IpSet.EXTERNAL_IP, "203.0.113.1,tcp:80")
    ipsets.change_members(ChangeMembers(Family.IPV4, (), (member,)))
    assert ipsets.read_members(Family.IPV4) == {member}


def test_a_set_that_is_gone_is_an_error() -> None:
    ipsets.create_missing_sets(Family.IPV4)
    host.run_tool(("ipset", "destroy", "KUBE-EXTERNAL-IP"))
    member = Member(IpSet.EXTERNAL_IP, "203.0.113.1,tcp:80")
    with pytest.raises(HostError, match="No such file") as caught:
        ipsets.change_members(ChangeMembers(Family.IPV4, (member,), ()))
    assert caught.value.reason is Reason.MISSING


def test_a_full_set_leaves_members_out_and_costs_other_sets_nothing() -> None:
    ipsets.create_missing_sets(Family.IPV4)
    shrink_set("KUBE-LOOP-BACK hash:ip,port,ip")
    hairpins = [Member(IpSet.LOOP_BACK, f"10.0.0.{n},tcp:80,10.0.0.{n}") for n in range(1, 5)]
    served = Member(IpSet.SERVED, "10.96.0.1,tcp:80")
    left_out = ipsets.change_members(ChangeMembers(Family.IPV4, (), (*hairpins, served)))
    assert left_out == tuple(hairpins[2:])
    assert ipsets.read_members(Family.IPV4) == {*hairpins[:2], served}


def test_a_full_set_that_must_hold_all_is_an_error() -> None:
    ipsets.create_missing_sets(Family.IPV4)
    shrink_set("KUBE-LOAD-BALANCER-FW hash:ip,port")
    members = tuple(Member(IpSet.LOAD_BALANCER_FIREWALL, f"203.0.113.{n},tcp:80") for n in (1, 2, 3))
    with pytest.raises(HostError, match=r"add KUBE-LOAD-BALANCER-FW 203\.0\.113\.3,tcp:80.*full"):
        ipsets.change_members(ChangeMembers(Family.IPV4, (), members))


def shrink_set(name_and_type: str) -> None:
    """Replace a set by one that has room for two members."""
    name, kind = name_and_type.split()
    host.run_tool(("ipset", "destroy", name))
    host.run_tool(("ipset", "create", name, kind, "maxelem", "2"))
