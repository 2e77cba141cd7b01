"""Results read back from the JSON of any run.

Unknown fields are ignored; a missing field is an error that names its place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from kproxy.conformance.reports.results import Result
from kproxy.conformance.reports.results_document import CATALOGUE_FORMAT, RESULTS_FORMAT
from kproxy.conformance.reports.results_upgrade import EARLIER_FORMATS, upgraded


class InvalidResults(Exception):
    """A file that holds no results; the message has the reason and the remedy."""


class StepRead(msgspec.Struct, frozen=True):
    """A step, described; ``lawful`` is empty where nothing is judged."""

    action: str
    lawful: str = ""


class CaseRead(msgspec.Struct, frozen=True):
    """A case as it was when it was run."""

    about: str
    profile: str = ""
    features: tuple[str, ...] = ()
    regressions: tuple[str, ...] = ()
    families: tuple[str, ...] = ()
    steps: tuple[StepRead, ...] = ()


class FindingRead(msgspec.Struct, frozen=True):
    """An unlawful outcome; ``deviation``: the text of the subject's file on it, with a link."""

    family: str
    step: int
    action: str
    lawful: str
    outcome: str
    clauses: tuple[str, ...]
    deviation: str = ""


class ObservationRead(msgspec.Struct, frozen=True):
    """The outcome of a probe; times in seconds."""

    family: str
    step: int
    outcome: str
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
    observations: tuple[ObservationRead, ...] = ()
    evidence: str = ""
    files: tuple[str, ...] = ()


class LatencyRead(msgspec.Struct, frozen=True):
    """Latencies of changes of one kind, in seconds."""

    kind: str
    count: int
    min: float
    median: float
    p99: float
    max: float

    def __str__(self) -> str:
        """One line for people."""
        numbers = f"min {self.min:.2f}, median {self.median:.2f}, p99 {self.p99:.2f}, max {self.max:.2f} s"
        return f"{self.kind}: {numbers} of {self.count}"


class ConvergenceRead(msgspec.Struct, frozen=True):
    """Latencies of changes; ``bound``: the most that 99 of 100 isolated changes may take, in seconds."""

    bound: float
    changes: tuple[LatencyRead, ...]
    slowdown: float = 1.0


class RunRead(msgspec.Struct, frozen=True):
    """One subject in one mode."""

    subject: str
    mode: str
    environment: Mapping[str, str]
    seconds: float
    results: tuple[ResultRead, ...]
    reproduce_command: str = ""
    name: str = ""
    convergence: ConvergenceRead | None = None
    unused_deviations: tuple[str, ...] = ()


class DocumentRead(msgspec.Struct, frozen=True):
    """A document; one of a single run has that run in ``runs``.  ``date``: empty in documents of earlier releases."""

    runs: tuple[RunRead, ...]
    cases: Mapping[str, CaseRead]
    where: str = ""
    date: str = ""


class _Head(msgspec.Struct):
    format: str = ""


def parse_results(data: bytes, where: str) -> DocumentRead:
    """A document from JSON of today's format or an earlier one; ``where`` is its name.  Raises `InvalidResults`."""
    try:
        found = msgspec.json.decode(data, type=_Head).format
        _check_format(found, where)
        document = msgspec.json.decode(data, type=dict[str, Any])
        return _document(upgraded(document) if found in EARLIER_FORMATS else document, where)
    except msgspec.DecodeError as error:
        message = f"{where}: {error}: not what `kproxy conformance run --json` writes"
        raise InvalidResults(message) from error


def _document(document: Mapping[str, Any], where: str) -> DocumentRead:
    if "runs" in document:
        return msgspec.structs.replace(msgspec.convert(document, DocumentRead), where=where)
    run, rest = msgspec.convert(document, RunRead), msgspec.convert(document, _Rest)
    return DocumentRead(runs=(run,), cases=rest.cases, where=where, date=rest.date)


class _Rest(msgspec.Struct):
    """Fields of a document of one run that are not of the run."""

    cases: Mapping[str, CaseRead]
    date: str = ""


def load_results(paths: Sequence[str]) -> list[DocumentRead]:
    """Documents from files, in their order.  Raises `InvalidResults`."""
    return [_load_document(path) for path in paths]


def _load_document(path: str) -> DocumentRead:
    return parse_results(read_document(path), path)


def read_document(path: str) -> bytes:
    """The bytes of a file.  Raises `InvalidResults`."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InvalidResults(f"{path}: {error.strerror}") from error


def _check_format(found: str, where: str) -> None:
    if found == CATALOGUE_FORMAT:
        raise InvalidResults(
            f"{where}: this is a catalogue (`list --json`), not results; give a file that `run --json` wrote"
        )
    if found not in {RESULTS_FORMAT, *EARLIER_FORMATS}:
        problem = f"its format is {found}" if found else "it has no field `format`"
        raise InvalidResults(
            f"{where}: {problem}; this kproxy reads {', '.join((*EARLIER_FORMATS, RESULTS_FORMAT))}: "
            "make the results again with `kproxy conformance run --json FILE`"
        )
