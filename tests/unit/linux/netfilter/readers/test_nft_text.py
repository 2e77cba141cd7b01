"""Expressions of nftables' JSON as nft 1.0.6 prints them, and what they do to a packet from 10.0.0.1 to 10.0.0.2:80."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any

import msgspec
import pytest

from kproxy.linux.netfilter.node_state import TracedNode
from kproxy.linux.netfilter.packet_state import TracedPacket
from kproxy.linux.netfilter.readers import nftables
from kproxy.tools.trace.answer import TraceResult, trace_packet

Json = Any

SOURCE = {"payload": {"protocol": "ip", "field": "saddr"}}
DESTINATION = {"payload": {"protocol": "ip", "field": "daddr"}}
PORT = {"payload": {"protocol": "tcp", "field": "dport"}}
STATE = {"ct": {"key": "state"}}
DROP = {"drop": None}


def match(left: Json, right: Json, op: str = "==") -> Json:
    return {"match": {"op": op, "left": left, "right": right}}


def requested(*rules: list[Json], kind: str = "filter", hook: str = "forward") -> TraceResult:
    own = {"family": "inet", "table": "fw"}
    base = {"chain": {**own, "name": "base", "type": kind, "hook": hook, "prio": -100, "policy": "accept"}}
    other = {"chain": {**own, "name": "other"}}
    held = [{"rule": {**own, "chain": "base", "expr": rule}} for rule in rules]
    held.append({"rule": {**own, "chain": "other", "expr": [DROP]}})
    table = {"table": {"family": "inet", "name": "fw"}}
    tables = nftables.read_nft_ruleset(msgspec.json.encode({"nftables": [table, base, other, *held]}))
    node = TracedNode(tables=tuple(tables), addresses=frozenset({ip_address("10.0.0.9")}))
    return trace_packet(node, TracedPacket(ip_address("10.0.0.1"), ip_address("10.0.0.2"), "tcp", 80, "eth0"))


@pytest.mark.parametrize(
    ("rule", "kinds"),
    [
        ([match(PORT, 80), DROP], {"dropped"}),
        ([match(PORT, 81), DROP], {"untouched"}),
        ([match({"payload": {"protocol": "udp", "field": "dport"}}, 80, "!="), DROP], {"untouched"}),
        ([match({"payload": {"protocol": "ip6", "field": "saddr"}}, "::1", "!="), DROP], {"untouched"}),
        ([match(PORT, {"set": [22, {"range": [79, 90]}]}), DROP], {"dropped"}),
        ([match(PORT, 80, ">"), DROP], {"untouched"}),
        ([match(PORT, 80, ">="), DROP], {"dropped"}),
        ([match(SOURCE, {"prefix": {"addr": "10.0.0.0", "len": 8}}, "!="), DROP], {"untouched"}),
        (
            [match({"concat": [SOURCE, DESTINATION]}, {"set": [{"concat": ["10.0.0.1", "10.0.0.2"]}]}), DROP],
            {"dropped"},
        ),
        (
            [match({"concat": [SOURCE, DESTINATION]}, {"set": [{"concat": ["10.0.0.2", "10.0.0.1"]}]}), DROP],
            {"untouched"},
        ),
        ([match({"meta": {"key": "iifname"}}, {"set": ["lo", "eth*"]}), DROP], {"dropped"}),
        ([match({"meta": {"key": "nfproto"}}, "ipv6"), DROP], {"untouched"}),
        ([match({"meta": {"key": "l4proto"}}, "udp"), DROP], {"untouched"}),
        ([match(STATE, {"set": ["established", "related"]}), DROP], {"untouched"}),
        ([match(STATE, ["new", "untracked"], "in"), DROP], {"dropped"}),
        ([match({"fib": {"result": "type", "flags": ["daddr"]}}, "local"), DROP], {"untouched"}),
        ([match({"ct": {"key": "ip daddr", "dir": "original"}}, "10.0.0.2"), DROP], {"dropped"}),
        (
            [match({"numgen": {"mode": "random", "mod": 10, "offset": 0}}, 3, "<"), DROP],
            {"dropped", "untouched"},
        ),
        ([{"vmap": {"key": STATE, "data": {"set": [["new", {"jump": {"target": "other"}}]]}}}], {"dropped"}),
        ([{"vmap": {"key": PORT, "data": {"set": [[22, DROP], [81, DROP]]}}}], {"untouched"}),
        ([{"reject": {"type": "tcp reset"}}], {"rejected"}),
        ([match({"meta": {"key": "skuid"}}, 1000), DROP], {"dropped", "untouched"}),
        ([{"limit": {"rate": 5, "per": "second"}}, DROP], {"dropped", "untouched"}),
        ([{"log": {"prefix": "x"}}, {"counter": {"packets": 0, "bytes": 0}}], {"untouched"}),
    ],
)
def test_an_expression_means_what_it_means_there(rule: list[Json], kinds: set[str]) -> None:
    assert {one.kind for one in requested(rule).decisions} == kinds


def endpoints(found: TraceResult) -> set[tuple[str, int, float]]:
    return {(str(one.destination), one.port, float(one.chance)) for one in found.decisions}


def test_a_hash_of_the_packet_chooses_as_a_number_does() -> None:
    chooses = {"jhash": {"mod": 2, "expr": SOURCE}}
    held = {"map": {"key": chooses, "data": {"set": [[0, "10.0.0.5"], [1, "10.0.0.6"]]}}}
    found = requested([{"dnat": {"addr": held, "port": 81}}], kind="nat", hook="prerouting")
    assert endpoints(found) == {("10.0.0.5", 81, 0.5), ("10.0.0.6", 81, 0.5)}


def test_what_is_not_tracked_is_not_translated() -> None:
    to = {"dnat": {"addr": "10.0.0.5", "port": 81}}
    assert endpoints(requested([to], kind="nat", hook="prerouting")) == {("10.0.0.5", 81, 1.0)}
    own = {"family": "inet", "table": "raw"}
    early = [
        {"chain": {**own, "name": "early", "type": "filter", "hook": "prerouting", "prio": -300}},
        {"rule": {**own, "chain": "early", "expr": [{"notrack": None}]}},
        {"chain": {**own, "name": "late", "type": "nat", "hook": "prerouting", "prio": -100}},
        {"rule": {**own, "chain": "late", "expr": [to]}},
    ]
    tables = nftables.read_nft_ruleset(msgspec.json.encode({"nftables": early}))
    packet = TracedPacket(ip_address("10.0.0.1"), ip_address("10.0.0.2"), "tcp", 80, "eth0")
    assert endpoints(trace_packet(TracedNode(tables=tuple(tables)), packet)) == {("10.0.0.2", 80, 1.0)}


def test_the_first_chain_of_nat_that_translates_decides() -> None:
    rules = [[{"dnat": {"addr": "10.0.0.5"}}], [{"dnat": {"addr": "10.0.0.6"}}]]
    assert endpoints(requested(*rules, kind="nat", hook="prerouting")) == {("10.0.0.5", 80, 1.0)}
