"""The clauses as data: well-formed, sourced, and none forgotten."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

import kproxy.spec
from kproxy.spec.clauses import (
    CLAUSES,
    HISTORY_TABLE,
    PACKET_TABLE,
    TRANSITION_CLAUSES,
    Authority,
    Clause,
    Level,
    clause,
)

EVERY = pytest.mark.parametrize("one", CLAUSES.values(), ids=lambda one: one.id)
SOURCES = sorted(Path(kproxy.spec.__file__).parent.glob("*.py"))
OF_HISTORIES = tuple(Path(kproxy.spec.__file__).with_name(name) for name in ("established.py", "health.py"))
ID = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*(\.[a-z0-9]+(-[a-z0-9]+)*)+")
LINK = re.compile(r"https://(kubernetes\.io/docs|github\.com/[\w-]+/[\w-]+/(tree|blob|issues))/\S+")


def test_no_two_clauses_have_one_id() -> None:
    ids = Counter(row.id for row in (*PACKET_TABLE, *HISTORY_TABLE))
    assert [id for id, times in ids.items() if times > 1] == []


@EVERY
def test_an_id_is_terms_with_the_area_first(one: Clause) -> None:
    assert ID.fullmatch(one.id)


@EVERY
def test_a_clause_has_one_sentence(one: Clause) -> None:
    assert one.text.endswith(".")
    assert one.text.count(". ") == 0


@EVERY
def test_a_clause_has_links_and_behaviours(one: Clause) -> None:
    assert one.source
    assert all(LINK.fullmatch(link) for link in one.source), one.source
    assert one.behaviours
    assert len(set(one.behaviours)) == len(one.behaviours)


@EVERY
def test_what_was_only_observed_binds_no_proxy(one: Clause) -> None:
    assert not (one.level is Level.MUST and one.authority is Authority.OBSERVED)


def test_an_unknown_id_is_refused() -> None:
    with pytest.raises(KeyError):
        clause("cluster-ip.no-such-promise")


def test_the_oracle_and_its_modules_name_every_clause_that_a_packet_can_show_and_no_other() -> None:
    of_first_packets = [source for source in SOURCES if source not in OF_HISTORIES]
    named = {text for source in of_first_packets for text in _strings(source) if text in CLAUSES}
    assert named == set(CLAUSES) - TRANSITION_CLAUSES


@pytest.mark.parametrize("source", OF_HISTORIES, ids=lambda path: path.stem)
def test_oracles_of_flows_that_last_and_of_health_name_clauses_that_only_histories_judge(
    source: Path,
) -> None:
    named = {text for text in _strings(source) if text in CLAUSES}
    assert named
    assert named <= TRANSITION_CLAUSES


def test_whatever_the_oracle_passes_to_clause_is_the_id_of_one() -> None:
    unknown = {text for source in SOURCES for text in _clause_arguments(source)} - set(CLAUSES)
    assert unknown == set()


def _strings(source: Path) -> set[str]:
    tree = ast.parse(source.read_text())
    constants = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return {value for value in constants if isinstance(value, str)}


def _clause_arguments(source: Path) -> set[str]:
    calls = (node for node in ast.walk(ast.parse(source.read_text())) if isinstance(node, ast.Call))
    arguments = (
        c.args[0] for c in calls if isinstance(c.func, ast.Name) and c.func.id == "clause" and c.args
    )
    return {a.value for a in arguments if isinstance(a, ast.Constant) and isinstance(a.value, str)}
