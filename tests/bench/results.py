"""Results of a run as values, and their goals.  Pure.

Times are seconds, memory is bytes.  A ratio sets best against best, or median against median, of
samples taken turn by turn in the same run: what else the machine does then disturbs both alike.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

MEGABYTE = 1_000_000


@dataclass(frozen=True, slots=True)
class Cost:
    """Wall and CPU seconds, children included."""

    seconds: float
    cpu: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """The bare tool on the same rules: the whole set in each way that was tried, and one Service's chains."""

    whole: Mapping[str, Sequence[Cost]]
    service: Sequence[float]

    @property
    def best_way(self) -> str:
        """The way of writing the whole set that was quickest."""
        return min(self.whole, key=lambda way: _best(self.whole[way]))

    @property
    def best(self) -> Cost:
        """Its quickest run."""
        return min(self.whole[self.best_way], key=lambda cost: cost.seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One proxy in one mode at one size.

    ``starts``: from the start of the process until Services answer; ``first``: the first programming, from
    the moment it has requested its Services and EndpointSlices.  ``changes``: from an EndpointSlice
    written until the new endpoint answers.  ``additions``: from a Service and its slice written until it
    answers.  ``rules`` None: they could not be counted.  ``floor`` None: there is none for the mode.
    """

    subject: str
    mode: str
    variant: str
    size: str
    starts: Sequence[Cost]
    first: Sequence[float]
    changes: Sequence[float]
    cpu_per_change: float
    additions: Sequence[float]
    daemon_peak: int
    tree_peak: int
    rules: int | None
    floor: Floor | None

    @property
    def best_start(self) -> Cost:
        """The quickest start."""
        return min(self.starts, key=lambda cost: cost.seconds)

    @property
    def endpoints(self) -> int:
        """Of all Services together."""
        services, _, each = self.size.partition("x")
        return int(services) * int(each)

    @property
    def tools(self) -> str:
        """The mode and, where it has any, the variant of the tools."""
        return f"{self.mode} {self.variant}" if self.mode == "iptables" else self.mode

    @property
    def first_ratio(self) -> float | None:
        """First programming to the bare tool's."""
        return min(self.first) / self.floor.best.seconds if self.floor else None

    @property
    def start_ratio(self) -> float | None:
        """Start to programmed, the interpreter's own start included, to the bare tool."""
        return self.best_start.seconds / self.floor.best.seconds if self.floor else None

    @property
    def start_cpu_ratio(self) -> float | None:
        """The same of CPU seconds: it is the better measure where other work keeps the processors busy."""
        if self.floor is None:
            return None
        return min(cost.cpu for cost in self.starts) / min(
            cost.cpu for cost in self.floor.whole[self.floor.best_way]
        )

    @property
    def change_ratio(self) -> float | None:
        """One endpoint change to restoring one Service's chains."""
        return median(self.changes) / median(self.floor.service) if self.floor else None

    @property
    def _memory_goal(self) -> float | None:
        return MEMORY_GOAL if self.endpoints <= MEMORY_UP_TO else None

    def goals(self) -> tuple[Goal, ...]:
        """The goals for which there are figures."""
        judged = (
            ("first programming / floor", self.first_ratio, FIRST_GOALS.get(self.tools)),
            ("start to programmed / floor", self.start_ratio, START_GOALS.get(self.tools)),
            ("endpoint change / floor", self.change_ratio, CHANGE_GOAL),
            ("peak memory of the daemon, MB", self.daemon_peak / MEGABYTE, self._memory_goal),
        )
        return tuple(
            Goal(name, value, most) for name, value, most in judged if value is not None and most is not None
        )


FIRST_GOALS = {"iptables nft": 2.5, "iptables legacy": 2.5}
"""By mode and variant.  The legacy tool writes 85,000 rules in half a second, about as long as it takes to plan 25,000
endpoints in Python; the text of the rules is another half a second, made while the tool reads."""
START_GOALS = {"nftables": 3.0}
CHANGE_GOAL = 3.0
MEMORY_GOAL = 250.0
MEMORY_UP_TO = 50_000
"""Endpoints up to which memory has a goal: it is stated for 25,000, and must hold for twice as many."""
GROWTH_GOAL = 1.5
CONSTANT = {"nftables"}
"""Modes in which a change must cost the same at any size."""
BOUND_FROM = 25_000
"""Endpoints from which on goals bind: in smaller clusters the start of the interpreter is what takes the time."""


def growth(results: Sequence[Result]) -> tuple[Goal, ...]:
    """Goals on the cost of changes at each size from `BOUND_FROM` on, relative to the smallest of the same mode."""
    goals = []
    for mode in dict.fromkeys(result.tools for result in results if result.mode in CONSTANT):
        smallest, *others = sorted((r for r in results if r.tools == mode), key=lambda r: r.endpoints)
        for other in (r for r in others if r.endpoints >= BOUND_FROM):
            name = f"{mode}: endpoint change at {other.size} / at {smallest.size}"
            goals.append(Goal(name, median(other.changes) / median(smallest.changes), GROWTH_GOAL))
    return tuple(goals)


@dataclass(frozen=True, slots=True)
class Goal:
    """A figure and the most it may be."""

    name: str
    value: float
    most: float

    @property
    def reached(self) -> bool:
        """True if the figure is within its limit."""
        return self.value <= self.most


def median(samples: Sequence[float]) -> float:
    """Their median; NaN when there are none."""
    return statistics.median(samples) if samples else float("nan")


def document(results: Sequence[Result], environment: Mapping[str, str]) -> dict[str, object]:
    """All samples and what follows from them, for JSON."""
    return {"environment": dict(environment), "results": [_entry(result) for result in results]}


def _entry(result: Result) -> dict[str, object]:
    return {
        "subject": result.subject,
        "mode": result.mode,
        "iptables": result.variant,
        "size": result.size,
        "start": list(result.starts),
        "first_programming_seconds": list(result.first),
        "endpoint_change_seconds": list(result.changes),
        "endpoint_change_cpu_seconds": result.cpu_per_change,
        "new_service_seconds": list(result.additions),
        "daemon_peak_bytes": result.daemon_peak,
        "tree_peak_bytes": result.tree_peak,
        "rules": result.rules,
        "floor": result.floor,
        "start_cpu_ratio": result.start_cpu_ratio,
        "goals": [
            {"name": goal.name, "value": goal.value, "most": goal.most, "reached": goal.reached}
            for goal in result.goals()
        ],
    }


def _best(costs: Sequence[Cost]) -> float:
    return min(cost.seconds for cost in costs)
