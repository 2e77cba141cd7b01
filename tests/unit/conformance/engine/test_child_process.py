"""A report's way out of another process, and why there is none."""

import pytest

from kproxy.conformance.cases import CATALOGUE
from kproxy.conformance.engine import child_process
from kproxy.conformance.reports import results_document
from kproxy.conformance.reports.results import CaseResult, Report, Result

REPORT = Report(
    subject="s",
    mode="m",
    environment={"kernel": "7"},
    results=tuple(CaseResult(case=case, result=Result.PASSED, seconds=0.1) for case in CATALOGUE),
    seconds=1.0,
)


def test_a_report_survives_the_way_out(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    child_process.send_report(REPORT)
    taken = child_process.receive_report(capfdbinary.readouterr().out)
    assert results_document.run_document(taken) == results_document.run_document(REPORT)
    assert [entry.case.id for entry in taken.results] == [case.id for case in CATALOGUE]


def test_half_a_report_is_none(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    child_process.send_report(REPORT)
    whole = capfdbinary.readouterr().out
    for data in (b"", whole[: len(whole) // 2]):
        with pytest.raises(child_process.NoReport):
            child_process.receive_report(data)


def test_a_process_is_informed_that_its_report_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(child_process.CHILD_VARIABLE, raising=False)
    assert not child_process.is_child_process()
    reported = child_process.child_environment({"FORCE_COLOR": "1", "PATH": "/bin"})
    assert reported.keys() == {"PATH", child_process.CHILD_VARIABLE}
    monkeypatch.setenv(child_process.CHILD_VARIABLE, reported[child_process.CHILD_VARIABLE])
    assert child_process.is_child_process()


def read_chunks(*chunks: bytes) -> tuple[list[str], str]:
    lines: list[str] = []
    tail = child_process.LogTail(lines.append)
    for chunk in chunks:
        tail.feed(chunk)
    return lines, tail.failure_reason()


def test_lines_are_passed_on_whole_however_they_come() -> None:
    assert read_chunks(b"one\ntw", b"o\nthr", b"ee")[0] == ["one", "two"]


def test_the_reason_is_the_text_of_a_refusal_and_not_what_went_before() -> None:
    refusal = f"{child_process.ERROR_PREFIX}no kernel\nfor this\n".encode()
    assert read_chunks(b"running 3 checks\n", refusal)[1] == "no kernel\nfor this"


def test_the_reason_of_a_crash_is_its_last_lines() -> None:
    lines = [f"line {number}" for number in range(100)]
    reason = read_chunks("\n".join([*lines, "KeyError: 'x'"]).encode())[1]
    assert reason.endswith("line 99\nKeyError: 'x'")
    assert "line 1\n" not in reason
