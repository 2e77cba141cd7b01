"""Stale UDP entries on the real kernel: clients that keep their socket follow their service.

One namespace with all addresses on ``lo``; a client with one socket, so with one conntrack entry.
"""

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from ipaddress import ip_network

import pytest

from kproxy.lab import namespaces
from kproxy.linux import conntrack, host
from kproxy.linux.node_addresses import AddressMonitor
from kproxy.model.network import Family, Protocol
from kproxy.proxy.backends.iptables.kernel import IptablesKernel, find_tools
from kproxy.proxy.backends.iptables.static_rules import Options
from kproxy.proxy.backends.ipvs.names import DEVICE
from kproxy.proxy.daemon.sync.conntrack_cleanup import ConntrackCleaner
from kproxy.proxy.plan import Exposure, Plan, ServicePlan
from tests.support.plans import frontend, plan_of, pool, service
from tests.support.waiting import await_bindable

PORT, TARGET, NODE_PORT = 53, 5353, 30053
FAMILIES = {
    Family.IPV4: (socket.AF_INET, "10.0.0.{}", "10.96.0.10", "32"),
    Family.IPV6: (socket.AF_INET6, "fd00:10::{}", "fd00:96::10", "128"),
}


def _ip(*arguments: str) -> None:
    host.run_tool(("ip", *arguments))


class World:
    """A namespace with two servers, a client, and a node (number 9) that is all of them."""

    def __init__(self, family: Family) -> None:
        self.family = family
        self.kind, self._address, self.vip, bits = FAMILIES[family]
        self._wire(bits)
        self.kernel = IptablesKernel(find_tools(family))
        self.stale = ConntrackCleaner(family, AddressMonitor(family, DEVICE).current)
        self.servers = {number: self.bound(self.address(number), TARGET) for number in (1, 2)}

    def _wire(self, bits: str) -> None:
        """The VIP is routed out of a link, whose other end does not know it."""
        for number in (1, 2, 9):
            _ip("addr", "add", f"{self.address(number)}/{bits}", "dev", "lo")
        _ip("link", "add", "out", "type", "veth", "peer", "name", "beyond")
        for link in ("lo", "out", "beyond"):
            _ip("link", "set", link, "up")
        await_bindable(*map(self.address, (1, 2, 9)))
        _ip("route", "add", f"{self.vip}/{bits}", "dev", "out")
        _ip("neigh", "add", self.vip, "lladdr", "02:00:00:00:00:01", "dev", "out", "nud", "permanent")

    def address(self, number: int) -> str:
        return self._address.format(number)

    def bound(self, address: str, port: int = 0) -> socket.socket:
        made = socket.socket(self.kind, socket.SOCK_DGRAM)
        made.bind((address, port))
        made.settimeout(0.3)
        return made

    def client(self, destination: str, port: int) -> socket.socket:
        made = self.bound(self.address(9))
        made.connect((destination, port))
        return made

    def dns(self, *numbers: int, protocol: Protocol = Protocol.UDP) -> ServicePlan:
        separator = ":" if self.family is Family.IPV4 else "#"
        reached = pool(*(f"{self.address(number)}{separator}{TARGET}" for number in numbers))
        fronts = (
            frontend(Exposure.CLUSTER_IP, self.vip, PORT, reached),
            frontend(Exposure.NODE_PORT, None, NODE_PORT, reached),
        )
        return service(*fronts, name=f"ns/dns:{protocol.value.lower()}", protocol=protocol)

    def plan(self, *services: ServicePlan) -> Plan:
        return plan_of(*services, family=self.family, detector=None)

    def apply(self, *services: ServicePlan) -> None:
        self.kernel.apply(self.plan(*services), Options())

    def remove(self, *services: ServicePlan) -> int:
        return self.stale.remove(self.plan(*services))

    def receiver(self, client: socket.socket) -> int | None:
        """Which server gets what the client sends now."""
        try:
            client.send(b"?")
        except ConnectionRefusedError:
            client.send(b"?")  # that was the answer to an earlier one
        for number, server in self.servers.items():
            try:
                server.recv(10)
            except TimeoutError:
                continue
            return number
        return None


@pytest.fixture(params=list(Family), ids=lambda family: family.value)
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    namespace = namespaces.create_namespace("conntrack")
    with namespace.entered():
        found = World(request.param)
        yield found
        for server in found.servers.values():
            server.close()
    namespace.close()


@pytest.fixture(params=["cluster IP", "node port"])
def client(request: pytest.FixtureRequest, world: World) -> Iterator[socket.socket]:
    world.apply()
    place = (world.vip, PORT) if request.param == "cluster IP" else (world.address(9), NODE_PORT)
    with closing(world.client(*place)) as made:
        yield made


def test_a_client_moves_to_an_endpoint_that_is_still_there(world: World, client: socket.socket) -> None:
    world.apply(world.dns(1))
    assert world.remove(world.dns(1)) == 0
    assert world.receiver(client) == 1
    world.apply(world.dns(2))
    assert world.receiver(client) == 1, "positive control: the old entry holds the client"
    assert world.remove(world.dns(2)) == 1
    assert world.receiver(client) == 2


def test_a_client_of_an_emptied_service_is_refused(world: World, client: socket.socket) -> None:
    world.apply(world.dns(1))
    world.remove(world.dns(1))
    assert world.receiver(client) == 1
    world.apply(world.dns())
    assert world.receiver(client) == 1, "positive control: nobody refuses a connection that is known"
    assert world.remove(world.dns()) == 1
    assert refused(client)


def test_a_client_from_before_the_endpoints_is_served(world: World) -> None:
    """At a VIP that is nobody's yet: its entry is not translated (kubernetes/kubernetes#48370)."""
    world.apply()
    with closing(world.client(world.vip, PORT)) as client:
        assert world.receiver(client) is None
        world.apply(world.dns(1))
        assert world.receiver(client) is None, "positive control: the old entry holds the client"
        assert world.remove(world.dns(1)) == 1
        assert world.receiver(client) == 1


def test_a_client_that_came_while_rules_were_missing_is_served_once_they_are_back(world: World) -> None:
    """Universe 56016: another program's rules stood in their place, and the datagrams of a flow passed by, also afterwards."""
    world.apply(world.dns(1))
    world.remove(world.dns(1))
    host.run_tool(("iptables" if world.family is Family.IPV4 else "ip6tables", "-t", "nat", "-F", "OUTPUT"))
    with closing(world.client(world.vip, PORT)) as client:
        assert world.receiver(client) is None
        world.kernel.forget()
        world.apply(world.dns(1))
        assert world.remove(world.dns(1)) == 0, "the plan is the same"
        assert world.receiver(client) is None, "positive control: the entry holds the client"
        world.stale.forget()
        assert world.remove(world.dns(1)) == 1
        assert world.receiver(client) == 1


def test_a_client_of_a_deleted_service_no_longer_reaches_its_endpoint(
    world: World, client: socket.socket
) -> None:
    world.apply(world.dns(1))
    world.remove(world.dns(1))
    assert world.receiver(client) == 1
    world.apply()
    assert world.receiver(client) == 1, "positive control: the old entry holds the client"
    assert world.remove() == 1
    assert refused(client) or world.receiver(client) is None


def refused(client: socket.socket) -> bool:
    """Whether what the client sends is answered by ICMP; a sender on the node itself may see EPERM."""
    try:
        for _ in range(3):
            client.send(b"?")
            time.sleep(0.05)  # the answer becomes the next call's error
    except (PermissionError, ConnectionRefusedError):
        return True
    return False


def test_entries_from_before_the_start_are_looked_at(world: World, client: socket.socket) -> None:
    world.apply(world.dns(1))
    assert world.receiver(client) == 1
    world.apply(world.dns(2))
    world.stale = ConntrackCleaner(world.family, AddressMonitor(world.family, DEVICE).current)
    assert world.remove(world.dns(2)) == 1
    assert world.receiver(client) == 2


def test_entries_of_a_service_that_went_while_no_proxy_ran_go(world: World, client: socket.socket) -> None:
    world.apply(world.dns(1))
    assert world.receiver(client) == 1
    world.stale = ConntrackCleaner(world.family, AddressMonitor(world.family, DEVICE).current)
    assert world.stale.remove(plan_of(family=world.family)) == 0, "what the address was is not known yet"
    known = replace(plan_of(family=world.family), service_cidrs=(ip_network(world.vip),))
    in_range = [place for place in destinations(world) if place[0] == world.vip]
    assert world.stale.remove(known) == len(in_range), "a node port is in no range"


def test_other_flows_stay(world: World) -> None:
    """Another port of the same address (kubernetes/kubernetes#129982), the node port's number elsewhere, TCP."""
    tcp = world.dns(1, protocol=Protocol.TCP)
    world.apply(world.dns(1), tcp)
    world.remove(world.dns(1), tcp)
    places = ((world.vip, 8472), (world.vip, NODE_PORT), (world.address(2), TARGET), (world.vip, PORT))
    clients = [world.client(*place) for place in places]
    listener = socket.create_server((world.address(1), TARGET), family=world.kind)
    connection = socket.create_connection((world.vip, PORT), timeout=2)
    accepted, _ = listener.accept()
    try:
        for client in clients:
            world.receiver(client)
        assert len(destinations(world)) == len(places)
        world.apply(world.dns())
        assert world.remove(world.dns()) == 1
        assert destinations(world) == set(places) - {(world.vip, PORT)}
        connection.send(b"still here")
        assert accepted.recv(20) == b"still here"
    finally:
        for each in (*clients, listener, connection, accepted):
            each.close()


def destinations(world: World) -> set[tuple[str, int]]:
    flows = conntrack.list_udp_flows(world.family, lambda _: True)
    return {(str(address), port) for address, port in (flow.destination for flow in flows)}


def test_an_unchanged_plan_costs_no_look(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[Family] = []
    dump = conntrack.list_udp_flows

    def counted(family: Family, wanted: Callable[[conntrack.Socket], bool]) -> Iterator[conntrack.UdpFlow]:
        looks.append(family)
        return dump(family, wanted)

    monkeypatch.setattr(conntrack, "list_udp_flows", counted)
    plans = [
        world.plan(world.dns(1)),
        world.plan(world.dns(1)),
        world.plan(world.dns(2)),
        world.plan(),
        world.plan(),
    ]
    for plan in plans:
        world.stale.remove(plan)
    assert len(looks) == 3
