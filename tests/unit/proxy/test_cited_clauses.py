"""The proxy cites the clauses that it implements, and what it cites exists."""

from __future__ import annotations

import re

import pytest

from kproxy.spec.behaviours import BEHAVIOURS
from kproxy.spec.clauses import CLAUSES, Level
from kproxy.tools.reference.no_code import NO_CODE
from kproxy.tools.reference.places import PACKAGE, citations

PROXY = PACKAGE / "proxy"
CITED = re.compile(r"``([a-z0-9-]+(?:\.[a-z0-9_-]+)+)``")
SUMMED_UP = {id for clause in CLAUSES.values() for id in clause.behaviours}
AREAS = {id.partition(".")[0] for id in (*CLAUSES, *BEHAVIOURS)}


def cited() -> set[str]:
    texts = (path.read_text(encoding="utf-8") for path in PROXY.rglob("*.py"))
    return {id for text in texts for id in CITED.findall(text) if id.partition(".")[0] in AREAS}


@pytest.mark.parametrize("id", [clause.id for clause in CLAUSES.values() if clause.level is Level.MUST])
def test_a_must_clause_is_cited_or_there_is_a_reason_why_no_code_answers_to_it(id: str) -> None:
    places = list(citations(PROXY, id))
    assert bool(places) != (id in NO_CODE), (
        f"cite {id} in the function of src/kproxy/proxy that implements it, or give the reason in NO_CODE; not both"
    )


def test_every_id_that_the_proxy_cites_exists() -> None:
    found = cited()
    assert len(found) > 150
    assert found - set(CLAUSES) - set(BEHAVIOURS) == set()


def test_behaviours_are_cited_only_where_no_clause_sums_them_up() -> None:
    assert cited() & SUMMED_UP == set()
