"""The chains of ipvs mode; what packets show of them is in `tests/unit/conformance/testbeds/simulator` and the kernel's tests."""

from __future__ import annotations

import pytest

from kproxy.model.network import Family
from kproxy.proxy.backends.ipvs import names
from kproxy.proxy.backends.ipvs.rules import rule_text
from kproxy.proxy.backends.ipvs.static_rules import ChainContext, Options, build_ruleset, hook_rules
from kproxy.proxy.backends.xtables.rules import TableName
from kproxy.proxy.plan import MasqueradePolicy


@pytest.mark.parametrize(("family", "loopback"), [(Family.IPV4, "127.0.0.0/8"), (Family.IPV6, "::1/128")])
def test_packets_from_loopback_addresses_pass_by(family: Family, loopback: str) -> None:
    """``ipvs.localhost``."""
    chains = build_ruleset(ChainContext(family, None, MasqueradePolicy.NEVER, Options())).chains
    first, *_ = chains[TableName.NAT][names.SERVICES]
    assert rule_text(first) == f"-s {loopback} -j RETURN"


@pytest.mark.parametrize("family", Family)
def test_packets_for_another_node_leave_nat_before_any_set_is_looked_into(family: Family) -> None:
    chains = build_ruleset(ChainContext(family, None, MasqueradePolicy.ALWAYS, Options())).chains
    texts = [rule_text(rule) for rule in chains[TableName.NAT][names.SERVICES]]
    leave = texts.index("-m addrtype ! --dst-type LOCAL -j RETURN")
    assert not [text for text in texts[:leave] if "--match-set" in text]
    assert [text for text in texts[leave:] if "--match-set" in text]


def test_only_new_packets_pass_rules_of_mangle() -> None:
    """What IPVS schedules is new to conntrack; the second and each later packet of a connection pays one match."""
    rules = [rule_text(hook.rule) for hook in hook_rules() if hook.table is TableName.MANGLE]
    assert len(rules) == 3
    assert all("--ctstate NEW" in text for text in rules)


def test_what_is_served_is_accepted_before_rules_for_the_ports_of_the_node() -> None:
    """The port of a cluster IP may be the number of another Service's node port, whose packets are masqueraded."""
    chains = build_ruleset(ChainContext(Family.IPV4, None, MasqueradePolicy.NEVER, Options())).chains
    texts = [rule_text(rule) for rule in chains[TableName.NAT][names.SERVICES]]
    (accepted,) = [n for n, text in enumerate(texts) if "IPVS-SERVED" in text and text.endswith("-j ACCEPT")]
    assert accepted < texts.index("-j KUBE-NODE-PORT")


def test_packets_in_a_shortcut_get_no_other_mark() -> None:
    """Universe 45020: inside clients were refused while policy Local became Cluster, for IPVS knows marks as a whole."""
    chains = build_ruleset(ChainContext(Family.IPV4, None, MasqueradePolicy.NEVER, Options())).chains
    texts = [rule_text(rule) for rule in chains[TableName.NAT][names.SERVICES]]
    (in_shortcut,) = [n for n, text in enumerate(texts) if "--match-set KUBE-LOCAL-SHORTCUT" in text]
    assert texts[in_shortcut].endswith("-j ACCEPT")
    assert in_shortcut < min(n for n, text in enumerate(texts) if "KUBE-EXTERNAL-IP" in text)


def test_invalid_segments_reach_no_process_of_the_node_unless_tracking_is_liberal() -> None:
    """``ct.liberal``; https://github.com/kubernetes/kubernetes/issues/117924"""
    strict, liberal = (
        build_ruleset(
            ChainContext(Family.IPV4, None, MasqueradePolicy.NEVER, Options(drop_invalid_input=drops))
        ).chains
        for drops in (True, False)
    )
    drop = "! -i lo -p tcp -m tcp --tcp-flags FIN,RST NONE -m conntrack --ctstate INVALID -j DROP"
    assert rule_text(strict[TableName.FILTER][names.PROXY_FIREWALL][0]) == drop
    assert not [
        rule for rule in liberal[TableName.FILTER][names.PROXY_FIREWALL] if "INVALID" in rule_text(rule)
    ]
