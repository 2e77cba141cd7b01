"""The catalogue on ipvs mode's program in memory; `tests.mutants` holds that each family of its rules is needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from kproxy.conformance.case import OPTIONAL_FEATURES, Case
from kproxy.conformance.cases import CATALOGUE
from kproxy.conformance.reports.results import CaseResult, Result
from kproxy.conformance.subjects.subject import load_subject
from kproxy.conformance.testbeds import simulator
from tests.support.scripted_testbed import report_on, subject

SUBJECT = load_subject("kproxy")


def judged(cases: tuple[Case, ...], folder: Path) -> list[CaseResult]:
    both = subject(modes=("ipvs", "nftables"))
    return list(report_on(cases, simulator.opener("ipvs"), folder, both).results)


def expected_to_pass(case: Case) -> bool:
    known = any(one.excuses_for(case.id, "ipvs") for one in SUBJECT.deviations)
    return not known and "localhost" not in case.id


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[CaseResult]:
    cases = tuple(filter(expected_to_pass, CATALOGUE))
    return judged(cases, tmp_path_factory.mktemp("evidence"))


def test_what_can_be_shown_in_memory_is_lawful(results: list[CaseResult]) -> None:
    required = [entry for entry in results if not entry.case.features & OPTIONAL_FEATURES]
    wrong = [entry for entry in required if entry.result not in {Result.PASSED, Result.NOT_RUNNABLE}]
    assert [(entry.case.id, entry.findings) for entry in wrong] == []
    assert len([entry for entry in results if entry.result is Result.PASSED]) >= 207
