"""Known regressions by any name they have."""

import pytest

from kproxy.spec.regressions import REGRESSIONS, RegressionScope

FIRST = REGRESSIONS["R001"]
"""https://github.com/kubernetes/kubernetes/issues/19029"""


@pytest.mark.parametrize(
    "name", ["R001", "r001", "19029", "#19029", "kubernetes#19029", "kubernetes/kubernetes#19029"]
)
def test_a_regression_has_its_id_and_the_numbers_of_its_reports(name: str) -> None:
    assert [regression.id for regression in REGRESSIONS.values() if regression.matches(name)] == ["R001"]


@pytest.mark.parametrize("name", ["R0011", "1902", "other/kubernetes#19029", ""])
def test_a_part_of_a_name_is_none(name: str) -> None:
    assert not FIRST.matches(name)


def test_a_report_is_linked() -> None:
    assert (
        "kubernetes/kubernetes#19029",
        "https://github.com/kubernetes/kubernetes/issues/19029",
    ) in FIRST.links


def test_a_regression_that_no_case_holds_has_a_reason() -> None:
    elsewhere = [one for one in REGRESSIONS.values() if one.shows is RegressionScope.ELSEWHERE]
    assert elsewhere
    assert all(one.reason for one in elsewhere)
    assert FIRST.reason == FIRST.uncovered
