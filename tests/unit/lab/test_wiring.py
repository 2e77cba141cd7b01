"""The topology's text: every address is given once, to the right namespace; Service ranges are no one's."""

from __future__ import annotations

import re
from collections import Counter
from ipaddress import ip_address

import pytest

from kproxy.lab.topology import ELSEWHERE, LAB, NODES, ROUTER, SWITCH
from kproxy.lab.wiring import BRIDGE, SECOND_BRIDGE, LabWiring
from kproxy.model.network import Address, Family

WIRING = LabWiring(LAB)
both_families = pytest.mark.parametrize("family", Family)


def addresses(name: str, family: Family) -> list[Address]:
    found = re.findall(r"^address add ([^/]+)/", WIRING.addressing(name, family), re.MULTILINE)
    return [ip_address(text) for text in found]


@both_families
def test_a_node_has_its_addresses_of_the_topology_and_one_gateway_per_pod(family: Family) -> None:
    for node in NODES:
        expected = {address for address in LAB.local_addresses(node, family) if not address.is_loopback}
        assert set(addresses(node, family)) == expected
        assert addresses(node, family).count(LAB.pod_gateway[node][family]) == len(LAB.pods[node])


@both_families
def test_no_address_is_in_two_namespaces(family: Family) -> None:
    owners = Counter(address for name in WIRING.namespaces for address in set(addresses(name, family)))
    assert set(owners.values()) == {1}
    assert {LAB.pod_address[pod][family] for pod in LAB.all_pods} <= owners.keys()


@both_families
def test_no_interface_has_an_address_for_services(family: Family) -> None:
    everyones = [address for name in WIRING.namespaces for address in addresses(name, family)]
    ranges = (LAB.service_cidr, LAB.external_ip_range, LAB.load_balancer_range)
    assert not [address for address in everyones for services in ranges if address in services[family]]


def test_every_interface_that_is_brought_up_was_made_by_a_link() -> None:
    made = WIRING.links({name: name for name in WIRING.namespaces})
    ends = re.findall(r"(\S+) netns (\S+)", made.replace(" type veth peer name ", "\n"))
    assert len(ends) == len(set(ends))
    for name in WIRING.namespaces:
        raised = set(re.findall(r"link set (\S+) (?:master \S+ )?up", WIRING.addressing(name, Family.IPV4)))
        bridges = {BRIDGE, SECOND_BRIDGE} if name == SWITCH else set()
        assert raised == {interface for interface, where in ends if where == name} | bridges | {"lo"}


def test_only_nodes_router_and_elsewhere_forward() -> None:
    forwarding = {name for name in WIRING.namespaces if "ipv4/ip_forward" in WIRING.sysctls(name)}
    assert forwarding == {*NODES, ROUTER, ELSEWHERE}
