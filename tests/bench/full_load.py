"""What the rules cost at full load: connections per second, and established flows, with the CPU time of both ends.

Part of the bench of the data path (`tests.bench.datapath`): the nodes get their turns of a second one after the other.  All
packets of a node are forwarded in the context of the process that sends, so its CPU time holds what the rules cost.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from rich.console import Console
from rich.table import Table

from kproxy.lab.namespaces import Namespace
from tests.bench import world
from tests.bench.connects import Connector, Destination, Kind, Load
from tests.bench.datapath_results import DIRECT, EXTERNAL, FLOOR, PLACES
from tests.bench.process import Tree
from tests.bench.world import LiveEndpoint

SINK = LiveEndpoint("a1", 9099)
"""The server of flows."""

_SERVICE = "Service"
"""Place of a flow through a cluster IP; which one makes no difference to its later packets."""

_TURN_SECONDS = 1

_UNIT = {Kind.CONNECTIONS: 1.0, Kind.STREAM: 1e6, Kind.DATAGRAMS: 1.0}
"""Counts to the unit shown: connections, MB, datagrams."""

_TITLES = {
    Kind.CONNECTIONS: "connections/s",
    Kind.STREAM: "MB/s of one TCP connection",
    Kind.DATAGRAMS: "datagrams/s of 64 bytes from one port",
}


@dataclass(slots=True)
class Target:
    """One kind of load to one place of a node, with its turns so far."""

    kind: Kind
    place: str
    to: Destination
    turns: list[Load] = field(default_factory=list)

    async def turn(self, connector: Connector, client: Namespace, server: Tree, *, counts: bool) -> None:
        """One turn; new connections are made by as many processes as there are processors."""
        processes = (os.cpu_count() or 1) if self.kind is Kind.CONNECTIONS else 1
        load = await connector.load(
            client, server, self.kind, self.to, seconds=_TURN_SECONDS, processes=processes
        )
        self.turns += [load] if counts else []


def targets(destinations: Mapping[str, Destination]) -> Sequence[Target]:
    """All loads of a node with these destinations of new connections; a node without Services has direct ones alone."""
    new = [place for place in (DIRECT, PLACES[-1], EXTERNAL) if place in destinations]
    found = [Target(Kind.CONNECTIONS, place, destinations[place]) for place in new]
    for kind, live in zip((Kind.STREAM, Kind.DATAGRAMS), world.flows(), strict=True):
        found.append(Target(kind, DIRECT, Destination(SINK.address(), SINK.port)))
        if EXTERNAL in destinations:
            found.append(Target(kind, _SERVICE, Destination(live.cluster_ip, world.PORT)))
    return found


@dataclass(frozen=True, slots=True)
class Loaded:
    """The turns of one node with one kind of load to one place."""

    subject: str
    tools: str
    size: str
    kind: Kind
    place: str
    turns: Sequence[Load]

    @property
    def rate(self) -> float:
        """Median of what was done in a second, in the kind's unit."""
        return statistics.median(turn.count / turn.seconds for turn in self.turns) / _UNIT[self.kind]

    @property
    def cpu(self) -> float:
        """Median of the CPU time of one unit, in microseconds; NaN where nothing was done."""
        each = [1e6 * turn.cpu * _UNIT[self.kind] / turn.count for turn in self.turns if turn.count]
        return statistics.median(each) if each else float("nan")


def show(console: Console, results: Sequence[Loaded]) -> None:
    """For each node: rate, and CPU time of one unit, which is compared with that of the node without rules."""
    for kind in Kind:
        of_kind = [each for each in results if each.kind is kind]
        if not of_kind:
            continue
        places = list(dict.fromkeys(each.place for each in of_kind))
        title = f"{_TITLES[kind]}; us of CPU for each (: no rules)"
        table = Table(title=title, title_justify="left")
        for name in ("", "Services x\nendpoints", *places, "failed"):
            table.add_column(name, no_wrap=True, justify="left" if not name else "right")
        for size, group in groupby(of_kind, key=lambda each: each.size):
            of_size = list(group)
            floor = next(each.cpu for each in of_size if (each.subject, each.place) == (FLOOR, DIRECT))
            for label, of_one in groupby(of_size, key=lambda each: f"{each.subject} {each.tools}"):
                row = {each.place: each for each in of_one}
                cells = (_cell(row[place], floor) if place in row else "" for place in places)
                failed = sum(turn.failed for each in row.values() for turn in each.turns)
                table.add_row(label, size, *cells, str(failed))
            table.add_section()
        console.print(table)


def _cell(each: Loaded, floor: float) -> str:
    return f"{each.rate:,.0f}; {each.cpu:.2f} ({each.cpu / floor:.2f})"


def document(results: Sequence[Loaded]) -> list[Mapping[str, Any]]:
    """All turns, for JSON."""
    return [
        {
            "subject": each.subject,
            "tools": each.tools,
            "size": each.size,
            "kind": each.kind.value,
            "place": each.place,
            "turns": [
                {"count": turn.count, "failed": turn.failed, "cpu": turn.cpu, "seconds": turn.seconds}
                for turn in each.turns
            ],
        }
        for each in results
    ]
