"""A proxy that loses the zone that its node has at its start is red in one case, for one clause, and in no other by chance."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kproxy.conformance.cases import CATALOGUE
from kproxy.conformance.engine.session import Session, run_session
from kproxy.conformance.reports.results import Report, Result
from kproxy.conformance.testbeds import netns
from kproxy.lab.processes import Xtables
from tests.mutants.judge import subject_of
from tests.mutants.table import BY_NAME

JUDGED = (
    "topology.zone-hints-decide",
    "topology.node-changes-zone",
    "topology.zone-is-known-at-every-start",
)


def judged(mutant: str, place: Path) -> Report:
    cases = [case for case in CATALOGUE if case.id in JUDGED]
    session = Session(
        subject=subject_of(BY_NAME[mutant]),
        mode="iptables",
        cases=cases,
        evidence=place,
        environment={},
    )
    opener = netns.opener(session.subject, session.mode, Xtables.NFT)
    return asyncio.run(run_session(session, opener, lambda _: None))


@pytest.mark.parametrize("mutant", ["none", "changes.zone-lost-at-start"])
def test_one_case_alone_judges_what_a_start_does_with_the_zone(mutant: str, tmp_path: Path) -> None:
    report = judged(mutant, tmp_path)
    red = {entry.case.id: entry for entry in report.results if entry.result is not Result.PASSED}
    assert list(red) == ([] if mutant == "none" else ["topology.zone-is-known-at-every-start"])
    for entry in red.values():
        assert entry.result is Result.FAILED
        assert all("restart.zone-label.followed" in finding.clauses for finding in entry.findings)
