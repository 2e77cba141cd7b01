"""Health check node ports: what they report, and when they are open (``hcnp.*``)."""

import json
import socket
from collections.abc import Iterator
from dataclasses import replace
from http import HTTPStatus
from ipaddress import ip_address

import pytest

from kproxy.linux import descriptors
from kproxy.linux.descriptors import Purpose
from kproxy.model.network import Address, Family
from kproxy.proxy.daemon.http.ports import HttpServer, ListeningPort
from kproxy.proxy.daemon.http.protocol import Handler, HttpRequest
from kproxy.proxy.daemon.http.service_health import ServiceHealthServer, health_check_response
from kproxy.proxy.plan import HealthCheck, NodePorts, Plan
from tests.support.plans import plan_of

WEB, OTHER = ("test", "web"), ("test", "other")
LOOPBACK: Address = ip_address("127.0.0.1")
EVERYWHERE = NodePorts(None, localhost=True)


def plan(*checks: HealthCheck, node_ports: NodePorts | None = None, family: Family = Family.IPV4) -> Plan:
    restricted = NodePorts((LOOPBACK,), localhost=False)
    empty = plan_of(family=family, node_ports=node_ports or restricted, detector=None)
    return replace(empty, health_checks=checks)


@pytest.mark.parametrize(
    ("endpoints", "up_to_date", "status"),
    [(2, True, 200), (0, True, 503), (2, False, 503), (0, False, 503)],
)
def test_it_is_well_with_a_local_endpoint_and_rules_that_are_up_to_date(
    *, endpoints: int, up_to_date: bool, status: int
) -> None:
    answer = health_check_response(HealthCheck(WEB, 30000, endpoints), up_to_date=up_to_date)
    assert answer.status == status
    assert answer.content_type == "application/json"
    assert answer.headers["X-Load-Balancing-Endpoint-Weight"] == str(endpoints)
    assert json.loads(answer.body) == {
        "service": {"namespace": "test", "name": "web"},
        "localEndpoints": endpoints,
        "serviceProxyHealthy": up_to_date,
    }


def test_the_body_is_kube_proxys_byte_for_byte() -> None:
    """Observed: kube-proxy 1.36 on a node."""
    answer = health_check_response(HealthCheck(("default", "web"), 32000, 1), up_to_date=True)
    assert answer.body == (
        b'{\n\t"service": {\n\t\t"namespace": "default",\n\t\t"name": "web"\n\t},\n'
        b'\t"localEndpoints": 1,\n\t"serviceProxyHealthy": true\n}'
    )


class Recorded(HttpServer):
    """Ports that are noted and not opened; those in ``taken`` are somebody else's."""

    def __init__(self) -> None:
        super().__init__()
        self.open: dict[tuple[str, int], Handler] = {}
        self.taken: set[tuple[str, int]] = set()
        self._places: dict[int, tuple[str, int]] = {}

    def listen(self, address: Address, port: int, handler: Handler, *, both: bool = False) -> ListeningPort:
        place = (str(address), port)
        assert not both
        if place in self.taken or place in self.open:
            raise OSError(98, "Address already in use")
        self.open[place] = handler
        listener = ListeningPort(socket.socket(), handler)
        self._places[id(listener)] = place
        return listener

    def close(self, listener: ListeningPort) -> None:
        listener.socket.close()
        del self.open[self._places.pop(id(listener))]


class World:
    """One family's ports, with a proxy whose health is at the test's will."""

    def __init__(self, family: Family = Family.IPV4) -> None:
        self.ports = Recorded()
        self.up_to_date = True
        self.complaints: list[tuple[tuple[str, str], str]] = []
        self.checks = ServiceHealthServer(
            family,
            self.ports,
            lambda: self.up_to_date,
            lambda service, why: self.complaints.append((service, why)),
        )

    def status(self, place: tuple[str, int], path: str = "/") -> HTTPStatus:
        return self.ports.open[place](HttpRequest("GET", path)).status


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.checks.update(plan())
    assert made.ports.open == {}


HERE = ("127.0.0.1", 30000)
THERE = ("127.0.0.1", 30001)


def test_a_port_opens_with_its_service_and_closes_with_it(world: World) -> None:
    world.checks.update(plan())
    assert world.ports.open == {}
    world.checks.update(plan(HealthCheck(WEB, 30000, 1)))
    assert world.status(HERE) == 200
    world.checks.update(plan())
    assert world.ports.open == {}


def test_the_count_follows_the_plan_while_the_port_stays_open(world: World) -> None:
    world.checks.update(plan(HealthCheck(WEB, 30000, 1)))
    handler = world.ports.open[HERE]
    assert world.status(HERE) == 200
    world.checks.update(plan(HealthCheck(WEB, 30000, 0)))
    assert world.ports.open[HERE] is handler
    assert world.status(HERE) == 503


def test_a_port_moves_with_its_service_also_to_another_one(world: World) -> None:
    world.checks.update(plan(HealthCheck(WEB, 30000, 1), HealthCheck(OTHER, 30001, 0)))
    world.checks.update(plan(HealthCheck(WEB, 30001, 1), HealthCheck(OTHER, 30000, 0)))
    assert world.complaints == []
    assert world.status(THERE) == 200
    assert world.status(HERE) == 503


def test_stale_rules_make_all_ports_unwell(world: World) -> None:
    world.checks.update(plan(HealthCheck(WEB, 30000, 1)))
    world.up_to_date = False
    assert world.status(HERE) == 503
    world.up_to_date = True
    assert world.status(HERE) == 200


@pytest.mark.parametrize("path", ["/", "/healthz", "/anything?x"])
def test_every_path_is_answered(world: World, path: str) -> None:
    world.checks.update(plan(HealthCheck(WEB, 30000, 1)))
    assert world.status(HERE, path) == 200


@pytest.mark.parametrize(("family", "wildcard"), [(Family.IPV4, "0.0.0.0"), (Family.IPV6, "::")])
def test_without_node_port_addresses_it_listens_at_all_addresses_of_its_family(
    family: Family, wildcard: str
) -> None:
    world = World(family)
    world.checks.update(plan(HealthCheck(WEB, 30000, 1), node_ports=EVERYWHERE, family=family))
    assert set(world.ports.open) == {(wildcard, 30000)}
    world.checks.update(plan(family=family))
    assert world.ports.open == {}


def test_with_node_port_addresses_it_listens_there_only_and_follows_them(world: World) -> None:
    first, second = ip_address("192.0.2.1"), ip_address("192.0.2.2")
    check = HealthCheck(WEB, 30000, 1)
    world.checks.update(plan(check, node_ports=NodePorts((first,), localhost=False)))
    assert set(world.ports.open) == {("192.0.2.1", 30000)}
    world.checks.update(plan(check, node_ports=NodePorts((second,), localhost=True)))
    assert set(world.ports.open) == {("192.0.2.2", 30000), HERE}


def test_a_port_that_is_taken_is_reported_once_tried_again_and_costs_no_other_service(world: World) -> None:
    both = plan(HealthCheck(WEB, 30000, 1), HealthCheck(OTHER, 30001, 1))
    world.ports.taken = {HERE}
    for _ in range(3):
        world.checks.update(both)
    assert set(world.ports.open) == {THERE}
    [(service, why)] = world.complaints
    assert service == WEB
    assert "30000" in why
    assert "in use" in why
    world.ports.taken = set()
    world.checks.update(both)
    assert set(world.ports.open) == {HERE, THERE}


def test_a_port_that_is_lost_again_is_reported_again(world: World) -> None:
    wanted = plan(HealthCheck(WEB, 30000, 1))
    for _ in range(2):
        world.ports.taken = {HERE}
        world.checks.update(wanted)
        world.ports.taken = set()
        world.checks.update(wanted)
        world.checks.update(plan())
    assert len(world.complaints) == 2


def test_one_address_that_is_not_ready_takes_nothing_from_the_others(world: World) -> None:
    first, second = ip_address("192.0.2.1"), ip_address("192.0.2.2")
    wanted = plan(HealthCheck(WEB, 30000, 1), node_ports=NodePorts((first, second), localhost=False))
    world.ports.taken = {("192.0.2.1", 30000)}
    world.checks.update(wanted)
    assert set(world.ports.open) == {("192.0.2.2", 30000)}
    world.ports.taken = set()
    world.checks.update(wanted)
    assert len(world.ports.open) == 2


def test_when_descriptors_run_out_no_port_takes_those_kept_for_the_rest_and_it_is_reported_once(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    places = [HealthCheck(("test", f"web-{n}"), 30000 + n, 1) for n in range(6)]
    with monkeypatch.context() as scarce:
        scarce.setattr(
            descriptors,
            "is_reserved",
            lambda _, purpose: purpose is Purpose.LISTENER and len(world.ports.open) > 2,
        )
        before = descriptors.shortages.get(Purpose.LISTENER, 0)
        for _ in range(3):
            world.checks.update(plan(*places))
        assert set(world.ports.open) == {("127.0.0.1", 30000), ("127.0.0.1", 30001)}
        assert descriptors.shortages.get(Purpose.LISTENER, 0) == before + 3, (
            "one try at each look, not one a port"
        )
    [(service, why)] = world.complaints
    assert service == ("test", "web-2")
    assert "4 health check node ports" in why
    assert "LimitNOFILE" in why
    world.checks.update(plan(*places))
    assert len(world.ports.open) == 6
    assert len([r for r in caplog.records if r.levelname == "ERROR"]) == 1


def test_while_all_is_open_a_look_costs_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = plan(HealthCheck(WEB, 30000, 1))
    world.checks.update(wanted)
    with monkeypatch.context() as idle:
        idle.setattr(world.checks, "_open", None)
        world.checks.update(wanted)
    assert world.status(HERE) == 200
