"""Results of the data path bench as values, and as a table and a plot.

Times are those of connect(2): a SYN there, a SYN with ACK back, through the rules of one node both ways; of UDP those of a
datagram and its reply, which the server's wake-up is part of.  What a proxy costs is the difference to the node without any rules, in the same run.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from rich.console import Console
from rich.table import Table

FLOOR = "no rules"
"""Name of the node without a proxy and without any rule."""

TRACKED = "tracking alone"
"""Name of the node whose connections are tracked and pass the hooks of nat, where a rule accepts them at once."""

FLOORS = (FLOOR, TRACKED)

DIRECT = "direct"
"""To the pod itself: traffic that no Service serves."""

PLACES = ("first", "middle", "last")
"""Of a Service's rules among those of all Services."""

CROWD = "crowd"
"""To a Service of thousands of endpoints."""

NODE_PORT = "node port"
"""Through the node port whose rule comes last."""

EXTERNAL = "external IP"
"""Through the external IP whose rule comes last."""

DIRECT_IPV6, IPV6 = "direct, IPv6", "last, IPv6"
DIRECT_UDP, UDP = "direct, UDP", "last, UDP"

CHURN = ("endpoints", "Services")
"""Churn during which direct connections and those through the last Service are measured: 50 endpoints a second, a Service a second."""


def amid(place: str, churn: str) -> str:
    """Name of a place while something changes."""
    return f"{place}, {churn}"


FLOOR_OF = {IPV6: DIRECT_IPV6, DIRECT_IPV6: DIRECT_IPV6, UDP: DIRECT_UDP, DIRECT_UDP: DIRECT_UDP} | {
    amid(place, churn): amid(DIRECT, churn) for place in (DIRECT, PLACES[-1]) for churn in CHURN
}
"""What a place is compared with on the node without rules; others with `DIRECT`."""

_TABLES = {
    "TCP connect over IPv4": (DIRECT, *PLACES, CROWD),
    "Node ports, external IPs, IPv6 and UDP": (NODE_PORT, EXTERNAL, DIRECT_IPV6, IPV6, DIRECT_UDP, UDP),
    "TCP connect, while 50 endpoints change a second, and while a Service comes and goes each second": tuple(
        amid(place, churn) for churn in CHURN for place in (DIRECT, PLACES[-1])
    ),
}


@dataclass(frozen=True, slots=True)
class Samples:
    """Connections of one node to one place; ``nanoseconds`` ascending, ``failed``: how many were not made."""

    subject: str
    mode: str
    variant: str
    size: str
    place: str
    nanoseconds: Sequence[int]
    failed: int

    @property
    def median(self) -> float:
        """In microseconds."""
        return statistics.median(self.nanoseconds) / 1000 if self.nanoseconds else float("nan")

    @property
    def p99(self) -> float:
        """In microseconds: 99 of 100 are quicker."""
        return (
            self.nanoseconds[len(self.nanoseconds) * 99 // 100] / 1000 if self.nanoseconds else float("nan")
        )

    @property
    def services(self) -> int:
        """How many there were."""
        return int(self.size.partition("x")[0])


def floor_of(samples: Iterable[Samples], place: str) -> float:
    """Median of the node without rules to where a place is compared with, in microseconds; the samples are of one run."""
    compared = FLOOR_OF.get(place, DIRECT)
    return next(each.median for each in samples if each.subject == FLOOR and each.place == compared)


def show(console: Console, samples: Sequence[Samples]) -> None:
    """For each node and size: median and p99 by place, and how the medians compare with the floor's."""
    for title, columns in _TABLES.items():
        if not any(each.place in columns for each in samples):
            continue
        table = Table(title=f"{title}, us: median / p99 (median : no rules)", title_justify="left")
        for name in ("", "Services x\nendpoints", *columns, "failed"):
            table.add_column(name, no_wrap=True, justify="left" if not name else "right")
        for (size, _), group in groupby(samples, key=lambda each: (each.size, each.variant)):
            of_size = list(group)
            for label, places in groupby(of_size, key=_label):
                of_columns = [each for each in places if each.place in columns]
                table.add_row(label, size, *_cells(of_columns, of_size, columns))
            table.add_section()
        console.print(table)


def _cells(places: Sequence[Samples], run: Sequence[Samples], columns: Sequence[str]) -> list[str]:
    cells = {
        each.place: f"{each.median:.1f} / {each.p99:.0f} ({each.median / floor_of(run, each.place):.2f})"
        for each in places
    }
    return [*(cells.get(place, "") for place in columns), str(sum(each.failed for each in places))]


def document(samples: Sequence[Samples], environment: Mapping[str, str]) -> dict[str, object]:
    """What follows from all samples, for JSON."""
    return {"environment": dict(environment), "results": [_entry(each) for each in samples]}


def _entry(each: Samples) -> dict[str, object]:
    return {
        "subject": each.subject,
        "mode": each.mode,
        "iptables": each.variant,
        "size": each.size,
        "place": each.place,
        "median_us": each.median,
        "p99_us": each.p99,
        "connections": len(each.nanoseconds),
        "failed": each.failed,
    }


def plot(samples: Sequence[Samples], path: Path) -> bool:
    """Draw the medians of direct traffic and of the last Service against the number of Services; False without matplotlib."""
    try:
        from matplotlib.figure import Figure  # type: ignore[import-not-found,unused-ignore] # noqa: PLC0415 - optional
    except ImportError:
        return False
    figure = Figure(figsize=(10, 4), layout="constrained")
    for axes, place in zip(figure.subplots(1, 2, sharey=True), (DIRECT, PLACES[-1]), strict=True):
        for name in dict.fromkeys(_label(each) for each in samples):
            points = sorted(
                (e.services, e.median) for e in samples if _label(e) == name and e.place in {place, _floor(e)}
            )
            axes.plot(*zip(*points, strict=True), marker="o", label=name)
        axes.set(title=place, xscale="log", yscale="log", xlabel="Services", ylabel="connect, us (median)")
        axes.legend()
    figure.savefig(path)
    return True


def _label(each: Samples) -> str:
    return each.subject if each.subject in FLOORS else f"{each.subject} {each.mode} {each.variant}"


def _floor(each: Samples) -> str:
    """The floors have direct traffic alone, and stand in each panel."""
    return DIRECT if each.subject in FLOORS else ""
