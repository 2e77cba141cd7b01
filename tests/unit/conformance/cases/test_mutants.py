"""Everything in the table of mutants that rules in memory can show is noticed by some case, and cited.

``nox -s mutants`` shows the rest, and all of it with packets.  One in `SHARE` is quick, all are tried by ``nox -s long``.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from kproxy.conformance.case import Case
from kproxy.conformance.cases import CATALOGUE
from kproxy.conformance.reports.results import CaseResult, Report, Result
from kproxy.spec.clauses import CLAUSES
from tests.mutants.histories import HISTORIES
from tests.mutants.judge import Judgement, citing, judge, judge_by_test, run_in_simulator
from tests.mutants.mutant import Mutant, applied, owner_and_name
from tests.mutants.table import BY_NAME, MUTANTS, NONE

BY_PACKETS = [wrong for wrong in MUTANTS if not wrong.needs_kernel and not wrong.unseen]
BY_TEST = [wrong for wrong in MUTANTS if not wrong.needs_kernel and wrong.unseen]
SHARE = 4

UNHARMED: dict[tuple[str, str], CaseResult] = {}
"""Results of cases against the proxy without a mutant, by mode and ID."""


async def run_unharmed(wrong: Mutant, cases: Sequence[Case]) -> Report:
    """Runner of the proxy as it is in the mutant's mode, which runs a case once for all mutants."""
    missing = [case for case in cases if (wrong.mode, case.id) not in UNHARMED]
    report = await run_in_simulator(replace(wrong, patches=()), missing)
    UNHARMED.update({(wrong.mode, entry.case.id): entry for entry in report.results})
    return replace(report, results=tuple(UNHARMED[wrong.mode, case.id] for case in cases))


def named(mutants: list[Mutant]) -> list[Any]:
    return [pytest.param(wrong, id=wrong.name) for wrong in mutants]


def some_quick(mutants: list[Mutant]) -> list[Any]:
    return [
        pytest.param(wrong, id=wrong.name, marks=pytest.mark.long if number % SHARE else ())
        for number, wrong in enumerate(mutants)
    ]


def judged(wrong: Mutant, cases: Sequence[Case] = CATALOGUE) -> Judgement:
    return asyncio.run(judge(wrong, citing(wrong, cases), run_in_simulator))


@pytest.mark.parametrize("wrong", some_quick(BY_PACKETS))
def test_a_mutant_turns_a_case_red_that_cites_what_it_broke(wrong: Mutant) -> None:
    found = judged(wrong)
    assert found.killers, (
        f"{wrong.about} None of {found.requested} cases noticed and cited {set(wrong.clauses)}."
    )
    killers = [case for case in CATALOGUE if case.id in found.killers]
    unharmed = asyncio.run(judge(wrong, killers, run_unharmed))
    assert not unharmed.killers, "red without the mutant too"
    assert unharmed.requested == len(killers), "each was run without it"


@pytest.mark.parametrize("wrong", some_quick(BY_TEST))
def test_a_mutant_that_no_case_can_show_fails_a_test(wrong: Mutant) -> None:
    found = asyncio.run(judge_by_test(wrong))
    assert found.killers, f"{wrong.about} {wrong.unseen} {found.trouble}"


def test_a_case_that_turns_red_for_another_reason_kills_nothing() -> None:
    both = [case for case in CATALOGUE if case.id == "source-ranges.other-addresses-are-not-bound"]
    wrong = BY_NAME["dispatch.external-ip"]
    wrongly_charged = replace(wrong, clauses=frozenset({"node-port.reaches-ready-endpoint"}))
    assert judged(wrong, both).killers
    assert not judged(wrongly_charged, both).killers


def test_no_case_kills_where_nothing_is_wrong() -> None:
    harmless = replace(NONE, clauses=frozenset({"node-port.reaches-ready-endpoint"}))
    assert not judged(harmless).killers


@pytest.mark.parametrize("wrong", named([*MUTANTS, *HISTORIES]))
def test_a_mutant_is_gone_when_it_is_over(wrong: Mutant) -> None:
    places = [owner_and_name(patch) for patch in wrong.patches]
    before = [getattr(owner, name) for owner, name in places]
    with applied(wrong):
        during = [getattr(owner, name) for owner, name in places]
        assert all(new is not old for new, old in zip(during, before, strict=True))
    assert [getattr(owner, name) for owner, name in places] == before


def test_mutants_have_names_of_their_own_and_clauses_that_exist() -> None:
    assert len(BY_NAME) == len(MUTANTS) + len(HISTORIES) + 1
    assert [wrong.name for wrong in MUTANTS if not wrong.clauses <= set(CLAUSES)] == []
    assert [wrong.name for wrong in MUTANTS if bool(wrong.clauses) == bool(wrong.unseen)] == []


def test_every_clause_of_a_mutant_is_one_that_a_case_cites() -> None:
    requested = {clause for case in CATALOGUE for clause in case.clauses}
    assert {clause for wrong in MUTANTS for clause in wrong.clauses} - requested == set()


def test_a_mutant_that_is_no_proxy_at_all_is_not_judged() -> None:
    (case,) = [case for case in CATALOGUE if case.id == "cluster-ip.reached-from-everywhere"]

    async def crash(_: Mutant, cases: Sequence[Case]) -> Report:
        results = (
            CaseResult(case=one, result=Result.FAILED, seconds=0.0, reason="it ended") for one in cases
        )
        return Report(subject="", mode="", environment={}, results=tuple(results), seconds=0.0)

    found = asyncio.run(judge(NONE, [case], crash))
    assert (found.killers, found.trouble) == ((), "it ended")
