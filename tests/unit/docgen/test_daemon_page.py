"""The daemon's pages, and that of ipvs mode, say which test holds which behaviour; this says whether that is so.

docs/daemon.md has the topics health and metrics, docs/daemon-configuration.md configuration (its own form is
held by `tests/unit/docgen/test_daemon_documentation.py`), docs/daemon-life.md restart, docs/backends/ipvs.md ipvs.
"""

import re

import pytest

from tests.support.paths import ROOT
from tools.docgen import coverage

TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
NAMED = re.compile(r"`(?:tests/[\w/]+\.py::)?test_\w+`")
PAGES = sorted(set(coverage.OWN_PAGES.values()))
METRIC, METRICS = "met.", "kubeproxy_"


def text(page: str) -> str:
    return (ROOT / "docs" / page).read_text(encoding="utf-8")


def rows(page: str) -> list[list[str]]:
    lines = [line for line in text(page).splitlines() if line.startswith("| ") and "---" not in line]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def has_a_row(page: str, behaviour: str) -> bool:
    """That names it, or the metric it is about; with a test, or a remark why there is none."""
    names = (f"`{behaviour}`", f"`{METRICS}{behaviour.removeprefix(METRIC)}`")
    found = [row for row in rows(page) if any(name in " ".join(row) for name in names)]
    return any(NAMED.search(" ".join(row)) or row[-1] for row in found)


@pytest.mark.parametrize(
    ("page", "at_least"), [("daemon.md", 50), ("daemon-life.md", 50), ("backends/ipvs.md", 20)]
)
def test_every_test_that_is_named_exists(page: str, at_least: int) -> None:
    named = TEST.findall(text(page))
    assert len(named) > at_least
    missing = [
        f"{path}::{test}"
        for path, test in named
        if not re.search(rf"^def {test}\(", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert not missing, f"docs/{page} names tests that do not exist: {missing}"


@pytest.mark.parametrize("page", PAGES)
def test_every_behaviour_has_a_row(page: str) -> None:
    behaviours = [each.id for each in coverage.behaviours() if coverage.OWN_PAGES.get(each.topic) == page]
    assert len(behaviours) > 20
    assert not [behaviour for behaviour in behaviours if not has_a_row(page, behaviour)]


def test_a_row_without_a_test_says_why() -> None:
    headings = {"behaviour", "metric", "path", "port", "promise"}
    promises = [row for row in rows("daemon.md") if row[0] not in headings and "BindAddress" not in row[0]]
    silent = [row[0] for row in promises if not TEST.search(" ".join(row)) and not row[-1]]
    assert not silent
