"""The simulator's walk through rules, on small hand-made rulesets (`man 8 iptables` says what is right)."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address, ip_network

import pytest

from kproxy.model.network import Entry, Family, Packet, Protocol
from kproxy.proxy.backends.iptables.evaluate import Fate, SimulatedNode, evaluate
from kproxy.proxy.backends.iptables.rules import Ruleset
from kproxy.proxy.backends.xtables.rules import (
    Accept,
    Chain,
    Conntrack,
    ConntrackStatus,
    Destination,
    DestinationIsLocal,
    DestinationNAT,
    Drop,
    InInterface,
    Jump,
    Mark,
    Masquerade,
    OneIn,
    OrMark,
    RecentlySeen,
    Reject,
    RememberSource,
    Return,
    Rule,
    Source,
    Table,
    Target,
    Transport,
    XorMark,
)

Chains = Mapping[str, tuple[Rule, ...]]

NODE = ip_address("172.18.0.2")
VIP = ip_address("10.96.0.10")
BACKENDS = tuple(ip_address(f"10.244.2.{n}") for n in (11, 12, 13))
MACHINE = SimulatedNode(addresses=frozenset({NODE}))


def packet(destination: str = "10.96.0.10", *, interface: str | None = "veth-a1", port: int = 80) -> Packet:
    source = ip_address("10.244.1.11" if interface else "172.18.0.2")
    return Packet(Entry(interface), source, ip_address(destination), Protocol.TCP, port)


def ruleset(nat: Chains, filters: Chains | None = None) -> Ruleset:
    tables = {Table.NAT: nat, Table.FILTER: filters or {}}
    return Ruleset(
        Family.IPV4,
        {t: {name: Chain(name, rules) for name, rules in chains.items()} for t, chains in tables.items()},
    )


def to(backend: int = 0) -> Target:
    return DestinationNAT(BACKENDS[backend], 8080)


def test_a_packet_that_no_rule_names_passes_as_it_is() -> None:
    (verdict,) = evaluate(ruleset({}), packet(), MACHINE)
    assert (verdict.fate, verdict.destination, verdict.port) == (Fate.PASSED, VIP, 80)
    assert not verdict.rewritten
    assert not verdict.masqueraded


def test_chance_is_followed_both_ways() -> None:
    rules = (Rule(to(0), (OneIn(3),)), Rule(to(1), (OneIn(2),)), Rule(to(2)))
    verdicts = evaluate(ruleset({"PREROUTING": rules}), packet(), MACHINE)
    assert {v.destination for v in verdicts} == set(BACKENDS)


def test_one_in_one_always_holds() -> None:
    rules = (Rule(to(0), (OneIn(1),)), Rule(to(1)))
    assert {v.destination for v in evaluate(ruleset({"PREROUTING": rules}), packet(), MACHINE)} == {
        BACKENDS[0]
    }


def test_forward_sees_the_new_destination_and_input_is_not_passed() -> None:
    filters = {
        "FORWARD": (Rule(Drop(), (Destination(BACKENDS[0]),)),),
        "INPUT": (Rule(Reject()),),
    }
    rules = ruleset({"PREROUTING": (Rule(to(0)),)}, filters)
    assert {v.fate for v in evaluate(rules, packet(), MACHINE)} == {Fate.DROPPED}


def test_what_is_for_the_node_passes_input_and_not_forward() -> None:
    rules = ruleset({}, {"FORWARD": (Rule(Drop()),), "INPUT": (Rule(Reject()),)})
    assert {v.fate for v in evaluate(rules, packet(str(NODE)), MACHINE)} == {Fate.REJECTED}


def test_the_nodes_own_packet_passes_output_and_comes_back_through_input() -> None:
    nat = {"PREROUTING": (Rule(to(1)),), "OUTPUT": (Rule(to(0), (Destination(VIP),)),)}
    rules = ruleset(nat, {"INPUT": (Rule(Reject()),)})
    (verdict,) = evaluate(rules, packet(interface=None), MACHINE)
    assert (verdict.fate, verdict.destination) == (Fate.PASSED, BACKENDS[0])
    (itself,) = evaluate(rules, packet(str(NODE), interface=None), MACHINE)
    assert (itself.fate, itself.destination) == (Fate.REJECTED, NODE)


def test_marks_are_kept_between_chains_and_tables() -> None:
    nat = {
        "PREROUTING": (Rule(Jump("M")), Rule(to())),
        "M": (Rule(OrMark(0x4000)),),
        "POSTROUTING": (
            Rule(Return(), (Mark(0x4000, 0x4000, negated=True),)),
            Rule(XorMark(0x4000)),
            Rule(Masquerade()),
        ),
    }
    (verdict,) = evaluate(ruleset(nat), packet(), MACHINE)
    assert verdict.masqueraded
    unmarked = {**nat, "M": ()}
    (plain,) = evaluate(ruleset(unmarked), packet(), MACHINE)
    assert not plain.masqueraded


def test_a_return_goes_back_to_the_caller_and_an_accept_ends_the_table() -> None:
    nat = {
        "PREROUTING": (Rule(Jump("A")), Rule(to(1))),
        "A": (Rule(Return()), Rule(to(0))),
    }
    assert {v.destination for v in evaluate(ruleset(nat), packet(), MACHINE)} == {BACKENDS[1]}
    accepting = {**nat, "A": (Rule(Accept()), Rule(to(0)))}
    assert {v.destination for v in evaluate(ruleset(accepting), packet(), MACHINE)} == {VIP}


@pytest.mark.parametrize(
    ("interface", "name", "negated", "holds"),
    [
        ("veth-a1", "veth-a1", False, True),
        ("veth-a1", "veth+", False, True),
        ("eth0", "veth+", False, False),
        ("eth0", "veth+", True, True),
        (None, "veth+", False, False),
        (None, "veth+", True, True),
    ],
)
def test_interfaces_match_by_name_or_prefix(
    *, interface: str | None, name: str, negated: bool, holds: bool
) -> None:
    rule = (Rule(Drop(), (InInterface(name, negated),)),)
    hook = "OUTPUT" if interface is None else "FORWARD"
    fates = {v.fate for v in evaluate(ruleset({}, {hook: rule}), packet(interface=interface), MACHINE)}
    assert fates == ({Fate.DROPPED} if holds else {Fate.PASSED})


def test_a_remembered_source_is_reported_and_a_seen_one_matches() -> None:
    nat = {
        "PREROUTING": (
            Rule(to(1), (RecentlySeen("SEP", 60),)),
            Rule(to(0), (RememberSource("SEP"),)),
        )
    }
    (first,) = evaluate(ruleset(nat), packet(), MACHINE)
    assert (first.destination, first.affinity) == (BACKENDS[0], frozenset({"SEP"}))
    again = SimulatedNode(addresses=MACHINE.addresses, affinity_entries=frozenset({("SEP", packet().source)}))
    (second,) = evaluate(ruleset(nat), packet(), again)
    assert second.destination == BACKENDS[1]


def test_matches_on_protocol_port_source_state_and_locality() -> None:
    hit = (
        Transport(Protocol.TCP, 80),
        Source(ip_network("10.244.0.0/16")),
        Conntrack((ConntrackStatus.NEW,)),
        DestinationIsLocal(),
    )
    rules = ruleset({"PREROUTING": (Rule(to(), hit),)})
    assert next(iter(evaluate(rules, packet(str(NODE)), MACHINE))).rewritten
    assert not next(iter(evaluate(rules, packet(str(NODE), port=81), MACHINE))).rewritten
    assert not next(iter(evaluate(rules, packet(), MACHINE))).rewritten


def test_a_rewritten_connection_has_the_dnat_status() -> None:
    guard = {"FORWARD": (Rule(Drop(), (Conntrack((ConntrackStatus.DNAT,), negated=True),)),)}
    nat = {"PREROUTING": (Rule(to(), (Destination(VIP),)),)}
    assert {v.fate for v in evaluate(ruleset(nat, guard), packet(), MACHINE)} == {Fate.PASSED}
    other = evaluate(ruleset(nat, guard), packet("10.96.0.11"), MACHINE)
    assert {v.fate for v in other} == {Fate.DROPPED}
