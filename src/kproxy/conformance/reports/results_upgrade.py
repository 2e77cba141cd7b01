"""Results of earlier formats as documents of today's.  Pure.

Format 2 had other names of fields.  Format 1 had those of format 2, and its findings cite all clauses of their cases.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Json = dict[str, Any]

EARLIER_FORMATS = ("kproxy-results/1", "kproxy-results/2")
"""Formats of earlier results that can still be read."""

_RUN = {"again": "reproduce_command", "unneeded": "unused_deviations"}
_CONVERGENCE = {"slowness": "slowdown"}
_CHANGE = {"what": "kind", "number": "count"}
_RESULT = {"observed": "observations"}
_FINDING = {"what": "action", "seen": "outcome", "known": "deviation"}
_OBSERVATION = {"seen": "outcome"}
_STEP = {"what": "action"}


def upgraded(document: Json) -> Json:
    """A document of an earlier format with today's names of fields; the document itself is changed."""
    for names, part in list(_parts(document)):
        for old, new in names.items():
            if old in part:
                part[new] = part.pop(old)
    return document


def _parts(document: Json) -> Iterator[tuple[Mapping[str, str], Json]]:
    """Every object of a document whose fields have other names now; what has another shape is passed over."""
    for run in _objects(document, "runs") or [document]:
        yield _RUN, run
        convergence = run.get("convergence")
        if isinstance(convergence, dict):
            yield _CONVERGENCE, convergence
            yield from ((_CHANGE, change) for change in _objects(convergence, "changes"))
        for result in _objects(run, "results"):
            yield _RESULT, result
            yield from ((_FINDING, finding) for finding in _objects(result, "findings"))
            yield from ((_OBSERVATION, one) for one in _objects(result, "observed"))
    cases = document.get("cases")
    for case in cases.values() if isinstance(cases, dict) else ():
        if isinstance(case, dict):
            yield from ((_STEP, step) for step in _objects(case, "steps"))


def _objects(parent: Json, field: str) -> list[Json]:
    items = parent.get(field)
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []
