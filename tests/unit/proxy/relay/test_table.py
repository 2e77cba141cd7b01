"""Ports at loopback of a plan, and which frontends a change of the ports takes away."""

from __future__ import annotations

from ipaddress import ip_address

import msgspec
import pytest

from kproxy.model.network import Family, Protocol
from kproxy.proxy.plan import Pool, PoolEndpoint, PoolScope
from kproxy.proxy.relay.table import RelayFrontend, RelayPort, loopback_node_ports, lost_frontends
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


CLUSTER_IP_FRONTEND, EXTERNAL_IP, NODE_PORT_FRONTEND = (
    RelayFrontend("10.96.0.1", 53),
    RelayFrontend("192.0.2.1", 53),
    RelayFrontend("", 30053),
)


def udp_port(
    *frontends: RelayFrontend, scope: PoolScope = PoolScope.CLUSTER, service: str = "default/dns:dns"
) -> RelayPort:
    return RelayPort(
        service=service,
        protocol=Protocol.UDP,
        address="0.0.0.0",
        port=0,
        endpoints=(("10.0.0.1", 53),),
        scope=scope,
        frontends=frozenset(frontends),
    )


def test_a_frontend_that_leads_nowhere_any_more_is_lost_to_its_port_alone() -> None:
    port, other = (
        udp_port(CLUSTER_IP_FRONTEND, EXTERNAL_IP),
        udp_port(NODE_PORT_FRONTEND, service="default/web:quic"),
    )
    assert lost_frontends([port, other], [udp_port(CLUSTER_IP_FRONTEND), other]) == {
        port.key: frozenset({EXTERNAL_IP})
    }


def test_with_its_port_all_of_its_frontends_are_lost() -> None:
    port = udp_port(CLUSTER_IP_FRONTEND, EXTERNAL_IP)
    assert lost_frontends([port], []) == {port.key: port.frontends}


def test_a_frontend_that_moves_to_another_socket_of_its_service_port_is_not_lost() -> None:
    before = udp_port(CLUSTER_IP_FRONTEND, NODE_PORT_FRONTEND)
    now = [udp_port(CLUSTER_IP_FRONTEND), udp_port(NODE_PORT_FRONTEND, scope=PoolScope.LOCAL)]
    assert lost_frontends([before], now) == {}


def test_a_frontend_that_moves_to_another_service_port_is_lost() -> None:
    before = udp_port(NODE_PORT_FRONTEND)
    assert lost_frontends([before], [udp_port(NODE_PORT_FRONTEND, service="default/web:quic")]) == {
        before.key: before.frontends
    }


def test_a_frontend_that_only_clients_with_a_shortcut_reach_now_is_not_lost() -> None:
    shortcut = RelayFrontend(NODE_PORT_FRONTEND.address, NODE_PORT_FRONTEND.port, shortcut=True)
    assert lost_frontends([udp_port(NODE_PORT_FRONTEND)], [udp_port(shortcut)]) == {}
