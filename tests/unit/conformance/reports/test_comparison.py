"""Runs beside one another: names of columns, what differs, and what is reported to the user."""

import io

from rich.console import Console

from kproxy.conformance.reports.comparison import compare_runs
from kproxy.conformance.reports.comparison_console import print_comparison
from kproxy.conformance.reports.results import Result, RunOutcome
from tests.support.sample_reports import compared, outcome, read, result
from tests.support.scripted_testbed import small_case

ONE, TWO = small_case(id="group.one"), small_case(id="group.two")


def run(name: str, one: Result, two: Result = Result.PASSED, **environment: str) -> RunOutcome:
    return outcome(name, result(one, ONE), result(two, TWO), **environment)


def shown(*outcomes: RunOutcome) -> list[str]:
    page = io.StringIO()
    print_comparison(compared(*outcomes), Console(file=page, width=100))
    return page.getvalue().splitlines()


def test_only_cases_that_the_subjects_answer_differently_differ() -> None:
    both = compared(run("a", Result.PASSED), run("b", Result.FAILED))
    assert both.differing == ("group.one",)
    assert compared(run("a", Result.FAILED), run("b", Result.FAILED)).differing == ()


def test_what_could_not_be_seen_is_no_difference_but_is_counted() -> None:
    for unseen in (Result.NOT_RUNNABLE, Result.BROKEN):
        both = compared(run("a", Result.PASSED), run("b", unseen))
        assert both.differing == ()
        assert both.partly_judged == ("group.one",)


def test_a_case_that_one_run_lacks_is_no_difference() -> None:
    both = compared(run("a", Result.PASSED), outcome("b", result(Result.PASSED, ONE)))
    assert both.differing == ()
    assert both.partly_judged == ("group.two",)


def test_runs_of_one_name_are_distinguished_by_what_they_ran_on() -> None:
    runs = [run("a", Result.PASSED, kernel=kernel, subject="v1") for kernel in ("6.1", "6.12")]
    assert [column.name for column in compared(*runs).columns] == ["my-proxy a (6.1)", "my-proxy a (6.12)"]


def test_runs_that_are_alike_are_distinguished_by_file_or_by_number() -> None:
    same = run("a", Result.PASSED)
    files = compare_runs([read(same, where="one.json"), read(same, where="two.json")])
    assert [column.name for column in files.columns] == ["my-proxy a (one.json)", "my-proxy a (two.json)"]
    assert [column.name for column in compared(same, same).columns] == ["my-proxy a (#1)", "my-proxy a (#2)"]


def test_the_console_reports_what_differs_why_and_the_sums() -> None:
    lines = shown(run("a", Result.PASSED), run("b", Result.FAILED), run("c", Result.PASSED, kernel="6"))
    assert lines == [
        "group.one  It is small.",
        "  A C  passed",
        "  B    failed  IPv4, step 2: pod a2 -> web cluster ip: lawful delivered to b1 (source preserved); seen TCP RST",
        "",
        "1 of 2 cases differs",
        "A  my-proxy a  2 passed in 1.0 s",
        "B  my-proxy b  1 passed, 1 failed in 1.0 s",
        "C  my-proxy c  2 passed in 1.0 s on 6",
    ]


def test_the_console_reports_how_many_cases_were_not_judged_everywhere() -> None:
    unseen = Result.NOT_RUNNABLE
    assert "1 was judged in some runs only" in shown(run("a", Result.PASSED), run("b", unseen))
    assert "2 were judged in some runs only" in shown(run("a", Result.PASSED), run("b", unseen, unseen))


def test_one_run_has_nothing_to_differ_from() -> None:
    assert shown(run("a", Result.FAILED)) == ["my-proxy a  1 passed, 1 failed in 1.0 s"]
