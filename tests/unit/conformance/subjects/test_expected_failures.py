"""Files of expected failures: what is read, what is refused, and that an unexpected pass is a failure."""

from __future__ import annotations

from pathlib import Path

import pytest

from kproxy.cli import main
from kproxy.conformance.binding.bind import bind_cases
from kproxy.conformance.cases import CATALOGUE
from kproxy.conformance.engine.judging import Finding
from kproxy.conformance.reports.results import CaseResult, Report, Result
from kproxy.conformance.subjects.expected_failures import (
    InvalidXfails,
    apply_xfails,
    parse_xfails,
    read_xfails,
)

CASE = next(case for case in CATALOGUE if case.id == "cluster-ip.every-endpoint-of-six")
SIMULATE = ("conformance", "run", "--testbed", "simulator", "--mode", "nftables")
FINDING = Finding(bind_cases([CASE])[0], 2, "a question", "an answer", "another", ("a.clause",))


def report(result: Result, mode: str = "iptables") -> Report:
    findings = (FINDING,) if result is Result.FAILED else ()
    entry = CaseResult(case=CASE, result=result, seconds=1.0, reason="as it was", findings=findings)
    return Report(subject="x", mode=mode, environment={}, results=(entry,), seconds=1.0)


def test_a_line_has_a_glob_perhaps_a_mode_and_a_reason() -> None:
    text = (
        "# all of them\n\naffinity.*  # forgets\n  conntrack.udp-*  ebpf  # stale (https://example.com/1)\n"
    )
    assert [(x.glob, x.mode, x.reason, x.where) for x in parse_xfails(text, "list")] == [
        ("affinity.*", "", "forgets", "list:3"),
        ("conntrack.udp-*", "ebpf", "stale (https://example.com/1)", "list:4"),
    ]


@pytest.mark.parametrize("line", ["affinity.*", "affinity.* #", "affinity.* a b # c", "affinity.*# why"])
def test_a_line_of_another_form_is_refused_with_its_place(line: str) -> None:
    with pytest.raises(InvalidXfails, match=r"list:2: .* is not of the form GLOB \[MODE\]  # REASON"):
        parse_xfails(f"\n{line}\n", "list")


def test_a_line_that_means_no_case_is_refused() -> None:
    with pytest.raises(InvalidXfails, match=r"list:1: no case matches typo\.\*"):
        parse_xfails("typo.*  # gone", "list")


def test_a_file_that_is_not_there_is_reported() -> None:
    with pytest.raises(InvalidXfails, match="--xfails no/such: No such file"):
        read_xfails("no/such")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (Result.FAILED, Result.DEVIATION),
        (Result.PASSED, Result.FAILED),
        (Result.BROKEN, Result.BROKEN),
        (Result.UNSUPPORTED, Result.UNSUPPORTED),
        (Result.NOT_RUNNABLE, Result.NOT_RUNNABLE),
    ],
)
def test_what_is_listed_may_fail_and_may_not_pass(before: Result, after: Result) -> None:
    (entry,) = apply_xfails(report(before), parse_xfails("cluster-ip.every-*  # why", "list")).results
    assert entry.result is after
    if before is not after:
        assert "why" in entry.reason
        assert "list:1" in entry.reason


def test_what_is_listed_for_another_mode_is_left_alone() -> None:
    given = report(Result.PASSED)
    assert apply_xfails(given, parse_xfails("cluster-ip.*  ebpf  # why", "list")) == given


def test_a_run_holds_to_the_list_strictly(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    listed = tmp_path / "xfails"
    listed.write_text("cluster-ip.slices-are-merged  # not yet\n", encoding="utf-8")
    arguments = (*SIMULATE, "--case", "cluster-ip.*", "--xfails", str(listed))
    assert main([*arguments, "--json", str(tmp_path / "r.json")]) == 1
    assert f"passes, and {listed}:1 expects it to fail (not yet): take it out" in capsys.readouterr().out
    assert '"failed"' in (tmp_path / "r.json").read_text(encoding="utf-8")


ATTACHED = """\
WORLD = case(
    'compare.unknown-1',
    'From a cluster.',
    Apply(Service(name='web', ports=(Port(name='a', number=53, node_port=False),))),
    Probe(sender=pod('a2'), to=Target(kind=TargetKind.CLUSTER_IP, service='web', port='a'), expect=REJECTED),
    clauses={'endpoints.none.rejected'},
)
"""


def test_a_case_of_a_file_can_be_expected_to_fail(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case, listed = tmp_path / "case.py", tmp_path / "xfails"
    case.write_text(ATTACHED, encoding="utf-8")
    listed.write_text("compare.unknown-1  # not yet\n", encoding="utf-8")
    arguments = (*SIMULATE, "--xfails", str(listed))
    assert main([*arguments, "--case-file", str(case)]) == 1
    assert f"passes, and {listed}:1 expects it to fail" in capsys.readouterr().out
    assert main([*arguments, "--case", "cluster-ip.*"]) == 2
    assert "no case matches compare.unknown-1" in capsys.readouterr().err


def test_cases_of_one_name_from_two_files_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = tmp_path / "case.py"
    case.write_text(ATTACHED, encoding="utf-8")
    assert main([*SIMULATE, "--case-file", str(case), "--case-file", str(case)]) == 2
    assert "several files have a case with the ID compare.unknown-1" in capsys.readouterr().err


def test_cases_of_files_are_shuffled_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [*SIMULATE, "--dry-run"]
    for number in range(6):
        case = tmp_path / f"{number}.py"
        case.write_text(ATTACHED.replace("unknown-1", f"unknown-{number}"), encoding="utf-8")
        arguments += ["--case-file", str(case)]

    def order(*more: str) -> list[str]:
        assert main([*arguments, *more]) == 0
        return [line for line in capsys.readouterr().out.splitlines() if "compare." in line]

    assert order("--shuffle", "7") != order()
    assert sorted(order("--shuffle", "7")) == order()


@pytest.mark.parametrize(("option", "status"), [("--case", 0), ("--skip", 2)])
def test_a_topic_names_cases_of_files_too(tmp_path: Path, option: str, status: int) -> None:
    case = tmp_path / "case.py"
    case.write_text(ATTACHED.replace("compare.unknown-1", "readiness.attached"), encoding="utf-8")
    assert main([*SIMULATE, "--dry-run", "--case-file", str(case), option, "endpoints"]) == status


def test_a_dry_run_of_a_file_is_about_its_case_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = tmp_path / "case.py"
    case.write_text(ATTACHED, encoding="utf-8")
    assert main([*SIMULATE, "--dry-run", "--case-file", str(case)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "kproxy nftables",
        "  in the simulator",
        "  lab default: 1 case",
        "    compare.unknown-1",
    ]
