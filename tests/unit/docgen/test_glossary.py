"""docs/glossary.md defines each term once, and the code it leads to exists."""

import pkgutil
import re

import pytest

from tests.support.paths import ROOT

ROWS = re.findall(
    r"^\| (\*\*.+?) \| (.+) \| `(.+)` \|$",
    (ROOT / "docs/glossary.md").read_text(encoding="utf-8"),
    re.MULTILINE,
)


def test_the_table_stays_short_and_every_line_of_it_is_read() -> None:
    lines = (ROOT / "docs/glossary.md").read_text(encoding="utf-8").splitlines()
    assert len(ROWS) == sum(line.startswith("| **") for line in lines)
    assert 35 <= len(ROWS) <= 65


def test_a_term_is_defined_once() -> None:
    terms = [term.lower() for names, _, _ in ROWS for term in re.findall(r"\*\*(.+?)\*\*", names)]
    assert sorted(set(terms)) == sorted(terms)


@pytest.mark.parametrize(("term", "meaning", "place"), ROWS, ids=[term.strip("*") for term, _, _ in ROWS])
def test_the_code_of_a_term_exists(term: str, meaning: str, place: str) -> None:
    assert meaning.endswith("."), term
    if place.startswith("kproxy."):
        pkgutil.resolve_name(place)
    else:
        assert (ROOT / place).exists()
