"""Results read back from the JSON of any run.

What is there beyond the fields named here is passed over; what is missing is told with its place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from kproxy.conformance.reports.results import Result
from kproxy.conformance.reports.results_document import CATALOGUE_FORMAT, READABLE_FORMATS, RESULTS_FORMAT


class InvalidResults(Exception):
    """A file that holds no results; says what is wrong and what to do."""


class StepRead(msgspec.Struct, frozen=True):
    """A step in words; ``lawful`` is empty where nothing is judged."""

    what: str
    lawful: str = ""


class CaseRead(msgspec.Struct, frozen=True):
    """What was asked."""

    about: str
    profile: str = ""
    features: tuple[str, ...] = ()
    regressions: tuple[str, ...] = ()
    families: tuple[str, ...] = ()
    steps: tuple[StepRead, ...] = ()


class FindingRead(msgspec.Struct, frozen=True):
    """One thing seen that is not lawful."""

    family: str
    step: int
    what: str
    lawful: str
    seen: str
    clauses: tuple[str, ...]
    known: str = ""


class ObservedRead(msgspec.Struct, frozen=True):
    """What a question met; times in seconds."""

    family: str
    step: int
    seen: str
    at: float = 0.0
    seconds: float = 0.0


class ResultRead(msgspec.Struct, frozen=True):
    """The result of one case."""

    id: str
    result: Result
    clauses: tuple[str, ...]
    seconds: float
    reason: str = ""
    findings: tuple[FindingRead, ...] = ()
    observed: tuple[ObservedRead, ...] = ()
    evidence: str = ""
    files: tuple[str, ...] = ()


class LatencyRead(msgspec.Struct, frozen=True):
    """How long changes of a kind took, in seconds."""

    what: str
    number: int
    min: float
    median: float
    p99: float
    max: float

    def __str__(self) -> str:
        """For people."""
        numbers = f"min {self.min:.2f}, median {self.median:.2f}, p99 {self.p99:.2f}, max {self.max:.2f} s"
        return f"{self.what}: {numbers} of {self.number}"


class ConvergenceRead(msgspec.Struct, frozen=True):
    """How long changes took; ``bound``: what 99 of 100 that came alone may take."""

    bound: float
    changes: tuple[LatencyRead, ...]
    slowness: float = 1.0


class RunRead(msgspec.Struct, frozen=True):
    """One subject in one mode."""

    subject: str
    mode: str
    environment: Mapping[str, str]
    seconds: float
    results: tuple[ResultRead, ...]
    again: str = ""
    name: str = ""
    convergence: ConvergenceRead | None = None
    unneeded: tuple[str, ...] = ()


class DocumentRead(msgspec.Struct, frozen=True):
    """A document; one of a single run has that run in ``runs``."""

    runs: tuple[RunRead, ...]
    cases: Mapping[str, CaseRead]
    where: str = ""


class _Head(msgspec.Struct):
    format: str = ""
    runs: msgspec.Raw = msgspec.Raw(b"")


class _Single(msgspec.Struct):
    cases: Mapping[str, CaseRead]


def parse_results(data: bytes, where: str) -> DocumentRead:
    """A document from JSON; ``where`` is its name.  Raises `InvalidResults`."""
    try:
        head = msgspec.json.decode(data, type=_Head)
        _check_format(head.format, where)
        if bytes(head.runs):
            read = msgspec.json.decode(data, type=DocumentRead)
            return msgspec.structs.replace(read, where=where)
        cases = msgspec.json.decode(data, type=_Single).cases
        return DocumentRead(runs=(msgspec.json.decode(data, type=RunRead),), cases=cases, where=where)
    except msgspec.DecodeError as error:
        message = f"{where}: {error}: not what `kproxy conformance run --json` writes"
        raise InvalidResults(message) from error


def load_results(paths: Sequence[str]) -> list[DocumentRead]:
    """Documents from files, in their order.  Raises `InvalidResults`."""
    return [_load_document(path) for path in paths]


def _load_document(path: str) -> DocumentRead:
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise InvalidResults(f"{path}: {error.strerror}") from error
    return parse_results(data, path)


def _check_format(found: str, where: str) -> None:
    if found == CATALOGUE_FORMAT:
        raise InvalidResults(f"{where}: that is a catalogue (`list --json`), not results (`run --json`)")
    if found not in {RESULTS_FORMAT, *READABLE_FORMATS}:
        says = f"its format is {found}" if found else "it does not say its format"
        raise InvalidResults(
            f"{where}: {says}, this kproxy reads {RESULTS_FORMAT}: run it again with `run --json FILE`"
        )
