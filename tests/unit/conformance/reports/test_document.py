"""Results as JSON: the promised fields, the published schema, and the way back."""

import json
from functools import cache
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from kproxy.conformance.case import Feature
from kproxy.conformance.cases import CATALOGUE
from kproxy.conformance.reports.results import CaseResult, Result
from kproxy.conformance.reports.results_document import (
    catalogue_document,
    format_document,
    matrix_document,
    results_schema,
    run_document,
)
from kproxy.conformance.reports.results_reader import InvalidResults, load_results, parse_results
from tests.support.sample_reports import CASE, outcome, report, result
from tests.support.scripted_testbed import small_case

PROMISED = {"id", "result", "clauses", "seconds"}
"""Fields of a result that other tools may rely on."""


@cache
def validator() -> Draft202012Validator:
    described = json.loads(results_schema())
    Draft202012Validator.check_schema(described)
    return Draft202012Validator(described)


def problems(document: dict[str, Any]) -> list[str]:
    """What the schema has against the document as it is written."""
    return [error.message for error in validator().iter_errors(json.loads(format_document(document)))]


# ------------------------------------------------------------------------------ JSON


@pytest.mark.parametrize("kind", Result)
def test_every_result_has_the_fields_that_others_rely_on(kind: Result) -> None:
    document = run_document(report(result(kind)))
    assert list(document) == [
        "format",
        "subject",
        "mode",
        "environment",
        "seconds",
        "reproduce_command",
        "results",
        "cases",
    ]
    assert (document["subject"], document["mode"]) == ("my-proxy", "ebpf")
    assert document["environment"] == {"kernel": "6.1"}
    (entry,) = document["results"]
    assert entry.keys() >= PROMISED
    assert entry.keys() - PROMISED <= {"reason", "findings", "observations", "evidence", "files"}
    assert (entry["id"], entry["result"]) == ("group.one", kind.value)
    assert entry["clauses"] == ["a.first", "b.second"]


def test_a_pass_has_nothing_more() -> None:
    assert run_document(report(result(Result.PASSED)))["results"][0].keys() == PROMISED


@pytest.mark.parametrize("kind", [Result.FAILED, Result.DEVIATION])
def test_a_failure_has_its_findings_and_where_the_evidence_is(kind: Result) -> None:
    entry = run_document(report(result(kind)))["results"][0]
    assert entry["evidence"] == "evidence/one"
    assert entry["findings"] == [
        {
            "family": "IPv4",
            "step": 2,
            "action": "pod a2 -> web cluster ip",
            "lawful": "delivered to b1 (source preserved)",
            "outcome": "TCP RST",
            "clauses": ["a.first"],
        }
    ]


def test_what_could_not_be_observed_reports_where_the_evidence_is() -> None:
    broken = CaseResult(case=CASE, result=Result.BROKEN, seconds=0.0, reason="why", evidence="evidence/one")
    assert run_document(report(broken))["results"][0]["evidence"] == "evidence/one"


def test_results_are_called_by_the_names_that_are_documented() -> None:
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
    assert catalogue_document([case]) == {
        "format": "kproxy-catalogue/2",
        "cases": [
            {
                "id": "g.c",
                "about": "It is small.",
                "clauses": ["a", "z"],
                "features": ["IPv6", "SCTP"],
                "regressions": ["R001", "R002"],
                "profile": "default",
                "families": ["IPv4"],
                "steps": [],
            }
        ],
    }
    assert len(catalogue_document(CATALOGUE)["cases"]) == len(CATALOGUE)


def test_what_was_requested_stands_beside_the_results() -> None:
    case = run_document(report(result(Result.PASSED)))["cases"]["group.one"]
    assert case["about"] == "It is small."
    assert [step["action"] for step in case["steps"]] == [
        "apply Service web (ClusterIP; endpoints: a1, b1)",
        "pod a2 -> web cluster ip",
    ]
    assert ["lawful" in step for step in case["steps"]] == [False, True]


def test_there_is_a_line_for_each_result_and_each_case() -> None:
    results = [result(Result.PASSED, small_case(id=f"group.n{number}")) for number in range(3)]
    lines = format_document(run_document(report(*results))).decode().splitlines()
    assert [sum(f'"group.n{number}"' in line for line in lines) for number in range(3)] == [2, 2, 2]


# ------------------------------------------------------------------------------ the schema

ALL = [result(kind) for kind in Result]


def test_the_schema_holds_for_one_run_and_for_several_and_for_the_catalogue() -> None:
    assert problems(run_document(report(*ALL))) == []
    assert (
        problems(matrix_document("my-proxy", [outcome("a", *ALL, kernel="6"), outcome("b", *ALL)], 1.0)) == []
    )
    assert problems(catalogue_document(CATALOGUE)) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("format",), "kproxy-results/0"),
        (("subject",), ""),
        (("environment", "kernel"), 6),
        (("results", 0, "result"), "good"),
        (("results", 0, "seconds"), -1),
        (("results", 0, "reason"), "a pass needs none"),
        (("results", 0, "more"), 1),
        (("results", 1, "findings"), []),
        (("results", 1, "findings", 0, "family"), "IPv5"),
        (("results", 1, "observations", 0, "step"), 0),
        (("cases", "group.one", "steps"), []),
        (("cases", "One"), {}),
        (("more",), 1),
    ],
)
def test_the_schema_objects_to_what_is_wrong(path: tuple[str | int, ...], value: object) -> None:
    document = json.loads(format_document(run_document(report(*ALL))))
    place = document
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    assert problems(document)


@pytest.mark.parametrize("field", ["format", "subject", "mode", "environment", "seconds", "results", "cases"])
def test_the_schema_misses_what_is_not_there(field: str) -> None:
    document = run_document(report(*ALL))
    del document[field]
    assert problems(document)


# ------------------------------------------------------------------------------ read back


def test_a_single_run_is_read_as_one_of_several() -> None:
    (run,) = parse_results(format_document(run_document(report(*ALL))), "r.json").runs
    assert (run.subject, run.mode, run.environment) == ("my-proxy", "ebpf", {"kernel": "6.1"})
    assert [entry.result for entry in run.results] == list(Result)
    failed = run.results[1]
    assert failed.findings[0].outcome == failed.observations[0].outcome == "TCP RST"
    assert failed.files == ("IPv4/objects.json",)


def test_several_runs_keep_their_names() -> None:
    read = parse_results(
        format_document(matrix_document("my-proxy", [outcome("a", *ALL), outcome("b", *ALL)], 1.0)), "r.json"
    )
    assert [run.name for run in read.runs] == ["a", "b"]
    assert read.cases["group.one"].steps[1].lawful


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"{", "r.json: Input data was truncated"),
        (b"[]", "r.json: Expected `object`, got `array`"),
        (
            b'{"subject": "x"}',
            "it has no field `format`; this kproxy reads kproxy-results/1, kproxy-results/2, kproxy-results/3",
        ),
        (b'{"format": "kproxy-results/9"}', "its format is kproxy-results/9"),
        (format_document(catalogue_document([])), "this is a catalogue"),
        (b'{"format": "kproxy-results/3", "cases": {}}', "missing required field `subject`"),
    ],
)
def test_what_is_no_result_is_reported_with_the_reason(data: bytes, text: str) -> None:
    with pytest.raises(InvalidResults) as reported:
        parse_results(data, "r.json")
    assert text in str(reported.value)


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(InvalidResults, match="/no/such: No such file"):
        load_results(["/no/such"])
