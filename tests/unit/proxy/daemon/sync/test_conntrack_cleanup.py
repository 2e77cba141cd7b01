"""Which UDP flows contradict the plan.  No kernel: the decision alone."""

from ipaddress import ip_address

import msgspec
import pytest

from kproxy.linux.conntrack import UdpFlow
from kproxy.model.network import Family, Protocol
from kproxy.proxy.daemon.sync.conntrack_cleanup import UdpFrontends, is_stale, udp_frontends
from kproxy.proxy.plan import (
    Exposure,
    Frontend,
    MasqueradePolicy,
    NodePorts,
    OnEmpty,
    Pool,
    PoolEndpoint,
    PoolScope,
    ServicePlan,
    ServicePortName,
)
from tests.support.plans import plan_of

DNS = ("10.96.0.10", 53)
NODE_PORT = 30053
NODE = "192.0.2.1"
FIRST, SECOND = ("10.0.0.1", 5353), ("10.0.0.2", 5353)


def flow(destination: tuple[str, int], answered_by: tuple[str, int]) -> UdpFlow:
    to, by = ((ip_address(address), port) for address, port in (destination, answered_by))
    return UdpFlow(Family.IPV4, to, by, b"")


def endpoints(*places: tuple[str, int]) -> tuple[PoolEndpoint, ...]:
    return tuple(PoolEndpoint(ip_address(address), port, may_be_here=False) for address, port in places)


def dns(
    *places: tuple[str, int], protocol: Protocol = Protocol.UDP, serving: tuple[tuple[str, int], ...] = ()
) -> ServicePlan:
    def frontend(exposure: Exposure, address: str | None, port: int) -> Frontend:
        return Frontend(
            exposure=exposure,
            address=None if address is None else ip_address(address),
            port=port,
            pool=Pool(PoolScope.CLUSTER, endpoints(*places)),
            on_empty=OnEmpty.REJECT,
            masquerade=MasqueradePolicy.ALWAYS,
        )

    return ServicePlan(
        name=ServicePortName("kube-system", "kube-dns", "dns", protocol.value),
        protocol=protocol,
        frontends=(
            frontend(Exposure.CLUSTER_IP, *DNS),
            frontend(Exposure.LOAD_BALANCER, "203.0.113.1", 53),
            frontend(Exposure.NODE_PORT, None, NODE_PORT),
        ),
        affinity_seconds=None,
        serving=endpoints(*serving),
    )


def frontends(*services: ServicePlan, ports: NodePorts | None = None) -> UdpFrontends:
    plan = plan_of(*services, node_ports=ports, detector=None)
    return udp_frontends(plan, map(ip_address, (NODE, "127.0.0.1", "fd00::1")))


NOTHING = UdpFrontends()
TO_EVERY_FRONTEND = pytest.mark.parametrize(
    "destination", [DNS, ("203.0.113.1", 53), (NODE, NODE_PORT), ("127.0.0.1", NODE_PORT)]
)


@TO_EVERY_FRONTEND
def test_a_flow_to_an_endpoint_that_serves_stays(destination: tuple[str, int]) -> None:
    assert not is_stale(flow(destination, FIRST), NOTHING, frontends(dns(FIRST, SECOND)))


@TO_EVERY_FRONTEND
def test_a_flow_to_an_endpoint_that_went_is_stale(destination: tuple[str, int]) -> None:
    assert is_stale(flow(destination, FIRST), NOTHING, frontends(dns(SECOND)))


@TO_EVERY_FRONTEND
def test_a_flow_of_an_emptied_service_is_stale_so_that_its_client_sees_the_refusal(
    destination: tuple[str, int],
) -> None:
    assert is_stale(flow(destination, FIRST), NOTHING, frontends(dns()))


@TO_EVERY_FRONTEND
def test_a_flow_from_before_there_were_endpoints_is_stale(destination: tuple[str, int]) -> None:
    assert is_stale(flow(destination, destination), NOTHING, frontends(dns(FIRST)))


@TO_EVERY_FRONTEND
def test_a_flow_of_a_deleted_service_is_stale(destination: tuple[str, int]) -> None:
    before = frontends(dns(FIRST))
    assert is_stale(flow(destination, FIRST), before, NOTHING)
    assert not is_stale(flow(destination, destination), before, NOTHING), "never was the service's"


def test_a_changed_target_port_is_another_endpoint() -> None:
    assert is_stale(flow(DNS, ("10.0.0.1", 53)), NOTHING, frontends(dns(FIRST)))


@pytest.mark.parametrize(
    "destination",
    [
        (DNS[0], 8472),  # same address, other port: kubernetes/kubernetes#129982
        ("198.51.100.7", NODE_PORT),  # same port, somewhere beyond this node
        (NODE, 53),
        ("10.0.0.1", 5353),
    ],
)
def test_a_flow_to_what_is_no_frontend_stays(destination: tuple[str, int]) -> None:
    now = frontends(dns(SECOND))
    assert is_stale(flow(DNS, FIRST), now, now), "positive control"
    assert not is_stale(flow(destination, FIRST), now, now)


def test_an_endpoint_that_serves_but_takes_nothing_new_keeps_its_flows() -> None:
    assert is_stale(flow(DNS, FIRST), NOTHING, frontends(dns(SECOND)))
    assert not is_stale(flow(DNS, FIRST), NOTHING, frontends(dns(SECOND, serving=(FIRST,))))


@pytest.mark.parametrize("protocol", [Protocol.TCP, Protocol.SCTP])
def test_only_udp_has_frontends(protocol: Protocol) -> None:
    assert not frontends(dns(FIRST, protocol=protocol))
    assert frontends(dns(FIRST))


def test_node_ports_count_only_at_the_addresses_of_the_plan() -> None:
    other = ip_address("192.0.2.9")
    restricted = frontends(dns(SECOND), ports=NodePorts((other,), localhost=False))
    assert is_stale(flow((str(other), NODE_PORT), FIRST), NOTHING, restricted)
    for address in (NODE, "127.0.0.1"):
        assert not is_stale(flow((address, NODE_PORT), FIRST), NOTHING, restricted)


def test_loopback_is_no_node_port_address_where_localhost_is_off() -> None:
    off = frontends(dns(SECOND), ports=NodePorts(None, localhost=False))
    assert not is_stale(flow(("127.0.0.1", NODE_PORT), FIRST), NOTHING, off)
    assert is_stale(flow((NODE, NODE_PORT), FIRST), NOTHING, off)


# ------------------------------------------------------------------------------ the relay's sockets

CLUSTER_SOCKET, LOCAL_SOCKET = (NODE, 40_001), (NODE, 40_002)


def relayed(node_port: tuple[tuple[str, int], ...]) -> UdpFrontends:
    """A Service whose cluster IP leads to the socket of all endpoints, and its node port to these."""
    sockets = endpoints(CLUSTER_SOCKET, LOCAL_SOCKET)
    service = msgspec.structs.replace(dns(CLUSTER_SOCKET, serving=(FIRST,)), relay_sockets=sockets)
    internal, external, by_node = service.frontends
    moved = msgspec.structs.replace(by_node, pool=Pool(PoolScope.LOCAL, endpoints(*node_port)))
    plan = plan_of(msgspec.structs.replace(service, frontends=(internal, external, moved)), detector=None)
    return udp_frontends(plan, [ip_address(NODE)])


def test_a_flow_whose_frontend_leads_to_another_socket_chooses_anew_by_the_rules() -> None:
    before, now = relayed((CLUSTER_SOCKET,)), relayed((LOCAL_SOCKET,))
    at_node_port = flow((NODE, NODE_PORT), CLUSTER_SOCKET)
    assert is_stale(at_node_port, before, now)
    assert is_stale(at_node_port, NOTHING, now), "what an earlier process has left"
    assert not is_stale(at_node_port, now, now), "once: it came back by a shortcut"
    assert not is_stale(flow(DNS, CLUSTER_SOCKET), before, now), "another frontend's"
    assert not is_stale(flow((NODE, NODE_PORT), LOCAL_SOCKET), NOTHING, now), "begun by an earlier process"
    assert not is_stale(flow((NODE, NODE_PORT), FIRST), before, now), "another mode's, whose endpoint serves"


def test_a_flow_by_a_shortcut_to_the_pool_that_all_are_led_to_now_chooses_its_socket_anew() -> None:
    """Universe 50034: under policy Local it kept its source, and the next endpoint under policy Cluster saw that too."""
    by_shortcut = flow((NODE, NODE_PORT), CLUSTER_SOCKET)
    for local in ((LOCAL_SOCKET,), ()):
        assert is_stale(by_shortcut, relayed(local), relayed((CLUSTER_SOCKET,)))
    assert not is_stale(by_shortcut, relayed((CLUSTER_SOCKET,)), relayed((CLUSTER_SOCKET,)))
    assert not is_stale(flow(DNS, CLUSTER_SOCKET), relayed((LOCAL_SOCKET,)), relayed((CLUSTER_SOCKET,)))


def test_a_flow_whose_frontend_leads_nowhere_now_stays() -> None:
    """``conntrack.udp.stays-on-policy-change``: the rules would drop it."""
    held = flow((NODE, NODE_PORT), CLUSTER_SOCKET)
    assert not is_stale(held, relayed((CLUSTER_SOCKET,)), relayed(()))
    assert is_stale(held, relayed(()), relayed((LOCAL_SOCKET,))), "and moves once it leads somewhere"


def test_a_flow_at_an_address_that_serves_no_node_ports_any_more_ends_with_its_endpoint() -> None:
    """Universe 48010: begun under iptables mode at a second address, which nftables mode does not serve by default."""
    serves = NodePorts((ip_address("192.0.2.7"),), localhost=False)
    before, moved, gone = (
        frontends(*services, ports=serves) for services in ((dns(FIRST),), (dns(SECOND),), ())
    )
    left = flow((NODE, NODE_PORT), FIRST)
    assert is_stale(left, before, moved)
    assert is_stale(left, before, gone)
    assert not is_stale(left, before, before)
    by_another_program, elsewhere = (
        flow((NODE, NODE_PORT), ("10.9.9.9", 53)),
        flow(("192.0.2.200", NODE_PORT), FIRST),
    )
    assert not is_stale(by_another_program, before, gone)
    assert not is_stale(elsewhere, before, gone)
