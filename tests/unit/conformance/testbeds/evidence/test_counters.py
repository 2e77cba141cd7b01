"""Which rules have counted: read from what the tools print."""

import pytest

from kproxy.conformance.testbeds.evidence.counters import counted_lines, without_iptables_nft

IPTABLES = """\
*nat
:PREROUTING ACCEPT [{other}:840]
:KUBE-SERVICES - [0:0]
[{a}:60] -A PREROUTING -m comment --comment "portals" -j KUBE-SERVICES
[{b}:60] -A KUBE-SERVICES -d 10.96.0.1/32 -p tcp -j KUBE-SVC-X
[{c}:60] -A KUBE-SERVICES -d 10.96.0.1/32 -p tcp -j KUBE-SVC-X
COMMIT
*filter
[{d}:0] -A PREROUTING -m comment --comment "portals" -j KUBE-SERVICES
COMMIT
"""
NFTABLES = """\
table ip kube-proxy {{
	chain services {{
		ip daddr 10.96.0.1 counter packets {a} bytes 60 goto x comment "[1:2]"
	}}
	chain other {{
		ip daddr 10.96.0.1 counter packets {b} bytes 60 goto x
	}}
}}
table ip nat {{
	chain KUBE-SERVICES {{
		meta l4proto tcp counter packets {c} bytes 0 jump KUBE-SVC-X
	}}
}}
"""
IPVS = """\
IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port               Conns   InPkts  OutPkts  InBytes OutBytes
  -> RemoteAddress:Port
TCP  10.96.0.1:80                    {a}      2       0      120        0
  -> 10.244.1.11:10000               {b}      1       0       60        0
  -> 10.244.2.11:10000               {c}      1       0       60        0
"""


def text(listing: str, **counts: int) -> str:
    return listing.format(**{**dict.fromkeys(("a", "b", "c", "d", "other"), 0), **counts})


def test_a_rule_of_iptables_is_known_by_its_table_its_text_and_its_turn() -> None:
    rule = "-A KUBE-SERVICES -d 10.96.0.1/32 -p tcp -j KUBE-SVC-X"
    assert counted_lines(text(IPTABLES, a=4, b=9), text(IPTABLES, a=7, b=9, c=2, other=5)) == [
        '+3  nat  -A PREROUTING -m comment --comment "portals" -j KUBE-SERVICES',
        f"+2  nat  {rule}",
    ]
    assert counted_lines(text(IPTABLES), text(IPTABLES, d=1))[0].startswith("+1  filter  -A PREROUTING")


def test_a_rule_of_nftables_is_known_by_its_table_and_chain() -> None:
    assert counted_lines(text(NFTABLES, b=3), text(NFTABLES, a=5, b=4)) == [
        '+5  ip kube-proxy services  ip daddr 10.96.0.1 goto x comment "[1:2]"',
        "+1  ip kube-proxy other  ip daddr 10.96.0.1 goto x",
    ]


def test_a_real_server_is_known_by_its_virtual_one() -> None:
    assert counted_lines(text(IPVS, a=2, b=1), text(IPVS, a=3, b=1, c=1)) == [
        "+1  10.96.0.1:80  TCP 10.96.0.1:80",
        "+1  10.96.0.1:80  -> 10.244.2.11:10000",
    ]


def test_rules_of_iptables_nft_are_reported_by_iptables_alone() -> None:
    lines = counted_lines(text(NFTABLES), text(NFTABLES, a=1, c=1))
    assert len(lines) == 2
    assert without_iptables_nft(lines, text(IPTABLES)) == lines[:1]
    assert without_iptables_nft(lines, "") == lines


@pytest.mark.parametrize("listing", [IPTABLES, NFTABLES, IPVS, ""])
def test_where_nothing_has_counted_nothing_is_reported(listing: str) -> None:
    assert counted_lines(text(listing, a=3), text(listing, a=3)) == []


def test_a_rule_that_is_new_has_counted_all_it_counts() -> None:
    assert counted_lines("", text(IPVS, a=2)) == ["+2  10.96.0.1:80  TCP 10.96.0.1:80"]


def test_a_rule_that_was_written_anew_has_counted_since_then() -> None:
    assert counted_lines(text(IPVS, a=5, b=5), text(IPVS, a=2)) == ["+2  10.96.0.1:80  TCP 10.96.0.1:80"]
