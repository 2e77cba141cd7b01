"""Reports: exit codes, JSON, and what a person is shown."""

import io

import pytest
from rich.console import Console

from kproxy.conformance.bind import instances
from kproxy.conformance.case import Apply, Case, Feature
from kproxy.conformance.cases import CATALOGUE
from kproxy.conformance.reports.console import show
from kproxy.conformance.reports.document import of_catalogue, of_run
from kproxy.conformance.reports.results import CaseResult, Report, Result
from kproxy.conformance.run import Finding
from tests.unit.conformance.scripted import TO_WEB, WEB, small_case

PROMISED = {"id", "result", "clauses", "seconds"}
"""Fields of a result that other tools may rely on."""

CASE = small_case(Apply(WEB), TO_WEB, id="group.one", clauses={"b.second", "a.first"})
FINDING = Finding(
    instances([CASE])[0],
    2,
    "pod a2 -> web cluster ip",
    "delivered to b1 (source preserved)",
    "TCP RST",
    ("a.first",),
)


def result(kind: Result, case: Case = CASE) -> CaseResult:
    match kind:
        case Result.PASSED:
            return CaseResult(case=case, result=kind, seconds=0.25)
        case Result.FAILED | Result.DEVIATION:
            return CaseResult(
                case=case,
                result=kind,
                seconds=1.0,
                reason="why",
                findings=(FINDING,),
                evidence="evidence/one",
            )
        case _:
            return CaseResult(case=case, result=kind, seconds=0.0, reason="why")


def report(*results: CaseResult) -> Report:
    return Report(
        subject="my-proxy",
        mode="ebpf",
        environment={"kernel": "6.1"},
        results=results,
        seconds=2.0,
        again="kproxy conformance run --proxy my.toml --mode ebpf",
    )


def shown(*results: CaseResult, width: int = 120) -> str:
    page = io.StringIO()
    show(report(*results), Console(file=page, width=width))
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
def test_the_exit_code_says_whether_all_was_lawful_or_could_not_be_seen(
    kinds: tuple[Result, ...], code: int
) -> None:
    assert report(*map(result, kinds)).exit_code == code


# ------------------------------------------------------------------------------ JSON


@pytest.mark.parametrize("kind", Result)
def test_every_result_has_the_fields_that_others_rely_on(kind: Result) -> None:
    document = of_run(report(result(kind)))
    assert list(document) == ["subject", "mode", "environment", "seconds", "results"]
    assert (document["subject"], document["mode"]) == ("my-proxy", "ebpf")
    assert document["environment"] == {"kernel": "6.1"}
    (entry,) = document["results"]
    assert entry.keys() >= PROMISED
    assert entry.keys() - PROMISED <= {"reason", "findings", "evidence"}
    assert (entry["id"], entry["result"]) == ("group.one", kind.value)
    assert entry["clauses"] == ["a.first", "b.second"]


def test_a_pass_has_nothing_more() -> None:
    assert of_run(report(result(Result.PASSED)))["results"][0].keys() == PROMISED


@pytest.mark.parametrize("kind", [Result.FAILED, Result.DEVIATION])
def test_a_failure_has_its_findings_and_where_the_evidence_is(kind: Result) -> None:
    entry = of_run(report(result(kind)))["results"][0]
    assert entry["evidence"] == "evidence/one"
    assert entry["findings"] == [
        {
            "family": "IPv4",
            "step": 2,
            "what": "pod a2 -> web cluster ip",
            "lawful": "delivered to b1 (source preserved)",
            "seen": "TCP RST",
            "clauses": ["a.first"],
        }
    ]


def test_what_could_not_be_observed_says_where_the_evidence_is() -> None:
    broken = CaseResult(case=CASE, result=Result.BROKEN, seconds=0.0, reason="why", evidence="evidence/one")
    assert of_run(report(broken))["results"][0]["evidence"] == "evidence/one"


def test_results_are_called_by_the_words_that_are_documented() -> None:
    assert [kind.value for kind in Result] == [
        "passed",
        "failed",
        "deviation",
        "unsupported",
        "not-runnable",
        "broken",
    ]


def test_the_catalogue_as_json_has_exactly_the_promised_fields() -> None:
    case = small_case(
        id="g.c", clauses={"z", "a"}, features={Feature.SCTP, Feature.IPV6}, regressions={"R002", "R001"}
    )
    assert of_catalogue([case]) == {
        "cases": [
            {
                "id": "g.c",
                "about": "It is small.",
                "clauses": ["a", "z"],
                "features": ["IPv6", "SCTP"],
                "regressions": ["R001", "R002"],
            }
        ]
    }
    assert len(of_catalogue(CATALOGUE)["cases"]) == len(CATALOGUE)


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
        "again:    kproxy conformance run --proxy my.toml --mode ebpf --case 'group.one'",
    ):
        assert line in page


@pytest.mark.parametrize("kind", [Result.PASSED, Result.DEVIATION, Result.UNSUPPORTED, Result.NOT_RUNNABLE])
def test_what_is_no_failure_is_a_line_of_the_table_only(kind: Result) -> None:
    page = shown(result(kind))
    assert kind.value in page
    assert "again:" not in page


def test_a_failure_is_not_cut_by_a_narrow_terminal() -> None:
    page = shown(result(Result.FAILED), width=40)
    assert "again:    kproxy conformance run --proxy my.toml --mode ebpf --case 'group.one'" in page


def test_one_reason_that_broke_many_cases_is_told_once() -> None:
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
