"""Where a universe is stopped, what is read there, and what becomes files."""

from __future__ import annotations

from math import inf
from pathlib import Path

from kproxy.lab.topology import NODES
from kproxy.universes.recording import LogEnded, Recording, StateRead
from kproxy.universes.results import state_files
from kproxy.universes.stop import UNTIL, Stop, read_stop, read_until, stop_files

STOP = Stop(13.25, ("client ip route", "a sh -c 'ss -tn | wc -l'"))


def test_a_stop_survives_the_way_into_the_guest(tmp_path: Path) -> None:
    for stop in (STOP, None):
        for name, text in stop_files(stop).items():
            (tmp_path / name).write_text(text)
        assert read_until(tmp_path) == (stop.until if stop else inf)
        assert read_stop(tmp_path) == (stop or Stop(inf))


def test_the_file_with_the_time_has_one_size() -> None:
    """Or the universe before the stop would be another one for some programs."""
    assert len({len(stop_files(stop)[UNTIL]) for stop in (None, STOP, Stop(1.0), Stop(12345.123456))}) == 1


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
