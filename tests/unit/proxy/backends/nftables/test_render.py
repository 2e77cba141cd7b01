"""The text of the ruleset, written out by hand once."""

from ipaddress import ip_address, ip_network

import pytest

from kproxy.linux.netfilter.matches import destination_in, in_interface, of_protocol, one_in, source_in
from kproxy.linux.netfilter.patterns import FieldName, Prefix
from kproxy.linux.netfilter.rules import Dnat, Goto, InSet, Jump, Remember, Rule, Step
from kproxy.model.network import Family, Protocol
from kproxy.proxy.backends.nftables.desired_state import desired_state
from kproxy.proxy.backends.nftables.diff import Rewrite
from kproxy.proxy.backends.nftables.names import FrontendMaps, PoolRole
from kproxy.proxy.backends.nftables.render import Renderer, render_element
from kproxy.proxy.backends.nftables.rules import constant
from kproxy.proxy.backends.nftables.static_rules import Options, endpoint_choice_chain
from kproxy.proxy.plan import DetectByInterfacePrefix, Exposure, MasqueradePolicy
from tests.support.plans import frontend, plan_of, pool, service

CLIENT = (FieldName.SOURCE, constant(7))


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        ((source_in(ip_network("10.0.0.0/8"), negated=True),), "ip saddr != 10.0.0.0/8"),
        ((destination_in(ip_network("192.0.2.1/32")),), "ip daddr 192.0.2.1"),
        ((in_interface(Prefix("veth")), Jump("there")), 'iifname "veth*" jump there'),
        ((InSet((FieldName.SOURCE,), "known", negated=True),), "ip saddr != @known"),
        ((one_in(3), Goto("there")), "numgen random mod 3 0 goto there"),
        (
            (Remember("clients", CLIENT, 60),),
            "update @clients { ip saddr . numgen inc mod 1 offset 7 timeout 60s }",
        ),
        (
            (of_protocol(Protocol.SCTP), Dnat(ip_address("10.0.0.1"), 80)),
            "meta l4proto sctp dnat to 10.0.0.1:80",
        ),
    ],
)
def test_a_rule_reads_as_nft_does(steps: tuple[Step, ...], text: str) -> None:
    assert Renderer(Family.IPV4).rule(Rule(steps)) == text


def test_a_comment_is_quoted_at_the_end() -> None:
    assert Renderer(Family.IPV4).rule(Rule((Jump("there"),), "why")) == 'jump there comment "why"'


def test_ipv6_has_keywords_and_brackets_of_its_own() -> None:
    rule = Rule((InSet((FieldName.DESTINATION,), "known"), Dnat(ip_address("fd00::1"), 80)))
    assert Renderer(Family.IPV6).rule(rule) == "ip6 daddr @known dnat to [fd00::1]:80"


def test_elements() -> None:
    key = (ip_address("10.96.0.1"), Protocol.UDP, 53)
    assert render_element(key) == "10.96.0.1 . udp . 53"
    assert render_element(key, Goto("one-of-2")) == "10.96.0.1 . udp . 53 : goto one-of-2"
    assert (
        render_element((*key, 1), (ip_address("10.0.0.1"), 5353))
        == "10.96.0.1 . udp . 53 . 1 : 10.0.0.1 . 5353"
    )


def test_a_chain_draws_below_its_count_and_falls_back_to_the_first() -> None:
    render = Renderer(Family.IPV4)
    chain = endpoint_choice_chain(FrontendMaps.NODE_PORT, PoolRole.SHORTCUT, 3)
    assert chain.name == "shortcut-nodeport-one-of-3"
    assert [render.rule(rule) for rule in chain.rules] == [
        "dnat ip to meta l4proto . th dport . numgen random mod 3 map @shortcut-nodeport-endpoints",
        'goto shortcut-nodeport-one-of-1 comment "a number that has just been removed"',
    ]


def text_of(masquerade: MasqueradePolicy) -> str:
    front = frontend(Exposure.CLUSTER_IP, "10.96.0.1", 80, pool("10.0.0.1:80"), masquerade=masquerade)
    plan = plan_of(service(front), detector=DetectByInterfacePrefix("veth"), cluster_ips=masquerade)
    return str(Rewrite(desired_state(plan, Options(1 << 15))))


LOOKUP = "ip daddr . meta l4proto . th dport vmap @service-ips"


@pytest.mark.parametrize(
    ("masquerade", "rules"),
    [
        (
            MasqueradePolicy.OFF_CLUSTER,
            {
                "services": "ip daddr @cluster-ips jump cluster-ip-services",
                "cluster-ip-services": f'iifname != "veth*" jump mark-for-masquerade; {LOOKUP}',
            },
        ),
        (
            MasqueradePolicy.ALWAYS,
            {
                "services": "ip daddr @cluster-ips jump cluster-ip-services",
                "cluster-ip-services": f"jump mark-for-masquerade; {LOOKUP}",
            },
        ),
        (MasqueradePolicy.NEVER, {"services": LOOKUP}),
    ],
)
def test_packets_to_cluster_ips_alone_pass_the_rule_for_those_who_are_masqueraded(
    masquerade: MasqueradePolicy, rules: dict[str, str]
) -> None:
    found: dict[str, list[str]] = {}
    for line in text_of(masquerade).splitlines():
        match line.split(" comment ")[0].split(" ", 5):
            case ["add", "rule", "ip", "kube-proxy", "services" | "cluster-ip-services" as chain, rule]:
                found.setdefault(chain, []).append(rule)
            case _:
                pass
    external, *cluster_ips, node_ports = found.pop("services")
    assert "@external-ips" in external
    assert "@external-nodeports" in node_ports
    found["services"] = cluster_ips
    assert {chain: "; ".join(each) for chain, each in found.items()} == rules


def test_the_hooks_that_others_rely_on() -> None:
    """Behaviour ``nft.hooks``; priorities as numbers: dstnat -100, srcnat 100, filter 0."""
    hooks = {
        line.split()[4]: line.partition("{ ")[2].rstrip(" }")
        for line in text_of(MasqueradePolicy.NEVER).splitlines()
        if line.startswith("add chain") and "hook" in line
    }
    assert hooks == {
        "filter-prerouting-pre-dnat": "type filter hook prerouting priority -110;",
        "filter-output-pre-dnat": "type filter hook output priority -110;",
        "nat-prerouting": "type nat hook prerouting priority -100;",
        "nat-output": "type nat hook output priority -100;",
        "nat-postrouting": "type nat hook postrouting priority 100;",
        "filter-input": "type filter hook input priority 0;",
        "filter-forward": "type filter hook forward priority 0;",
        "filter-output": "type filter hook output priority 0;",
    }


def test_the_mark_is_the_configured_bit_alone() -> None:
    """Behaviour ``masq.bit``: other bits of the mark survive."""
    lines = text_of(MasqueradePolicy.ALWAYS).splitlines()
    marks = [line.split("meta mark", 1)[1] for line in lines if "add rule" in line and "meta mark" in line]
    assert marks == [
        " set meta mark or 0x00008000",
        " & 0x00008000 != 0 meta mark set meta mark xor 0x00008000 masquerade fully-random",
    ]


def test_nothing_is_ever_accepted() -> None:
    """Behaviour ``nft.no-accept``."""
    rules = [line for line in text_of(MasqueradePolicy.ALWAYS).splitlines() if line.startswith("add rule")]
    assert len(rules) > 20
    assert not [line for line in rules if "accept" in line.split(" comment ")[0]]
