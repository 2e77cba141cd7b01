"""Several runs at a glance: exit status, JSON, and what a person is shown."""

import io

import pytest
from rich.console import Console

from kproxy.conformance.reports.matrix_console import print_matrix
from kproxy.conformance.reports.results import CaseResult, Report, Result, RunOutcome, exit_code
from kproxy.conformance.reports.results_document import matrix_document, run_document
from tests.support.sample_reports import CASE, result

WHY = "no kernel can run this"


def outcome(name: str, kind: Result = Result.PASSED, kernel: str = "host") -> RunOutcome:
    environment = {"kernel": "6.1", "kernel-choice": kernel}
    report = Report(
        subject="my-proxy",
        mode=name.split(maxsplit=1)[0],
        environment=environment,
        results=(result(kind),),
        seconds=2.0,
        reproduce_command=f"kproxy conformance run --mode {name.split(maxsplit=1)[0]}",
    )
    return RunOutcome(name=name, report=report)


def refused(name: str) -> RunOutcome:
    results = (CaseResult(case=CASE, result=Result.NOT_RUNNABLE, seconds=0.0, reason=WHY),)
    report = Report(subject="my-proxy", mode=name, environment={}, results=results, seconds=0.0)
    return RunOutcome(name=name, report=report, refusal=WHY)


def shown(*outcomes: RunOutcome, width: int = 120) -> list[str]:
    page = io.StringIO()
    print_matrix(outcomes, Console(file=page, width=width), 4.0)
    return [line.rstrip() for line in page.getvalue().splitlines()]


# ------------------------------------------------------------------------------ exit status

GOOD, BAD = outcome("a"), outcome("a", Result.FAILED)
UNSEEN, GONE = outcome("a", Result.BROKEN), refused("b")


@pytest.mark.parametrize(
    ("outcomes", "code", "where_possible"),
    [
        ((GOOD, GOOD), 0, 0),
        ((GOOD, BAD), 1, 1),
        ((GOOD, UNSEEN), 2, 2),
        ((UNSEEN, BAD), 1, 1),
        ((GOOD, GONE), 2, 0),
        ((BAD, GONE), 1, 1),
        ((UNSEEN, GONE), 2, 2),
        ((GONE, GONE), 2, 2),
    ],
)
def test_one_status_for_all_runs(outcomes: tuple[RunOutcome, ...], code: int, where_possible: int) -> None:
    assert exit_code(outcomes, skip_missing_kernels=False) == code
    assert exit_code(outcomes, skip_missing_kernels=True) == where_possible


# ------------------------------------------------------------------------------ JSON


def test_each_run_is_what_a_run_alone_would_have_written_and_its_name() -> None:
    both = outcome("iptables nft"), outcome("ipvs", kernel="uml")
    whole = matrix_document("my-proxy", both, 4.0)
    assert {key: whole[key] for key in ("subject", "seconds")} == {"subject": "my-proxy", "seconds": 4.0}
    alone = [run_document(one.report) for one in both]
    assert [(run["name"], run["results"]) for run in whole["runs"]] == [
        (one.name, run["results"]) for one, run in zip(both, alone, strict=True)
    ]
    assert whole["cases"] == alone[0]["cases"] | alone[1]["cases"]
    assert [run["mode"] for run in whole["runs"]] == ["iptables", "ipvs"]


def test_a_run_that_could_not_be_had_has_its_cases_with_the_reason() -> None:
    (run,) = matrix_document("my-proxy", [refused("ipvs")], 0.0)["runs"]
    assert [(entry["result"], entry["reason"]) for entry in run["results"]] == [("not-runnable", WHY)]


# ------------------------------------------------------------------------------ for people


def test_a_column_for_each_run_and_a_row_for_each_case() -> None:
    lines = shown(outcome("iptables nft"), outcome("iptables legacy"), outcome("ipvs", Result.DEVIATION))
    assert [line.split() for line in lines[:4]] == [
        ["iptables", "iptables"],
        ["case", "nft", "legacy", "ipvs"],
        ["group", "1/1", "1/1", "0/1"],
        ["one", "passed", "0.25s", "passed", "0.25s", "deviation", "1.00s"],
    ]


def test_on_a_narrow_page_verdicts_stay_whole_and_times_are_left_out() -> None:
    lines = shown(*[outcome(name, Result.NOT_RUNNABLE) for name in ("a", "b", "c", "d")], width=56)
    assert lines[2].split() == ["o…", *["not-runnable"] * 4]


def test_failures_report_which_run_they_are_of() -> None:
    page = shown(outcome("nftables"), outcome("ipvs", Result.FAILED), outcome("ebpf", Result.BROKEN))
    assert any(line.startswith("failed ipvs: group.one: ") for line in page)
    assert "  rerun:    kproxy conformance run --mode ipvs --case 'group.one'" in page
    assert any(line.startswith("broken ebpf: why") for line in page)


def test_what_was_neither_passed_nor_failed_is_explained_once_for_all_runs() -> None:
    kinds = {"a": Result.UNSUPPORTED, "b": Result.UNSUPPORTED, "c": Result.DEVIATION, "d": Result.PASSED}
    page = shown(*[outcome(name, kind) for name, kind in kinds.items()])
    explained = [line for line in page if line.endswith(": why")]
    assert explained == ["deviation c: group.one: why", "unsupported a, b: group.one: why"]


def test_a_line_for_each_run_with_its_kernel_and_one_for_all() -> None:
    lines = shown(outcome("iptables nft"), outcome("ipvs", Result.FAILED, "uml"), refused("ebpf"))
    assert lines[-4:] == [
        "iptables nft  1 passed in 2.0 s on host 6.1",
        "ipvs          1 failed in 2.0 s on uml 6.1",
        f"ebpf          cannot be judged here: {WHY}",
        "my-proxy: 3 runs, 3 cases in 4.0 s: 1 failed, ebpf not judged",
    ]


def test_a_run_that_could_not_be_had_has_no_column() -> None:
    assert shown(outcome("nftables"), refused("ipvs"))[0].split() == ["case", "nftables"]
    assert shown(refused("ipvs"))[-1] == "my-proxy: 1 run, 1 case in 4.0 s: ipvs not judged"


def test_when_all_is_well_it_reports_so() -> None:
    assert shown(outcome("a"), outcome("b"))[-1].endswith("all that could be judged was lawful")
