"""The specification as a text that people read: docs/spec/topics/, a page for each topic, written by `tools.docgen`.

Clause by clause: what binds, who promises it, the cases that test it, how proxies stand, and which had it wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import product

from kproxy.conformance.case import Case
from kproxy.conformance.cases import CATALOGUE
from kproxy.conformance.subjects.subject import DOCUMENTED_SUBJECTS, Subject, load_subject
from kproxy.spec.clause import Clause, Level
from kproxy.spec.clauses import CLAUSES
from kproxy.spec.regressions import REGRESSIONS
from kproxy.spec.topics import TOPICS, topic_of_clause
from tools.docgen import coverage, regressions, tables

MOST_CITING = 8
"""Cases that are listed for a clause; if more cite it, those whose steps do or whose group is of its topic."""
MOST_NAMED = 6

_HEAD = f"""\
<!-- Generated: edit src/kproxy/conformance/cases/, src/kproxy/conformance/subjects/ or src/kproxy/spec/clauses/, then run `{tables.COMMAND}`. -->
"""


def clauses_of(topic: str) -> tuple[Clause, ...]:
    """The clauses of a topic, area by area."""
    areas = TOPICS[topic].areas
    found = (clause for clause in CLAUSES.values() if topic_of_clause(clause.id).name == topic)
    return tuple(sorted(found, key=lambda clause: areas.index(clause.id.partition(".")[0])))


def index() -> str:
    """The list of topics."""
    columns = ("topic", "about", *(level.value for level in Level), "cases")
    return f"""\
{_HEAD}
# What a Service promises

{len(CLAUSES)} clauses, a page for each topic. Levels are those of RFC 2119; each clause names who promises it, the
[cases](../../catalogue.md) that test it, and how proxies stand: where one is known to deviate, with a link to why.

{tables.markdown_table("", columns, _counts()).lstrip()}
"""


def _counts() -> Iterator[tuple[str, ...]]:
    for topic in TOPICS.values():
        clauses = clauses_of(topic.name)
        levels = Counter(clause.level for clause in clauses)
        cases = {case.id for clause in clauses for case in cases_citing(clause)}
        counts = (str(levels[level]) for level in Level)
        yield f"[{topic.name}]({topic.name}.md)", topic.about, *counts, str(len(cases))


def page(topic: str) -> str:
    """A topic's page."""
    head = (f"{_HEAD}\n# {topic}", TOPICS[topic].about, "[All topics](README.md)")
    parts = tuple(map(_section, clauses_of(topic))) or ("No clause is about it: packets do not show it.",)
    return "\n\n".join((*head, *parts, *_behaviours(topic))) + "\n"


def _behaviours(topic: str) -> Iterator[str]:
    if members := coverage.by_topic().get(topic, ()):
        yield f"[{len(members)} behaviours](../coverage.md#{topic}) of service proxies are known on this topic."


def _section(clause: Clause) -> str:
    since = f" *(since {clause.since})*" if clause.since else ""
    sources = ", ".join(f"[{tables.link_label(link)}]({link})" for link in clause.source)
    lines = [
        f"**{clause.level.value}**: {clause.text}{since}",
        "",
        f"- {clause.authority.value}: {sources}",
        f"- behaviours: {', '.join(f'`{id}`' for id in clause.behaviours)}",
        f"- cases: {_named(cases_about(clause), len(cases_citing(clause)))}",
        *(line for name in DOCUMENTED_SUBJECTS for line in _standing(load_subject(name, name), clause)),
        *(f"- {line}" for line in _regression_lines(clause)),
    ]
    return f'## <a name="{clause.id}"></a>`{clause.id}`\n\n' + "\n".join(lines)


def cases_citing(clause: Clause) -> list[Case]:
    """The cases that hold a proxy to a clause."""
    return [case for case in CATALOGUE if clause.id in case.clauses]


@cache
def cases_about(clause: Clause) -> Sequence[Case]:
    """Those of them that are about it."""
    cases = cases_citing(clause)
    if len(cases) <= MOST_CITING:
        return cases
    groups = topic_of_clause(clause.id).groups
    about = [case for case in cases if clause.id in _cited_by_steps(case) or case.group in groups]
    return about or cases


def _cited_by_steps(case: Case) -> set[str]:
    return {id for step in case.steps for id in getattr(step, "clauses", ())}


def _named(cases: Sequence[Case], number: int) -> str:
    if not cases:
        return "none can show it"
    named = ", ".join(f"`{case.id}`" for case in cases[:MOST_NAMED])
    more = number - min(len(cases), MOST_NAMED)
    return f"{named}, {more} more" if more else named


def _standing(subject: Subject, clause: Clause) -> Iterator[str]:
    """How a proxy stands, in a line for what all modes do and one for each way of deviating."""
    cases = cases_about(clause)
    if not cases:
        return
    unclaimed = {mode: _unclaimed(subject, cases, mode) for mode in subject.modes}
    deviations = [(mode, *found) for mode in subject.modes for found in _deviations(subject, clause, mode)]
    apart = {mode for mode, *_ in deviations} | {mode for mode, missing in unclaimed.items() if missing}
    held = [mode for mode in subject.modes if mode not in apart]
    yield f"- {subject.name}: {f'holds it in {_listed(held)}' if held else 'holds it in no mode without exception'}"
    for (text, link, case), modes in _by_way(deviations):
        yield f"  - {subject.name} in {_listed(modes)}, `{case}`: {text} ([{tables.link_label(link)}]({link}))"
    for mode, missing in unclaimed.items():
        if missing:
            yield f"  - {subject.name} in {mode} does not claim {missing}"


DeviationKey = tuple[str, str, str]
"""Text, link, and the case that shows it."""


def _deviations(subject: Subject, clause: Clause, mode: str) -> Iterator[DeviationKey]:
    seen: set[str] = set()
    for case, known in product(cases_citing(clause), subject.deviations):
        if known.text not in seen and any(
            clause.id in one.clauses for one in known.excuses_for(case.id, mode)
        ):
            seen.add(known.text)
            yield known.text, known.link, case.id


def _by_way(deviations: Sequence[tuple[str, str, str, str]]) -> list[tuple[DeviationKey, list[str]]]:
    ways: dict[DeviationKey, list[str]] = {}
    for mode, *way in deviations:
        ways.setdefault((way[0], way[1], way[2]), []).append(mode)
    return list(ways.items())


def _unclaimed(subject: Subject, cases: Sequence[Case], mode: str) -> str:
    """The features that every case would need and the mode does not have."""
    missing = [subject.missing_features(case, mode) for case in cases]
    return ", ".join(sorted(feature.value for feature in frozenset.intersection(*missing)))


def _listed(modes: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(modes[:-1]), modes[-1])))


def _regression_lines(clause: Clause) -> Iterator[str]:
    """What users of any proxy reported and a case about the clause would have caught."""
    ids = {id for case in cases_about(clause) for id in case.regressions}
    for regression in (r for r in REGRESSIONS.values() if r.id in ids and regressions.cases_for(r)):
        links = ", ".join(f"[{name}]({link})" for name, link in regression.links)
        yield f"reported of {regression.proxy}: {regression.what} ({links})"
