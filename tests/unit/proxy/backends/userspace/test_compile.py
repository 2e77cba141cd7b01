"""Rules of userspace mode, for plans whose endpoints are sockets: the first dials from the node, the last from the client's address."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

import msgspec
import pytest

from kproxy.linux.netfilter.rules import Jump
from kproxy.model.network import Family, Protocol
from kproxy.proxy.backends.userspace import names
from kproxy.proxy.backends.userspace.compile import Context
from kproxy.proxy.backends.userspace.desired_state import DesiredState, desired_state
from kproxy.proxy.backends.userspace.static_rules import hook_rules
from kproxy.proxy.backends.xtables.rules import TableName
from kproxy.proxy.plan import (
    DetectByCIDR,
    Exposure,
    Frontend,
    HealthCheck,
    LocalDetector,
    MasqueradePolicy,
    NodePorts,
    OnEmpty,
    Plan,
    Pool,
    PoolScope,
    ServicePlan,
    ServicePortName,
)
from tests.support.plans import frontend, pool

PODS = DetectByCIDR(ip_network("10.244.0.0/16"))
SOCKETS = pool("172.18.0.2:40001", "172.18.0.2:40002")
NEAR = pool("172.18.0.2:40003", "172.18.0.2:40004", scope=PoolScope.LOCAL)
NONE = Pool(PoolScope.CLUSTER, ())
NO_LOCAL = Pool(PoolScope.LOCAL, ())


def made(
    *frontends: Frontend,
    detector: LocalDetector = PODS,
    ports: NodePorts | None = None,
    family: Family = Family.IPV4,
    keep_sources: bool = True,
) -> DesiredState:
    service = ServicePlan(
        name=ServicePortName("default", "web", "http"),
        protocol=Protocol.TCP,
        frontends=frontends,
        affinity_seconds=None,
    )
    plan = Plan(
        family=family,
        services=(service,),
        node_ports=ports or NodePorts(addresses=None, localhost=True),
        detector=detector,
        cluster_ip_masquerade=MasqueradePolicy.OFF_CLUSTER,
        health_checks=(HealthCheck(("default", "web"), 31000, 1),),
    )
    return desired_state(plan, keep_sources=keep_sources)


def lines(state: DesiredState, table: TableName, chain: str) -> list[str]:
    found = state.tables[table][chain]
    return [line.removeprefix("-m comment --comment ").partition('" ')[2] or line for line in found]


def nat(state: DesiredState, chain: str) -> list[str]:
    return lines(state, TableName.NAT, chain)


def cluster_ip(reached: Pool = SOCKETS, **options: object) -> Frontend:
    return frontend(Exposure.CLUSTER_IP, "10.96.0.1", 80, reached, **options)  # type: ignore[arg-type]


def test_a_pod_keeps_its_address_and_others_do_not() -> None:
    state = made(cluster_ip())
    to = "-d 10.96.0.1 -p tcp -m tcp --dport 80 -j DNAT --to-destination 172.18.0.2"
    container = nat(state, "KUBE-PORTALS-CONTAINER")
    assert container[:2] == [f"! -s 10.244.0.0/16 {to}:40001", f"{to}:40002"]
    assert nat(state, "KUBE-PORTALS-HOST")[:1] == [f"{to}:40001"]


@pytest.mark.parametrize(
    ("policy", "detector", "expected"),
    [
        (MasqueradePolicy.ALWAYS, PODS, ["40001"]),
        (MasqueradePolicy.NEVER, PODS, ["40002"]),
        (MasqueradePolicy.OFF_CLUSTER, None, ["40002"]),
        (MasqueradePolicy.OFF_CLUSTER, PODS, ["40001", "40002"]),
    ],
)
def test_the_socket_follows_the_masquerade_policy(
    policy: MasqueradePolicy, detector: LocalDetector, expected: list[str]
) -> None:
    state = made(cluster_ip(masquerade=policy), detector=detector)
    assert [line[-5:] for line in nat(state, "KUBE-PORTALS-CONTAINER")[:-1]] == expected


def test_no_external_policy_binds_pods_and_the_node() -> None:
    state = made(frontend(Exposure.NODE_PORT, None, 30080, NEAR, shortcut=SOCKETS))
    to = "-p tcp -m tcp --dport 30080 -j DNAT --to-destination 172.18.0.2"
    assert nat(state, "KUBE-NODEPORT-CONTAINER") == [f"-s 10.244.0.0/16 {to}:40002", f"{to}:40004"]
    assert nat(state, "KUBE-NODEPORT-HOST") == [f"{to}:40001"]


def test_without_local_endpoints_others_are_dropped_and_pods_and_node_served() -> None:
    dropping = frontend(Exposure.EXTERNAL_IP, "192.0.2.1", 80, NO_LOCAL, shortcut=SOCKETS)
    state = made(_with(dropping, OnEmpty.DROP))
    to = "-d 192.0.2.1 -p tcp -m tcp --dport 80"
    served = f"{to} -j DNAT --to-destination 172.18.0.2"
    assert nat(state, "KUBE-PORTALS-CONTAINER")[:-1] == [f"-s 10.244.0.0/16 {served}:40002"]
    assert nat(state, "KUBE-PORTALS-HOST")[:-1] == [f"{served}:40001"]
    assert lines(state, TableName.FILTER, "KUBE-PORTALS-FILTER") == [f"{to} -j DROP"]


def test_only_admitted_sources_come_to_a_socket() -> None:
    guarded = frontend(
        Exposure.LOAD_BALANCER, "192.0.2.1", 80, SOCKETS, sources=("198.51.100.0/24",), admit_self=True
    )
    state = made(guarded)
    to = "-d 192.0.2.1 -p tcp -m tcp --dport 80"
    assert nat(state, "KUBE-PORTALS-CONTAINER")[:-1] == [
        f"-s {source} {to} -j DNAT --to-destination 172.18.0.2:40001"
        for source in ("198.51.100.0/24", "192.0.2.1")
    ]
    assert lines(state, TableName.FILTER, "KUBE-PORTALS-FILTER") == [f"{to} -j DROP"]


@pytest.mark.parametrize(
    ("admitted", "expected"),
    [("10.244.1.0/24", ["10.244.1.0/24"]), ("10.0.0.0/8", ["10.244.0.0/16"]), ("192.168.0.0/16", [])],
)
def test_pods_in_an_admitted_network_are_matched_by_the_narrower(admitted: str, expected: list[str]) -> None:
    state = made(
        frontend(Exposure.LOAD_BALANCER, "192.0.2.1", 80, NO_LOCAL, shortcut=SOCKETS, sources=(admitted,))
    )
    found = nat(state, "KUBE-PORTALS-CONTAINER")[:-1]
    assert [line.split()[1] for line in found] == expected
    assert all(line.count("-s ") == 1 for line in found)


def test_without_endpoints_admitted_sources_are_refused_and_others_dropped() -> None:
    guarded = frontend(Exposure.LOAD_BALANCER, "192.0.2.1", 80, NONE, sources=("198.51.100.0/24",))
    state = made(guarded)
    to = "-d 192.0.2.1 -p tcp -m tcp --dport 80"
    assert lines(state, TableName.FILTER, "KUBE-PORTALS-FILTER") == [
        f"-s 198.51.100.0/24 {to} -j REJECT",
        f"{to} -j DROP",
    ]


def test_node_ports_without_endpoints_are_refused_where_they_would_be_served() -> None:
    empty = frontend(Exposure.NODE_PORT, None, 30080, NONE)
    ports = NodePorts(addresses=(ip_address("172.18.0.2"),), localhost=True)
    state = made(empty, ports=ports)
    assert lines(state, TableName.FILTER, "KUBE-PORTALS-FILTER") == [
        f"-d {where} -p tcp -m tcp --dport 30080 -j REJECT" for where in ("172.18.0.2", "127.0.0.0/8")
    ]
    assert nat(state, "KUBE-PORTALS-HOST") == [
        f"-d {where} -j KUBE-NODEPORT-HOST" for where in ("172.18.0.2", "127.0.0.0/8")
    ]


def test_sockets_take_translated_packets_alone() -> None:
    state = made(cluster_ip(), frontend(Exposure.NODE_PORT, None, 30080, SOCKETS))
    found = lines(state, TableName.FILTER, "KUBE-PORTALS-INPUT")
    assert found == [
        "-p tcp -m tcp --dport 31000 -j ACCEPT",
        "-m mark --mark 0x4c000000/0xff000000 -j ACCEPT",
        "-m conntrack --ctstate ESTABLISHED -m conntrack --ctstate DNAT -j ACCEPT",
        "-m conntrack ! --ctstate NEW -j RETURN",
        *(
            f"-d 172.18.0.2 -p tcp -m tcp --dport {number} {verdict}"
            for number in (40001, 40002)
            for verdict in ("-m conntrack --ctstate DNAT -j ACCEPT", "-j REJECT")
        ),
    ]


def test_answers_to_clients_addresses_are_marked() -> None:
    state = made(cluster_ip())
    assert lines(state, TableName.MANGLE, "KUBE-PORTALS-SOURCE") == [
        "-m mark --mark 0x4d000000/0xff000000 -m addrtype ! --src-type LOCAL -m conntrack --ctstate NEW -j CONNMARK --set-xmark 0x4c000000/0xff000000"
    ]
    assert lines(state, TableName.MANGLE, "KUBE-PORTALS-ANSWER") == [
        (
            "-m connmark --mark 0x4c000000/0xff000000 -m conntrack --ctdir REPLY"
            " -j MARK --set-xmark 0x4c000000/0xff000000"
        )
    ]
    without = made(cluster_ip(), keep_sources=False)
    assert without.tables[TableName.MANGLE] == {"KUBE-PORTALS-SOURCE": (), "KUBE-PORTALS-ANSWER": ()}


def test_a_service_that_did_not_change_is_compiled_once() -> None:
    first = made(cluster_ip())
    plan = Plan(
        family=Family.IPV4,
        services=tuple(rules.service for rules in first.service_rules.values()),
        node_ports=first.context.node_ports,
        detector=PODS,
        cluster_ip_masquerade=MasqueradePolicy.OFF_CLUSTER,
    )
    again = desired_state(plan, first)
    (name,) = first.service_rules
    assert again.service_rules[name] is first.service_rules[name]
    assert first.context == Context(Family.IPV4, PODS, first.context.node_ports)
    assert first == made(cluster_ip())


def _with(given: Frontend, on_empty: OnEmpty) -> Frontend:
    return msgspec.structs.replace(given, on_empty=on_empty)


@pytest.mark.parametrize(
    ("family", "localhost", "expected"),
    [
        (Family.IPV4, True, "-m addrtype --dst-type LOCAL"),
        (Family.IPV4, False, "! -d 127.0.0.0/8 -m addrtype --dst-type LOCAL"),
        (Family.IPV6, False, "! -d ::1 -m addrtype --dst-type LOCAL"),
    ],
)
def test_node_ports_are_for_the_nodes_own_addresses(
    family: Family, expected: str, *, localhost: bool
) -> None:
    state = made(family=family, ports=NodePorts(addresses=None, localhost=localhost))
    assert nat(state, "KUBE-PORTALS-HOST") == [f"{expected} -j KUBE-NODEPORT-HOST"]


def test_every_chain_is_led_to_and_is_known_as_the_modes_own() -> None:
    led_to = {
        (hook.table, step.chain)
        for hook in hook_rules()
        for rule in hook.rules
        for step in rule.steps
        if isinstance(step, Jump)
    }
    from_portals = {(TableName.NAT, names.NODE_PORT_CONTAINER), (TableName.NAT, names.NODE_PORT_HOST)}
    assert led_to | from_portals == {(table, name) for table, own in names.OWN_CHAINS.items() for name in own}
    assert all(names.is_ours(table, name) for table, name in led_to)
    assert not names.is_ours(TableName.NAT, names.PORTALS_FILTER)
