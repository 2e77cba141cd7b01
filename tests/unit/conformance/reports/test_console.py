"""One run: exit codes, and what a person is shown."""

import io

import pytest
from rich.console import Console

from kproxy.conformance.reports.console import print_report
from kproxy.conformance.reports.results import CaseResult, Result, RunOutcome, exit_code
from tests.support.sample_reports import CASE, report, result
from tests.support.scripted_testbed import small_case


def shown(*results: CaseResult, width: int = 120) -> str:
    page = io.StringIO()
    print_report(report(*results), Console(file=page, width=width))
    return page.getvalue()


# ------------------------------------------------------------------------------ exit codes


@pytest.mark.parametrize(
    ("kinds", "code"),
    [
        ((Result.PASSED,), 0),
        ((Result.PASSED, Result.DEVIATION, Result.UNSUPPORTED, Result.NOT_RUNNABLE), 0),
        ((Result.PASSED, Result.FAILED), 1),
        ((Result.PASSED, Result.BROKEN), 2),
        ((Result.BROKEN, Result.FAILED), 1),
    ],
)
def test_the_exit_code_reports_whether_all_was_lawful_or_could_not_be_seen(
    kinds: tuple[Result, ...], code: int
) -> None:
    assert report(*map(result, kinds)).exit_code == code


@pytest.mark.parametrize(
    ("kinds", "code"),
    [
        ((Result.NOT_RUNNABLE,), 2),
        ((Result.UNSUPPORTED, Result.NOT_RUNNABLE), 2),
        ((Result.NOT_RUNNABLE, Result.DEVIATION), 0),
        ((Result.NOT_RUNNABLE, Result.FAILED), 1),
    ],
)
@pytest.mark.parametrize("skip", [False, True])
def test_a_run_that_judged_nothing_proves_nothing(
    kinds: tuple[Result, ...],
    code: int,
    skip: bool,  # noqa: FBT001
) -> None:
    outcome = RunOutcome(name="a", report=report(*map(result, kinds)))
    assert exit_code([outcome], skip_missing_kernels=skip) == code


# ------------------------------------------------------------------------------ for people


def test_a_failure_shows_what_was_lawful_what_was_seen_and_how_to_go_on() -> None:
    page = shown(result(Result.FAILED))
    for line in (
        "failed group.one: It is small.",
        "IPv4, step 2: pod a2 -> web cluster ip",
        "lawful:  delivered to b1 (source preserved)",
        "seen:    TCP RST",
        "clauses: a.first",
        "evidence: evidence/one",
        "rerun:    kproxy conformance run --proxy my.toml --mode ebpf --case 'group.one'",
    ):
        assert line in page


@pytest.mark.parametrize("kind", [Result.PASSED, Result.DEVIATION, Result.UNSUPPORTED, Result.NOT_RUNNABLE])
def test_what_is_no_failure_is_a_line_of_the_table_only(kind: Result) -> None:
    page = shown(result(kind))
    assert kind.value in page
    assert "rerun:" not in page


def test_a_failure_is_not_cut_by_a_narrow_terminal() -> None:
    page = shown(result(Result.FAILED), width=40)
    assert "rerun:    kproxy conformance run --proxy my.toml --mode ebpf --case 'group.one'" in page


def test_one_reason_that_broke_many_cases_is_reported_once() -> None:
    cases = [small_case(id=f"group.n{number}") for number in range(9)]
    page = shown(*(result(Result.BROKEN, case) for case in cases))
    assert page.count("broken why") == 1
    assert "cases:    group.n0, group.n1, group.n2, group.n3, group.n4, and 4 more" in page
    assert "--case 'group.n0'" in page


def test_text_that_looks_like_markup_is_shown_as_it_is() -> None:
    odd = CaseResult(case=CASE, result=Result.BROKEN, seconds=0.0, reason="ended [/bold] with [red]1")
    assert "broken ended [/bold] with [red]1" in shown(odd)


def test_a_group_counts_its_passes() -> None:
    other = small_case(id="zone.two")
    page = shown(
        result(Result.PASSED), result(Result.FAILED, small_case(id="group.x")), result(Result.PASSED, other)
    )
    assert [line.split() for line in page.splitlines() if line.startswith(("group", "zone"))] == [
        ["group", "1/2"],
        ["zone", "1/1"],
    ]


def test_the_last_line_is_the_sum() -> None:
    page = shown(result(Result.PASSED), result(Result.BROKEN), result(Result.PASSED))
    assert page.splitlines()[-1] == "my-proxy (ebpf): 3 cases: 2 passed, 1 broken in 2.0 s"
