"""The daemon's pages, and that of ipvs mode, have every behaviour of their topics, and evidence for each row.

docs/daemon.md has the topics health and metrics, docs/daemon-configuration.md configuration (its fields and flags are held by
`tests/unit/docgen/test_daemon_documentation.py`), docs/daemon-life.md restart.  The tests behind their rows are in
``tools/docgen/evidence.toml``; docs/backends/ipvs.md names its own.
"""

import re

import pytest

from kproxy.spec.behaviours import BEHAVIOURS
from tests.support.paths import ROOT
from tools.docgen import coverage, evidence

TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
NAMED = re.compile(r"`(?:tests/[\w/]+\.py::)?test_\w+`")
PAGES = sorted(set(coverage.OWN_PAGES.values()))
EVIDENCE = evidence.load_evidence()
METRIC, METRICS = "met.", "kubeproxy_"
HEADINGS = {"Behaviour", "Metric", "Path", "Port", "Promise", "Field", "Flag", "Effect", "Shows"}


def text(page: str) -> str:
    return (ROOT / "docs" / page).read_text(encoding="utf-8")


def rows(page: str) -> list[list[str]]:
    """All rows of tables, cell by cell, without headings."""
    lines = [line for line in text(page).splitlines() if line.startswith("| ") and "---" not in line]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip()[1:-1])] for line in lines]
    return [row for row in cells if row[0] not in HEADINGS]


def evidence_of(page: str, row: list[str]) -> list[str]:
    return [*EVIDENCE.get(page, {}).get(row[0].replace("`", ""), ()), *NAMED.findall(" ".join(row))]


def has_a_row(page: str, behaviour: str) -> bool:
    """That names it, or the metric it is about; with a test, or a remark why there is none."""
    names = (f"`{behaviour}`", f"`{METRICS}{behaviour.removeprefix(METRIC)}`")
    found = [row for row in rows(page) if any(name in " ".join(row) for name in names)]
    return any(evidence_of(page, row) or row[-1] for row in found)


def missing(named: list[tuple[str, str]]) -> list[str]:
    """Those that do not exist."""
    return [
        f"{path}::{test}"
        for path, test in named
        if not re.search(rf"^def {test}\(", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)
    ]


@pytest.mark.parametrize(
    ("page", "at_least"), [("daemon.md", 50), ("daemon-life.md", 50), ("daemon-configuration.md", 100)]
)
def test_every_test_of_the_evidence_exists(page: str, at_least: int) -> None:
    named = [test.partition("::")[::2] for tests in EVIDENCE[page].values() for test in tests]
    assert len(named) > at_least
    assert not missing(named), "mend tools/docgen/evidence.toml"


def test_every_test_that_the_page_on_ipvs_mode_names_exists() -> None:
    named = TEST.findall(text("backends/ipvs.md"))
    assert len(named) > 20
    assert not missing(named)


def test_the_evidence_is_for_rows_and_sentences_that_are_there() -> None:
    for page, found in EVIDENCE.items():
        keys = {row[0].replace("`", "") for row in rows(page)}
        beside = set(found) - keys
        assert page == "daemon-configuration.md" or not beside
        assert len(beside) <= 10, "the list under `Flags and file`, and flags of earlier releases"


@pytest.mark.parametrize("page", ["daemon.md", "daemon-life.md", "daemon-configuration.md"])
def test_a_row_about_a_behaviour_has_its_sentence_and_pages_for_users_name_no_test(page: str) -> None:
    wrong = [
        row[0]
        for row in rows(page)
        if (id := row[0].strip("`")) in BEHAVIOURS and row[1].replace("\\|", "|") != BEHAVIOURS[id].what
    ]
    assert not wrong, "the second cell is what src/kproxy/spec/behaviours.toml has"
    assert not NAMED.search(text(page))


@pytest.mark.parametrize("page", PAGES)
def test_every_behaviour_has_a_row(page: str) -> None:
    behaviours = [each.id for each in coverage.behaviours() if coverage.OWN_PAGES.get(each.topic) == page]
    assert len(behaviours) > 20
    assert not [behaviour for behaviour in behaviours if not has_a_row(page, behaviour)]


def test_a_row_without_a_test_reports_why() -> None:
    promises = [row for row in rows("daemon.md") if "BindAddress" not in row[0]]
    silent = [row[0] for row in promises if not evidence_of("daemon.md", row) and not row[-1]]
    assert not silent
