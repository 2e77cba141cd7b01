"""The whole catalogue on nftables mode's rules in memory."""

import pytest

from kproxy.conformance.case import Case
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


@pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in CATALOGUE])
def test_a_case_passes_needs_a_kernel_or_asks_for_what_the_mode_does_not_have(
    case: Case, results: dict[str, CaseResult]
) -> None:
    entry = results[case.id]
    if list(needs_kernel(case)):
        assert entry.result is Result.NOT_RUNNABLE
    elif load_subject("kproxy").missing_features(case, "nftables"):
        assert entry.result is Result.FAILED, "it passes: the mode has what it is said to lack"
    else:
        assert entry.result is Result.PASSED, entry.findings or entry.reason


def test_most_of_the_catalogue_runs_in_memory(results: dict[str, CaseResult]) -> None:
    passed = sum(entry.result is Result.PASSED for entry in results.values())
    assert passed > 0.6 * len(CATALOGUE)
