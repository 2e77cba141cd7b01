"""docs/results/e2e/tests.md: Kubernetes' own tests by name, with the result of each run, from the merged JUnit file beside it."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

from tools.docgen.tables import COMMAND, markdown_table

FOLDER = Path(__file__).parents[2] / "docs/results/e2e"

COLUMNS = ("run", "passed", "failed", "skipped", "minutes")


def page() -> str:
    """The whole page."""
    suites = list(ET.parse(FOLDER / "junit.xml").iter("testsuite"))  # noqa: S314 (of this repository)
    results = {suite.get("name", ""): _results(suite) for suite in suites}
    heading = f"<!-- Generated: edit docs/results/e2e/junit.xml, then run `{COMMAND}`. -->\n\n# Tests of Kubernetes, and how they ended"
    totals = markdown_table(f"{heading}\n\n[What was run](README.md).", COLUMNS, map(_total, suites))
    names = sorted({name for found in results.values() for name in found})
    rows = ([name, *(found.get(name, "") for found in results.values())] for name in names)
    return f"{totals}\n\n{markdown_table('## By test', ['test', *results], rows)}\n"


def _total(suite: ET.Element) -> tuple[str, ...]:
    tests, failed, skipped = (int(suite.get(name, "0")) for name in ("tests", "failures", "skipped"))
    minutes = float(suite.get("time", "0")) / 60
    return suite.get("name", ""), *map(str, (tests - failed - skipped, failed, skipped)), f"{minutes:.1f}"


def _results(suite: ET.Element) -> dict[str, str]:
    return dict(_result(case) for case in suite.iter("testcase"))


def _result(case: ET.Element) -> tuple[str, str]:
    """Name without the prefix and labels that all have, and the status in bold if it is not passed."""
    name = case.get("name", "").removeprefix("[It] [sig-network] ")
    status = case.get("status", "")
    name = re.sub(r" \[sig-network[^]]*\]$", "", name)
    brackets = re.sub(r"[][]", r"\\\g<0>", name)  # as text: the site takes `[Conformance]` for a link
    return brackets, status if status == "passed" else f"**{status}**"
