"""A case for which the kernel lacks something is not-runnable, with the reason; a lab of no other cases starts no proxy."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kproxy.conformance.cases import CATALOGUE
from kproxy.conformance.engine.session import Session, run_session
from kproxy.conformance.reports.results import CaseResult, Result
from kproxy.conformance.subjects.subject import Subject
from kproxy.conformance.testbeds import environment, netns
from kproxy.lab.kernels.abilities import Ability
from kproxy.lab.processes import Xtables

DAEMON_THAT_LEAVES_A_TRACE = ("/bin/sh", "-c", 'echo "$0" >> "$1"; sleep 30')


def result(folder: Path) -> CaseResult:
    """Result of the case with another mode before, whose nftables mode is to be started first."""
    subject = Subject(
        name="any",
        modes=("ipvs", "nftables"),
        command=(*DAEMON_THAT_LEAVES_A_TRACE, "{mode}", str(folder / "started")),
    )
    cases = [case for case in CATALOGUE if case.id == "restart.another-mode-before"]
    session = Session(subject=subject, mode="ipvs", cases=cases, evidence=folder / "evidence", environment={})
    opener = netns.opener(subject, session.mode, Xtables.NFT, barrier=0.5)
    return asyncio.run(run_session(session, opener, lambda _: None)).results[0]


def test_no_proxy_is_started_in_a_mode_that_the_kernel_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusal = "add table ip probe: Operation not supported"
    monkeypatch.setattr(environment, "probe_abilities", lambda abilities: dict.fromkeys(abilities, refusal))
    environment.probe_once.cache_clear()
    found = result(tmp_path)
    environment.probe_once.cache_clear()
    assert (found.result, found.reason) == (
        Result.NOT_RUNNABLE,
        f"this kernel lacks {Ability.NFTABLES.value} ({refusal})",
    )
    assert not (tmp_path / "started").exists()


def test_one_is_started_where_the_kernel_has_it(tmp_path: Path) -> None:
    assert result(tmp_path).result is Result.FAILED
    assert set((tmp_path / "started").read_text().split()) == {"nftables"}
