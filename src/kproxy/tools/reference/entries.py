"""Entries of the reference: an ID of the specification with all facts and places.

`entries` returns the entries of an ID, `suggestions` similar IDs.  Everything is read from the specification's
data, the catalogue and the source code of this installation.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from kproxy.conformance import subjects
from kproxy.conformance.case import Case
from kproxy.conformance.cases import CATALOGUE
from kproxy.conformance.subjects.subject import Subject, load_subject
from kproxy.spec.behaviours import BEHAVIOURS, Behaviour
from kproxy.spec.clause import Clause
from kproxy.spec.clauses import CLAUSES, TRANSITION_CLAUSES, ClauseId
from kproxy.spec.regressions import REGRESSIONS, Regression
from kproxy.spec.topics import TOPICS, Topic, topic_of_case, topic_of_clause
from kproxy.tools.reference.mutants import mutants_of
from kproxy.tools.reference.no_code import NO_CODE
from kproxy.tools.reference.places import PACKAGE, Place, citations, first_line, repository

SPEC, CASES, PROXY = PACKAGE / "spec", PACKAGE / "conformance/cases", PACKAGE / "proxy"
NO_TESTS = "unknown here: tests/ is not part of an installation; run kproxy from a clone of the repository"
MOST_SUGGESTIONS = 12


@dataclass(frozen=True, slots=True)
class Item:
    """One line of a section: a text, and where it stands."""

    text: str
    place: Place | None = None


@dataclass(frozen=True, slots=True)
class ReferenceEntry:
    """Entry of one ID.  ``facts``: single values by name; ``sections``: lists by name, which depend on its kind."""

    kind: str
    id: str
    sentence: str
    place: Place
    facts: Mapping[str, str]
    sections: Mapping[str, tuple[Item, ...]]


def entries(id: str) -> Iterator[ReferenceEntry]:
    """All entries of an ID: a clause, case, behaviour, regression or topic."""
    for known, make in _kinds().values():
        if id in known:
            yield make(known[id])
    if id not in REGRESSIONS:
        yield from (_regression(report) for report in REGRESSIONS.values() if report.matches(id))


def suggestions(text: str) -> list[tuple[str, str]]:
    """IDs, with their sentences, that resemble a text or contain it."""
    all_ids = {id: _sentence(one) for known, _ in _kinds().values() for id, one in known.items()}
    part = text.casefold()
    with_it = (id for id, sentence in all_ids.items() if part in id.casefold() or part in sentence.casefold())
    close = difflib.get_close_matches(text, all_ids, n=5, cutoff=0.6)
    return [(id, all_ids[id]) for id in list(dict.fromkeys((*close, *with_it)))[:MOST_SUGGESTIONS]]


@cache
def _kinds() -> Mapping[str, tuple[Mapping[Any, Any], Callable[..., ReferenceEntry]]]:
    return {
        "topic": (TOPICS, _topic),
        "clause": (CLAUSES, _clause),
        "case": ({case.id: case for case in CATALOGUE}, _case),
        "behaviour": (BEHAVIOURS, _behaviour),
        "regression": (REGRESSIONS, _regression),
    }


def _sentence(one: object) -> str:
    match one:
        case Clause(text=text):
            return text
        case Behaviour(what=text) | Regression(what=text):
            return text
        case Case(about=text) | Topic(about=text):
            return text
        case _:
            raise TypeError(one)


# --------------------------------------------------------------------------- kinds


def _clause(clause: Clause) -> ReferenceEntry:
    cases = _most_about(clause)
    facts = {
        "topic": topic_of_clause(clause.id).name,
        "level": clause.level.value,
        "authority": clause.authority.value,
    }
    return ReferenceEntry(
        "clause",
        clause.id,
        clause.text,
        _clause_place(clause.id),
        facts | ({"since": clause.since} if clause.since else {}),
        {
            "sources": tuple(map(Item, clause.source)),
            "oracle": tuple(_oracle(clause)),
            "proxy": tuple(_proxy(clause.id)),
            **_mutation(clause.id),
            "cases": tuple(map(_case_item, cases)),
            "deviations": tuple(_deviations(cases, clause.id)),
            "regressions": tuple(_regression_items(cases)),
            "behaviours": tuple(_behaviour_item(BEHAVIOURS[id]) for id in clause.behaviours),
        },
    )


def _case(case: Case) -> ReferenceEntry:
    facts = {
        "topic": topic_of_case(case.id).name,
        "profile": case.profile.name,
        "needs": ", ".join(sorted(feature.value for feature in case.features)) or "nothing special",
        "run": f"kproxy conformance run --case {case.id}",
    }
    return ReferenceEntry(
        "case",
        case.id,
        case.about,
        _case_place(case.id),
        facts,
        {
            "clauses": tuple(_clause_item(CLAUSES[ClauseId(id)]) for id in sorted(case.clauses)),
            "deviations": tuple(_deviations([case])),
            "regressions": tuple(_regression_items([case])),
        },
    )


def _behaviour(behaviour: Behaviour) -> ReferenceEntry:
    clauses = [clause for clause in CLAUSES.values() if behaviour.id in clause.behaviours]
    cited = {clause.id for clause in clauses}
    cases = [
        case
        for case in CATALOGUE
        if (case.id in behaviour.cases if behaviour.cases else case.clauses & cited)
    ]
    reasons = {"tests": behaviour.tests, "inside": behaviour.inside, "open": behaviour.open}
    observed = "yes" if behaviour.observed else "no: read from code"
    return ReferenceEntry(
        "behaviour",
        behaviour.id,
        behaviour.what,
        _behaviour_place(behaviour.id),
        {"topic": behaviour.topic, "modes": behaviour.modes, "observed": observed}
        | {name: why for name, why in reasons.items() if why},
        {
            "clauses": tuple(map(_clause_item, clauses)),
            "proxy": tuple(_named(citations(PROXY, behaviour.id))),
            "cases": tuple(map(_case_item, cases)),
        },
    )


def _regression(report: Regression) -> ReferenceEntry:
    cases = [case for case in CATALOGUE if report.id in case.regressions]
    return ReferenceEntry(
        "regression",
        report.id,
        report.what,
        first_line(SPEC / "regressions.toml", f"[{report.id}]"),
        {"of": report.proxy, "shown by": report.shows.value}
        | ({"no case": report.reason} if report.reason else {}),
        {
            "reports": tuple(Item(link) for _, link in report.links),
            "cases": tuple(map(_case_item, cases)),
            "clauses": tuple(
                _clause_item(CLAUSES[ClauseId(id)])
                for id in sorted({id for case in cases for id in case.clauses})
            ),
        },
    )


def _topic(topic: Topic) -> ReferenceEntry:
    clauses = [clause for clause in CLAUSES.values() if topic_of_clause(clause.id) is topic]
    return ReferenceEntry(
        "topic",
        topic.name,
        topic.about,
        first_line(SPEC / "topics.py", f'"{topic.name}"'),
        {},
        {
            "files": tuple(Item("", Place(path, 1)) for path in _files(topic)),
            "clauses": tuple(map(_clause_item, clauses)),
            "oracle": _of_all(clauses, lambda clause: _named(citations(SPEC, clause.id, but="clauses"))),
            "proxy": _of_all(clauses, lambda clause: _named(citations(PROXY, clause.id))),
            "mutants": _of_all(clauses, lambda clause: iter(_mutation(clause.id)["mutants"])),
            "cases": tuple(_case_item(case) for case in CATALOGUE if topic_of_case(case.id) is topic),
            "behaviours": tuple(_behaviour_item(b) for b in BEHAVIOURS.values() if b.topic == topic.name),
        },
    )


def _files(topic: Topic) -> tuple[Path, ...]:
    clauses = (SPEC / "clauses").glob(f"{topic.module}.py")
    return (*clauses, *_case_files(topic), *_mutants(topic), *_pages(topic))


def _of_all(clauses: Iterable[Clause], items: Callable[[Clause], Iterator[Item]]) -> tuple[Item, ...]:
    """The items of all clauses, each once."""
    return tuple(dict.fromkeys(item for clause in clauses for item in items(clause)))


# --------------------------------------------------------------------------- sections


def _oracle(clause: Clause) -> Iterator[Item]:
    if clause.id in TRANSITION_CLAUSES:
        yield Item(
            "none: one packet cannot show it; cases judge it by several connections, a flow, a change or time"
        )
    else:
        yield from _named(citations(SPEC, clause.id, but="clauses"))


def _proxy(clause: str) -> Iterator[Item]:
    if clause in NO_CODE:
        yield Item(f"no code: {NO_CODE[clause]}")
    yield from _named(citations(PROXY, clause))


def _named(places: Iterable[Place]) -> Iterator[Item]:
    return (Item(place.name or "the module", place) for place in places)


def _mutation(clause: str) -> dict[str, tuple[Item, ...]]:
    """Chains, sets and functions whose removal violates the clause, and the mutants that remove them."""
    root = repository()
    if root is None:
        return {"rules": (Item(NO_TESTS),), "mutants": (Item(NO_TESTS),)}
    found = list(mutants_of(root, clause))
    places = dict.fromkeys(place for mutant in found for place in mutant.patched)
    return {
        "rules": tuple(Item(f"{', '.join(m.rules)} ({m.name})", m.place) for m in found if m.rules),
        "mutants": tuple(Item(f"{mutant.name}: {mutant.about}", mutant.place) for mutant in found),
        "functions that mutants replace": tuple(_named(places)),
    }


def _most_about(clause: Clause) -> list[Case]:
    """The cases that cite a clause; first those with a step that does, or of its topic."""
    groups = topic_of_clause(clause.id).groups
    cases = (case for case in CATALOGUE if clause.id in case.clauses)
    return sorted(cases, key=lambda case: (not _in_a_step(clause, case), case.group not in groups))


def _in_a_step(clause: Clause, case: Case) -> bool:
    return any(clause.id in getattr(step, "clauses", ()) for step in case.steps)


def _deviations(cases: list[Case], clause: str = "") -> Iterator[Item]:
    """Known deviations of bundled subjects in cases; with ``clause`` only those from it."""
    for name, subject in _subjects().items():
        path = PACKAGE / f"conformance/subjects/{name}.toml"
        for known in subject.deviations:
            excused = [
                case
                for case in cases
                for one in known.excuses
                if one.matches(case.id)
                if not clause or clause in one.clauses
            ]
            if excused:
                text = f"{name} in {known.mode or 'every mode'}, {excused[0].id}: {known.text} ({known.link})"
                yield Item(text, first_line(path, known.text[:40]))


@cache
def _subjects() -> Mapping[str, Subject]:
    files = sorted(
        Path(file.name) for file in resources.files(subjects).iterdir() if file.name.endswith(".toml")
    )
    return {file.stem: load_subject(file.stem, file.stem) for file in files}


def _regression_items(cases: list[Case]) -> Iterator[Item]:
    ids = {id for case in cases for id in case.regressions}
    for report in (report for report in REGRESSIONS.values() if report.id in ids):
        yield Item(
            f"{report.id} ({report.links[0][0]}): {report.what}",
            first_line(SPEC / "regressions.toml", f"[{report.id}]"),
        )


def _clause_item(clause: Clause) -> Item:
    return Item(f"{clause.level.value:6} {clause.id}: {clause.text}", _clause_place(clause.id))


def _case_item(case: Case) -> Item:
    return Item(f"{case.id}: {case.about}", _case_place(case.id))


def _behaviour_item(behaviour: Behaviour) -> Item:
    return Item(f"{behaviour.id}: {behaviour.what}", _behaviour_place(behaviour.id))


@cache
def _clause_place(id: str) -> Place:
    return first_line(SPEC / f"clauses/{topic_of_clause(id).module}.py", f'"{id}"')


@cache
def _behaviour_place(id: str) -> Place:
    return first_line(SPEC / "behaviours.toml", f'"{id}"')


@cache
def _case_place(id: str) -> Place:
    found = (place for path in sorted(CASES.glob("*.py")) if (place := first_line(path, f'"{id}"')).line > 1)
    return next(found)


def _case_files(topic: Topic) -> Iterator[Path]:
    mine = (case for case in CATALOGUE if topic_of_case(case.id) is topic)
    return iter(dict.fromkeys(_case_place(case.id).path for case in mine))


def _mutants(topic: Topic) -> Iterator[Path]:
    root = repository()
    return (root / "tests/mutants").glob(f"{topic.module}.py") if root else iter(())


def _pages(topic: Topic) -> Iterator[Path]:
    root = repository()
    page = root / f"docs/spec/topics/{topic.name}.md" if root else None
    return iter([page] if page and page.is_file() else [])
