"""What is covered: behaviours by clauses and cases, reported bugs by cases; what is open stands here by name."""

import json
from collections import Counter

import pytest

from kproxy.conformance.cases import CATALOGUE
from kproxy.conformance.command import ConformanceRunError, regression_ids
from kproxy.spec.clauses import CLAUSES
from kproxy.spec.regressions import REGRESSIONS, RegressionScope
from kproxy.spec.topics import TOPICS
from tests.support.paths import ROOT
from tools.docgen import coverage, regressions
from tools.docgen.coverage import CoverageStatus

BEHAVIOURS = {behaviour.id: behaviour for behaviour in coverage.behaviours()}
CASES = {case.id: case for case in CATALOGUE}
PACKETS = set(TOPICS) - set(coverage.OWN_PAGES)
"""Topics whose behaviours packets show."""

NOT_HELD = """
np.addresses.primary-unknown eip.ipvs-off-machine
hair.nft.direct hair.ipvs.direct det.clustercidr.first-only ct.eintr ct.hashsize
ds.primary ds.v6-specials
ds.ipvs-names
"""
"""Behaviours of those topics that no case shows; src/kproxy/spec/behaviours.toml gives each its reason."""

REPORTS_NOT_HELD = """
R010 R016 R068 R079 R084 R111 R112 R113 R114 R115 R116 R117
"""
"""Reports that namespaces can show and no case does; regressions.toml gives each its reason."""


def test_ids_are_unique_over_all_topics() -> None:
    counted = Counter(behaviour.id for behaviour in coverage.behaviours())
    assert [id for id, times in counted.items() if times > 1] == []


def test_every_behaviour_a_clause_sums_up_is_known() -> None:
    named = {id for clause in CLAUSES.values() for id in clause.behaviours}
    assert named - set(BEHAVIOURS) == set()


def test_a_case_that_is_listed_to_show_a_behaviour_rests_on_a_clause_of_it() -> None:
    idle = [
        (behaviour.id, id)
        for behaviour in BEHAVIOURS.values()
        for id in behaviour.behaviour.cases
        if not CASES[id].clauses & set(behaviour.clauses)
    ]
    assert idle == []


def test_what_no_case_shows_has_a_reason_and_tests_that_are_named_exist() -> None:
    others = [b for b in BEHAVIOURS.values() if b.standing is not CoverageStatus.HELD]
    assert [b.id for b in others if not b.why] == []
    named = {b.id: b.why for b in others if b.standing is CoverageStatus.TESTS}
    assert [id for id, path in named.items() if not (ROOT / path).is_file()] == []


def test_at_least_95_percent_of_what_packets_can_show_has_a_clause_and_a_case() -> None:
    shown = [b for b in BEHAVIOURS.values() if b.topic in PACKETS]
    can = [b for b in shown if b.standing in {CoverageStatus.HELD, CoverageStatus.OPEN}]
    held = [b for b in can if b.standing is CoverageStatus.HELD]
    assert len(held) >= 0.95 * len(can)


def test_what_packets_show_is_held_but_for_what_is_named_here() -> None:
    open_ones = {
        b.id for b in BEHAVIOURS.values() if b.topic in PACKETS and b.standing is not CoverageStatus.HELD
    }
    assert open_ones == set(NOT_HELD.split())


def test_the_map_for_programs_is_the_map_for_people() -> None:
    reported = json.loads(coverage.coverage_json())["behaviours"]
    assert list(reported) == list(BEHAVIOURS)
    assert reported["cip.udp.dnat"]["clauses"] == ["protocol.udp.served"]
    assert reported["ct.udp.last-endpoint"]["cases"] == [
        "conntrack.udp-is-refused-when-nobody-is-left",
        "conntrack.udp-refused-where-no-endpoint-is-left",
        "conntrack.udp-is-dropped-where-policy-leaves-nothing-for-it",
    ]


# --------------------------------------------------------------------------- reports


def test_every_report_that_namespaces_can_show_is_held_but_for_what_is_named_here() -> None:
    can = {r.id for r in REGRESSIONS.values() if r.shows is not RegressionScope.ELSEWHERE}
    held = {id for case in CATALOGUE for id in case.regressions}
    assert can - held == set(REPORTS_NOT_HELD.split())


def test_every_report_is_either_held_or_has_a_reason() -> None:
    both_or_neither = [r.id for r in REGRESSIONS.values() if bool(regressions.cases_for(r)) == bool(r.reason)]
    assert both_or_neither == []


@pytest.mark.parametrize(
    "name", ["139628", "#139628", "R003", "kubernetes#139628", "kubernetes/kubernetes#139628"]
)
def test_a_report_is_found_by_its_number_with_and_without_repository(name: str) -> None:
    assert regression_ids([name]) == {"R003"}


def test_a_report_is_found_by_its_cve() -> None:
    assert regression_ids(["CVE-2020-8558"]) == {"R063"}


@pytest.mark.parametrize(("name", "message"), [("4711", "no report"), ("R036", "whole cluster")])
def test_a_report_that_is_unknown_or_not_held_is_named_so(name: str, message: str) -> None:
    with pytest.raises(ConformanceRunError, match=message):
        regression_ids([name])
