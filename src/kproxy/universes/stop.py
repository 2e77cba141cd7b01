"""Stop of a universe before its end: the time, and the commands that read the state then. Pure.

A universe repeats itself, so another look at the same moment is another run with other commands. Those must not change what
comes before, and it is enough that another program of the guest needs another page of memory: then some objects in the kernel have other
addresses. So the time is in a file of one size, which there always is, and the commands are in another, which nobody reads before.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from pathlib import Path

from kproxy.lab.topology import NODES

_TABLES = ("iptables-save", "ip6tables-save")
UNTIL, COMMANDS = "until", "commands.json"
_STATE = (
    "nft list ruleset",
    "ipset list",
    "ipvsadm -Ln",
    "ipvsadm -Lcn",
    "conntrack -L",
    "conntrack -L -f ipv6",
    "ip address",
    "ip route show table all",
    "ip -6 route show table all",
)


@dataclass(frozen=True, slots=True)
class Stop:
    """``until``: seconds; ``more``: texts of commands, each after the namespace that it runs in: ``client ip route``."""

    until: float
    more: tuple[str, ...] = ()

    def commands(self, tools: Path) -> Iterator[list[str]]:
        """Namespaces with argument vectors: rules, connections and addresses of each node, then ``more``."""
        for node in NODES:
            yield from ([node, str(tools / name)] for name in _TABLES)
            yield from ([node, *text.split()] for text in _STATE)
        yield from map(shlex.split, self.more)


def stop_files(stop: Stop | None) -> dict[str, str]:
    """Texts of the files for `read_until` and `read_stop`, by their names; None: of a universe that is played to its end."""
    until, more = (stop.until, stop.more) if stop else (inf, ())
    return {UNTIL: f"{until:20.6f}", COMMANDS: json.dumps(more)}


def read_until(folder: Path) -> float:
    """Seconds of the files in a folder at which a universe stops; infinity for one that is played to its end."""
    return float((folder / UNTIL).read_text())


def read_stop(folder: Path) -> Stop:
    """Stop of the files in a folder."""
    return Stop(read_until(folder), tuple(json.loads((folder / COMMANDS).read_text())))
