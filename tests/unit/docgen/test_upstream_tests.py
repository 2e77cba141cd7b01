"""What is kept of ginkgo's JUnit files: tests that were chosen, as they ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.results import merged
from tools.docgen import upstream_tests

JUNIT = """\
<testsuites time="90"><testsuite name="Kubernetes e2e suite" timestamp="then">
<testcase name="[It] [sig-network] b [sig-network]" status="passed" time="1"><system-err>a log</system-err></testcase>
<testcase name="[It] [sig-network] a [Slow] [sig-network, Slow]" status="failed" time="2"><failure message="why&#10;a dump">more</failure></testcase>
<testcase name="[It] [sig-network] c [sig-network]" status="skipped" time="2"><skipped message="skipped - no zones"/></testcase>
<testcase name="[It] [sig-network] d [sig-network]" status="skipped" time="0"><skipped message="skipped"/></testcase>
<testcase name="[ReportAfterSuite]" status="passed" time="0"/>
</testsuite></testsuites>
"""


def test_a_page_has_each_chosen_test_as_it_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "mine-nftables"
    run.mkdir()
    (run / "junit.xml").write_text(JUNIT)
    merged([run]).write(tmp_path / "junit.xml")
    kept = (tmp_path / "junit.xml").read_text()
    assert 'message="why"' in kept
    assert "a log" not in kept
    monkeypatch.setattr(upstream_tests, "FOLDER", tmp_path)
    lines = upstream_tests.page().splitlines()
    assert "| mine-nftables | 1 | 1 | 1 | 1.5 |" in lines
    assert lines[-3:] == ["| a \\[Slow\\] | **failed** |", "| b | passed |", "| c | **skipped** |"]
