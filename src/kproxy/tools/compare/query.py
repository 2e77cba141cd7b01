"""Sends every frontend probe to both proxies and repeats those whose results differ, to exclude chance.

All probes are sent at once, by number; outstanding results are counted here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import wait

from kproxy.conformance.testbed import Observation
from kproxy.spec.outcome import Expectation, Failure
from kproxy.tools.compare.differences import ProxyDifference, looks_different, proxy_difference
from kproxy.tools.compare.worker import ProbeBatch, ReplicaWorker, WorkerFailed, WorkerReady, WorkerResults
from kproxy.tools.lab_session.frontend_probes import FrontendProbe

QUIET, SHORT, LONG = 0.5, 1.5, 4.0
"""Seconds without a reply that count as silence: where it is lawful; where it is not, the first time and the second time."""

REPROBES = 12
"""Number of repetitions on each side of a probe with different results."""

Progress = Callable[[str], None]


class CannotCompare(Exception):
    """A side cannot be probed; the message has the reason."""


@dataclass(slots=True)
class WorkerRecord:
    """Observations of one side, by the probe's number; ``broken``: probes that could not be observed, and why."""

    answers: dict[int, list[Observation]] = field(default_factory=lambda: defaultdict(list))
    broken: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ComparisonResult:
    """All differences; ``broken``: probes that a side could not observe; ``unserved``: endpoints without a server."""

    probed: int
    differences: tuple[ProxyDifference, ...]
    broken: Mapping[int, str]
    unserved: tuple[str, ...]


def compare_proxies(
    sides: tuple[ReplicaWorker, ReplicaWorker],
    questions: Sequence[FrontendProbe],
    expectations: Sequence[Expectation],
    settled: Callable[[ProxyDifference], bool],
    progress: Progress,
) -> ComparisonResult:
    """Compare two sides; probes whose difference is not ``settled`` are repeated, to exclude chance.

    Raises `CannotCompare`.
    """
    progress("both proxies apply the objects")
    unserved = _ready(sides)
    records = (WorkerRecord(), WorkerRecord())
    first = [ProbeBatch(number, _patience(expectations[number], SHORT)) for number in range(len(questions))]
    _query(sides, records, first, progress)
    numbers = [number for number in range(len(questions)) if _complete(records, number)]

    def held(number: int) -> ProxyDifference | None:
        one, other = (record.answers[number] for record in records)
        return proxy_difference(questions[number], expectations[number], one, other)

    def doubtful(number: int) -> bool:
        one, other = (record.answers[number] for record in records)
        found = held(number)
        return looks_different(one, other, expectations[number]) and not (found and settled(found))

    doubts = [ProbeBatch(n, _patience(expectations[n], LONG), REPROBES) for n in numbers if doubtful(n)]
    for record in records:
        for doubt in doubts:
            record.answers[doubt.number].clear()  # on a busy machine a reply may have come too late
    _query(sides, records, doubts, progress)
    found = (held(number) for number in numbers if _complete(records, number))
    broken = {**records[0].broken, **records[1].broken}
    return ComparisonResult(len(questions), tuple(one for one in found if one is not None), broken, unserved)


def _patience(expectation: Expectation, otherwise: float) -> float:
    return QUIET if Failure.DROPPED in expectation.outcomes else otherwise


def _complete(records: tuple[WorkerRecord, WorkerRecord], number: int) -> bool:
    return all(record.answers[number] and number not in record.broken for record in records)


def _ready(sides: tuple[ReplicaWorker, ReplicaWorker]) -> tuple[str, ...]:
    unserved: tuple[str, ...] = ()
    for side in sides:
        match side.receive():
            case WorkerReady(unserved=deaf):
                unserved = deaf
            case WorkerFailed(reason=reason):
                raise CannotCompare(f"{side.name}: {reason}")
            case WorkerResults():
                raise AssertionError("an answer before a question")
    return unserved


def _query(
    sides: tuple[ReplicaWorker, ReplicaWorker],
    records: tuple[WorkerRecord, WorkerRecord],
    batch: Sequence[ProbeBatch],
    progress: Progress,
) -> None:
    total = sum(probe.count for probe in batch)
    left = [total, total]
    if not total:
        return
    for side in sides:
        side.send(batch)
    pipes = {side.pipe: at for at, side in enumerate(sides)}
    while any(left):
        for pipe in wait([pipe for pipe, at in pipes.items() if left[at]]):
            at = pipes[pipe]  # type: ignore[index]
            left[at] -= _take(sides[at], records[at])
        progress(f"{2 * total - sum(left)} of {2 * total} packets")


def _take(side: ReplicaWorker, record: WorkerRecord) -> int:
    match side.receive():
        case WorkerResults(answers=answers):
            for number, seen in answers:
                if isinstance(seen, str):
                    record.broken[number] = seen
                else:
                    record.answers[number].append(seen)
            return len(answers)
        case WorkerFailed(reason=reason):
            raise CannotCompare(f"{side.name}: {reason}")
        case WorkerReady():
            raise AssertionError("ready twice")
