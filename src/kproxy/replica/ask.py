"""Ask both sides everything, then again what looks different: numbers out, answers in.

All questions go out at once; which answers are due is counted here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import wait

from kproxy.conformance.testbed import Observation
from kproxy.replica.differences import Difference, difference, looks_different
from kproxy.replica.questions import Question
from kproxy.replica.side import Asking, Failed, Ready, Seen, Side
from kproxy.spec.outcome import Expectation, Failure

QUIET, SHORT, LONG = 0.5, 1.5, 4.0
"""Seconds of silence that are believed: where it is lawful; where it is not, the first time and the second time."""

AGAIN = 12
"""How often each side is asked again what looks different: so that chance is seen to be chance."""

Progress = Callable[[str], None]


class CannotCompare(Exception):
    """A side cannot be asked; the message says why."""


@dataclass(slots=True)
class Record:
    """What one side has answered, by the question's number; ``broken``: what could not be observed, and why."""

    answers: dict[int, list[Observation]] = field(default_factory=lambda: defaultdict(list))
    broken: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Compared:
    """Every difference; ``broken``: questions that a side could not observe; ``unserved``: deaf endpoints."""

    asked: int
    differences: tuple[Difference, ...]
    broken: Mapping[int, str]
    unserved: tuple[str, ...]


def compare(
    sides: tuple[Side, Side],
    questions: Sequence[Question],
    expectations: Sequence[Expectation],
    settled: Callable[[Difference], bool],
    progress: Progress,
) -> Compared:
    """Hold two sides against each other; what is not ``settled`` is asked again, to leave chance out.

    Raises `CannotCompare`.
    """
    progress("both proxies apply the objects")
    unserved = _ready(sides)
    records = (Record(), Record())
    first = [Asking(number, _patience(expectations[number], SHORT)) for number in range(len(questions))]
    _ask(sides, records, first, progress)
    numbers = [number for number in range(len(questions)) if _complete(records, number)]

    def held(number: int) -> Difference | None:
        one, other = (record.answers[number] for record in records)
        return difference(questions[number], expectations[number], one, other)

    def doubtful(number: int) -> bool:
        one, other = (record.answers[number] for record in records)
        found = held(number)
        return looks_different(one, other, expectations[number]) and not (found and settled(found))

    doubts = [Asking(n, _patience(expectations[n], LONG), AGAIN) for n in numbers if doubtful(n)]
    for record in records:
        for doubt in doubts:
            record.answers[doubt.number].clear()  # on a busy machine an answer may have come too late
    _ask(sides, records, doubts, progress)
    found = (held(number) for number in numbers if _complete(records, number))
    broken = {**records[0].broken, **records[1].broken}
    return Compared(len(questions), tuple(one for one in found if one is not None), broken, unserved)


def _patience(expectation: Expectation, otherwise: float) -> float:
    return QUIET if Failure.DROPPED in expectation.outcomes else otherwise


def _complete(records: tuple[Record, Record], number: int) -> bool:
    return all(record.answers[number] and number not in record.broken for record in records)


def _ready(sides: tuple[Side, Side]) -> tuple[str, ...]:
    unserved: tuple[str, ...] = ()
    for side in sides:
        match side.told():
            case Ready(unserved=deaf):
                unserved = deaf
            case Failed(reason=reason):
                raise CannotCompare(f"{side.name}: {reason}")
            case Seen():
                raise AssertionError("an answer before a question")
    return unserved


def _ask(
    sides: tuple[Side, Side], records: tuple[Record, Record], asking: Sequence[Asking], progress: Progress
) -> None:
    total = sum(ask.count for ask in asking)
    left = [total, total]
    if not total:
        return
    for side in sides:
        side.ask(asking)
    pipes = {side.pipe: at for at, side in enumerate(sides)}
    while any(left):
        for pipe in wait([pipe for pipe, at in pipes.items() if left[at]]):
            at = pipes[pipe]  # type: ignore[index]
            left[at] -= _take(sides[at], records[at])
        progress(f"{2 * total - sum(left)} of {2 * total} packets")


def _take(side: Side, record: Record) -> int:
    match side.told():
        case Seen(answers=answers):
            for number, seen in answers:
                if isinstance(seen, str):
                    record.broken[number] = seen
                else:
                    record.answers[number].append(seen)
            return len(answers)
        case Failed(reason=reason):
            raise CannotCompare(f"{side.name}: {reason}")
        case Ready():
            raise AssertionError("ready twice")
