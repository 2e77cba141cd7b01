"""Which clauses a finding cites: those that its step can break in that respect, and not all of its case."""

from dataclasses import replace

import pytest

from kproxy.conformance.binding.bind import Instance
from kproxy.conformance.case import (
    MASQUERADED,
    Apply,
    Case,
    Lawful,
    Open,
    Probe,
    client,
    delivered_to,
    pod,
    service,
)
from kproxy.conformance.cases import CATALOGUE
from kproxy.conformance.engine.citations import JudgedStep, MismatchKind, specific_clauses
from kproxy.conformance.engine.judging import Finding
from kproxy.conformance.testbed import Observation
from kproxy.spec.clauses import CLAUSES, ClauseId, Level
from kproxy.spec.outcome import Failure
from tests.support.citations import ALL, citations
from tests.support.scripted_testbed import (
    ELSEWHERE,
    Answer,
    Question,
    Scripted,
    always,
    fairly,
    run_all,
    small_case,
)

MOST, MOST_WITHOUT_ANSWER = 4, 5
"""Clauses that one finding may cite; where an answer is lost the source may be why."""

INSTANCES = [instance for instance in ALL if instance.family is instance.case.families[0]]


@pytest.mark.parametrize("instance", [pytest.param(one, id=one.case.id) for one in INSTANCES])
def test_what_a_step_finds_cites_few_clauses(instance: Instance) -> None:
    many = {
        f"step {number}, {respect.value}": names
        for number, respect, names in citations(instance)
        if len(names) > (MOST_WITHOUT_ANSWER if respect is MismatchKind.ANSWER else MOST)
    }
    assert not many, "give the step its own `clauses`: those that it is about"


@pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in CATALOGUE])
def test_every_particular_clause_of_a_case_that_binds_may_be_cited_at_a_step(case: Case) -> None:
    own = [instance for instance in ALL if instance.case is case]
    found = {name for instance in own for _, _, names in citations(instance) for name in names}
    binding = {name for name in case.clauses if CLAUSES[ClauseId(name)].level is not Level.MAY}
    assert not set(specific_clauses(binding)) - found, "name it in `clauses` of the steps that show it"


def test_every_step_of_the_catalogue_that_names_clauses_can_be_cited() -> None:
    steps = [step for case in CATALOGUE for step in case.steps if hasattr(step, "clauses")]
    assert {type(step).__name__ for step in steps if not isinstance(step, JudgedStep)} == set()


# ------------------------------------------------------------------------------ one finding

WEB = service("web", "b1")
REACHES, SERVED = "cluster-ip.reaches-ready-endpoint", "cluster-ip.from-outside.served"
REWRITTEN = "masquerade.cluster-ip.outside-rewritten"
SPREAD, ADDED = "balancing.every-endpoint-chosen", "change.endpoint-added.used"
EXPECTED = delivered_to("b1", source=MASQUERADED)
FROM_OUTSIDE = Probe(sender=client("a"), to=WEB.cluster_ip, expect=EXPECTED)


def found(answer: Answer, *steps: object) -> list[Finding]:
    one = small_case(
        Apply(WEB),
        *steps,  # type: ignore[arg-type]
        clauses={REACHES, SERVED, REWRITTEN, SPREAD, ADDED, "masquerade.cluster-ip.pod-source-preserved"},
    )
    return run_all(Scripted(answer), one)[0].findings


def answering(lawful: Lawful) -> Answer:
    def answer(instance: Instance, step: Question, _: int) -> Observation:
        assert isinstance(step, Probe | Open)
        outcomes = sorted(instance.outcomes(lawful, step.to), key=str)
        return Observation(frozenset(outcomes), "seen", (outcomes[0].address, outcomes[0].port))  # type: ignore[union-attr]

    return answer


def lost(*_: object) -> Observation:
    return Observation(frozenset(), "silence; it left node a")


@pytest.mark.parametrize(
    ("answer", "clauses"),
    [
        pytest.param(always(Failure.REJECTED), {REACHES, SERVED}, id="refused"),
        pytest.param(always(ELSEWHERE), {REACHES, SERVED}, id="somebody else"),
        pytest.param(answering(delivered_to("b1")), {REWRITTEN}, id="with its own source"),
        pytest.param(lost, {REACHES, SERVED, REWRITTEN}, id="the answer is lost"),
    ],
)
@pytest.mark.parametrize(
    "step", [FROM_OUTSIDE, Open(flow="f", sender=client("a"), to=WEB.cluster_ip, expect=EXPECTED)]
)
def test_a_new_connection_cites_what_the_oracle_answers_by_in_the_respect_that_differs(
    step: Probe | Open, answer: Answer, clauses: set[str]
) -> None:
    assert [set(one.clauses) for one in found(answer, step)] == [clauses]


def test_a_step_that_is_about_one_thing_cites_that() -> None:
    about = Open(flow="f", sender=client("a"), to=WEB.cluster_ip, expect=EXPECTED, clauses=(ADDED,))
    assert [one.clauses for one in found(always(Failure.DROPPED), about)] == [(ADDED,)]
    assert [one.clauses for one in found(answering(delivered_to("b1")), about)] == [(REWRITTEN,)]


def test_observations_that_differ_in_several_respects_are_several_findings() -> None:
    def both(instance: Instance, step: Question, number: int) -> Observation:
        return (always(Failure.DROPPED) if number else answering(delivered_to("b1")))(instance, step, number)

    twice = Probe(sender=client("a"), to=WEB.cluster_ip, expect=EXPECTED, count=2)
    assert [one.clauses for one in found(both, twice)] == [(REWRITTEN,), (SERVED, REACHES)]


def test_an_endpoint_that_is_never_reached_cites_the_spread_and_what_the_step_is_about() -> None:
    more = service("web", "b1", "b2")
    spread = Probe(sender=pod("a2"), to=more.cluster_ip, expect=delivered_to("b1", "b2"), spread=True)

    def one_only(instance: Instance, step: Question, _: int) -> Observation:
        return fairly(instance, step, 0)

    steps = (Apply(more), spread, replace(spread, clauses=(ADDED,)))
    assert [one.clauses for one in found(one_only, *steps)] == [(SPREAD,), (SPREAD, ADDED)]
