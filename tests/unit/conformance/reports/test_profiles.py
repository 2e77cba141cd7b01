"""Profiles, provenance and verification of results, and their badge."""

from __future__ import annotations

import copy
import json
import xml.etree.ElementTree as ET
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from kproxy.cli import main
from kproxy.conformance.case import Case
from kproxy.conformance.cases import CATALOGUE
from kproxy.conformance.reports import badge
from kproxy.conformance.reports.profiles import CORE_FEATURES, OUTSIDE_CORE, is_core, judge_profiles
from kproxy.conformance.reports.provenance import document_digest, sealed
from kproxy.conformance.reports.results import CaseResult, Report, Result
from kproxy.conformance.reports.results_document import format_document, results_schema, run_document
from kproxy.conformance.reports.results_reader import InvalidResults, parse_results
from kproxy.conformance.reports.verification import verify
from kproxy.conformance.subjects.subject import BUNDLED, load_subject, subject_from_toml
from tests.support.sample_reports import FINDING

AT = datetime(2026, 11, 25, 15, 30, tzinfo=timezone(timedelta(hours=1)))
MINE = subject_from_toml(
    """\
name = "mine"
modes = ["ebpf"]
command = ["true"]
[implementation]
project = "Mine"
url = "https://mine.example"
contact = "mine@example.org"
""",
    "mine.toml",
)
DEFAULT = [case for case in CATALOGUE if not case.slow]
CORE = [case.id for case in DEFAULT if is_core(case)]
Json = dict[str, Any]


def document(result_of: Callable[[Case], Result] = lambda _: Result.PASSED, **environment: str) -> Json:
    """Sealed results of a run of the default set."""
    results = tuple(
        CaseResult(
            case=case,
            result=result,
            seconds=0.1,
            reason="" if result is Result.PASSED else "why",
            findings=(FINDING,) if result in {Result.FAILED, Result.DEVIATION} else (),
        )
        for case in DEFAULT
        for result in [result_of(case)]
    )
    facts = {"kernel": "6.1", "subject": "mine 1.2"} | environment
    report = Report(subject="mine", mode="ebpf", environment=facts, results=results, seconds=9.0)
    return sealed(run_document(report), MINE, AT)


def but(*ids: str, result: Result = Result.FAILED) -> Callable[[Case], Result]:
    return lambda case: result if case.id in ids else Result.PASSED


def problems(changed: Json) -> tuple[str, ...]:
    return verify(format_document(changed), "r.json").problems


def resealed(changed: Json) -> Json:
    return changed | {"digest": document_digest(changed)}


# ------------------------------------------------------------------------------ profiles


def test_core_is_what_every_mode_of_ours_is_known_to_keep() -> None:
    """What a mode is known not to keep is not core, or is listed with the reason."""
    assert len(CORE) > 150
    assert OUTSIDE_CORE.keys() <= {case.id for case in CATALOGUE}
    ours = load_subject("kproxy")
    for mode in ours.modes:
        kept_out = [id for id in CORE if any(known.excuses_for(id, mode) for known in ours.deviations)]
        assert kept_out == []


@pytest.mark.parametrize("name", BUNDLED)
def test_every_bundled_subject_claims_the_core_features_in_every_mode(name: str) -> None:
    subject = load_subject(name, "/bin/true")
    for mode in subject.modes:
        assert subject.features - subject.without.get(mode, frozenset()) >= CORE_FEATURES


def test_a_verdict_counts_what_was_seen() -> None:
    (run,) = parse_results(format_document(document()), "r").runs
    verdict = judge_profiles(run)
    assert (verdict.word, len(verdict.passed), verdict.total) == ("passed", len(CORE), len(CORE))
    assert str(verdict).startswith(f"core: passed {len(CORE)}/{len(CORE)}; extended: IPv6, SCTP, ")
    assert "NodePort" not in verdict.supported


@pytest.mark.parametrize(
    ("result", "word"),
    [
        (Result.FAILED, "failed"),
        (Result.DEVIATION, "failed"),
        (Result.NOT_RUNNABLE, "partial"),
        (Result.UNSUPPORTED, "partial"),
        (Result.BROKEN, "partial"),
    ],
)
def test_one_core_case_that_did_not_pass_decides(result: Result, word: str) -> None:
    (run,) = parse_results(format_document(document(but(CORE[0], result=result))), "r").runs
    verdict = judge_profiles(run)
    assert (verdict.word, len(verdict.passed)) == (word, len(CORE) - 1)
    assert CORE[0] in verdict.failed + verdict.missing


@pytest.mark.parametrize(
    ("result", "place"),
    [
        (Result.FAILED, "failed"),
        (Result.NOT_RUNNABLE, "incomplete"),
        (Result.PASSED, "supported"),
    ],
)
def test_a_feature_is_as_the_worst_of_its_cases(result: Result, place: str) -> None:
    found = document(but("protocols.sctp-beside-the-others", result=result))
    extended = found["profiles"]["ebpf"]["extended"]
    assert "SCTP" in extended[place]
    assert found["profiles"]["ebpf"]["core"]["result"] == "passed"


def test_a_feature_that_is_not_claimed_is_unsupported() -> None:
    def result_of(case: Case) -> Result:
        claimed = all(feature.value != "SCTP" for feature in case.features)
        return Result.PASSED if claimed else Result.UNSUPPORTED

    assert document(result_of)["profiles"]["ebpf"]["extended"]["unsupported"] == ["SCTP"]


# ------------------------------------------------------------------------------ provenance


def test_results_have_who_when_and_by_which_catalogue() -> None:
    found = document()
    assert found["date"] == "2026-11-25T14:30:00Z"
    assert found["implementation"] == {
        "project": "Mine",
        "url": "https://mine.example",
        "version": "mine 1.2",
        "contact": "mine@example.org",
    }
    assert found["catalogue"]["size"] == len(CATALOGUE)
    assert (
        list(Draft202012Validator(json.loads(results_schema())).iter_errors(json.loads(json.dumps(found))))
        == []
    )


def test_the_digest_survives_being_written_and_read_and_no_change() -> None:
    found = json.loads(format_document(document()))
    assert found["digest"] == document_digest(found)
    assert document_digest(dict(reversed(found.items()))) == found["digest"]
    assert document_digest(found | {"seconds": 8.0}) != found["digest"]


# ------------------------------------------------------------------------------ verification


def test_whole_results_are_verified() -> None:
    found = verify(format_document(document()), "r.json")
    assert found.problems == ()
    assert found.conformant
    assert not verify(format_document(document(but(CORE[0]))), "r.json").conformant


def test_a_document_without_runs_is_not_verified() -> None:
    found = verify(format_document(resealed(document() | {"runs": []})), "r.json")
    assert "it has no runs" in found.problems
    assert not found.conformant


def change_a_result(found: Json) -> Json:
    changed = copy.deepcopy(found)
    changed["results"][0]["result"] = "passed"
    changed["results"][0].pop("findings", None)
    return changed


FAILED = document(but(DEFAULT[0].id))


@pytest.mark.parametrize(
    ("changed", "reported"),
    [
        (change_a_result(FAILED), "the digest is of another text"),
        (resealed(change_a_result(FAILED)), "the verdicts in `profiles` are not those of its results"),
        (
            resealed(document() | {"results": document()["results"][1:]}),
            f"cases were skipped: {DEFAULT[0].id};",
        ),
        (
            resealed(document() | {"results": [*document()["results"], document()["results"][0]]}),
            "a case is listed twice",
        ),
        (
            resealed(document() | {"implementation": {"project": "x"}}),
            "implementation lacks url, version, contact",
        ),
        (resealed(document() | {"date": ""}), "it has no date"),
        (
            resealed(document() | {"catalogue": {"kproxy": "0.0.1", "size": 3, "digest": "sha256:0"}}),
            "another catalogue (of kproxy 0.0.1, 3 cases)",
        ),
        (document(testbed="simulator"), "no packet was sent"),
        (document(kernel=""), "does not say on which kernel"),
        (document(lambda _: Result.NOT_RUNNABLE, kernel=""), "it was not judged (why): run the other modes"),
        (document(but(DEFAULT[0].id, result=Result.BROKEN)), f"cases were not observed: {DEFAULT[0].id}"),
        (
            resealed(
                FAILED | {"results": [FAILED["results"][0] | {"result": "passed"}, *FAILED["results"][1:]]}
            ),
            "cases passed and have unlawful outcomes",
        ),
        (
            resealed(document() | {"results": [{**r, "clauses": ["x"]} for r in document()["results"]]}),
            "cases cite other clauses than in the catalogue",
        ),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else "",
)
def test_what_makes_results_unfit_is_named(changed: Json, reported: str) -> None:
    assert any(reported in problem for problem in problems(changed)), problems(changed)


def test_results_of_an_earlier_kproxy_have_no_digest() -> None:
    old = {name: value for name, value in document().items() if name != "digest"}
    with pytest.raises(InvalidResults, match="make the results again"):
        verify(format_document(old), "r.json")


@pytest.mark.parametrize(
    ("found", "status", "word"),
    [
        (document(), 0, f"ebpf: core: passed {len(CORE)}/{len(CORE)}"),
        (document(but(CORE[0])), 1, f"  not passed: {CORE[0]}"),
        (document() | {"seconds": 1.0}, 2, "Mine mine 1.2, judged 2026-11-25T14:30:00Z"),
    ],
)
def test_the_command_prints_what_it_found(
    found: Json, status: int, word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "results.json"
    file.write_bytes(format_document(found))
    assert main(["conformance", "verify", str(file)]) == status
    assert word in capsys.readouterr().out
    assert main(["conformance", "verify", str(file), "-o", "json"]) == status
    streams = capsys.readouterr()
    assert json.loads(streams.out)["verified"] == (status != 2)
    assert ("the digest is of another text" in streams.err) == (status == 2)


def test_a_file_that_is_no_results_is_status_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conformance", "verify", str(tmp_path / "none")]) == 2
    assert "none: No such file or directory" in capsys.readouterr().err


# ------------------------------------------------------------------------------ badges


@pytest.mark.parametrize(
    ("found", "message", "colour"),
    [
        (document(), f"core {len(CORE)}/{len(CORE)}", "brightgreen"),
        (document(but(CORE[0])), f"core {len(CORE) - 1}/{len(CORE)}", "red"),
        (document(but(CORE[0], result=Result.NOT_RUNNABLE)), f"core {len(CORE) - 1}/{len(CORE)}", "yellow"),
        (document() | {"seconds": 1.0}, "not verified", "lightgrey"),
    ],
)
def test_a_badge_has_the_verdict(
    found: Json, message: str, colour: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "results.json"
    file.write_bytes(format_document(found))
    main(["conformance", "verify", str(file), "-o", "shields"])
    assert json.loads(capsys.readouterr().out) == {
        "schemaVersion": 1,
        "label": badge.LABEL,
        "message": message,
        "color": colour,
    }
    main(["conformance", "verify", str(file), "-o", "svg"])
    drawn = ET.fromstring(capsys.readouterr().out)  # noqa: S314 (ours)
    texts = [element.text for element in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert texts == [badge.LABEL, message]
    assert drawn.get("aria-label") == f"{badge.LABEL}: {message}"
