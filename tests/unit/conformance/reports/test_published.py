"""The results kept in docs/results: whole, readable by today's reader, and free of paths of the machine they were made on."""

import json
import re
import shlex
from pathlib import Path

import pytest

from kproxy.conformance.case.descriptions import describe_step
from kproxy.conformance.cases import CATALOGUE
from kproxy.conformance.reports.provenance import document_digest
from kproxy.conformance.reports.results import Result
from kproxy.conformance.reports.results_reader import CaseRead, RunRead, load_results
from kproxy.conformance.reports.verification import REQUIRED
from kproxy.conformance.subjects.subject import DOCUMENTED_SUBJECTS, load_subject
from tests.support.paths import ROOT

FOLDER = ROOT / "docs/results"
FILES = sorted(FOLDER.glob("*.json"))
RELEASES = sorted(FOLDER.glob("versions/*.json"))
"""Of releases of kube-proxy older than the subject file, and of that one beside them."""
EXPLAINED = (FOLDER / "versions/README.md").read_text(encoding="utf-8")


def _same(id: str, recorded: CaseRead) -> bool:
    """Whether a case of today has the steps that it had when these results were made."""
    today = [describe_step(step) for case in CATALOGUE if case.id == id for step in case.steps]
    return today == [step.action for step in recorded.steps]


def runs(file: Path) -> list[RunRead]:
    return [run for document in load_results([str(file)]) for run in document.runs]


def test_there_are_results_of_several_subjects() -> None:
    assert {run.subject for file in FILES for run in runs(file)} >= {"kproxy", "kube-proxy", "kube-router"}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_everything_was_seen_and_what_failed_is_a_known_deviation(file: Path) -> None:
    for run in runs(file):
        assert [e.id for e in run.results if e.result in {Result.FAILED, Result.BROKEN}] == []


@pytest.mark.parametrize("name", DOCUMENTED_SUBJECTS)
def test_what_the_specification_lists_of_a_mode_was_seen_in_it(name: str) -> None:
    subject = load_subject(name, "/bin/true")
    documents = [document for file in FOLDER.glob(f"{name}*.json") for document in load_results([str(file)])]
    judged = [(document, run) for document in documents for run in document.runs]
    assert {run.mode for _, run in judged} == set(subject.modes)
    seen = {(e.id, run.mode) for _, run in judged for e in run.results if e.result is Result.DEVIATION}
    recorded = {
        (id, run.mode) for document, run in judged for id, case in document.cases.items() if _same(id, case)
    }
    known = {
        (case.id, mode)
        for case in CATALOGUE
        for mode in subject.modes
        if not case.slow
        and not subject.missing_features(case, mode)
        and any(known.excuses_for(case.id, mode) for known in subject.deviations if not known.sometimes)
    }
    assert sorted((known & recorded) - seen) == []


def _failed(file: Path) -> set[str]:
    return {e.id for run in runs(file) for e in run.results if e.result in {Result.FAILED, Result.BROKEN}}


def _explained() -> set[str]:
    rows = (line for line in EXPLAINED.splitlines() if line.startswith("| `"))
    return {id for row in rows for id in re.findall(r"`([^`]+)`", row)} & {case.id for case in CATALOGUE}


def test_each_failure_of_a_release_is_explained_and_nothing_else_is() -> None:
    assert _explained() == set().union(*map(_failed, RELEASES))


def test_what_an_older_release_failed_the_newest_passes() -> None:
    newest = [run for file in RELEASES if "1.36" in file.name for run in runs(file)]
    passed = [{e.id for e in run.results if e.result is Result.PASSED} for run in newest]
    assert {run.mode for run in newest} == {"iptables", "nftables"}
    assert [sorted(_explained() - one) for one in passed] == [[], []]


@pytest.mark.parametrize("file", RELEASES, ids=lambda file: file.name)
def test_documents_of_releases_are_as_their_runs_wrote_them(file: Path) -> None:
    document = json.loads(file.read_bytes())
    assert document["digest"] == document_digest(document)
    assert document["implementation"]["version"] == f"Kubernetes v{file.stem.split('-')[2]}"
    assert document["implementation"].keys() >= set(REQUIRED)


@pytest.mark.parametrize("file", [*FILES, *RELEASES], ids=lambda file: file.name)
def test_each_run_reports_what_it_ran_on(file: Path) -> None:
    for run in runs(file):
        assert run.environment["kernel"]
        assert run.environment["subject"] not in {"", "unknown"}
        assert "machine" not in run.environment, (
            "somebody changed the machine meanwhile: not worth publishing"
        )


@pytest.mark.parametrize("file", [*FILES, *RELEASES], ids=lambda file: file.name)
def test_no_path_of_a_machine_is_reported(file: Path) -> None:
    for run in runs(file):
        arguments = [
            *shlex.split(run.reproduce_command),
            *run.environment.values(),
            *(entry.evidence for entry in run.results),
        ]
        assert [word for word in arguments if word.startswith(("/", "~"))] == []


@pytest.mark.parametrize("file", [*FILES, *RELEASES], ids=lambda file: file.name)
def test_a_document_is_of_moderate_size(file: Path) -> None:
    assert file.stat().st_size < 3 << 20
