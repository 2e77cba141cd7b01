"""Where a universe is stopped, what is read there, and what becomes files."""

from __future__ import annotations

from pathlib import Path

from kproxy.lab.topology import NODES
from kproxy.universes.recording import LogEnded, Recording, StateRead
from kproxy.universes.results import state_files
from kproxy.universes.stop import Stop, parse_stop

STOP = Stop(13.25, ("client ip route", "a sh -c 'ss -tn | wc -l'"))


def test_a_stop_survives_the_way_into_the_guest() -> None:
    assert parse_stop(list(STOP.arguments)) == STOP
    assert parse_stop([]) is None


def test_each_node_is_read_and_then_what_was_requested() -> None:
    commands = list(STOP.commands(Path("/tools")))
    for node in NODES:
        assert [node, "/tools/iptables-save"] in commands
        assert [node, "conntrack", "-L"] in commands
    assert commands[-2:] == [["client", "ip", "route"], ["a", "sh", "-c", "ss -tn | wc -l"]]


def test_files_have_names_of_their_own_the_time_and_the_command() -> None:
    recording = Recording(
        (
            StateRead(at=1_500_000_000, namespace="a", command="/x/bin/iptables-save", text="rules\n"),
            StateRead(at=1_500_000_000, namespace="b", command="nft list ruleset", text="more\n"),
            LogEnded(at=2, node="a", text="logged\n"),
        )
    )
    assert dict(state_files(recording, ("a",))) == {
        "a-iptables-save.txt": "# 1.500000 s: /x/bin/iptables-save\nrules\n",
        "b-nft-list-ruleset.txt": "# 1.500000 s: nft list ruleset\nmore\n",
        "a-proxy.log": "logged\n",
    }
