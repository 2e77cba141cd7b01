"""Which behaviour is held by which clause and case, and what is open: docs/spec/coverage.md and coverage.json.

Read from src/kproxy/spec/behaviours.toml, the clauses and the catalogue; written by `tools.docgen`.
"""

from __future__ import annotations

import enum
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, groupby

from kproxy.conformance.case import Case
from kproxy.conformance.cases import CATALOGUE
from kproxy.spec.behaviours import BEHAVIOURS, Behaviour
from kproxy.spec.clauses import CLAUSES
from kproxy.spec.topics import TOPICS
from tools.docgen import tables

MOST_NAMED = 4
"""Cases that a row names; of the rest it gives the number."""

OWN_PAGES = {
    "health": "daemon.md",
    "metrics": "daemon.md",
    "configuration": "daemon-configuration.md",
    "restart": "daemon-life.md",
    "ipvs": "backends/ipvs.md",
}
"""Topics with behaviours of a process, or of a mode's insides, which packets do not show.

These pages have a row for each (tests/unit/docgen/test_daemon_page.py).
"""


class CoverageStatus(enum.Enum):
    """How a behaviour is held."""

    HELD = "held by a clause and a case"
    TESTS = "a matter of the process: kproxy's own tests"
    INSIDE = "not to be seen from outside"
    OPEN = "open"


@dataclass(frozen=True, slots=True, kw_only=True)
class CoveredBehaviour:
    """A behaviour with the clauses and cases of today; ``why``: for those not held, the reason."""

    behaviour: Behaviour
    standing: CoverageStatus
    why: str
    clauses: tuple[str, ...]
    cases: tuple[str, ...]

    @property
    def id(self) -> str:
        """The behaviour's ID."""
        return self.behaviour.id

    @property
    def topic(self) -> str:
        """The behaviour's topic."""
        return self.behaviour.topic


@cache
def by_topic() -> Mapping[str, tuple[CoveredBehaviour, ...]]:
    """The behaviours of each topic that has some, in order."""
    found = groupby(map(_covered, BEHAVIOURS.values()), key=lambda each: each.topic)
    return {topic: tuple(members) for topic, members in found}


def behaviours() -> Iterator[CoveredBehaviour]:
    """All behaviours in order."""
    return chain.from_iterable(by_topic().values())


def _covered(behaviour: Behaviour) -> CoveredBehaviour:
    clauses = tuple(clause.id for clause in CLAUSES.values() if behaviour.id in clause.behaviours)
    cases = behaviour.cases or tuple(case.id for case in _cases_citing(clauses))
    standing, why = _standing(behaviour, held=bool(clauses and cases))
    return CoveredBehaviour(behaviour=behaviour, standing=standing, why=why, clauses=clauses, cases=cases)


def _cases_citing(clauses: Sequence[str]) -> list[Case]:
    return [case for case in CATALOGUE if case.clauses & set(clauses)]


def _standing(behaviour: Behaviour, *, held: bool) -> tuple[CoverageStatus, str]:
    for standing in (CoverageStatus.TESTS, CoverageStatus.INSIDE, CoverageStatus.OPEN):
        if why := getattr(behaviour, standing.name.lower()):
            return standing, why
    if held:
        return CoverageStatus.HELD, ""
    page = OWN_PAGES.get(behaviour.topic)
    return (CoverageStatus.TESTS, f"docs/{page}") if page else (CoverageStatus.OPEN, "")


# --------------------------------------------------------------------------- the pages


def page() -> str:
    """The page for people."""
    parts = [_head()]
    columns = ("behaviour", "what", "modes", "clauses", "cases, or why none")
    for topic, members in by_topic().items():
        table = tables.markdown_table("", columns, map(_row, members)).lstrip()
        parts += [f"## {topic}", f"{TOPICS[topic].about} [Clauses and cases](topics/{topic}.md).", table]
    return "\n\n".join(parts) + "\n"


def _head() -> str:
    columns = ("topic", "behaviours", "with clause", "with case", "own tests", "not from outside", "open")
    return f"""\
<!-- Generated: edit src/kproxy/spec/behaviours.toml, src/kproxy/conformance/cases/ or src/kproxy/spec/clauses/, then run `{tables.COMMAND}`. -->

# What is covered

Every behaviour of a service proxy that is known to this project, with the [clauses](../catalogue.md#clauses) that promise it and the cases that show it.
For programs: [coverage.json](coverage.json).

{tables.markdown_table("", columns, _sums()).lstrip()}

*Tests* hold what a process does besides packets, and ipvs mode in the kernel: the page that is named has the behaviour's row with them.
*Open* is what no case shows: nobody has seen it yet on a kernel, or this lab cannot show it; the row gives the reason. Behaviours of
other backends' insides (chains, tables) are not listed: they are no promise, and tests of the backends hold them."""


def _sums() -> Iterator[tuple[str, ...]]:
    counted = [(f"[{topic}](#{topic})", members) for topic, members in by_topic().items()]
    counted.append(("**shown by packets**", tuple(b for b in behaviours() if b.topic not in OWN_PAGES)))
    counted.append(("**all**", tuple(behaviours())))
    for name, some in counted:
        standing = Counter(behaviour.standing for behaviour in some)
        with_clause = sum(bool(behaviour.clauses) for behaviour in some)
        kinds = (CoverageStatus.HELD, CoverageStatus.TESTS, CoverageStatus.INSIDE, CoverageStatus.OPEN)
        yield (name, str(len(some)), str(with_clause), *(str(standing[kind]) for kind in kinds))


def _row(covered: CoveredBehaviour) -> tuple[str, ...]:
    behaviour = covered.behaviour
    what = behaviour.what if behaviour.observed else f"{behaviour.what} *(read from code, not observed)*"
    clauses = ", ".join(f"[{id}](../catalogue.md#{id})" for id in covered.clauses)
    return f"`{behaviour.id}`", what, behaviour.modes, clauses, _cases_or_reason(covered)


def _cases_or_reason(behaviour: CoveredBehaviour) -> str:
    if behaviour.standing is not CoverageStatus.HELD:
        return f"*{behaviour.standing.name.lower()}*: {behaviour.why}"
    named = [f"`{id}`" for id in behaviour.cases[:MOST_NAMED]]
    more = len(behaviour.cases) - MOST_NAMED
    return ", ".join([*named, f"{more} more"] if more > 0 else named)


def coverage_json() -> str:
    """The same as JSON."""
    entries = {
        behaviour.id: {
            "topic": behaviour.topic,
            "clauses": behaviour.clauses,
            "cases": behaviour.cases,
            "standing": behaviour.standing.name.lower(),
            **({"why": behaviour.why} if behaviour.why else {}),
        }
        for behaviour in behaviours()
    }
    return json.dumps({"behaviours": entries}, indent=1) + "\n"
