"""ipvs mode against a real kernel, in network namespaces of the tests' own.  `tests/uml/test_ipvs.py` runs this in a guest."""

from __future__ import annotations

import os
import socket
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from ipaddress import ip_address, ip_network

import pytest
from msgspec import structs

from kproxy.conformance.testbeds import environment
from kproxy.lab import namespaces
from kproxy.lab.processes import xtables_directory
from kproxy.linux import host
from kproxy.linux.host import HostError, Reason
from kproxy.linux.node_addresses import AddressMonitor, list_addresses
from kproxy.model.network import Address, Family, Protocol
from kproxy.proxy.backends import find_backend
from kproxy.proxy.backends.iptables.kernel import IptablesKernel, find_tools, machine_options
from kproxy.proxy.backends.ipvs.diff import RemoveDestination, RemoveServer, SetDestination, SetServer
from kproxy.proxy.backends.ipvs.kernel import (
    IpvsKernel,
    IpvsSettings,
    device,
    leave_device,
    remove_ipvs_objects,
)
from kproxy.proxy.backends.ipvs.kernel.ipvs_messages import ListedServer
from kproxy.proxy.backends.ipvs.kernel.ipvs_socket import Ipvs
from kproxy.proxy.backends.ipvs.names import DEVICE
from kproxy.proxy.backends.ipvs.rules import PERSISTENT, AddressKey, Destination, Key, Server
from kproxy.proxy.plan import Exposure, HealthCheck, NodePorts, Plan, PoolScope, ServicePlan
from tests.support.plans import frontend, plan_of, pool, service
from tests.support.waiting import eventually

OF_OTHERS = b"""\
*filter
:KUBE-FIREWALL - [0:0]
-A INPUT -j KUBE-FIREWALL
-A INPUT -i foreign0 -j DROP
COMMIT
"""
"""The kubelet's chain, and an administrator's rule."""

V4 = Family.IPV4
_IPV6_MTU = 24
"""Socket option ``IPV6_MTU`` (``in6.h``): the MTU of a connected socket's route."""
NODE = "192.0.2.7"
PODS = ("10.0.0.1", "10.0.0.2", "10.0.0.3")


@pytest.fixture(autouse=True, scope="module")
def what_this_kernel_has(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """IPv6, which is a module of the packaged kernel that a socket loads, and ``iptables`` of a variant that works."""
    socket.socket(socket.AF_INET6).close()
    links = xtables_directory(tmp_path_factory.mktemp("tools"), environment.iptables_variant("auto"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{links}:{os.environ['PATH']}")
        yield


@pytest.fixture(autouse=True)
def node() -> Iterator[None]:
    """A namespace with a node address, and pods' addresses on loopback so that connections can be held."""
    namespace = namespaces.create_namespace("ipvs")
    with namespace.entered():
        lines = (
            "link set lo up",
            *(f"addr add {pod}/32 dev lo" for pod in PODS),
            "link add uplink type dummy",
            f"addr add {NODE}/24 dev uplink",
            "addr add 2001:db8::7/64 dev uplink nodad",
        )
        host.run_tool(("ip", "-batch", "-"), ["\n".join(lines).encode()])
        yield
        for machine in _open:
            machine.close()
        _open.clear()
    namespace.close()


_open: list[IpvsKernel] = []


def kernel(family: Family = V4, **configuration: object) -> IpvsKernel:
    machine = IpvsKernel(family, replace(IpvsSettings(), **configuration))  # type: ignore[arg-type]
    _open.append(machine)
    return machine


def web(*pods: str, number: int = 1, node_port: int | None = None) -> ServicePlan:
    reached = pool(*(f"{pod}:8080" for pod in pods))
    found = [frontend(Exposure.CLUSTER_IP, f"10.96.{number >> 8}.{number & 255}", 80, reached)]
    if node_port:
        found.append(frontend(Exposure.NODE_PORT, None, node_port, reached))
    return service(*found, name=f"ns/web{number}:http")


def key(address: str = "10.96.0.1", port: int = 80) -> AddressKey:
    return AddressKey(ip_address(address), port, Protocol.TCP)


def weights(one: AddressKey | None = None) -> dict[str, int]:
    with Ipvs() as ipvs:
        return {str(d.destination.address): d.weight for d in ipvs.destinations(one or key(), V4)}


def found_servers() -> list[ListedServer]:
    with Ipvs() as ipvs:
        return ipvs.servers(V4)


def servers() -> set[Key]:
    return {found.key for found in found_servers()}


def bound() -> set[str]:
    shown = host.run_tool(("ip", "-o", "addr", "show", "dev", "kube-ipvs0"))
    return {line.split()[3] for line in shown.splitlines() if line}


def saved_sets() -> str:
    return host.run_tool(("ipset", "save"))


def put(*orders: SetServer | SetDestination | RemoveServer | RemoveDestination) -> None:
    with Ipvs() as ipvs:
        ipvs.send(orders, V4)


def test_the_plan_is_in_the_kernel() -> None:
    kernel().apply(plan_of(web(*PODS[:2], node_port=30080)))
    assert weights() == {PODS[0]: 1, PODS[1]: 1}
    assert weights(key(NODE, 30080)) == {PODS[0]: 1, PODS[1]: 1}
    assert key("127.0.0.1", 30080) not in servers()
    assert bound() == {"10.96.0.1/32"}
    sets = saved_sets()
    assert "add KUBE-CLUSTER-IP 10.96.0.1,tcp:80\n" in sets
    assert "add KUBE-NODE-PORT-TCP 30080\n" in sets
    assert "create KUBE-LOAD-BALANCER-SOURCE-CIDR hash:ip,port,net " in sets
    link = host.run_tool(("ip", "-o", "link", "show", "kube-ipvs0"))
    assert "NOARP" in link
    assert "state DOWN" in link


def six() -> Plan:
    one = service(
        frontend(Exposure.CLUSTER_IP, "fd00:96::1", 80, pool("fd00:10::1#8080")), name="ns/six:http"
    )
    return plan_of(one, family=Family.IPV6, detector=None)


def test_ipv6_is_served_beside_ipv4_by_sets_of_its_own() -> None:
    kernel().apply(plan_of(web(PODS[0])))
    kernel(Family.IPV6).apply(six())
    assert bound() == {"10.96.0.1/32", "fd00:96::1/128"}
    assert "add KUBE-6-CLUSTER-IP fd00:96::1,tcp:80\n" in saved_sets()
    assert weights() == {PODS[0]: 1}


def test_a_full_set_costs_no_service_its_rules_and_is_filled_when_there_is_room() -> None:
    def on_this_node(*pods: str) -> Plan:
        reached = pool(*(f"{pod}:8080" for pod in pods), scope=PoolScope.LOCAL)
        return plan_of(service(frontend(Exposure.CLUSTER_IP, "10.96.0.1", 80, reached), name="ns/web:http"))

    def hairpins() -> set[str]:
        saved = saved_sets().splitlines()
        return {line.rpartition(",")[2] for line in saved if line.startswith("add KUBE-LOOP-BACK ")}

    machine = kernel()
    machine.apply(on_this_node())
    host.run_tool(("ipset", "create", "SMALL", "hash:ip,port,ip", "maxelem", "2"))
    host.run_tool(("ipset", "swap", "SMALL", "KUBE-LOOP-BACK"))
    done = machine.apply(on_this_node(*PODS))
    assert weights() == dict.fromkeys(PODS, 1)
    assert done.problems == ("ipset KUBE-LOOP-BACK is full: some of its members are left out",)
    assert len(hairpins()) == 2
    (late,) = set(PODS) - hairpins()
    done = machine.apply(on_this_node(late))
    assert hairpins() == {late}
    assert done.problems == ()


def test_affinity_is_persistence() -> None:
    kernel().apply(plan_of(structs.replace(web(PODS[0]), affinity_seconds=600)))
    (found,) = found_servers()
    assert found.server == Server("rr", 1, 600)


@pytest.mark.parametrize("size", [10, 1000])
def test_an_endpoint_change_costs_the_same_few_messages_at_any_size(size: int) -> None:
    """One to add, one to drain, one list of that virtual server alone, one to remove.

    Where the endpoints are this node's, so are two hairpins: one member comes and one goes.
    """
    machine = kernel()
    endpoints = tuple(f"10.0.{i}.9" for i in range(5))
    services = [web(*endpoints, number=number) for number in range(1, size + 1)]
    first = machine.apply(plan_of(*services))
    assert first.changes["messages to IPVS"] >= 6 * size
    services[3] = web(*endpoints[:4], "10.0.9.9", number=4)
    change = machine.apply(plan_of(*services))
    assert tuple(change.changes.values()) == (4, 0, 0)
    assert weights(key("10.96.0.4")).keys() == {*endpoints[:4], "10.0.9.9"}
    here = [
        service(
            frontend(Exposure.CLUSTER_IP, "10.96.0.4", 80, pool(at, scope=PoolScope.LOCAL)),
            name="ns/web4:http",
        )
        for at in ("10.0.8.1:8080", "10.0.8.2:8080")
    ]
    machine.apply(plan_of(*services[:3], here[0], *services[4:]))
    moved = machine.apply(plan_of(*services[:3], here[1], *services[4:]))
    assert tuple(moved.changes.values()) == (4, 2, 0)
    print(f"{size} services: {first.seconds:.2f} s, one endpoint {change.seconds * 1000:.1f} ms")


def serving(address: str) -> socket.socket:
    listener = socket.create_server((address, 8080))
    listener.settimeout(5)
    return listener


def connected() -> socket.socket:
    return socket.create_connection(("10.96.0.1", 80), timeout=5)


def test_an_endpoint_that_leaves_keeps_its_connections_and_gets_no_more_until_it_returns() -> None:
    machine = kernel()
    with closing(serving(PODS[0])) as first, closing(serving(PODS[1])) as second:
        machine.apply(plan_of(web(PODS[0])))
        with closing(connected()) as client:
            accepted, _ = first.accept()
            machine.apply(plan_of(web(PODS[1])))
            assert weights() == {PODS[0]: 0, PODS[1]: 1}
            for _ in range(3):
                with closing(connected()):
                    second.accept()[0].close()
            client.sendall(b"still there")
            assert accepted.recv(100) == b"still there"
            assert machine.find_drift() == ()
            assert weights()[PODS[0]] == 0
            machine.apply(plan_of(web(*PODS[:2])))
            assert weights() == {PODS[0]: 1, PODS[1]: 1}
            accepted.close()


def test_an_endpoint_without_connections_is_gone_at_once() -> None:
    machine = kernel()
    machine.apply(plan_of(web(*PODS)))
    machine.apply(plan_of(web(PODS[0])))
    assert weights() == {PODS[0]: 1}


def test_a_restarted_proxy_takes_over_what_the_last_one_left_and_spares_what_is_not_a_proxys() -> None:
    """``ipvs.restart-weights``, ``ipvs.dummy.cleanup``, ``ipvs.exclude``."""
    kernel().apply(plan_of(web(PODS[0]), web(PODS[0], number=2, node_port=30002), web(PODS[0], number=3)))
    foreign, excluded = key("203.0.113.1"), key("10.96.0.3")
    put(SetServer(foreign, Server("rr"), new=True))
    put(SetDestination(key(), Destination(ip_address(PODS[0]), 8080), 7, new=False))
    put(SetDestination(key(), Destination(ip_address(PODS[2]), 8080), 1, new=True))
    machine = kernel(excluded=(ip_network("10.96.0.3/32"),))
    machine.apply(plan_of(web(PODS[0])))
    assert weights() == {PODS[0]: 1}
    assert servers() == {key(), foreign, excluded}
    assert bound() == {"10.96.0.1/32"}
    assert "30002" not in saved_sets()


@pytest.mark.parametrize("exposure", [Exposure.CLUSTER_IP, Exposure.EXTERNAL_IP, Exposure.LOAD_BALANCER])
@pytest.mark.parametrize("scope", list(PoolScope))
def test_a_service_whose_removal_stopped_after_its_address_is_removed(
    exposure: Exposure, scope: PoolScope
) -> None:
    """The next sync reads the kernel, where no address shows any more that the virtual server is a proxy's."""
    going = service(
        frontend(exposure, "10.96.0.9", 80, pool(f"{PODS[0]}:8080", scope=scope)), name="ns/going:"
    )
    kernel().apply(plan_of(web(PODS[0]), going))
    assert servers() >= {key(), key("10.96.0.9")}
    host.run_tool(("ip", "addr", "del", "10.96.0.9/32", "dev", "kube-ipvs0"))
    host.run_tool(("ipset", "del", "KUBE-IPVS-SERVED", "10.96.0.9,tcp:80"))
    kernel().apply(plan_of(web(PODS[0])))
    assert servers() == {key()}
    assert "10.96.0.9" not in saved_sets()


def test_an_external_ip_that_is_the_nodes_own_is_removed_after_a_restart() -> None:
    own = service(frontend(Exposure.EXTERNAL_IP, NODE, 81, pool(f"{PODS[0]}:8080")), name="ns/own:")
    kernel().apply(plan_of(web(PODS[0]), own))
    assert key(NODE, 81) in servers()
    kernel().apply(plan_of(web(PODS[0])))
    assert servers() == {key()}


@pytest.mark.parametrize(
    ("harm", "complaint"),
    [
        (("ip", "addr", "del", "10.96.0.1/32", "dev", "kube-ipvs0"), "address 10.96.0.1 of kube-ipvs0"),
        (("ip", "addr", "add", "192.0.2.8/24", "dev", "uplink"), "node address 192.0.2.8"),
        (("iptables", "-t", "nat", "-F", "PREROUTING"), "hook PREROUTING"),
    ],
)
def test_a_look_finds_what_is_not_as_it_was_and_all_is_mended(harm: tuple[str, ...], complaint: str) -> None:
    machine = kernel()
    plan = plan_of(web(PODS[0], node_port=30080))
    machine.apply(plan)
    assert machine.find_drift() == ()
    host.run_tool(harm)
    assert any(text.startswith(complaint) for text in machine.find_drift())
    mended(machine, plan)


def test_the_jump_of_an_earlier_version_goes() -> None:
    """It was for all packets; a foreign rule shows that others stay."""

    def mangle(*arguments: str) -> list[str]:
        return host.run_tool(("iptables", "-t", "mangle", *arguments)).splitlines()

    kernel().apply(plan_of(web(PODS[0])))
    found = mangle("-S", "OUTPUT")
    mangle("-F", "OUTPUT")
    foreign = "-A OUTPUT -o foreign0 -j DROP"
    for rule in ("-A OUTPUT -j KUBE-TRAFFIC-POLICY", foreign):
        mangle(*rule.split())
    kernel().apply(plan_of(web(PODS[0])))
    assert mangle("-S", "OUTPUT") == [*found, foreign]
    assert len(found) == 3


def test_the_devices_addresses_are_never_the_nodes() -> None:
    device.create_device()
    followed = AddressMonitor(V4, DEVICE)
    before = followed.current()
    device.add_addresses([ip_address("10.96.0.9")])
    assert followed.current() is before, "what the proxy does itself is no reason to list them again"
    assert list_addresses(V4, DEVICE).device == {ip_address("10.96.0.9")}
    device.remove_addresses([ip_address("10.96.0.9")])
    host.run_tool(("ip", "addr", "add", "192.0.2.8/24", "dev", "uplink"))
    assert set(followed.current()) - set(before) == {ip_address("192.0.2.8")}


def test_a_connected_socket_takes_the_new_way_once_an_address_is_the_nodes() -> None:
    host.run_tool(("ip", "link", "set", "uplink", "up"))
    host.run_tool(("ip", "route", "add", "fd00:96::/112", "dev", "uplink"))
    device.create_device()
    tentative = partial(host.run_tool, ("ip", "-o", "-6", "address", "show", "tentative"))
    assert eventually(lambda: not tentative()), (
        "the end of duplicate address detection changes routes as well"
    )
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sender:
        sender.connect(("fd00:96::9", 53))
        sender.send(b"by the uplink")
        assert sender.getsockopt(socket.IPPROTO_IPV6, _IPV6_MTU) == 1500
        device.add_addresses([ip_address("fd00:96::9")])
        with suppress(ConnectionRefusedError):
            sender.send(b"by lo")
        assert sender.getsockopt(socket.IPPROTO_IPV6, _IPV6_MTU) == 65536
    assert list_addresses(Family.IPV6, DEVICE).device == {ip_address("fd00:96::9")}


def test_node_ports_are_served_at_an_address_that_came_and_no_more_at_one_that_went() -> None:
    machine = kernel()
    machine.apply(plan := plan_of(web(PODS[0], node_port=30080)))
    came = key("192.0.2.8", 30080)
    for harm, expected in (("add", {came}), ("del", set())):
        host.run_tool(("ip", "addr", harm, "192.0.2.8/24", "dev", "uplink"))
        assert not machine.apply(plan).rewritten
        assert servers() & {came} == expected


def test_a_look_finds_virtual_servers_and_destinations_that_are_gone_or_changed() -> None:
    machine = kernel()
    plan = plan_of(web(PODS[0], node_port=30080))
    machine.apply(plan)
    put(RemoveDestination(key(), Destination(ip_address(PODS[0]), 8080)))
    assert machine.find_drift() == (f"destinations of {key()}",)
    mended(machine, plan)
    put(RemoveServer(key()))
    assert f"virtual server {key()}" in machine.find_drift()
    mended(machine, plan)
    for other in (Server("wrr", 0, None), Server("rr", PERSISTENT, 300)):
        put(SetServer(key(), other, new=False))
        assert machine.find_drift() == (f"virtual server {key()}",)
        mended(machine, plan)


def test_a_virtual_server_that_one_list_lacks_is_no_drift(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = kernel()
    machine.apply(plan_of(web(PODS[0], node_port=30080)))
    listed = list(machine._ipvs.servers(V4))
    answers = [listed[1:], listed]
    with monkeypatch.context() as patch:
        patch.setattr(machine._ipvs, "servers", lambda _: answers.pop(0))
        assert machine.find_drift() == ()
        assert not answers, "it was listed twice"
        answers += [listed[1:]] * 2
        assert machine.find_drift() == (f"virtual server {listed[0].key}",)


def mended(machine: IpvsKernel, plan: Plan) -> None:
    machine.forget()
    machine.apply(plan)
    assert machine.find_drift() == ()
    assert weights() == {PODS[0]: 1}


def test_before_another_mode_serves_the_nodes_own_connections_come_from_an_address_that_stays() -> None:
    kernel().apply(plan_of(web(PODS[0])))
    stays = list_addresses(V4, DEVICE).node

    def source() -> Address:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.connect(("10.96.0.1", 80))
            return ip_address(client.getsockname()[0])

    assert source() == ip_address("10.96.0.1"), "the address of the Service itself"
    leave_device(V4)
    assert source() in stays
    assert not list_addresses(V4, DEVICE).device
    assert weights() == {PODS[0]: 1}, "it is served all the same"
    with (
        socket.create_server((PODS[0], 8080)),
        socket.create_connection(("10.96.0.1", 80), timeout=5) as client,
    ):
        assert ip_address(client.getsockname()[0]) in stays


def test_what_the_mode_that_follows_does_not_serve_is_removed_and_the_rest_drained() -> None:
    """IPVS would refuse who connects to a Service that is gone, or to a node port where the other mode serves none."""
    stays, goes = web(PODS[0], node_port=30080), web(PODS[1], number=2, node_port=30081)
    kernel().apply(plan_of(stays, goes))
    at_node, of_one = key(NODE, 30080), {key(), key(NODE, 30080)}
    of_the_other = {key("10.96.0.2"), key(NODE, 30081)}
    assert servers() >= of_one | of_the_other
    assert not find_backend("ipvs").drain(plan_of(stays)), "no connection"
    assert servers() >= of_one
    assert servers().isdisjoint(of_the_other)
    assert (weights(), weights(at_node)) == ({PODS[0]: 0}, {PODS[0]: 0})
    assert device.routed_addresses(V4) == {ip_address("10.96.0.1")}
    elsewhere = NodePorts(addresses=(ip_address("192.0.2.8"),), localhost=False)
    find_backend("ipvs").drain(replace(plan_of(stays), node_ports=elsewhere))
    assert servers() == {key()}, "no address of this node is among them"


def test_cleaning_up_leaves_nothing_of_ours_and_everything_else() -> None:
    foreign = key("203.0.113.1")
    kernel().apply(plan_of(web(PODS[0], node_port=30080)))
    put(SetServer(foreign, Server("rr"), new=True))
    host.run_tool(("ipset", "create", "FOREIGN", "hash:ip"))
    host.run_tool(("iptables", "-A", "INPUT", "-i", "foreign0", "-j", "DROP"))
    remove_ipvs_objects(V4)
    assert servers() == {foreign}
    assert host.run_tool(("ipset", "list", "-name")).split() == ["FOREIGN"]
    assert "kube-ipvs0" not in host.run_tool(("ip", "link"))
    filter_table = host.run_tool(("iptables-save", "-t", "filter"))
    assert "-A INPUT -i foreign0 -j DROP" in filter_table
    assert "KUBE-IPVS-FILTER" not in filter_table
    assert "KUBE-" not in host.run_tool(("iptables-save", "-t", "mangle"))
    remove_ipvs_objects(V4)


def test_cleanup_removes_what_ipvs_mode_left_in_both_families_and_nothing_else() -> None:
    """``--cleanup`` itself, of a kubelet's node; ``life.cleanup``, ``life.mode-switch.ipvs-flush``."""
    put(SetServer(key("203.0.113.1"), Server("rr"), new=True))
    for restore in ("iptables-restore", "ip6tables-restore"):
        host.run_tool((restore, "--noflush"), stdin=[OF_OTHERS])
    before = everything()
    kernel().apply(plan_of(web(PODS[0], node_port=30080)))
    kernel(Family.IPV6).apply(six())
    assert everything() != before
    cleanup = (sys.executable, "-m", "kproxy", "run", "--cleanup")
    for _ in range(2):
        host.run_tool(cleanup, timeout=300.0)  # 50 s in a guest beside other work
        assert everything() == before


def everything() -> tuple[set[Key], str, str, list[str]]:
    """Virtual servers of both families, sets, devices, and rules of both."""
    with Ipvs() as ipvs:
        found = {each.key for family in Family for each in ipvs.servers(family)}
    rules = [
        rule for save in ("iptables-save", "ip6tables-save") for rule in rules_of(host.run_tool((save,)))
    ]
    return found, saved_sets(), host.run_tool(("ip", "-br", "link")), rules


def test_a_health_check_node_port_is_let_in_though_the_firewall_drops() -> None:
    """``hcnp.firewall-accept``."""
    checked = replace(plan_of(), health_checks=(HealthCheck(("ns", "web"), 30999, 1),))
    for command in ("-P INPUT DROP", "-A INPUT -m conntrack --ctstate ESTABLISHED -j ACCEPT"):
        host.run_tool(("iptables", *command.split()))
    machine = kernel()
    with closing(socket.create_server((NODE, 30999))):
        machine.apply(plan_of())
        with pytest.raises(TimeoutError):
            socket.create_connection((NODE, 30999), timeout=0.3)
        machine.apply(checked)
        socket.create_connection((NODE, 30999), timeout=5).close()


def test_kernel_settings() -> None:
    """``ipvs.sysctls``, ``ipvs.strict-arp``."""
    kernel().apply(plan_of())
    read = host.read_sysctl
    names = ("conntrack", "expire_nodest_conn", "expire_quiescent_template")
    assert [read(f"net/ipv4/vs/{name}") for name in names] == ["1", "1", "1"]
    assert read("net/ipv4/ip_forward") == "1"
    assert read("net/ipv4/conf/all/arp_ignore") == "0"
    kernel(strict_arp=True).apply(plan_of())
    assert (read("net/ipv4/conf/all/arp_ignore"), read("net/ipv4/conf/all/arp_announce")) == ("1", "2")


def timeouts() -> tuple[int, ...]:
    """TCP, TCP after FIN, UDP; by the interface from before netlink (``IP_VS_SO_GET_TIMEOUT``)."""
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as raw:
        return struct.unpack("3i", raw.getsockopt(socket.SOL_IP, 1158, 12))


def test_timeouts_that_are_not_zero_are_set_and_the_others_stay() -> None:
    """``ipvs.timeouts``."""
    kernel().apply(plan_of())
    _, after_fin, _ = before = timeouts()
    kernel(tcp_timeout=before[0] + 60, udp_timeout=before[2] + 7)
    assert timeouts() == (before[0] + 60, after_fin, before[2] + 7)


def test_a_flow_through_a_shortcut_goes_on_after_ipvs_has_forgotten_it() -> None:
    """Only packets new to conntrack get the mark of a shortcut; IPVS deletes conntrack's entry with its own."""
    nowhere, pods = pool(scope=PoolScope.LOCAL), pool(f"{PODS[0]}:8080")
    reached = frontend(Exposure.EXTERNAL_IP, "203.0.113.1", 80, nowhere, shortcut=pods)
    kernel(udp_timeout=1).apply(plan_of(service(reached, protocol=Protocol.UDP)))
    with datagrams() as pod, datagrams() as client:
        pod.bind((PODS[0], 8080))
        client.connect(("203.0.113.1", 80))
        for _ in range(2):
            exchange(client, pod)
        entries = host.run_tool(("conntrack", "-L", "-p", "udp")).splitlines()
        assert [entry for entry in entries if "203.0.113.1" in entry and int(entry.split()[2]) > 10]
        time.sleep(3)
        exchange(client, pod)


def datagrams() -> socket.socket:
    opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    opened.settimeout(5)
    return opened


def exchange(client: socket.socket, pod: socket.socket) -> None:
    client.send(b"question")
    _, sender = pod.recvfrom(100)
    pod.sendto(b"answer", sender)
    assert client.recv(100) == b"answer"


def test_later_rules_of_nat_do_not_grab_what_is_a_services() -> None:
    """``ipvs.accept``; that the rule grabs all else shows that it is there."""
    redirect = "-t nat -A OUTPUT -p tcp --dport 80 -j REDIRECT --to-ports 9999"
    kernel().apply(plan_of(web(PODS[0])))
    host.run_tool(("iptables", *redirect.split()))
    with closing(serving(PODS[0])) as pod, closing(socket.create_server(("0.0.0.0", 9999))) as grabbed:
        grabbed.settimeout(5)
        with closing(socket.create_connection((NODE, 80), timeout=5)):
            grabbed.accept()[0].close()
        with closing(connected()):
            pod.accept()[0].close()


def test_a_scheduler_that_the_kernel_lacks_is_an_error_and_one_it_has_is_used() -> None:
    kernel(scheduler="lc").apply(plan_of(web(PODS[0])))
    assert {found.server.scheduler for found in found_servers()} == {"lc"}
    with pytest.raises(HostError, match="none-such") as caught:
        kernel(scheduler="none-such")
    assert caught.value.reason is Reason.UNSUPPORTED


def saved_rules() -> str:
    return host.run_tool(("iptables-save",))


def test_iptables_mode_and_ipvs_mode_take_over_from_each_other() -> None:
    """``life.mode-switch``; kube-proxy leaves the one's rules beside the other's."""
    plan = plan_of(web(PODS[0], node_port=30080), web(number=2))
    tools = find_tools(V4)
    iptables = IptablesKernel(tools)
    iptables.apply(plan, machine_options(tools, 14))
    alone = saved_rules()
    assert "KUBE-SVC-" in alone
    assert "KUBE-EXTERNAL-SERVICES" in alone
    machine = kernel()
    machine.apply(plan)
    assert find_backend("nftables").remove_leftovers(V4, "ipvs") == ()
    assert find_backend("iptables").remove_leftovers(V4, "ipvs") == ()
    taken_over = saved_rules()
    assert not any(
        name in taken_over
        for name in ("KUBE-SVC-", "KUBE-SEP-", "KUBE-EXTERNAL-SERVICES", "has no endpoints")
    )
    assert machine.find_drift() == ()
    iptables.forget()
    iptables.apply(plan, machine_options(tools, 14))
    assert find_backend("ipvs").remove_leftovers(V4, "iptables") == ()
    assert servers() == set()
    assert "kube-ipvs0" not in host.run_tool(("ip", "link"))
    assert sorted(rules_of(saved_rules())) == sorted(rules_of(alone))


def rules_of(saved: str) -> list[str]:
    return [line for line in saved.splitlines() if line.startswith("-A")]
