"""What a neighbour changes on the machine: reported, and verdicts are taken away only where labs depend on it."""

from __future__ import annotations

import pytest

from kproxy.conformance.case import Apply
from kproxy.conformance.reports.console import summary_line
from kproxy.conformance.reports.results import CANNOT_RUN, LAWFUL, CaseResult, Report, Result
from kproxy.conformance.testbeds import machine_changes
from kproxy.lab.faults import machine_state
from kproxy.lab.faults.machine_state import INHERITED, MachineState
from tests.support.scripted_testbed import TO_WEB, WEB, small_case

CASE = small_case(Apply(WEB), TO_WEB)
PASSED = CaseResult(case=CASE, result=Result.PASSED, seconds=0.1)
REST: MachineState = {
    "nftables": "",
    "sysctl kernel/core_pattern": "core",
    f"{INHERITED}net/ipv4/ip_forward": "0",
}


def judged(after: MachineState, monkeypatch: pytest.MonkeyPatch) -> Report:
    looks = iter([REST, {**REST, **after}])
    monkeypatch.setattr(machine_state, "read_machine_state", lambda: next(looks))
    report = Report(subject="s", mode="m", environment={"kernel": "6"}, results=(PASSED,), seconds=1.0)
    return machine_changes.report_machine_changes(lambda: report)


@pytest.mark.parametrize("after", [{"sysctl kernel/core_pattern": "x"}, {"nftables": "table ip b {}"}])
def test_what_no_case_depends_on_is_reported_and_takes_no_verdict_away(
    after: MachineState, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = judged(after, monkeypatch)
    assert report.exit_code == LAWFUL
    assert next(iter(after)) in report.environment["machine"]
    assert report.environment["machine"] in summary_line(report)


def test_what_new_namespaces_inherit_spoils_what_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    report = judged({f"{INHERITED}net/ipv4/ip_forward": "1"}, monkeypatch)
    assert report.exit_code == CANNOT_RUN
    assert "net/ipv4/ip_forward: - 0, + 1" in report.results[0].reason


def test_a_machine_that_rests_is_not_mentioned(monkeypatch: pytest.MonkeyPatch) -> None:
    assert judged({}, monkeypatch).environment == {"kernel": "6"}
