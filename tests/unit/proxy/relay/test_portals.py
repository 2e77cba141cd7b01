"""Sockets for the pools of a plan, and the plan whose endpoints they are."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_address

import msgspec
import pytest

from kproxy.model.network import Protocol
from kproxy.proxy.plan import OnEmpty, Plan, Pool, PoolEndpoint, PoolScope
from kproxy.proxy.relay.portals import Portals
from kproxy.proxy.relay.table import RelayFrontend, RelayKey, RelayPort
from tests.support.node_port_plans import CLUSTER_IP, FAR, NEAR, NODE_PORT, plan

NODE = ip_address("172.18.0.2")
OTHER = ip_address("172.18.0.9")
LOCAL = msgspec.structs.replace(
    NODE_PORT, pool=Pool(PoolScope.LOCAL, (NEAR,)), shortcut=Pool(PoolScope.CLUSTER, (NEAR, FAR))
)


def numbered(ports: tuple[RelayPort, ...]) -> dict[RelayKey, int]:
    return {port.key: 40_001 + place for place, port in enumerate(ports)}


def test_frontends_of_one_pool_share_a_socket() -> None:
    (port,) = Portals().ports(plan(CLUSTER_IP, NODE_PORT), NODE)
    assert (port.address, port.port, port.scope) == ("172.18.0.2", 0, PoolScope.CLUSTER)
    assert port.endpoints == (("10.0.0.1", 8080), ("10.0.0.2", 8080))
    assert port.affinity_seconds == 7


def test_each_pool_has_a_socket_and_another_for_clients_that_keep_their_address() -> None:
    found = Portals(keep_sources=True).ports(plan(CLUSTER_IP, LOCAL), NODE)
    assert [(port.scope, port.keeps_source) for port in found] == [
        *((PoolScope.CLUSTER, False), (PoolScope.CLUSTER, True)),
        *((PoolScope.LOCAL, False), (PoolScope.LOCAL, True)),
    ]
    assert len({port.key for port in found}) == 4
    assert len({port.turns for port in found}) == 2  # the turn of endpoints, and affinity, are the pool's


def test_the_sockets_are_the_endpoints_of_the_plan_for_rules() -> None:
    portals, given = Portals(keep_sources=True), plan(CLUSTER_IP, LOCAL)
    relayed = portals.relayed(given, NODE, numbered(portals.ports(given, NODE)))
    (service,) = relayed.services
    internal, external = service.frontends
    assert internal.pool.endpoints == (socket(40_001), socket(40_002))
    assert external.pool.endpoints == (socket(40_003), socket(40_004))
    assert external.shortcut is not None
    assert external.shortcut.endpoints == internal.pool.endpoints
    assert service.affinity_seconds is None  # the relay's, not the rules'
    assert (internal.masquerade, external.port) == (CLUSTER_IP.masquerade, 30080)


def test_flows_may_stay_with_endpoints_that_another_mode_gave_them() -> None:
    portals, given = Portals(), plan(NODE_PORT, protocol=Protocol.UDP, serving=(FAR,))
    (service,) = portals.relayed(given, NODE, numbered(portals.ports(given, NODE))).services
    assert (service.serving, service.relay_sockets) == ((FAR,), (socket(40_001),))


def test_so_does_one_that_an_earlier_daemon_left_open() -> None:
    empty = msgspec.structs.replace(NODE_PORT, pool=Pool(PoolScope.LOCAL, ()), on_empty=OnEmpty.DROP)
    (opened,) = Portals().ports(plan(NODE_PORT, protocol=Protocol.UDP, serving=(FAR,)), NODE)
    given = plan(empty, protocol=Protocol.UDP, serving=(FAR,))
    assert Portals().ports(given, NODE) == ()
    portals = Portals()
    portals.adopt([opened.key])
    (kept,) = portals.ports(given, NODE)
    assert (kept.key, kept.endpoints) == (opened.key, ())
    assert kept.serving == {("10.0.0.2", 8080)}
    assert portals.ports(plan(empty, protocol=Protocol.UDP, serving=()), NODE) == ()
    elsewhere = Portals()
    elsewhere.adopt([opened.key])
    assert elsewhere.ports(given, OTHER) == ()


def test_a_daemon_that_keeps_no_sources_leaves_the_sockets_of_one_that_did() -> None:
    """They have no endpoint of their own, so a packet to one would get no answer."""
    given = plan(CLUSTER_IP, protocol=Protocol.UDP, serving=(FAR,))
    opened = Portals(keep_sources=True).ports(given, NODE)
    assert [port.keeps_source for port in opened] == [False, True]
    portals = Portals()
    portals.adopt([port.key for port in opened])
    found = portals.ports(given, NODE)
    assert [(port.key, bool(port.endpoints)) for port in found] == [(opened[0].key, True)]
    (service,) = portals.relayed(given, NODE, numbered(opened)).services
    assert service.frontends[0].pool.endpoints == (socket(40_001),)


def test_a_socket_of_datagrams_stays_open_for_its_flows_where_nothing_is_chosen_any_more() -> None:
    """A policy that has become Local on a node without an endpoint (``conntrack.udp.stays-on-policy-change``)."""
    empty = msgspec.structs.replace(NODE_PORT, pool=Pool(PoolScope.LOCAL, ()), on_empty=OnEmpty.DROP)
    portals = Portals()
    (opened,) = portals.ports(plan(NODE_PORT, protocol=Protocol.UDP, serving=(FAR,)), NODE)
    given = plan(empty, protocol=Protocol.UDP, serving=(FAR,))
    (kept,) = portals.ports(given, NODE)
    assert (kept.key, kept.endpoints, kept.frontends) == (
        opened.key,
        (),
        frozenset({RelayFrontend("", 30080)}),
    )
    assert kept.serving == {("10.0.0.2", 8080)}
    (service,) = portals.relayed(given, NODE, numbered((kept,))).services
    assert service.relay_sockets == (socket(40_001),)
    assert service.frontends[0].pool.endpoints == ()
    assert portals.ports(plan(empty, protocol=Protocol.UDP), NODE) == (), "no endpoint serves"


def test_a_socket_of_connections_is_closed_where_nothing_is_chosen_any_more() -> None:
    empty = msgspec.structs.replace(NODE_PORT, pool=Pool(PoolScope.LOCAL, ()), on_empty=OnEmpty.DROP)
    portals = Portals()
    assert len(portals.ports(plan(NODE_PORT), NODE)) == 1
    assert portals.ports(plan(empty), NODE) == ()


def test_sockets_of_datagrams_have_the_frontends_that_lead_there() -> None:
    """A frontend that leads all where it led some by a shortcut has lost the shortcut: those flows may go by another socket."""
    cluster, local = Portals().ports(plan(CLUSTER_IP, LOCAL, protocol=Protocol.UDP), NODE)
    assert (cluster.scope, set(cluster.frontends)) == (
        PoolScope.CLUSTER,
        {RelayFrontend("10.96.0.1", 80), RelayFrontend("", 30080, shortcut=True)},
    )
    assert (local.scope, list(local.frontends)) == (PoolScope.LOCAL, [RelayFrontend("", 30080)])
    assert not any(port.frontends for port in Portals().ports(plan(CLUSTER_IP, LOCAL), NODE))


def test_a_frontend_that_leads_nowhere_has_not_left_its_pool() -> None:
    """A policy that becomes Local before the node's endpoint is known: flows go on then, by the socket that has them."""
    nowhere = msgspec.structs.replace(LOCAL, pool=Pool(PoolScope.LOCAL, ()), shortcut=None)
    portals = Portals()
    (before,) = portals.ports(plan(CLUSTER_IP, NODE_PORT, protocol=Protocol.UDP), NODE)
    (meanwhile,) = portals.ports(plan(CLUSTER_IP, nowhere, protocol=Protocol.UDP), NODE)
    assert (
        before.frontends == meanwhile.frontends == {RelayFrontend("10.96.0.1", 80), RelayFrontend("", 30080)}
    )
    cluster, local = portals.ports(plan(CLUSTER_IP, LOCAL, protocol=Protocol.UDP), NODE)
    assert (cluster.key, cluster.frontends) == (
        before.key,
        frozenset({RelayFrontend("10.96.0.1", 80), RelayFrontend("", 30080, shortcut=True)}),
    )
    assert local.frontends == {RelayFrontend("", 30080)}


def test_a_socket_that_could_not_be_opened_is_a_refusal_until_it_can() -> None:
    drops = msgspec.structs.replace(NODE_PORT, on_empty=OnEmpty.DROP)
    portals, given = Portals(), plan(drops)
    ports = portals.ports(given, NODE)
    (failed,) = portals.relayed(given, NODE, {}).services
    assert (failed.frontends[0].pool.endpoints, failed.frontends[0].on_empty) == ((), OnEmpty.REJECT)
    (opened,) = portals.relayed(given, NODE, numbered(ports)).services
    assert (opened.frontends[0].pool.endpoints, opened.frontends[0].on_empty) == (
        (socket(40_001),),
        OnEmpty.DROP,
    )


def test_a_service_without_endpoints_has_no_socket_and_keeps_its_answer() -> None:
    empty = msgspec.structs.replace(NODE_PORT, pool=Pool(PoolScope.CLUSTER, ()), on_empty=OnEmpty.DROP)
    portals = Portals()
    assert portals.ports(plan(empty), NODE) == ()
    (service,) = portals.relayed(plan(empty), NODE, {}).services
    assert (service.frontends[0].pool.endpoints, service.frontends[0].on_empty) == ((), OnEmpty.DROP)


def test_what_the_relay_does_not_speak_is_in_no_rule() -> None:
    portals, given = Portals(), plan(NODE_PORT, protocol=Protocol.SCTP)
    assert portals.ports(given, NODE) == ()
    assert portals.relayed(given, NODE, {}).services == ()


@pytest.mark.parametrize("change", ["nothing", "plan", "address", "number"])
def test_what_did_not_change_is_the_same_object(change: str) -> None:
    portals, given = Portals(), plan(NODE_PORT)
    first = portals.relayed(given, NODE, numbered(portals.ports(given, NODE)))
    again: Plan = replace(given, services=plan(NODE_PORT).services) if change == "plan" else given
    address = OTHER if change == "address" else NODE
    ports = portals.ports(again, address)
    numbers = dict.fromkeys(numbered(ports), 50000) if change == "number" else numbered(ports)
    second = portals.relayed(again, address, numbers)
    assert (second.services[0] is first.services[0]) == (change == "nothing")


def socket(number: int) -> PoolEndpoint:
    return PoolEndpoint(NODE, number, may_be_here=True)
