"""The whole catalogue on rules in memory: what can be shown there is lawful, and that is most of it."""

from dataclasses import replace
from pathlib import Path

import pytest

from kproxy.conformance.case import (
    OPTIONAL_FEATURES,
    REJECTED,
    Apply,
    Case,
    Probe,
    Profile,
    delivered_to,
)
from kproxy.conformance.cases import CATALOGUE
from kproxy.conformance.reports.results import CaseResult, Report, Result
from kproxy.conformance.testbed import HarnessError
from kproxy.conformance.testbeds import simulator
from tests.support.kernel_steps import needs_kernel
from tests.support.scripted_testbed import TO_WEB, WEB, report_on, small_case, subject

ENOUGH = 0.6
"""Share of the catalogue that must run without a kernel."""

"""Steps that rules in memory cannot show: they need connections, time or processes."""

PROFILES = list(dict.fromkeys(case.profile for case in CATALOGUE))


def simulated(cases: tuple[Case, ...], evidence: Path) -> Report:
    return report_on(cases, simulator.opener("iptables"), evidence, subject(modes=("iptables", "nftables")))


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, CaseResult]:
    report = simulated(CATALOGUE, tmp_path_factory.mktemp("evidence"))
    return {entry.case.id: entry for entry in report.results}


OF_THE_KERNEL = {
    "liberal",
    "forward-drop",
    "restart",
    "starts",
    "writes",
    "writes-of-one-family",
    "watches",
    "mode-change",
    "flushed",
    "removed",
    "lone-changes",
}
"""Profiles that are about what rules alone do not show."""
SHOWN = [profile for profile in PROFILES if profile.name not in OF_THE_KERNEL]


@pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in CATALOGUE])
def test_a_case_passes_or_has_a_step_that_needs_a_kernel(case: Case, results: dict[str, CaseResult]) -> None:
    entry = results[case.id]
    first = next(needs_kernel(case), None)
    if case.features & OPTIONAL_FEATURES:
        assert entry.result is Result.UNSUPPORTED
    elif first is None:
        assert entry.result is Result.PASSED, entry.findings or entry.reason
    else:
        assert entry.result is Result.NOT_RUNNABLE
        assert entry.reason.startswith(first)


def test_most_of_the_catalogue_runs_without_a_kernel(results: dict[str, CaseResult]) -> None:
    passed = [entry for entry in results.values() if entry.result is Result.PASSED]
    assert len(passed) >= ENOUGH * len(CATALOGUE)


@pytest.mark.parametrize("profile", SHOWN, ids=lambda profile: profile.name)
def test_every_profile_shows_something(profile: Profile, results: dict[str, CaseResult]) -> None:
    assert [e for e in results.values() if e.case.profile == profile and e.result is Result.PASSED]


def test_a_wrong_answer_is_found_and_leaves_the_objects_as_evidence(tmp_path: Path) -> None:
    wrong = small_case(Apply(WEB), replace(TO_WEB, expect=REJECTED))
    (entry,) = simulated((wrong,), tmp_path).results
    assert entry.result is Result.FAILED
    assert "delivered to 10.244." in entry.findings[0].seen
    assert '"10.244.1.' in (tmp_path / "group.name/IPv4/objects.json").read_text(encoding="utf-8")


def test_an_answer_that_chance_allows_but_the_case_does_not_is_found(tmp_path: Path) -> None:
    too_narrow = small_case(Apply(WEB), replace(TO_WEB, expect=delivered_to("a1")))
    assert simulated((too_narrow,), tmp_path).exit_code == 1


def test_an_endpoint_that_is_never_chosen_is_found(tmp_path: Path) -> None:
    three = Probe(sender=TO_WEB.sender, to=TO_WEB.to, expect=delivered_to("a1", "b1", "b2"), spread=True)
    (entry,) = simulated((small_case(Apply(WEB), three),), tmp_path).results
    assert [found.lawful.startswith("every one of") for found in entry.findings] == [True]


def test_there_is_no_simulator_for_another_mode() -> None:
    with pytest.raises(HarnessError, match="ebpf"):
        simulator.opener("ebpf")
