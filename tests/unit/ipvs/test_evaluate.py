"""The catalogue on ipvs mode's program in memory, and that each family of its rules is needed for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kproxy.backends.ipvs import evaluate as evaluation
from kproxy.backends.ipvs import names, program
from kproxy.backends.ipvs.names import Set
from kproxy.backends.ipvs.rules import Key, MarkKey, Member, Ruleset, Table
from kproxy.conformance.case import Case
from kproxy.conformance.cases import CATALOGUE
from kproxy.conformance.report import CaseResult, Result
from kproxy.conformance.subject import load
from kproxy.conformance.testbeds import simulator
from tests.unit.conformance.scripted import report_on

SUBJECT = load("kproxy")


def judged(cases: tuple[Case, ...], folder: Path) -> list[CaseResult]:
    return list(report_on(cases, simulator.opener("ipvs"), folder).results)


def expected_to_pass(case: Case) -> bool:
    return SUBJECT.deviation(case, "ipvs") is None and "localhost" not in case.id


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[CaseResult]:
    cases = tuple(filter(expected_to_pass, CATALOGUE))
    return judged(cases, tmp_path_factory.mktemp("evidence"))


def test_what_can_be_shown_in_memory_is_lawful(results: list[CaseResult]) -> None:
    wrong = [entry for entry in results if entry.result not in {Result.PASSED, Result.NOT_RUNNABLE}]
    assert [(entry.case.id, entry.findings) for entry in wrong] == []
    assert len([entry for entry in results if entry.result is Result.PASSED]) >= 0.6 * len(CATALOGUE)


def without_members(*sets: Set) -> Callable[[program.Program], program.Program]:
    """Ipsets that nothing is put into."""

    def change(whole: program.Program) -> program.Program:
        uses = {use: n for use, n in whole.uses.items() if not isinstance(use, Member) or use.set not in sets}
        return replace(whole, uses=uses)

    return change


def without_shortcuts(whole: program.Program) -> program.Program:
    """No virtual server by mark."""

    def kept(fragment: program.Fragment) -> program.Fragment:
        virtuals: dict[Key, object] = {
            key: v for key, v in fragment.part.virtuals.items() if not isinstance(key, MarkKey)
        }
        return replace(fragment, part=replace(fragment.part, virtuals=virtuals))  # type: ignore[arg-type]

    return replace(whole, fragments={name: kept(fragment) for name, fragment in whole.fragments.items()})


def without_rules(table: Table, chain: str) -> Callable[[program.Program], program.Program]:
    """A chain that is empty."""

    class Emptied(program.Program):
        @property
        def ruleset(self) -> Ruleset:
            found = super().ruleset
            return replace(found, chains={**found.chains, table: {**found.chains[table], chain: ()}})

    return lambda w: Emptied(w.context, w.chain_context, w.fragments, w.uses, w.extra)


KNOCKED_OUT = {
    "cluster-ip.off-cluster-client-is-rewritten": without_members(Set.CLUSTER_IP),
    "internal-policy.drops-without-local-endpoint": without_members(Set.CLUSTER_IP_UNANSWERED),
    "external-policy.drops-without-local-endpoint": without_members(Set.EXTERNAL_UNANSWERED),
    "external-policy.inside-reaches-other-nodes": without_shortcuts,
    "masquerade.hairpin-under-local-policy": without_members(Set.LOOP_BACK),
    "external-policy.keeps-source-of-datagrams": without_rules(Table.NAT, names.SERVICES),
}


@pytest.mark.parametrize("identity", KNOCKED_OUT)
def test_a_rule_family_that_is_missing_is_noticed(
    identity: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """``external-policy.keeps-source-of-datagrams`` is the control: it needs nothing of nat KUBE-SERVICES."""
    from kproxy.conformance.testbeds.simulator import ipvs  # noqa: PLC0415

    def crippled(whole: program.Program, *rest: object) -> frozenset[evaluation.Outcome]:
        return evaluation.evaluate(KNOCKED_OUT[identity](whole), *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(ipvs, "evaluate", crippled)
    (case,) = (case for case in CATALOGUE if case.id == identity)
    (entry,) = judged((case,), tmp_path)
    unneeded = identity == "external-policy.keeps-source-of-datagrams"
    assert entry.result is (Result.PASSED if unneeded else Result.FAILED)
