"""Service plans become the chains that kube-proxy's documentation and its users know.

Chain names below are those of real clusters: ``default/kubernetes:https`` is KUBE-SVC-NPX46M4PTMTKRN6Y
in every one of them.
"""

import re
from collections.abc import Iterator
from fractions import Fraction
from ipaddress import ip_address

import pytest

from kproxy.linux.netfilter.rules import Chain, Chance, Jump
from kproxy.model.network import Family, Protocol
from kproxy.proxy.backends.iptables import names
from kproxy.proxy.backends.iptables.desired_state import desired_state
from kproxy.proxy.backends.iptables.static_rules import Options
from kproxy.proxy.backends.xtables.rules import PacketCounter, TableName, render
from kproxy.proxy.plan import (
    DetectByInterface,
    DetectByInterfacePrefix,
    Exposure,
    MasqueradePolicy,
    NodePorts,
    Plan,
    PoolScope,
    ServicePlan,
)
from tests.support.iptables_model import build_ruleset
from tests.support.plans import frontend, plan_of, pool, service

SUFFIX = "XPGD46QRK7WJZT7O"  # ns1/svc1:p80, tcp
FIRST = "KUBE-SEP-SXIVWICOYRO3J4NJ"  # its endpoint 10.180.0.1:80


def lines(
    plan: Plan, chain: str, table: TableName = TableName.NAT, options: Options | None = None
) -> list[str]:
    """The lines of one chain, without comments and without ``-A CHAIN``."""
    rules = build_ruleset(desired_state(plan, options or Options())).tables[table][chain]
    plain = [re.sub(r'-m comment --comment "[^"]*" ', "", line) for line in render(rules)]
    return [line.removeprefix(f"-A {chain} ") for line in plain]


def nat_chains(plan: Plan) -> set[str]:
    found = build_ruleset(desired_state(plan, Options())).tables[TableName.NAT]
    return {name for name in found if names.is_derived(name)}


@pytest.mark.parametrize(
    ("identity", "suffix"),
    [
        ("default/kubernetes:httpstcp", "NPX46M4PTMTKRN6Y"),
        ("kube-system/kube-dns:dnsudp", "TCOU7JCQXEZGVUNU"),
        ("kube-system/kube-dns:dns-tcptcp", "ERIFXISQEP7F7OF4"),
        ("ns1/svc1:p80tcp", SUFFIX),
        ("ns1/svc1:p80tcp10.180.0.1:80", "SXIVWICOYRO3J4NJ"),
    ],
)
def test_chains_are_named_as_in_every_cluster(identity: str, suffix: str) -> None:
    assert names.name_hash(identity) == suffix


def cluster_ip(*endpoints: str, **more: object) -> ServicePlan:
    return service(frontend(Exposure.CLUSTER_IP, "172.30.0.41", 80, pool(*endpoints)), **more)  # type: ignore[arg-type]


def test_a_cluster_ip_leads_through_its_service_chain_to_its_endpoint() -> None:
    plan = plan_of(cluster_ip("10.180.0.1:80"))
    assert lines(plan, "KUBE-SERVICES")[0] == f"-d 172.30.0.41 -p tcp -m tcp --dport 80 -j KUBE-SVC-{SUFFIX}"
    assert lines(plan, f"KUBE-SVC-{SUFFIX}") == [
        "-d 172.30.0.41 -p tcp -m tcp --dport 80 ! -s 10.0.0.0/8 -j KUBE-MARK-MASQ",
        f"-j {FIRST}",
    ]
    assert lines(plan, FIRST) == [
        "-s 10.180.0.1 -j KUBE-MARK-MASQ",
        "-p tcp -j DNAT --to-destination 10.180.0.1:80",
    ]


@pytest.mark.parametrize(
    ("masquerade", "detector", "condition"),
    [
        (MasqueradePolicy.ALWAYS, None, ""),
        (MasqueradePolicy.OFF_CLUSTER, DetectByInterface("cbr0"), "! -i cbr0 "),
        (MasqueradePolicy.OFF_CLUSTER, DetectByInterfacePrefix("veth"), "! -i veth+ "),
    ],
)
def test_masquerade_to_the_cluster_ip_depends_on_the_detector(
    masquerade: MasqueradePolicy, detector: DetectByInterface | None, condition: str
) -> None:
    front = frontend(Exposure.CLUSTER_IP, "172.30.0.41", 80, pool("10.180.0.1:80"), masquerade=masquerade)
    marking = lines(plan_of(service(front), detector=detector), f"KUBE-SVC-{SUFFIX}")[:-1]
    assert marking == [f"-d 172.30.0.41 -p tcp -m tcp --dport 80 {condition}-j KUBE-MARK-MASQ"]


def test_without_masquerade_nothing_but_hairpin_is_marked() -> None:
    front = frontend(
        Exposure.CLUSTER_IP, "172.30.0.41", 80, pool("10.180.0.1:80"), masquerade=MasqueradePolicy.NEVER
    )
    assert lines(plan_of(service(front)), f"KUBE-SVC-{SUFFIX}") == [f"-j {FIRST}"]


def test_each_endpoint_gets_an_equal_share() -> None:
    """A third, then half of the rest, then all of the rest."""
    found = lines(plan_of(cluster_ip("10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80")), f"KUBE-SVC-{SUFFIX}")[1:]
    chances = [line.split("--probability ")[1].split()[0] if "random" in line else "1" for line in found]
    assert chances == ["0.3333333333", "0.5000000000", "1"]


def test_affinity_looks_up_the_remembered_endpoint_before_it_chooses() -> None:
    plan = plan_of(cluster_ip("10.180.0.1:80", "10.180.0.2:80", affinity=60))
    found = lines(plan, f"KUBE-SVC-{SUFFIX}")[1:]
    assert found[0] == f"-m recent --name {FIRST} --rcheck --seconds 60 --reap -j {FIRST}"
    assert ["recent" in line for line in found] == [True, True, False, False]
    assert lines(plan, FIRST)[1] == (
        f"-m recent --name {FIRST} --set -p tcp -j DNAT --to-destination 10.180.0.1:80"
    )


def external(local: tuple[str, ...] | None, *everywhere: str) -> tuple[ServicePlan, str]:
    """A node port 30080; ``local`` endpoints where the external traffic policy is Local."""
    cluster = pool(*everywhere)
    if local is None:
        fronts = (frontend(Exposure.NODE_PORT, None, 30080, cluster),)
    else:
        own = pool(*local, scope=PoolScope.LOCAL)
        fronts = (frontend(Exposure.NODE_PORT, None, 30080, own, shortcut=cluster),)
    return service(*fronts), f"KUBE-EXT-{SUFFIX}"


def test_external_traffic_is_masqueraded_before_it_is_spread() -> None:
    wanted, chain = external(None, "10.180.0.1:80")
    plan = plan_of(wanted)
    assert lines(plan, "KUBE-NODEPORTS") == [f"-p tcp -m tcp --dport 30080 -j {chain}"]
    assert lines(plan, chain) == ["-j KUBE-MARK-MASQ", f"-j KUBE-SVC-{SUFFIX}"]


def test_policy_local_lets_pods_and_the_node_itself_reach_all_endpoints() -> None:
    wanted, chain = external(("10.180.0.1:80",), "10.180.0.1:80", "10.180.0.2:80")
    assert lines(plan_of(wanted), chain) == [
        f"-s 10.0.0.0/8 -j KUBE-SVC-{SUFFIX}",
        "-m addrtype --src-type LOCAL -j KUBE-MARK-MASQ",
        f"-m addrtype --src-type LOCAL -j KUBE-SVC-{SUFFIX}",
        f"-j KUBE-SVL-{SUFFIX}",
    ]


def test_policy_local_without_detector_keeps_the_shortcut_for_the_node_only() -> None:
    wanted, chain = external(("10.180.0.1:80",), "10.180.0.1:80")
    found = lines(plan_of(wanted, detector=None), chain)
    assert found[0] == "-m addrtype --src-type LOCAL -j KUBE-MARK-MASQ"


def test_policy_local_without_local_endpoint_drops_what_takes_no_shortcut() -> None:
    wanted, chain = external((), "10.180.0.2:80")
    plan = plan_of(wanted)
    assert lines(plan, chain)[-1] == f"-m addrtype --src-type LOCAL -j KUBE-SVC-{SUFFIX}"
    assert lines(plan, "KUBE-EXTERNAL-SERVICES", TableName.FILTER) == [
        "-m addrtype --dst-type LOCAL -p tcp -m tcp --dport 30080 -j DROP"
    ]


def test_without_endpoints_there_is_no_chain_and_clients_are_refused() -> None:
    empty = pool()
    plan = plan_of(
        service(
            frontend(Exposure.CLUSTER_IP, "172.30.0.41", 80, empty),
            frontend(Exposure.EXTERNAL_IP, "203.0.113.1", 80, empty),
        )
    )
    assert nat_chains(plan) == set()
    assert lines(plan, "KUBE-SERVICES", TableName.FILTER) == [
        "-d 172.30.0.41 -p tcp -m tcp --dport 80 -j REJECT"
    ]
    assert lines(plan, "KUBE-EXTERNAL-SERVICES", TableName.FILTER) == [
        "-d 203.0.113.1 -p tcp -m tcp --dport 80 -j REJECT"
    ]
    assert len(lines(plan, "KUBE-SERVICES")) == 1  # the node ports


def balanced(*endpoints: str, admit_self: bool = False) -> Plan:
    front = frontend(
        Exposure.LOAD_BALANCER,
        "203.0.113.1",
        80,
        pool(*endpoints),
        sources=("192.0.2.0/24",),
        admit_self=admit_self,
    )
    return plan_of(service(front))


def test_source_ranges_admit_in_nat_and_drop_the_rest_in_filter() -> None:
    plan = balanced("10.180.0.1:80", admit_self=True)
    assert lines(plan, "KUBE-SERVICES")[0] == f"-d 203.0.113.1 -p tcp -m tcp --dport 80 -j KUBE-FW-{SUFFIX}"
    assert lines(plan, f"KUBE-FW-{SUFFIX}") == [
        f"-s 192.0.2.0/24 -j KUBE-EXT-{SUFFIX}",
        f"-s 203.0.113.1 -j KUBE-EXT-{SUFFIX}",
    ]
    assert lines(plan, "KUBE-PROXY-FIREWALL", TableName.FILTER) == [
        "-d 203.0.113.1 -p tcp -m tcp --dport 80 -j DROP"
    ]


def test_source_ranges_hold_where_no_endpoint_exists() -> None:
    """The admitted go on to the refusal, the others meet silence as ever."""
    plan = balanced()
    assert lines(plan, "KUBE-PROXY-FIREWALL", TableName.FILTER) == [
        "-s 192.0.2.0/24 -d 203.0.113.1 -p tcp -m tcp --dport 80 -j RETURN",
        "-d 203.0.113.1 -p tcp -m tcp --dport 80 -j DROP",
    ]
    assert lines(plan, "KUBE-EXTERNAL-SERVICES", TableName.FILTER) == [
        "-d 203.0.113.1 -p tcp -m tcp --dport 80 -j REJECT"
    ]


@pytest.mark.parametrize(
    ("family", "ports", "conditions"),
    [
        (Family.IPV4, NodePorts(None, localhost=True), ["-m addrtype --dst-type LOCAL"]),
        (Family.IPV4, NodePorts(None, localhost=False), ["! -d 127.0.0.0/8 -m addrtype --dst-type LOCAL"]),
        (Family.IPV6, NodePorts(None, localhost=True), ["! -d ::1 -m addrtype --dst-type LOCAL"]),
        (Family.IPV4, NodePorts((ip_address("192.0.2.1"),), localhost=False), ["-d 192.0.2.1"]),
        (
            Family.IPV4,
            NodePorts((ip_address("192.0.2.1"),), localhost=True),
            ["-d 192.0.2.1", "-d 127.0.0.0/8"],
        ),
    ],
)
def test_node_ports_count_at_the_addresses_of_the_plan(
    family: Family, ports: NodePorts, conditions: list[str]
) -> None:
    plan = plan_of(family=family, node_ports=ports)
    assert lines(plan, "KUBE-SERVICES") == [f"{condition} -j KUBE-NODEPORTS" for condition in conditions]


def test_the_guard_against_martians_stands_only_with_localhost_node_ports() -> None:
    on = plan_of(node_ports=NodePorts(None, localhost=True))
    off = plan_of(node_ports=NodePorts(None, localhost=False))
    assert lines(on, "KUBE-FIREWALL", TableName.FILTER) == [
        "-d 127.0.0.0/8 ! -s 127.0.0.0/8 -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP"
    ]
    assert "KUBE-FIREWALL" not in build_ruleset(desired_state(off, Options())).tables[TableName.FILTER]


def test_an_ipv6_endpoint_is_written_in_brackets() -> None:
    front = frontend(Exposure.CLUSTER_IP, "fd00:96::1", 53, pool("fd00:10::1#5353"))
    plan = plan_of(service(front, protocol=Protocol.UDP), family=Family.IPV6)
    (chain,) = (name for name in nat_chains(plan) if name.startswith("KUBE-SEP-"))
    assert lines(plan, chain)[1] == "-p udp -j DNAT --to-destination [fd00:10::1]:5353"


def test_large_clusters_have_no_comments_at_single_endpoints_but_keep_those_of_services() -> None:
    def comments(count: int) -> tuple[bool, bool]:
        plan = plan_of(cluster_ip(*(f"10.1.{i // 250}.{i % 250}:80" for i in range(count))))
        found = build_ruleset(desired_state(plan, Options())).tables[TableName.NAT]
        of_endpoints = {
            bool(r.comment) for n, c in found.items() if n.startswith("KUBE-SEP") for r in c.rules
        }
        assert len(of_endpoints) == 1
        return of_endpoints.pop(), all(rule.comment for rule in found["KUBE-SERVICES"].rules)

    assert comments(1000) == (True, True)
    assert comments(1001) == (False, True)


@pytest.mark.parametrize(("drop", "first"), [(True, "INVALID -j DROP"), (False, "0x00008000 -j ACCEPT")])
def test_options_reach_forwarding_and_masquerade(*, drop: bool, first: str) -> None:
    options = Options(
        masquerade_mark=0x8000,
        random_fully=False,
        drop_invalid=drop,
        drop_invalid_input=drop,
        health_check_ports=(32000,),
    )
    plan = plan_of()
    assert lines(plan, "KUBE-FORWARD", TableName.FILTER, options)[0].endswith(first)
    assert lines(plan, "KUBE-POSTROUTING", options=options) == [
        "-m mark ! --mark 0x00008000/0x00008000 -j RETURN",
        "-j MARK --xor-mark 0x00008000",
        "-j MASQUERADE",
    ]
    assert lines(plan, "KUBE-MARK-MASQ", options=options) == ["-j MARK --or-mark 0x00008000"]
    invalid = (
        ["! -i lo -p tcp -m tcp --tcp-flags FIN,RST NONE -m conntrack --ctstate INVALID -j DROP"]
        if drop
        else []
    )
    health = ["-p tcp -m tcp --dport 32000 -j ACCEPT"]
    assert lines(plan, "KUBE-NODEPORTS", TableName.FILTER, options) == [*invalid, *health]


def test_the_same_endpoint_in_both_pools_has_one_chain() -> None:
    wanted, _ = external(("10.180.0.1:80",), "10.180.0.1:80", "10.180.0.2:80")
    assert sum(name.startswith("KUBE-SEP-") for name in nat_chains(plan_of(wanted))) == 2


def test_rules_count_what_the_kernel_has_counters_for_and_only_where_it_can_come() -> None:
    options = Options(counters=frozenset(PacketCounter))
    nodeport = service(frontend(Exposure.NODE_PORT, None, 30080, pool("10.180.0.1:80")))
    here, nowhere = (
        plan_of(nodeport, node_ports=NodePorts(None, localhost=localhost)) for localhost in (True, False)
    )
    plain = f"-p tcp -m tcp --dport 30080 -j KUBE-EXT-{SUFFIX}"
    counting = plain.replace(" -j", " -d 127.0.0.0/8 -m nfacct --nfacct-name localhost_nps_accepted_pkts -j")
    assert lines(here, "KUBE-NODEPORTS", options=options) == [counting, plain]
    assert lines(nowhere, "KUBE-NODEPORTS", options=options) == [plain]
    assert lines(here, "KUBE-NODEPORTS") == [plain]
    dropped = lines(here, "KUBE-FORWARD", TableName.FILTER, options)[0]
    assert (
        dropped
        == "-m conntrack --ctstate INVALID -m nfacct --nfacct-name ct_state_invalid_dropped_pkts -j DROP"
    )


def choices(count: int, affinity: int | None = None) -> dict[str, Chain]:
    """The chains of a Service of so many endpoints, by name."""
    chosen = pool(*(f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}:80" for n in range(count)))
    wanted = plan_of(service(frontend(Exposure.CLUSTER_IP, "172.30.0.41", 80, chosen), affinity=affinity))
    found = build_ruleset(desired_state(wanted, Options())).tables[TableName.NAT]
    return {name: chain for name, chain in found.items() if name.startswith(("KUBE-SVC-", "KUBE-SEP-"))}


def shares(
    chains: dict[str, Chain], name: str, share: Fraction, rules: int
) -> Iterator[tuple[Fraction, int]]:
    """By endpoint: how often it is chosen, and after how many rules."""
    if name.startswith("KUBE-SEP-"):
        yield share, rules
        return
    for rule in chains[name].rules:
        rules += 1
        *conditions, target = rule.steps
        if isinstance(target, Jump) and target.chain in chains:
            chance = next((step.share for step in conditions if isinstance(step, Chance)), Fraction(1))
            yield from shares(chains, target.chain, share * chance, rules)
            share *= 1 - chance


@pytest.mark.parametrize("count", [1, 2, 64, 65, 300, 5000])
def test_endpoints_are_chosen_evenly_after_few_rules(count: int) -> None:
    chains = choices(count)
    found = list(shares(chains, f"KUBE-SVC-{SUFFIX}", Fraction(1), 0))
    assert [share for share, _ in found] == [Fraction(1, count)] * count
    assert max(rules for _, rules in found) <= 130
    assert sum(rules for _, rules in found) / count <= 66
    assert all(len(name) <= 28 for name in chains)


def test_an_endpoint_that_goes_concerns_its_own_group_alone() -> None:
    before, after = choices(5000), choices(4999)
    written = [name for name, chain in after.items() if before.get(name) != chain]
    assert [len(name) for name in sorted(written, key=len)] == [25, 27, 28]
    assert len(before.keys() - after.keys()) == 1


def test_choices_among_few_endpoints_are_one_chain() -> None:
    assert [name for name in choices(64) if "KUBE-SVC" in name] == [f"KUBE-SVC-{SUFFIX}"]
