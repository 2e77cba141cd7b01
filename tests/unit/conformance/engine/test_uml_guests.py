"""How several guests share a run, and how their reports become one."""

import time
from dataclasses import replace

import pytest

from kproxy.conformance.case import Case
from kproxy.conformance.cases import CATALOGUE
from kproxy.conformance.engine import uml_guests
from kproxy.conformance.options import RunOptions
from kproxy.conformance.reports.results import CaseResult, Report, Result
from kproxy.lab.kernels.boot import GuestDied


def report(*cases: Case, result: Result = Result.PASSED) -> Report:
    results = tuple(CaseResult(case=case, result=result, seconds=0.1) for case in cases)
    return Report(subject="s", mode="m", environment={"kernel": "7"}, results=results, seconds=1.0)


@pytest.mark.parametrize("number", [1, 2, 3, 7])
def test_every_case_is_in_one_share_and_none_is_much_larger_than_another(number: int) -> None:
    shares = uml_guests.split_cases(CATALOGUE, number)
    ids = [case.id for share in shares for case in share]
    assert sorted(ids) == sorted(case.id for case in CATALOGUE)
    assert len(shares) == number
    assert max(map(len, shares)) <= len(CATALOGUE) / number + 1


def test_a_profile_that_fits_is_not_torn_apart() -> None:
    for number in (2, 3):
        shares = uml_guests.split_cases(CATALOGUE, number)
        split = {p for p in {case.profile.name for case in CATALOGUE} if sum(holds(s, p) for s in shares) > 1}
        assert split <= {"default"}


def holds(share: list[Case], profile: str) -> bool:
    return any(case.profile.name == profile for case in share)


def test_there_are_no_more_shares_than_cases() -> None:
    assert uml_guests.split_cases(CATALOGUE[:2], 5) == [[CATALOGUE[0]], [CATALOGUE[1]]]


@pytest.mark.parametrize(
    ("cases", "processors", "number"), [(190, 2, 2), (190, 1, 1), (190, 64, 4), (79, 8, 1), (1, 8, 1)]
)
def test_a_guest_is_made_where_it_helps(cases: int, processors: int, number: int) -> None:
    some = list(CATALOGUE[:1]) * cases
    assert uml_guests.guest_count(RunOptions(), some, processors) == number
    assert uml_guests.guest_count(RunOptions(guests=3), some, processors) == 3


def test_parts_become_one_report_in_the_order_of_the_cases() -> None:
    first, second, third = CATALOGUE[:3]
    parts = [report(third, first), report(second, result=Result.FAILED)]
    whole = uml_guests.merge_reports(parts, [first, second, third], time.monotonic(), 2)
    assert [entry.case for entry in whole.results] == [first, second, third]
    assert whole.exit_code == 1
    assert whole.environment == {"kernel": "7", "guests": "2"}


def test_the_cases_of_a_guest_that_died_are_broken_with_its_last_output() -> None:
    first, second, third = CATALOGUE[:3]
    lost = uml_guests.results_of_dead_guests([[first], [second, third]], [0, GuestDied("out of breath")])
    assert [(entry.case, entry.result) for entry in lost] == [
        (second, Result.BROKEN),
        (third, Result.BROKEN),
    ]
    assert {entry.reason for entry in lost} == {"guest 2: out of breath"}
    whole = uml_guests.merge_reports([report(first), replace(report(), results=lost)], CATALOGUE[:3], 0.0, 2)
    assert whole.exit_code == 2
    assert [entry.case for entry in whole.results] == [first, second, third]
