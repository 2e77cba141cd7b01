"""One service port as virtual servers and ipset members; expected values are written by hand."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_address

import msgspec
import pytest

from kproxy.model.network import Family, Protocol
from kproxy.proxy.backends.ipvs.compile import Context, IpvsObjects, ipvs_objects, shortcut_keys
from kproxy.proxy.backends.ipvs.names import IpSet, set_name
from kproxy.proxy.backends.ipvs.rules import AddressKey, Destination, Key, MarkKey, Member, Server
from kproxy.proxy.plan import Exposure, OnEmpty, PoolEndpoint, PoolScope, ServicePlan
from tests.support.ipvs_model import is_optional
from tests.support.plans import frontend, pool, service

NODE, SECOND = ip_address("192.0.2.7"), ip_address("198.51.100.7")
CONTEXT = Context(frozenset({NODE, SECOND}), (NODE, SECOND))
MARK, MASK = 0x4B000001, 0xFFFFBFFF
EVERYWHERE = pool("10.0.1.1:8080", "10.0.2.1:8080")
HERE = pool("10.0.1.1:8080", scope=PoolScope.LOCAL)
NOBODY_HERE = pool(scope=PoolScope.LOCAL)


def made(one: ServicePlan, context: Context = CONTEXT) -> IpvsObjects:
    marks = {key: MARK + at for at, key in enumerate(shortcut_keys(one))}
    return ipvs_objects(one, marks, MASK, context)


def texts(found: IpvsObjects, which: IpSet) -> set[str]:
    return {member.text for member in found.members if member.set is which}


def key(address: str, port: int = 80, protocol: Protocol = Protocol.TCP) -> AddressKey:
    return AddressKey(ip_address(address), port, protocol)


def reached(found: IpvsObjects, one: Key) -> set[str]:
    return {str(destination) for destination in found.virtuals[one].destinations}


def test_a_cluster_ip_is_a_round_robin_server_its_address_and_a_member() -> None:
    found = made(service(frontend(Exposure.CLUSTER_IP, "10.96.0.1", 80, EVERYWHERE)))
    assert found.virtuals.keys() == {key("10.96.0.1")}
    assert found.virtuals[key("10.96.0.1")].server == Server("rr")
    assert reached(found, key("10.96.0.1")) == {"10.0.1.1:8080", "10.0.2.1:8080"}
    assert found.addresses == {ip_address("10.96.0.1")}
    assert found.members == {
        Member(IpSet.CLUSTER_IP, "10.96.0.1,tcp:80"),
        Member(IpSet.SERVED, "10.96.0.1,tcp:80"),
    }


def used(found: IpvsObjects) -> set[Key]:
    return {key for key, virtual in found.virtuals.items() if not is_optional(virtual)}


def test_under_policy_cluster_connections_that_a_shortcut_took_go_on() -> None:
    """``established.survives-policy-change``: what is there stays, and gets nothing new."""
    found = made(service(frontend(Exposure.LOAD_BALANCER, "203.0.113.9", 80, EVERYWHERE)))
    left = found.virtuals[MarkKey(MARK)]
    assert left.destinations == frozenset()
    assert left.drain
    assert {str(one) for one in left.keep_established} == {"10.0.1.1:8080", "10.0.2.1:8080"}
    assert texts(found, IpSet.SHORTCUT) == set()


def test_only_endpoints_of_this_node_can_reach_themselves_through_it() -> None:
    found = made(service(frontend(Exposure.CLUSTER_IP, "10.96.0.1", 80, HERE)))
    assert texts(found, IpSet.LOOP_BACK) == {"10.0.1.1,tcp:8080,10.0.1.1"}


def test_a_node_port_is_a_server_at_every_address_and_one_number() -> None:
    found = made(service(frontend(Exposure.NODE_PORT, None, 30080, EVERYWHERE)))
    assert used(found) == {key("192.0.2.7", 30080), key("198.51.100.7", 30080)}
    assert found.addresses == frozenset()
    assert found.members == {Member(IpSet.NODE_PORT_TCP, "30080")}


def test_node_ports_of_sctp_are_known_by_address_too() -> None:
    found = made(service(frontend(Exposure.NODE_PORT, None, 30080, EVERYWHERE), protocol=Protocol.SCTP))
    assert found.members == {
        Member(IpSet.NODE_PORT_SCTP, "192.0.2.7,sctp:30080"),
        Member(IpSet.NODE_PORT_SCTP, "198.51.100.7,sctp:30080"),
    }


def test_an_external_ip_that_the_node_has_is_served_but_not_bound() -> None:
    """``eip.is-node-ip``."""
    found = made(service(frontend(Exposure.EXTERNAL_IP, "192.0.2.7", 80, EVERYWHERE)))
    assert used(found) == {key("192.0.2.7")}
    assert found.addresses == frozenset()
    assert texts(found, IpSet.EXTERNAL_IP) == {"192.0.2.7,tcp:80"}


def test_policy_local_reaches_endpoints_here_and_has_a_shortcut_by_mark_to_all() -> None:
    one = service(frontend(Exposure.LOAD_BALANCER, "203.0.113.9", 80, HERE, shortcut=EVERYWHERE))
    found = made(one)
    assert reached(found, key("203.0.113.9")) == {"10.0.1.1:8080"}
    assert reached(found, MarkKey(MARK)) == {"10.0.1.1:8080", "10.0.2.1:8080"}
    assert texts(found, IpSet.SHORTCUT) == {"203.0.113.9,tcp:80 skbmark 0x4b000001/0xffffbfff"}
    assert (
        texts(found, IpSet.LOAD_BALANCER) == texts(found, IpSet.LOAD_BALANCER_LOCAL) == {"203.0.113.9,tcp:80"}
    )
    assert texts(found, IpSet.EXTERNAL_UNANSWERED) == set()


def test_where_policy_finds_nobody_here_there_is_silence_and_the_shortcut_stays() -> None:
    one = service(frontend(Exposure.EXTERNAL_IP, "203.0.113.9", 80, NOBODY_HERE, shortcut=EVERYWHERE))
    found = made(one)
    assert reached(found, key("203.0.113.9")) == set()
    assert texts(found, IpSet.EXTERNAL_UNANSWERED) == {"203.0.113.9,tcp:80"}
    assert reached(found, MarkKey(MARK)) == {"10.0.1.1:8080", "10.0.2.1:8080"}


def test_internal_policy_without_an_endpoint_here_is_silence_for_all() -> None:
    silent = msgspec.structs.replace(
        frontend(Exposure.CLUSTER_IP, "10.96.0.1", 80, NOBODY_HERE), on_empty=OnEmpty.DROP
    )
    found = made(service(silent))
    assert texts(found, IpSet.CLUSTER_IP_UNANSWERED) == {"10.96.0.1,tcp:80"}
    assert not any(isinstance(one, MarkKey) for one in found.virtuals)


def test_without_any_endpoint_the_server_is_empty_and_nothing_is_silenced() -> None:
    found = made(service(frontend(Exposure.CLUSTER_IP, "10.96.0.1", 80, pool())))
    assert reached(found, key("10.96.0.1")) == set()
    assert texts(found, IpSet.CLUSTER_IP_UNANSWERED) == set()


def test_source_ranges_are_members_as_ipset_prints_them() -> None:
    sources = ("10.0.0.0/8", "192.0.2.1/32")
    balanced = frontend(
        Exposure.LOAD_BALANCER, "203.0.113.9", 80, EVERYWHERE, sources=sources, admit_self=True
    )
    found = made(service(balanced))
    assert texts(found, IpSet.LOAD_BALANCER_FIREWALL) == {"203.0.113.9,tcp:80"}
    assert texts(found, IpSet.LOAD_BALANCER_SOURCE_CIDR) == {
        "203.0.113.9,tcp:80,10.0.0.0/8",
        "203.0.113.9,tcp:80,192.0.2.1",
    }
    assert texts(found, IpSet.LOAD_BALANCER_SOURCE_IP) == {"203.0.113.9,tcp:80,203.0.113.9"}


def test_a_range_of_all_addresses_is_no_restriction() -> None:
    open_to_all = ("10.0.0.0/8", "0.0.0.0/0")
    found = made(
        service(frontend(Exposure.LOAD_BALANCER, "203.0.113.9", 80, EVERYWHERE, sources=open_to_all))
    )
    assert texts(found, IpSet.LOAD_BALANCER_FIREWALL) == set()


def test_affinity_is_persistence_and_by_mark_a_scheduler_that_looks_at_the_client() -> None:
    local = frontend(Exposure.LOAD_BALANCER, "203.0.113.9", 80, HERE, shortcut=EVERYWHERE)
    found = made(service(local, affinity=600))
    assert found.virtuals[key("203.0.113.9")].server == Server("rr", 0x1, 600)
    assert found.virtuals[MarkKey(MARK)].server == Server("mh", 0x8)


def test_the_scheduler_is_the_configured_one_and_mh_looks_at_source_ports() -> None:
    one = service(frontend(Exposure.CLUSTER_IP, "10.96.0.1", 80, EVERYWHERE))
    for scheduler, flags in (("wlc", 0), ("mh", 0x10)):
        found = made(one, replace(CONTEXT, scheduler=scheduler))
        assert found.virtuals[key("10.96.0.1")].server == Server(scheduler, flags)


@pytest.mark.parametrize(
    ("protocol", "drains"), [(Protocol.TCP, True), (Protocol.SCTP, True), (Protocol.UDP, False)]
)
def test_connections_drain_and_datagrams_only_to_endpoints_that_serve(
    protocol: Protocol,
    drains: bool,  # noqa: FBT001
) -> None:
    one = service(frontend(Exposure.CLUSTER_IP, "10.96.0.1", 80, HERE), protocol=protocol)
    one = msgspec.structs.replace(
        one, serving=(PoolEndpoint(ip_address("10.0.2.1"), 8080, may_be_here=False),)
    )
    virtual = made(one).virtuals[key("10.96.0.1", 80, protocol)]
    assert virtual.drain is drains
    assert virtual.keep_established == {Destination(ip_address("10.0.2.1"), 8080)}


@pytest.mark.parametrize("family", list(Family))
def test_names_of_sets_fit_the_kernel_and_differ(family: Family) -> None:
    """``ds.ipvs-names``."""
    names = {set_name(which, one) for which in IpSet for one in Family}
    assert len(names) == len(IpSet) * len(Family)
    assert all(len(set_name(which, family)) <= 31 for which in IpSet)
    assert set_name(IpSet.CLUSTER_IP, Family.IPV4) == "KUBE-CLUSTER-IP"
    assert set_name(IpSet.NODE_PORT_LOCAL_SCTP, Family.IPV6) == "KUBE-6-NODE-PORT-LOCAL-SCTP-HAS"
