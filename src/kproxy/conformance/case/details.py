"""Description of one case: steps, expectations, clauses, testbeds, as lines of text. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import fields

from kproxy.conformance.binding.manifests import manifests_by_step
from kproxy.conformance.case import DEFAULT, Case, Profile
from kproxy.conformance.case.descriptions import describe_expectation, describe_step
from kproxy.conformance.subjects.deviations import Deviation, Excuse
from kproxy.conformance.subjects.subject import Subject
from kproxy.spec.clauses import CLAUSES
from kproxy.spec.outcome import ClauseId
from kproxy.spec.regressions import REGRESSIONS

_WIDTH = 118


def case_lines(case: Case, outside_simulator: str, subjects: Sequence[Subject]) -> Iterator[str]:
    """Lines of text about a case.

    ``outside_simulator``: why the simulator cannot run it, if so; ``subjects``: those whose claims are listed.
    """
    yield f"{case.id}{' (slow)' if case.slow else ''}"
    yield from _wrapped(case.about)
    yield from _wrapped(case.notes)
    yield ""
    yield from _table(_facts(case, outside_simulator, subjects))
    yield from ("", "Clauses")
    for name in sorted(case.clauses):
        clause = CLAUSES[ClauseId(name)]
        yield f"  {clause.id} ({clause.level.value}, {clause.authority.value})"
        yield from _wrapped(clause.text, 4)
        yield from (f"    {source}" for source in clause.source)
    if case.regressions:
        yield from ("", "Holds what was reported")
    for report in (REGRESSIONS[name] for name in sorted(case.regressions)):
        yield from _wrapped(f"{report.id}: {report.what}")
        yield from (f"    {address}" for _, address in report.links)
    yield from ("", f"Steps, as in {case.families[0].value}")
    yield from _steps(case)


def _facts(case: Case, outside_simulator: str, subjects: Sequence[Subject]) -> Iterator[tuple[str, str]]:
    yield "features", ", ".join(sorted(feature.value for feature in case.features)) or "none but the core"
    yield "families", ", ".join(family.value for family in case.families)
    yield "profile", f"{case.profile.name}{_settings(case.profile)}"
    yield "runs in", "a kernel" if outside_simulator else "a kernel, and the simulator"
    if outside_simulator:
        yield "", outside_simulator
    for subject in subjects:
        yield from _claims(case, subject)
    yield "run it", f"kproxy conformance run --case '{case.id}'"


def _claims(case: Case, subject: Subject) -> Iterator[tuple[str, str]]:
    """Features of a case that a subject does not claim, and its known deviations; once for all modes that have the same."""
    lacking: dict[str, list[str]] = {}
    deviating: dict[tuple[Deviation, str], list[str]] = {}
    for mode in subject.modes:
        if missing := subject.missing_features(case, mode):
            lacking.setdefault(", ".join(sorted(feature.value for feature in missing)), []).append(mode)
            continue
        for known in subject.deviations:
            if excuses := known.excuses_for(case.id, mode):
                places = " and ".join(map(_place, excuses))
                key = Deviation(link=known.link, text=known.text, excuses=excuses, sometimes=known.sometimes)
                deviating.setdefault((key, places), []).append(mode)
    for names, modes in lacking.items():
        yield subject.name, f"does not claim {names} in {', '.join(modes)}"
    for (known, places), modes in deviating.items():
        verb = "sometimes deviates" if known.sometimes else "deviates"
        yield subject.name, f"{verb} in {', '.join(modes)} {places}: {known.text}"
        yield "", known.link


def _place(excuse: Excuse) -> str:
    """Steps that an excuse applies to, and clauses."""
    steps = f"at step{'s' if len(excuse.steps) > 1 else ''} {', '.join(map(str, excuse.steps))} "
    return f"{steps if excuse.steps else ''}({', '.join(excuse.clauses)})"


def _settings(profile: Profile) -> str:
    changed = [
        f"{field.name}={value!r}"
        for field in fields(Profile)
        if field.name != "name" and (value := getattr(profile, field.name)) != getattr(DEFAULT, field.name)
    ]
    return f" ({', '.join(changed)})" if changed else ""


def _table(rows: Iterator[tuple[str, str]]) -> Iterator[str]:
    for name, text in rows:
        lines = [text] if " " not in text else textwrap.wrap(text, _WIDTH - 14, break_on_hyphens=False)
        yield f"  {name:<11} {lines[0]}"
        yield from (f"{'':14}{line}" for line in lines[1:])


def _steps(case: Case) -> Iterator[str]:
    objects = manifests_by_step(case)
    for number, step in enumerate(case.steps, 1):
        yield f"  {number}. {': '.join(filter(None, (describe_step(step), describe_expectation(step))))}"
        if number in objects:
            yield textwrap.indent(f"---\n{objects[number]}".rstrip(), "     ")


def _wrapped(text: str, indent: int = 2) -> list[str]:
    blank = " " * indent
    return textwrap.wrap(text, _WIDTH, initial_indent=blank, subsequent_indent=blank)
