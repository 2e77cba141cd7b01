"""Results of earlier formats are read with today's names of fields.

The document is a part of what kproxy wrote of kube-proxy in nftables mode before the names changed.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from kproxy.conformance.reports.results_document import RESULTS_FORMAT, results_schema
from kproxy.conformance.reports.results_reader import parse_results
from kproxy.conformance.reports.results_upgrade import EARLIER_FORMATS, upgraded
from tests.support.paths import ROOT

RECORDED = ROOT / "tests/support/recorded/results-2.json"


def recorded() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(RECORDED.read_text(encoding="utf-8"))
    return document


def test_what_was_recorded_is_of_the_format_before_this_one() -> None:
    assert recorded()["format"] == EARLIER_FORMATS[-1] != RESULTS_FORMAT


def test_every_renamed_field_is_read() -> None:
    old = recorded()
    (old_run,) = old["runs"]
    read = parse_results(RECORDED.read_bytes(), "r.json")
    (run,) = read.runs
    assert run.reproduce_command == old_run["again"]
    assert run.unused_deviations == tuple(old_run["unneeded"])
    assert run.convergence
    assert run.convergence.slowdown == old_run["convergence"]["slowness"]
    first = old_run["convergence"]["changes"][0]
    assert (run.convergence.changes[0].kind, run.convergence.changes[0].count) == (
        first["what"],
        first["number"],
    )
    entry, old_entry = run.results[1], old_run["results"][1]
    finding, old_finding = entry.findings[0], old_entry["findings"][0]
    assert (finding.action, finding.outcome) == (old_finding["what"], old_finding["seen"])
    assert finding.deviation == old_finding["known"] != ""
    assert [one.outcome for one in entry.observations] == [one["seen"] for one in old_entry["observed"]]
    assert [step.action for step in read.cases[entry.id].steps] == [
        step["what"] for step in old["cases"][entry.id]["steps"]
    ]


@pytest.mark.parametrize("format_", EARLIER_FORMATS)
@pytest.mark.parametrize("single", [False, True])
def test_an_upgraded_document_is_one_of_todays_format(format_: str, single: bool) -> None:  # noqa: FBT001
    document = recorded() | {"format": format_}
    if single:
        run = document.pop("runs")[0]
        del run["name"]
        document = run | {"format": format_, "cases": document["cases"]}
    assert parse_results(json.dumps(document).encode(), "r.json").runs[0].reproduce_command
    document = upgraded(document) | {"format": RESULTS_FORMAT}
    assert list(Draft202012Validator(json.loads(results_schema())).iter_errors(document)) == []


def test_what_has_another_shape_is_left_to_the_reader() -> None:
    document = {"runs": [1, {"results": "x", "convergence": 2}], "cases": {"a.b": []}}
    assert upgraded(document) == document
    assert upgraded({"cases": 3, "results": [{"findings": None}]}) == {
        "cases": 3,
        "results": [{"findings": None}],
    }
