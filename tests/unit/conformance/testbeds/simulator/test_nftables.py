"""The whole catalogue on nftables mode's rules in memory."""

import pytest

from kproxy.conformance.case import OPTIONAL_FEATURES, Case
from kproxy.conformance.cases import CATALOGUE
from kproxy.conformance.reports.results import CaseResult, Result
from kproxy.conformance.subjects.subject import load_subject
from kproxy.conformance.testbeds import simulator
from tests.support.kernel_steps import needs_kernel
from tests.support.scripted_testbed import report_on, subject


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, CaseResult]:
    both = subject(modes=("nftables", "iptables"))
    report = report_on(CATALOGUE, simulator.opener("nftables"), tmp_path_factory.mktemp("evidence"), both)
    return {entry.case.id: entry for entry in report.results}


def test_a_case_passes_needs_a_kernel_or_requires_what_the_mode_does_not_have(
    results: dict[str, CaseResult],
) -> None:
    wrong = [entry for entry in results.values() if entry.result is not expected(entry.case)]
    assert [(entry.case.id, entry.findings or entry.reason) for entry in wrong] == []


def expected(case: Case) -> Result:
    if case.features & OPTIONAL_FEATURES:
        return Result.UNSUPPORTED
    if list(needs_kernel(case, "nftables")):
        return Result.NOT_RUNNABLE
    lacking = load_subject("kproxy").missing_features(case, "nftables")
    return Result.FAILED if lacking else Result.PASSED


def test_most_of_the_catalogue_runs_in_memory(results: dict[str, CaseResult]) -> None:
    passed = sum(entry.result is Result.PASSED for entry in results.values())
    assert passed >= 213, "no fewer than could be shown before"
