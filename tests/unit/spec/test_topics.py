"""One list of topics: clauses, cases, mutants, behaviours and docs are divided by it, and by nothing else."""

from __future__ import annotations

import importlib
import pkgutil
import tomllib
from collections import Counter
from pathlib import Path

import pytest

import kproxy.conformance.cases
import kproxy.spec.clauses
from kproxy.conformance.cases import CATALOGUE
from kproxy.spec.behaviours import BEHAVIOURS
from kproxy.spec.clauses import CLAUSES
from kproxy.spec.topics import TOPICS, Topic, topic_of_case, topic_of_clause
from tests.mutants.table import MUTANTS
from tests.support.paths import ROOT

MODULES = {topic.module: topic for topic in TOPICS.values()}
WITH_CLAUSES = [topic for topic in TOPICS.values() if topic.areas]


def test_areas_of_clauses_belong_to_one_topic_each_and_exist() -> None:
    listed = Counter(area for topic in TOPICS.values() for area in topic.areas)
    assert listed == Counter({id.partition(".")[0] for id in CLAUSES})


def test_groups_of_cases_belong_to_one_topic_each_and_exist() -> None:
    listed = Counter(group for topic in TOPICS.values() for group in topic.groups)
    assert listed == Counter({case.group for case in CATALOGUE})


def test_every_topic_has_a_sentence_of_its_own() -> None:
    assert all(topic.about.endswith(".") for topic in TOPICS.values())
    assert len({topic.about for topic in TOPICS.values()}) == len(TOPICS)


def test_clauses_have_a_module_for_each_topic_and_no_other() -> None:
    found = [info.name for info in pkgutil.iter_modules(kproxy.spec.clauses.__path__)]
    assert found == sorted(topic.module for topic in WITH_CLAUSES)


@pytest.mark.parametrize("topic", WITH_CLAUSES, ids=lambda topic: topic.name)
def test_a_clause_stands_in_the_module_of_its_topic(topic: Topic) -> None:
    module = importlib.import_module(f"kproxy.spec.clauses.{topic.module}")
    here = {row.id for row in (*getattr(module, "PACKET", ()), *getattr(module, "HISTORY", ()))}
    assert here == {id for id in CLAUSES if topic_of_clause(id) is topic}


HELPERS = {"changes", "combinations", "common", "profiles"}
"""Modules of `kproxy.conformance.cases` without a case: what cases of several topics share."""
CASE_MODULES = {
    info.name: importlib.import_module(f"kproxy.conformance.cases.{info.name}")
    for info in pkgutil.iter_modules(kproxy.conformance.cases.__path__)
    if info.name not in HELPERS
}


def topic_of_module(name: str) -> Topic:
    """The topic with the longest name that is the module's, or its beginning: ``node_port_addresses``."""
    found = [topic for module, topic in MODULES.items() if f"{name}_".startswith(f"{module}_")]
    return max(found, key=lambda topic: len(topic.module))


def test_topics_with_cases_have_a_module_of_their_name_or_of_an_aspect_of_theirs() -> None:
    assert {topic_of_module(name) for name in CASE_MODULES} == {t for t in TOPICS.values() if t.groups}


@pytest.mark.parametrize("name", CASE_MODULES)
def test_a_case_stands_in_a_module_of_its_topic(name: str) -> None:
    assert {topic_of_case(case.id) for case in CASE_MODULES[name].CASES} == {topic_of_module(name)}


def test_the_catalogue_has_every_case_of_every_module_once() -> None:
    defined = Counter(case.id for module in CASE_MODULES.values() for case in module.CASES)
    assert defined == Counter(case.id for case in CATALOGUE)
    assert set(defined.values()) == {1}


def test_behaviours_are_divided_by_topics() -> None:
    text = (ROOT / "src/kproxy/spec/behaviours.toml").read_text(encoding="utf-8")
    assert [topic for topic in TOPICS if topic in tomllib.loads(text)] == list(tomllib.loads(text))
    assert {behaviour.topic for behaviour in BEHAVIOURS.values()} <= set(TOPICS)


def test_docs_have_a_page_for_each_topic_and_no_other() -> None:
    pages = {path.stem for path in (ROOT / "docs/spec/topics").glob("*.md")} - {"README"}
    assert pages == set(TOPICS)


MACHINERY = {"__main__", "judge", "mutant", "proxy", "simulate", "table", "tested"}
"""Modules of `tests.mutants` that define no mutant; `tests.mutants.patches` has what mutants of several topics share, `tests.mutants.histories` those that no case can show."""
MUTANT_MODULES = {
    name: importlib.import_module(f"tests.mutants.{name}")
    for path in sorted((ROOT / "tests/mutants").glob("*.py"))
    if (name := path.stem) not in MACHINERY
}


OF_ONE_MODE = {"userspace"}
"""Modules of mutants that break what one mode alone has, and are named by it."""


def test_modules_of_mutants_are_named_by_topics_or_by_a_mode() -> None:
    assert set(MUTANT_MODULES) <= set(MODULES) | OF_ONE_MODE


@pytest.mark.parametrize("name", MUTANT_MODULES)
def test_a_mutant_stands_in_the_module_of_a_topic_of_its_clauses(name: str) -> None:
    """One that no case can show has no clause: it is about a mode's own state."""
    topics = {
        wrong.name: {topic_of_clause(id).module for id in wrong.clauses} | {wrong.mode} & OF_ONE_MODE
        or {wrong.mode}
        for wrong in MUTANT_MODULES[name].MUTANTS
    }
    assert {wrong for wrong, of in topics.items() if name not in of} == set()


def test_the_table_of_mutants_has_every_one_of_the_modules() -> None:
    assert Counter(MUTANTS) == Counter(
        wrong for module in MUTANT_MODULES.values() for wrong in module.MUTANTS
    )


def test_mutants_stand_in_no_other_module() -> None:
    def defines(path: Path) -> bool:
        return "MUTANTS = (" in path.read_text(encoding="utf-8")

    assert {path.stem for path in (ROOT / "tests/mutants").rglob("*.py") if defines(path)} == {
        *MUTANT_MODULES,
        "table",
    }
