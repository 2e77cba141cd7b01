"""Ports at loopback of a plan."""

from __future__ import annotations

from ipaddress import ip_address

import msgspec
import pytest

from kproxy.model.network import Family, Protocol
from kproxy.proxy.plan import Pool, PoolEndpoint, PoolScope
from kproxy.proxy.relay.table import RelayPort, loopback_node_ports
from tests.support.node_port_plans import CLUSTER_IP, FAR, NEAR, NODE_PORT, plan


def test_a_node_port_is_served_at_loopback_and_nothing_else_is() -> None:
    (port,) = loopback_node_ports(plan(CLUSTER_IP, NODE_PORT))
    assert (port.protocol, port.address, port.port) == (Protocol.TCP, "127.0.0.1", 30080)
    assert port.endpoints == (("10.0.0.1", 8080), ("10.0.0.2", 8080))
    assert port.serving == set(port.endpoints)
    assert (port.affinity_seconds, port.service) == (7, "default/web:http")


def test_no_external_policy_binds_the_node_itself() -> None:
    local = msgspec.structs.replace(
        NODE_PORT, pool=Pool(PoolScope.LOCAL, (NEAR,)), shortcut=Pool(PoolScope.CLUSTER, (NEAR, FAR))
    )
    assert [port.endpoints for port in loopback_node_ports(plan(local))] == [
        (("10.0.0.1", 8080), ("10.0.0.2", 8080))
    ]


def test_flows_may_stay_with_an_endpoint_that_only_serves() -> None:
    leaving = PoolEndpoint(ip_address("10.0.0.3"), 8080, may_be_here=False)
    (port,) = loopback_node_ports(plan(NODE_PORT, protocol=Protocol.UDP, serving=(leaving,)))
    assert port.serving == {*port.endpoints, ("10.0.0.3", 8080)}
    assert ("10.0.0.3", 8080) not in port.endpoints


@pytest.mark.parametrize(
    "found",
    [
        loopback_node_ports(plan(NODE_PORT, localhost=False)),
        loopback_node_ports(plan(NODE_PORT, family=Family.IPV6)),
        loopback_node_ports(plan(NODE_PORT, protocol=Protocol.SCTP)),
        loopback_node_ports(plan(msgspec.structs.replace(NODE_PORT, pool=Pool(PoolScope.CLUSTER, ())))),
    ],
    ids=["off", "IPv6", "SCTP", "no endpoint"],
)
def test_there_is_no_port(found: tuple[RelayPort, ...]) -> None:
    assert found == ()
