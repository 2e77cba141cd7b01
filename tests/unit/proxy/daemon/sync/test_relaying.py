"""The dataplane with a relay beside it: ports of each plan that was applied, and of no other."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from ipaddress import ip_address

import msgspec
import pytest

from kproxy.linux import conntrack
from kproxy.linux.conntrack import UdpFlow
from kproxy.linux.host import HostError, Reason
from kproxy.model.network import Family, Protocol
from kproxy.proxy.backends import Applied
from kproxy.proxy.daemon.http.live_metrics import relay_metrics
from kproxy.proxy.daemon.sync.relaying import PortalDataplane, RelayingDataplane
from kproxy.proxy.plan import Plan, Pool, PoolScope
from kproxy.proxy.relay.portals import Portals
from kproxy.proxy.relay.relay import LocalRelay
from tests.support.node_port_plans import FAR, NEAR, NODE_PORT, plan


class Rules:
    """A dataplane that only records."""

    def __init__(self) -> None:
        self.refuses = self.forgotten = False

    def apply(self, _: Plan) -> Applied:
        if self.refuses:
            raise HostError("write", "no", Reason.OTHER)
        return Applied(changes={"rules": 1})

    def find_drift(self, *, thorough: bool) -> tuple[str, ...]:
        return ("gone",) if thorough else ()

    def notifiers(self) -> tuple[int, ...]:
        return ()

    def refresh_options(self) -> bool:
        return True

    def forget(self) -> None:
        self.forgotten = True


def test_ports_follow_the_plans_that_were_applied() -> None:
    rules, relay = Rules(), LocalRelay(4)
    plane = RelayingDataplane(rules, relay)
    try:
        assert plane.apply(plan(NODE_PORT)).changes == {"rules": 1}
        socket.create_connection(("127.0.0.1", NODE_PORT.port), timeout=5).close()
        rules.refuses = True
        with pytest.raises(HostError):
            plane.apply(plan())
        socket.create_connection(("127.0.0.1", NODE_PORT.port), timeout=5).close()
        rules.refuses = False
        plane.apply(plan())
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", NODE_PORT.port), timeout=5)
    finally:
        relay.start()
        relay.close()


def test_all_else_is_the_modes_own() -> None:
    rules, relay = Rules(), LocalRelay(4)
    plane = RelayingDataplane(rules, relay)
    assert (plane.find_drift(thorough=True), plane.find_drift(thorough=False)) == (("gone",), ())
    assert plane.refresh_options()
    plane.forget()
    assert rules.forgotten
    relay.close()


def test_metrics_are_those_of_a_relay_that_runs() -> None:
    """Metrics ``kproxy_relay_open_connections``, ``kproxy_relay_connections``, ``kproxy_relay_retries``, ``kproxy_relay_limited``."""
    relay = LocalRelay(4)
    relay.counts.retries = 3
    samples = [sample for metric in relay_metrics({Family.IPV6: relay}) for sample in metric.samples]
    found = {sample.name: sample.value for sample in samples}
    assert all(sample.labels == {"ip_family": "IPv6"} for sample in samples)
    assert found == {
        "kproxy_relay_open_connections": 0,
        "kproxy_relay_connections_total": 0,
        "kproxy_relay_retries_total": 3,
        "kproxy_relay_limited_total": 0,
    }
    assert list(relay_metrics({})) == []
    relay.close()


class PortalRules(Rules):
    """Rules that keep the plan they were given last."""

    def __init__(self) -> None:
        super().__init__()
        self.given: list[Plan] = []

    def apply(self, given: Plan) -> Applied:
        applied = super().apply(given)
        self.given.append(given)
        return applied


@pytest.fixture
def portals() -> Iterator[tuple[PortalRules, LocalRelay, PortalDataplane]]:
    rules, relay = PortalRules(), LocalRelay(4)
    addresses = [ip_address("127.0.0.1"), ip_address("192.0.2.7"), ip_address("127.0.0.2")]
    plane = PortalDataplane(rules, relay, Portals(), lambda: addresses)
    plane._choose_address = lambda *_: ip_address("127.0.0.2")  # type: ignore[method-assign] # one to bind to
    yield rules, relay, plane
    relay.start()
    relay.close()


Opened = tuple[PortalRules, LocalRelay, PortalDataplane]


def test_rules_are_given_sockets_that_are_open(portals: Opened) -> None:
    rules, _, plane = portals
    applied = plane.apply(plan(NODE_PORT))
    (socket_,) = rules.given[-1].services[0].frontends[0].pool.endpoints
    socket.create_connection((str(socket_.address), socket_.port), timeout=5).close()
    assert applied.tracked == rules.given[-1]
    plane.apply(plan())
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((str(socket_.address), socket_.port), timeout=5)


def test_a_daemon_that_starts_keeps_the_sockets_that_flows_of_an_earlier_one_need(portals: Opened) -> None:
    """A policy became Local on a node without an endpoint, and flows stay (``conntrack.udp.stays-on-policy-change``)."""
    rules, relay, plane = portals
    empty = msgspec.structs.replace(NODE_PORT, pool=Pool(PoolScope.LOCAL, ()))
    plane.apply(plan(NODE_PORT, protocol=Protocol.UDP, serving=(FAR,)))
    opened = relay.numbers()
    plane.apply(plan(empty, protocol=Protocol.UDP, serving=(FAR,)))
    assert relay.numbers() == opened
    again = PortalDataplane(rules, relay, Portals(), plane._addresses)
    again._choose_address = plane._choose_address  # type: ignore[method-assign]
    again.apply(plan(empty, protocol=Protocol.UDP, serving=(FAR,)))
    assert relay.numbers() == opened
    assert [one.port for one in rules.given[-1].services[0].relay_sockets] == list(opened.values())


def test_a_daemon_that_starts_ends_the_flows_of_sockets_that_it_closes(
    portals: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their Service went while no daemon ran; it is the relay's sockets by which its flows are known."""
    rules, relay, plane = portals
    plane.apply(plan(NODE_PORT, protocol=Protocol.UDP))
    ((_, number),) = relay.numbers().items()
    node, client = ip_address("192.0.2.7"), b"of a client"
    closed, other = (
        UdpFlow(Family.IPV4, (node, 30000), (ip_address("127.0.0.2"), reply), client)
        for reply in (number, number + 1)
    )
    deleted: list[UdpFlow] = []
    monkeypatch.setattr(conntrack, "list_udp_flows", lambda *_: iter([closed, other]))
    monkeypatch.setattr(conntrack, "delete_flows", deleted.extend)
    again = PortalDataplane(rules, relay, Portals(), plane._addresses)
    again._choose_address = plane._choose_address  # type: ignore[method-assign]
    rules.refuses = True
    with pytest.raises(HostError):
        again.apply(plan())
    assert (deleted, len(relay.numbers())) == ([], 1), "rules lead there still"
    rules.refuses = False
    again.apply(plan())
    again.apply(plan())
    assert (deleted, relay.numbers()) == ([closed], {})


def test_flows_end_with_their_socket_whatever_address_they_were_sent_to(
    portals: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To an external IP that the Service lost while no daemon ran, and the socket was in use for other frontends still."""
    rules, relay, plane = portals
    plane.apply(plan(NODE_PORT, protocol=Protocol.UDP))
    ((_, number),) = relay.numbers().items()
    lost = ip_address("203.0.113.9"), 80
    flow = UdpFlow(Family.IPV4, lost, (ip_address("127.0.0.2"), number), b"of a client")
    deleted: list[UdpFlow] = []
    monkeypatch.setattr(conntrack, "list_udp_flows", lambda *_: iter([flow]))
    monkeypatch.setattr(conntrack, "delete_flows", deleted.extend)
    plane.apply(plan(NODE_PORT, protocol=Protocol.UDP))
    assert deleted == []
    rules.refuses = True
    with pytest.raises(HostError):
        plane.apply(plan())
    assert deleted == []
    rules.refuses = False
    plane.apply(plan())
    assert deleted == [flow]


def test_what_the_kernel_refuses_changes_no_endpoint(portals: Opened) -> None:
    rules, relay, plane = portals
    plane.apply(plan(NODE_PORT))
    before = list(relay._served.values())
    rules.refuses = True
    fewer = msgspec.structs.replace(NODE_PORT, pool=Pool(PoolScope.CLUSTER, (NEAR,)))
    with pytest.raises(HostError):
        plane.apply(plan(fewer))
    assert list(relay._served.values()) == before
    rules.refuses = False
    plane.apply(plan(fewer))
    assert [port.endpoints for port in relay._served.values()] == [(("10.0.0.1", 8080),)]


def test_the_loss_of_the_sockets_address_is_drift(portals: Opened) -> None:
    _, _, plane = portals
    plane.apply(plan(NODE_PORT))
    assert plane.find_drift(thorough=False) == ()
    plane._addresses = lambda: [ip_address("192.0.2.7")]
    assert plane.find_drift(thorough=False) == ("address 127.0.0.2",)


def test_the_address_is_one_that_others_can_send_to_and_stays() -> None:
    plane = PortalDataplane(PortalRules(), relay := LocalRelay(4), Portals(), tuple)
    usable = [ip_address("192.0.2.9"), ip_address("192.0.2.7")]
    unusable = [ip_address("127.0.0.1"), ip_address("169.254.1.1")]
    assert plane._choose_address(Family.IPV4, [*unusable, *usable]) == ip_address("192.0.2.7")
    plane._address = ip_address("192.0.2.9")
    assert plane._choose_address(Family.IPV4, [*unusable, *usable]) == ip_address("192.0.2.9")
    with pytest.raises(HostError, match="no IPv4 address"):
        plane._choose_address(Family.IPV4, unusable)
    relay.close()
