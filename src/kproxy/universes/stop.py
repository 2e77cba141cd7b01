"""Stop of a universe before its end: the time, and the commands that read the state then. Pure.

A universe repeats itself, so another look at the same moment is another run with other commands.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kproxy.lab.topology import NODES

_TABLES = ("iptables-save", "ip6tables-save")
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

    @property
    def arguments(self) -> tuple[str, ...]:
        """Arguments of `kproxy.universes.__main__` for `parse_stop`."""
        return (str(self.until), *self.more)


def parse_stop(arguments: list[str]) -> Stop | None:
    """Stop of these arguments; none where there are none."""
    return Stop(float(arguments[0]), tuple(arguments[1:])) if arguments else None
