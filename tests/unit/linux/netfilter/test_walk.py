"""The first packet of a connection on its way: hooks in order, chains, marks, chance, lists of clients; rules as text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from ipaddress import ip_address

import pytest

from kproxy.linux.netfilter.node_state import ClientEntry, TracedNode
from kproxy.linux.netfilter.packet_path import PacketPath, follow_packet
from kproxy.linux.netfilter.packet_state import TracedPacket
from kproxy.linux.netfilter.restore import RestoredTables, RestoreError
from kproxy.linux.netfilter.walk import PathFate
from kproxy.model.network import Family

VIP, NODE, POD = map(ip_address, ("10.96.0.10", "192.0.2.1", "10.244.1.2"))
BACKENDS = tuple(map(ip_address, ("10.244.1.10", "10.244.2.20", "10.244.2.21")))

Chains = Mapping[str, Iterable[str]]


def to(backend: int = 0) -> str:
    return f"-j DNAT --to-destination {BACKENDS[backend]}:8080"


def node(nat: Chains, filters: Chains | None = None, clients: Iterable[ClientEntry] = ()) -> TracedNode:
    tables = RestoredTables()
    for table, chains in (("nat", nat), ("filter", filters or {})):
        own = [f":{name} - [0:0]" for name in chains if name not in tables.tables[table]]
        lines = [f"-A {name} {rule}" for name, rules in chains.items() for rule in rules]
        tables.apply("\n".join([f"*{table}", *own, *lines, "COMMIT", ""]))
    found = tuple(tables.netfilter_tables(Family.IPV4, {}))
    return TracedNode(tables=found, addresses=frozenset({NODE}), remembered=frozenset(clients))


def packet(destination: str = str(VIP), port: int = 80, interface: str = "veth-a1") -> TracedPacket:
    return TracedPacket(POD if interface else NODE, ip_address(destination), "tcp", port, interface)


def only(found: list[PacketPath]) -> PacketPath:
    (path,) = found
    return path


def destinations(found: list[PacketPath]) -> set[object]:
    return {path.state.packet.destination for path in found}


def fates(found: list[PacketPath]) -> set[PathFate]:
    return {path.fate for path in found}


def test_a_packet_that_no_rule_names_passes_as_it_is() -> None:
    path = only(follow_packet(node({}), packet()))
    assert (path.fate, path.state.packet) == (PathFate.THROUGH, packet())
    assert not path.state.translated
    assert not path.state.masqueraded


def test_chance_is_followed_both_ways_with_exact_shares() -> None:
    random = "-m statistic --mode random --probability"
    rules = (f"{random} 0.3333333333 {to(0)}", f"{random} 0.5000000000 {to(1)}", to(2))
    found = follow_packet(node({"PREROUTING": rules}), packet())
    assert destinations(found) == set(BACKENDS)
    assert {path.state.chance for path in found} == {Fraction(1, 3)}


def test_what_has_no_share_of_packets_is_not_there() -> None:
    rules = (f"-m statistic --mode random --probability 1.0000000000 {to(0)}", to(1))
    found = follow_packet(node({"PREROUTING": rules}), packet())
    assert destinations(found) == {BACKENDS[0]}


def test_forward_sees_the_new_destination_and_input_is_not_passed() -> None:
    filters = {"FORWARD": (f"-d {BACKENDS[0]} -j DROP",), "INPUT": ("-j REJECT",)}
    assert fates(follow_packet(node({"PREROUTING": (to(),)}, filters), packet())) == {PathFate.DROPPED}


def test_what_is_for_the_node_passes_input_and_not_forward() -> None:
    filters = {"FORWARD": ("-j DROP",), "INPUT": ("-j REJECT",)}
    assert fates(follow_packet(node({}, filters), packet(str(NODE)))) == {PathFate.REJECTED}


def test_the_nodes_own_packet_passes_output_and_comes_back_through_input() -> None:
    nat = {"PREROUTING": (to(1),), "OUTPUT": (f"-d {VIP} {to(0)}",)}
    held = node(nat, {"INPUT": ("-j REJECT",)})
    path = only(follow_packet(held, packet(interface="")))
    assert (path.fate, path.state.packet.destination) == (PathFate.THROUGH, BACKENDS[0])
    itself = only(follow_packet(held, packet(str(NODE), interface="")))
    assert (itself.fate, itself.state.packet.destination) == (PathFate.REJECTED, NODE)


def test_marks_are_kept_between_chains_and_tables() -> None:
    nat = {
        "M": ("-j MARK --or-mark 0x4000",),
        "PREROUTING": ("-j M", to()),
        "POSTROUTING": (
            "-m mark ! --mark 0x4000/0x4000 -j RETURN",
            "-j MARK --xor-mark 0x4000",
            "-j MASQUERADE --random-fully",
        ),
    }
    marked = only(follow_packet(node(nat), packet()))
    assert (marked.state.masqueraded, marked.state.mark) == ("the node", 0)
    assert not only(follow_packet(node({**nat, "M": ()}), packet())).state.masqueraded


def test_a_return_goes_back_to_the_caller_and_an_accept_ends_the_table() -> None:
    nat = {"A": ("-j RETURN", to(0)), "PREROUTING": ("-j A", to(1))}
    assert destinations(follow_packet(node(nat), packet())) == {BACKENDS[1]}
    accepting = {**nat, "A": ("-j ACCEPT", to(0))}
    assert destinations(follow_packet(node(accepting), packet())) == {VIP}


@pytest.mark.parametrize(
    ("interface", "match", "holds"),
    [
        ("veth-a1", "-i veth-a1", True),
        ("veth-a1", "-i veth+", True),
        ("eth0", "-i veth+", False),
        ("eth0", "! -i veth+", True),
        ("", "-i veth+", False),
        ("", "! -i veth+", True),
    ],
)
def test_interfaces_match_by_name_or_prefix(*, interface: str, match: str, holds: bool) -> None:
    hook = "FORWARD" if interface else "OUTPUT"
    found = follow_packet(node({}, {hook: (f"{match} -j DROP",)}), packet(interface=interface))
    assert fates(found) == {PathFate.DROPPED if holds else PathFate.THROUGH}


def test_a_remembered_source_is_reported_and_a_seen_one_matches() -> None:
    seen = f"-m recent --name SEP --rcheck --seconds 60 --reap {to(1)}"
    nat = {"PREROUTING": (seen, f"-m recent --name SEP --set {to(0)}")}
    first = only(follow_packet(node(nat), packet()))
    assert first.state.packet.destination == BACKENDS[0]
    assert first.state.remembered == {ClientEntry("SEP", (POD,))}
    second = follow_packet(node(nat, clients=first.state.remembered), packet())
    assert destinations(second) == {BACKENDS[1]}


def test_of_a_client_in_a_list_that_was_read_both_ways_are_followed() -> None:
    """It may have been there for too long."""
    nat = {"PREROUTING": (f"-m recent --name SEP --rcheck --seconds 60 {to(1)}", to(0))}
    read = replace(node(nat), remembered=None, clients={"SEP": frozenset({POD})})
    assert destinations(follow_packet(read, packet())) == {BACKENDS[0], BACKENDS[1]}


def test_matches_on_protocol_port_source_state_and_locality() -> None:
    match = (
        "-p tcp -m tcp --dport 80 -s 10.244.0.0/16 -m conntrack --ctstate NEW -m addrtype --dst-type LOCAL"
    )
    held = node({"PREROUTING": (f"{match} {to()}",)})
    assert only(follow_packet(held, packet(str(NODE)))).state.translated
    assert not only(follow_packet(held, packet(str(NODE), port=81))).state.translated
    assert not only(follow_packet(held, packet())).state.translated


def test_a_rewritten_connection_has_the_dnat_status() -> None:
    guard = {"FORWARD": ("-m conntrack ! --ctstate DNAT -j DROP",)}
    held = node({"PREROUTING": (f"-d {VIP} {to()}",)}, guard)
    assert fates(follow_packet(held, packet())) == {PathFate.THROUGH}
    assert fates(follow_packet(held, packet("10.96.0.11"))) == {PathFate.DROPPED}


@pytest.mark.parametrize(("routed", "fate"), [(True, PathFate.THROUGH), (False, PathFate.DROPPED)])
def test_loopback_from_elsewhere_comes_in_only_where_the_kernel_routes_it(
    *, routed: bool, fate: PathFate
) -> None:
    held = replace(node({}), route_localnet=routed)
    assert fates(follow_packet(held, packet("127.0.0.1"))) == {fate}


@pytest.mark.parametrize(
    "lines",
    [
        "-A ABSENT -j DROP",
        "-A INPUT -j ABSENT",
        "-D INPUT -j DROP",
        "-I INPUT 3 -j DROP",
        ":A - [0:0]\n-A INPUT -j A\n-X A",
        ":A - [0:0]\n-A A -j DROP\n-X A",
        "-X ABSENT",
        "-R INPUT 1 -j DROP",
    ],
)
def test_what_the_tool_refuses_changes_nothing(lines: str) -> None:
    tables = RestoredTables()
    with pytest.raises(RestoreError):
        tables.apply(f"*filter\n-A INPUT -j ACCEPT\n{lines}\nCOMMIT\n")
    assert tables.tables == RestoredTables().tables
