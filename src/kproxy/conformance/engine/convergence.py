"""Network programming latency: from the commit of a change at the API server until a node has it in effect. Pure.

Definition of the measure, and of the bound
(https://github.com/kubernetes/community/blob/main/sig-scalability/slos/network_programming_latency.md):

- Upstream's indicator is the time from a change of a Service or of its ready pods until it is reflected in one node's
  load balancing, as a 99th percentile; its objective leaves the number open ("<= X").  It applies in steady state only, while at
  most 20 things change in a second.  So isolated changes are judged; those that come with hundreds are reported.
- The reference of virtual IPs documents what a change may wait for: ``minSyncPeriod``, 1 s by default (the lab sets 10 ms, but
  where changes come alone).
  ``syncPeriod``, 30 s by default, has nothing to do with single changes.
- Upstream's own tests accept 30 s with 5,000 nodes and their load (kubernetes/perf-tests#2407); the lab has two, and nothing else to do.

`BOUND` is five times the longest pacing that is documented as a default, and a sixth of the resync that must not be
waited for. A slow machine is not the subject's failure, hence two controls: the time in which the harness itself was
stalled is subtracted, and the rest is divided by the slowness of a fixed piece of work meanwhile
(`kproxy.conformance.testbeds.lag`).
"""

from __future__ import annotations

import enum
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kproxy.model.network import Family

BOUND = 5.0
"""Bound of the 99th percentile, in seconds."""

ISOLATED = "a change that comes alone"
"""Name of the distribution that is judged: all kinds of isolated changes together."""

_PERCENTILE = 99


class ChangeKind(enum.Enum):
    """Kind of change; the values are those of reports."""

    CREATED = "a Service is created"
    MOVED = "its endpoint changes"
    PORT = "its port changes"
    DELETED = "it is deleted"
    TOGETHER = "a Service is created after a round's other changes"


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencySample:
    """One change on one node, in one family; ``seconds``: from its commit until it was observed in effect.

    ``stalled``: seconds of these in which the harness was stalled; ``slowness``: factor by which a fixed piece of
    work took longer than it should, at least 1.
    """

    kind: ChangeKind
    node: str
    family: Family
    seconds: float
    stalled: float = 0.0
    slowness: float = 1.0

    @property
    def isolated(self) -> bool:
        """True if nothing else changed."""
        return self.kind is not ChangeKind.TOGETHER

    @property
    def adjusted_seconds(self) -> float:
        """Latency attributable to the subject: harness stalls subtracted, divided by the machine's measured slowness."""
        return max(self.seconds - self.stalled, 0.0) / self.slowness


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """Latency distribution in seconds: sample count, minimum, median, 99th percentile, maximum."""

    number: int
    least: float
    median: float
    p99: float
    most: float

    def __str__(self) -> str:
        """Text for reports."""
        numbers = f"min {self.least:.2f}, median {self.median:.2f}, p99 {self.p99:.2f}, max {self.most:.2f} s"
        return f"{numbers} of {self.number}"


def summarise(seconds: Iterable[float]) -> Distribution:
    """Distribution of some numbers, at least one; the percentile is the nearest rank."""
    values = sorted(seconds)
    return Distribution(
        number=len(values),
        least=values[0],
        median=statistics.median(values),
        p99=_p99(values),
        most=values[-1],
    )


def _p99(values: Sequence[float]) -> float:
    return values[math.ceil(len(values) * _PERCENTILE / 100) - 1]


def distributions_by_kind(samples: Sequence[LatencySample]) -> Mapping[str, Distribution]:
    """Latency distributions: of all isolated changes together, and of each kind of change."""
    alone = [one.seconds for one in samples if one.isolated]
    kinds = {kind.value: [one.seconds for one in samples if one.kind is kind] for kind in ChangeKind}
    every = {ISOLATED: alone, **kinds}
    return {name: summarise(seconds) for name, seconds in every.items() if seconds}


def latency_objective() -> str:
    """Text of the objective."""
    return f"99 of 100 changes that come alone in effect within {BOUND:g} s"


def meets_objective(samples: Sequence[LatencySample]) -> bool:
    """True if the 99th percentile of isolated changes is within `BOUND`; there must be at least one."""
    return _p99(sorted(one.adjusted_seconds for one in samples if one.isolated)) <= BOUND


def describe_latency(samples: Sequence[LatencySample]) -> str:
    """Text of the latencies of isolated changes, the slowest, and the correction by the controls."""
    alone = [one for one in samples if one.isolated]
    slowest = max(alone, key=lambda one: one.adjusted_seconds)
    where = f"{slowest.kind.value}: {slowest.seconds:.2f} s on node {slowest.node}"
    controls = ""
    if slowest.adjusted_seconds < slowest.seconds:
        controls = f" ({slowest.adjusted_seconds:.2f} s of them the subject's: the machine was {slowest.slowness:.1f} times slower than usual)"
    return f"{summarise(one.seconds for one in alone)}; the slowest, {where}{controls}"
