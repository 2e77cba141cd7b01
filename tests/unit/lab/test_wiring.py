"""The topology's text: every address is given once, to the right namespace; Service ranges are no one's."""

from __future__ import annotations

import re
from collections import Counter
from ipaddress import ip_address

import pytest

from kproxy.lab import topology as t
from kproxy.lab import wiring
from kproxy.model.network import Address, Family

both_families = pytest.mark.parametrize("family", Family)


def addresses(name: str, family: Family) -> list[Address]:
    found = re.findall(r"^address add ([^/]+)/", wiring.addressing(name, family), re.MULTILINE)
    return [ip_address(text) for text in found]


@both_families
def test_a_node_has_its_addresses_of_the_topology_and_one_gateway_per_pod(family: Family) -> None:
    for node in t.NODES:
        expected = {address for address in t.local_addresses(node, family) if not address.is_loopback}
        assert set(addresses(node, family)) == expected
        assert addresses(node, family).count(t.POD_GATEWAY[node][family]) == len(t.PODS[node])


@both_families
def test_no_address_is_in_two_namespaces(family: Family) -> None:
    owners = Counter(address for name in wiring.NAMESPACES for address in set(addresses(name, family)))
    assert set(owners.values()) == {1}
    assert {t.POD_ADDRESS[pod][family] for pod in wiring.PODS} <= owners.keys()


@both_families
def test_no_interface_has_an_address_for_services(family: Family) -> None:
    everyones = [address for name in wiring.NAMESPACES for address in addresses(name, family)]
    ranges = (t.SERVICE_CIDR, t.EXTERNAL_IP_RANGE, t.LOAD_BALANCER_RANGE)
    assert not [address for address in everyones for services in ranges if address in services[family]]


def test_every_interface_that_is_brought_up_was_made_by_a_link() -> None:
    made = wiring.links({name: name for name in wiring.NAMESPACES})
    ends = re.findall(r"(\S+) netns (\S+)", made.replace(" type veth peer name ", "\n"))
    assert len(ends) == len(set(ends))
    for name in wiring.NAMESPACES:
        raised = set(re.findall(r"link set (\S+) (?:master \S+ )?up", wiring.addressing(name, Family.IPV4)))
        bridges = {wiring.BRIDGE, wiring.SECOND_BRIDGE} if name == wiring.SWITCH else set()
        assert raised == {interface for interface, where in ends if where == name} | bridges | {"lo"}


def test_only_nodes_router_and_elsewhere_forward() -> None:
    forwarding = {name for name in wiring.NAMESPACES if "ipv4/ip_forward" in wiring.sysctls(name)}
    assert forwarding == {*t.NODES, wiring.ROUTER, wiring.ELSEWHERE}
