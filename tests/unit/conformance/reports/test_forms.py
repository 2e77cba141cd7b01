"""JUnit XML and Markdown: read by others' parsers, whatever a subject is called or writes."""

import io
import re
from dataclasses import replace

import pytest
from junitparser import Error, Failure, JUnitXml, Skipped, TestSuite

from kproxy.conformance.reports import junit, markdown
from kproxy.conformance.reports.results import Result
from tests.support.sample_reports import compared, outcome, result
from tests.support.scripted_testbed import small_case

EVERY = tuple(result(kind, small_case(id=f"group.{kind.value}")) for kind in Result)
NASTY = "<script>alert(1)</script> | ```\n\x1b[31m &amp; ]]>"


def suites(text: str) -> list[TestSuite]:
    return list(JUnitXml.fromfile(io.BytesIO(text.encode())))


def _properties(suite: TestSuite) -> dict[str, str]:
    return {prop.name: prop.value for prop in suite.properties()}  # type: ignore[no-untyped-call]


def test_a_standard_parser_reads_a_suite_for_each_run_and_a_test_for_each_case() -> None:
    first, second = suites(
        junit.render_junit(compared(outcome("a", *EVERY, kernel="6.1"), outcome("b", *EVERY)))
    )
    assert (first.name, second.name) == ("my-proxy a", "my-proxy b")
    assert (first.tests, first.failures, first.errors, first.skipped) == (6, 1, 1, 3)
    assert _properties(first) == {"mode": "a", "kernel": "6.1"}
    assert [test.name for test in first] == [kind.value for kind in Result]
    assert {test.classname for test in first} == {"my-proxy a.group"}


@pytest.mark.parametrize(
    ("kind", "tag"),
    [
        (Result.PASSED, None),
        (Result.FAILED, Failure),
        (Result.BROKEN, Error),
        (Result.DEVIATION, Skipped),
        (Result.UNSUPPORTED, Skipped),
        (Result.NOT_RUNNABLE, Skipped),
    ],
)
def test_every_result_has_its_place_in_junit(kind: Result, tag: type | None) -> None:
    ((test,),) = suites(junit.render_junit(compared(outcome("a", result(kind)))))
    assert [type(element) for element in test.result] == ([tag] if tag else [])
    assert [element.message for element in test.result] == ([f"{kind.value}: why"] if tag else [])


def test_a_failure_in_junit_has_what_a_person_needs() -> None:
    ((test,),) = suites(junit.render_junit(compared(outcome("a", result(Result.FAILED)))))
    for arguments in ("seen:    TCP RST", "lawful:  delivered to b1", "evidence/one", "--case 'group.one'"):
        assert arguments in test.result[0].text


def test_no_text_of_a_subject_breaks_the_xml() -> None:
    odd = replace(result(Result.BROKEN), reason=NASTY)
    ((test,),) = suites(junit.render_junit(compared(outcome(f"a {NASTY}", odd))))
    assert "<script>alert(1)</script>" in test.result[0].message
    assert "\ufffd[31m &amp; ]]>" in test.result[0].text


def test_the_markdown_has_sums_failures_and_deviations() -> None:
    text = markdown.render_markdown(compared(outcome("a", *EVERY)))
    assert "| my-proxy a | 1 | 1 | 1 | 1 | 1 | 1 | 1.0 |" in text
    assert "### ❌ group.failed (my-proxy a)" in text
    assert (
        "| IPv4, step 2: pod a2 -&gt; web cluster ip | delivered to b1 (source preserved) | TCP RST | a.first |"
        in text
    )
    assert "kproxy conformance run --case 'group.failed'" in text
    assert "1 known deviations" in text
    assert "What differs" not in text


def test_the_markdown_of_several_runs_has_what_differs() -> None:
    text = markdown.render_markdown(
        compared(outcome("a", *EVERY), outcome("b", result(Result.PASSED, EVERY[1].case)))
    )
    assert "What differs: 1 of 6 cases" in text
    assert "| group.failed | ❌ failed | ✅ passed |" in text


def test_no_text_of_a_subject_breaks_the_markdown() -> None:
    text = markdown.render_markdown(
        compared(outcome(f"a {NASTY}", replace(result(Result.BROKEN), reason=NASTY)))
    )
    outside = re.sub(r"(?s)^(`{3,})text\n.*?\n\1$", "", text, flags=re.MULTILINE)
    assert "script" in outside
    assert "<script>" not in outside
    columns = {line.replace("\\|", "").count("|") for line in outside.splitlines() if line.startswith("|")}
    assert len(columns) == 1


def test_many_failures_fit_into_what_github_shows() -> None:
    cases = [small_case(id=f"group.n{number}") for number in range(300)]
    runs = [outcome(f"run {number}", *(result(Result.FAILED, case) for case in cases)) for number in range(8)]
    text = markdown.render_markdown(compared(*runs))
    assert len(text.encode()) < 1 << 20
    assert "and 2350 more that failed" in text
