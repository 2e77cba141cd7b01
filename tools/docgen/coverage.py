"""Which behaviour is held by which clause and case, and what is open: docs/spec/coverage.md and coverage.json.

Read from src/kproxy/spec/behaviours.toml, the clauses and the catalogue; written by `tools.docgen`.
"""

from __future__ import annotations

import enum
import json
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from kproxy.conformance.case import Case
from kproxy.conformance.cases import CATALOGUE
from kproxy.spec.clauses import CLAUSES
from tools.docgen import tables

SOURCE = Path(__file__).parents[2] / "src/kproxy/spec/behaviours.toml"
MOST_NAMED = 4
"""Cases that a row names; of the rest it gives the number."""


OWN_PAGES = {
    15: "daemon.md",
    16: "daemon.md",
    17: "daemon.md",
    18: "daemon-configuration.md",
    19: "daemon-life.md",
    21: "backends/ipvs.md",
}
"""Groups of behaviours of a process, or of a mode's insides, which packets do not show: these pages have a row for each (tests/unit/docgen/test_daemon_page.py)."""


class CoverageStatus(enum.Enum):
    """How a behaviour is held."""

    HELD = "held by a clause and a case"
    TESTS = "a matter of the process: kproxy's own tests"
    INSIDE = "not to be seen from outside"
    OPEN = "open"


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """One behaviour.  ``pinned``: the cases that show it, if its clauses alone would name too many.

    ``why``: for those not held, the reason.  ``observed``: whether anyone has observed it.
    """

    id: str
    group: int
    modes: str
    what: str
    observed: bool
    standing: CoverageStatus
    why: str
    pinned: tuple[str, ...]
    clauses: tuple[str, ...] = field(default=())
    cases: tuple[str, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class Group:
    """A chapter of the catalogue of behaviours."""

    number: int
    title: str
    behaviours: tuple[Behaviour, ...]


@cache
def groups() -> tuple[Group, ...]:
    """All groups in order, with the clauses and cases of today."""
    tables_ = tomllib.loads(SOURCE.read_text(encoding="utf-8"))
    return tuple(_group(int(number), dict(table)) for number, table in tables_.items())


def behaviours() -> Iterator[Behaviour]:
    """All behaviours in order."""
    return (behaviour for group in groups() for behaviour in group.behaviours)


def _group(number: int, table: dict[str, Any]) -> Group:
    title = table.pop("title")
    return Group(number, title, tuple(_behaviour(number, id, row) for id, row in table.items()))


def _behaviour(group: int, id: str, row: Mapping[str, Any]) -> Behaviour:
    clauses = tuple(clause.id for clause in CLAUSES.values() if id in clause.behaviours)
    pinned = tuple(row.get("cases", ()))
    cases = pinned or tuple(case.id for case in _cases_citing(clauses))
    standing, why = _standing(row, group, held=bool(clauses and cases))
    return Behaviour(
        id=id,
        group=group,
        modes=row["modes"],
        what=row["what"],
        observed=row.get("seen", True),
        standing=standing,
        why=why,
        pinned=pinned,
        clauses=clauses,
        cases=cases,
    )


def _cases_citing(clauses: Sequence[str]) -> list[Case]:
    return [case for case in CATALOGUE if case.clauses & set(clauses)]


def _standing(row: Mapping[str, Any], group: int, *, held: bool) -> tuple[CoverageStatus, str]:
    for standing in (CoverageStatus.TESTS, CoverageStatus.INSIDE, CoverageStatus.OPEN):
        if why := row.get(standing.name.lower(), ""):
            return standing, why
    if held:
        return CoverageStatus.HELD, ""
    page = OWN_PAGES.get(group)
    return (CoverageStatus.TESTS, f"docs/{page}") if page else (CoverageStatus.OPEN, "")


# --------------------------------------------------------------------------- the pages


def page() -> str:
    """The page for people."""
    parts = [_head()]
    for group in groups():
        rows = map(_row, group.behaviours)
        heading = f"## {group.number}. {group.title}"
        parts.append(
            tables.markdown_table(
                heading, ("behaviour", "what", "modes", "clauses", "cases, or why none"), rows
            )
        )
    return "\n\n".join(parts) + "\n"


def _head() -> str:
    columns = ("group", "behaviours", "with clause", "with case", "own tests", "not from outside", "open")
    return f"""\
<!-- Generated: edit src/kproxy/spec/behaviours.toml, src/kproxy/conformance/cases/ or src/kproxy/spec/catalogue/, then run `{tables.COMMAND}`. -->

# What is covered

Every behaviour of a service proxy that is known to this project, with the [clauses](../catalogue.md#clauses) that promise it and the cases that show it.
For programs: [coverage.json](coverage.json).

{tables.markdown_table("", columns, _sums()).lstrip()}

*Tests* hold what a process does besides packets, and ipvs mode in the kernel: the page that is named has the behaviour's row with them.
*Open* is what no case shows: nobody has seen it yet on a kernel, or this lab cannot show it; the row gives the reason. Behaviours of
other backends' insides (chains, tables) are not listed: they are no promise, and tests of the backends hold them."""


def _sums() -> Iterator[tuple[str, ...]]:
    counted = [(f"{group.number}. {group.title}", group.behaviours) for group in groups()]
    counted.append(("**1 to 13**", tuple(b for b in behaviours() if b.group <= 13)))
    counted.append(("**all**", tuple(behaviours())))
    for name, some in counted:
        standing = Counter(behaviour.standing for behaviour in some)
        with_clause = sum(bool(behaviour.clauses) for behaviour in some)
        kinds = (CoverageStatus.HELD, CoverageStatus.TESTS, CoverageStatus.INSIDE, CoverageStatus.OPEN)
        yield (name, str(len(some)), str(with_clause), *(str(standing[kind]) for kind in kinds))


def _row(behaviour: Behaviour) -> tuple[str, ...]:
    what = behaviour.what if behaviour.observed else f"{behaviour.what} *(read from code, not observed)*"
    clauses = ", ".join(f"[{id}](../catalogue.md#{id})" for id in behaviour.clauses)
    return f"`{behaviour.id}`", what, behaviour.modes, clauses, _cases_or_reason(behaviour)


def _cases_or_reason(behaviour: Behaviour) -> str:
    if behaviour.standing is not CoverageStatus.HELD:
        return f"*{behaviour.standing.name.lower()}*: {behaviour.why}"
    named = [f"`{id}`" for id in behaviour.cases[:MOST_NAMED]]
    more = len(behaviour.cases) - MOST_NAMED
    return ", ".join([*named, f"{more} more"] if more > 0 else named)


def coverage_json() -> str:
    """The same as JSON."""
    entries = {
        behaviour.id: {
            "group": behaviour.group,
            "clauses": behaviour.clauses,
            "cases": behaviour.cases,
            "standing": behaviour.standing.name.lower(),
            **({"why": behaviour.why} if behaviour.why else {}),
        }
        for behaviour in behaviours()
    }
    return json.dumps({"behaviours": entries}, indent=1) + "\n"
