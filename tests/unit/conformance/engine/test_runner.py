"""The runner: in which order things are done, and what it calls unlawful."""

import re
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import pytest

from kproxy.conformance.binding.bind import Instance
from kproxy.conformance.case import (
    DROPPED,
    MASQUERADED,
    PRESERVED,
    REJECTED,
    SAME_ENDPOINT,
    Apply,
    CaseEndpoint,
    Delete,
    Lawful,
    Open,
    OutOfWindow,
    Probe,
    Restart,
    Send,
    UnrelatedEntries,
    Wait,
    delivered_to,
    delivered_to_many,
    host,
    pod,
    service,
)
from kproxy.conformance.case.descriptions import SAME_ENTRIES
from kproxy.conformance.engine.judging import Finding
from kproxy.conformance.engine.runner import sample_size, split_rounds
from kproxy.conformance.engine.sampling import FALSE_ALARM_RATE
from kproxy.conformance.testbed import HarnessError, Observation
from kproxy.spec.outcome import Failure
from tests.support.scripted_testbed import (
    ELSEWHERE,
    TO_WEB,
    WEB,
    Answer,
    Question,
    Scripted,
    always,
    breaking_for,
    fairly,
    findings,
    lawful_outcomes,
    met,
    run_all,
    small_case,
)

HOLD = Open(flow="f", sender=pod("a2"), to=WEB.cluster_ip, expect=TO_WEB.expect)
USE = Send(flow="f", expect=SAME_ENDPOINT)
SIX = ("a1", "a2", "a3", "b1", "b2", "b3")


def changing_at_each_step() -> Answer:
    """Another lawful outcome at each step."""
    requested: list[object] = []

    def answer(instance: Instance, step: Question, _: int) -> Observation:
        requested.append(step)
        outcomes = lawful_outcomes(instance, step)
        return met(outcomes[len(requested) % len(outcomes)])

    return answer


def answering(lawful: Lawful) -> Answer:
    """These outcomes in turn, whatever the probe allows."""

    def answer(instance: Instance, step: Question, number: int) -> Observation:
        assert isinstance(step, Probe)
        return fairly(instance, replace(step, expect=lawful), number)

    return answer


def only(found: list[Finding]) -> Finding:
    assert len(found) == 1, found
    return found[0]


# ------------------------------------------------------------------------------ rounds


def test_a_round_ends_where_a_change_follows_a_question() -> None:
    first, gone, again = Apply(WEB), Delete(WEB), Restart("a")
    cut = list(split_rounds([first, TO_WEB, HOLD, gone, again, USE]))
    assert [r.mutations for r in cut] == [(first,), (gone, again)]
    assert [r.checks for r in cut] == [((2, TO_WEB), (3, HOLD)), ((6, USE),)]


def test_questions_before_any_change_are_a_round() -> None:
    cut = list(split_rounds([TO_WEB, Apply(WEB)]))
    assert [(len(r.mutations), len(r.checks)) for r in cut] == [(0, 1), (1, 0)]


def test_waiting_does_not_cut_a_round() -> None:
    assert len(list(split_rounds([Apply(WEB), TO_WEB, Wait(1), TO_WEB]))) == 1


def test_all_cases_change_at_once_and_share_a_barrier() -> None:
    testbed = Scripted()
    two_rounds = (Apply(WEB), TO_WEB, Delete(WEB), replace(TO_WEB, expect=delivered_to("a1")))
    run_all(testbed, small_case(*two_rounds), small_case(Apply(WEB), TO_WEB, id="group.other"))
    assert testbed.log == ["change 4", "settle", "probe", "probe", "change 2", "settle", "probe"]


def test_packets_before_any_change_are_sent_when_the_subject_serves() -> None:
    """Before that, the kernel of a node may not even track them."""
    testbed = Scripted()
    run_all(testbed, small_case(replace(TO_WEB, expect=delivered_to("a1")), Apply(WEB)))
    assert testbed.log[:3] == ["change 0", "settle", "probe"]


def test_what_is_no_probe_waits_for_what_came_before_it() -> None:
    testbed = Scripted()
    run_all(testbed, small_case(Apply(WEB), TO_WEB, HOLD, OutOfWindow(flow="f"), USE, TO_WEB))
    assert testbed.log[2:] == ["probe", "hold", "out of window", "use", "probe"]


# ------------------------------------------------------------------------------ outcomes


def test_lawful_answers_are_not_findings() -> None:
    assert findings(Scripted(), Apply(WEB), TO_WEB, replace(TO_WEB, spread=True), HOLD, USE) == []


@pytest.mark.parametrize("outcome", [*Failure, ELSEWHERE])
def test_an_unlawful_outcome_is_found(outcome: Failure) -> None:
    found = only(findings(Scripted(always(outcome)), Apply(WEB), TO_WEB))
    assert (found.step, found.seen) == (2, met(outcome).text)
    assert "delivered to a1" in found.lawful
    assert "delivered to b1" in found.lawful


def test_a_rewritten_source_is_found_where_it_must_be_kept() -> None:
    rewriting = Scripted(answering(delivered_to("a1", source=MASQUERADED)))
    found = only(findings(rewriting, Apply(WEB), TO_WEB))
    assert "source preserved" in found.lawful


def test_a_finding_cites_the_steps_clauses_or_else_the_cases() -> None:
    refused = Scripted(always(Failure.REJECTED))
    steps = (Apply(WEB), TO_WEB, replace(TO_WEB, clauses=("clause.two",)))
    case = small_case(*steps, clauses={"clause.one", "clause.two"})
    cited = [found.clauses for found in run_all(refused, case)[0].findings]
    assert cited == [("clause.one", "clause.two"), ("clause.two",)]


def test_one_strange_answer_among_many_is_found_and_counted() -> None:
    def mostly_fair(instance: Instance, step: Question, number: int) -> Observation:
        return met(Failure.RESET) if number in {3, 5} else fairly(instance, step, number)

    found = only(findings(Scripted(mostly_fair), Apply(WEB), replace(TO_WEB, count=9)))
    assert found.seen == f"2 x {met(Failure.RESET).text}"


def test_either_reading_of_an_ambiguous_source_is_accepted() -> None:
    """A host that sends to an endpoint by way of its own address: rewriting it would change nothing."""

    def ambiguous(instance: Instance, step: Question, number: int) -> Observation:
        readings = [
            answering(delivered_to("b1", source=source))(instance, step, number)
            for source in (PRESERVED, MASQUERADED)
        ]
        outcomes = readings[0].outcomes | readings[1].outcomes
        return Observation(outcomes, "either", readings[0].endpoint)

    for source in (PRESERVED, MASQUERADED):
        requested = Probe(sender=host("a"), to=WEB.cluster_ip, expect=delivered_to("b1", source=source))
        assert findings(Scripted(ambiguous), Apply(WEB), requested) == []
    assert findings(Scripted(ambiguous), Apply(WEB), replace(TO_WEB, expect=delivered_to("a1")))


def test_an_observation_that_can_be_nothing_lawful_is_found() -> None:
    nothing = Scripted(lambda *_: Observation(frozenset(), "garbled"))
    steps = [replace(TO_WEB, expect=lawful) for lawful in (DROPPED, REJECTED, TO_WEB.expect)]
    assert [found.seen for found in findings(nothing, Apply(WEB), *steps)] == ["garbled"] * 3


def test_findings_come_in_the_order_of_steps() -> None:
    refused = Scripted(always(Failure.REJECTED))
    assert [f.step for f in findings(refused, Apply(WEB), TO_WEB, TO_WEB, HOLD, TO_WEB)] == [2, 3, 4, 5]


# ------------------------------------------------------------------------------ several connections


@pytest.mark.parametrize("ways", [2, 3, 6])
def test_a_sample_is_just_large_enough_for_the_stated_false_alarm_rate(ways: int) -> None:
    size = sample_size(replace(TO_WEB, expect=delivered_to(*SIX[:ways]), spread=True))

    def chance_of_missing_one(tries: int) -> float:
        """At most: the sum over endpoints of the chance that all tries go to others."""
        return ways * (1 - 1 / ways) ** tries

    assert chance_of_missing_one(size) <= FALSE_ALARM_RATE < chance_of_missing_one(size - 1)


def test_a_sample_is_never_smaller_than_the_step_requires() -> None:
    assert sample_size(replace(TO_WEB, spread=True, count=500)) == 500
    assert sample_size(replace(TO_WEB, count=7)) == 7
    assert sample_size(replace(TO_WEB, expect=delivered_to("a1"), spread=True)) == 1


def test_the_sample_is_what_the_testbed_is_requested() -> None:
    testbed = Scripted()
    spread = replace(TO_WEB, spread=True)
    run_all(testbed, small_case(Apply(WEB), spread, replace(TO_WEB, count=3)))
    assert testbed.counts == [sample_size(spread), 3]


def test_an_exhaustive_testbed_is_queried_once() -> None:
    testbed = Scripted(exhaustive=True)
    run_all(testbed, small_case(Apply(WEB), replace(TO_WEB, count=50)))
    assert testbed.counts == [1]


def test_an_endpoint_that_no_connection_reaches_is_found() -> None:
    def first_only(instance: Instance, step: Question, _: int) -> Observation:
        return fairly(instance, step, 0)

    found = only(findings(Scripted(first_only), Apply(WEB), replace(TO_WEB, spread=True)))
    assert "never reached 10.244.2." in found.seen
    assert found.lawful.startswith("every one of")
    assert findings(Scripted(first_only), Apply(WEB), replace(TO_WEB, count=30)) == []


EVEN = replace(TO_WEB, even=True)


def unevenly(instance: Instance, step: Question, number: int) -> Observation:
    """Two connections of three to the first endpoint."""
    return fairly(instance, step, min(number % 3, 1))


def test_shares_that_chance_does_not_give_are_found() -> None:
    found = only(findings(Scripted(unevenly), Apply(WEB), EVEN))
    assert found.lawful == "each of 2 endpoints as often as the others"
    assert re.fullmatch(
        r"10\.244\.1\.11:\d+ 233, 10\.244\.2\.11:\d+ 465 of 698; chance .* probability of \de-\d+", found.seen
    )


def test_shares_so_uneven_that_their_chance_is_no_number_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kproxy.conformance.engine.judging.chi_square_tail", lambda *_: 0.0)
    assert "465 of 698" in only(findings(Scripted(unevenly), Apply(WEB), EVEN)).seen


def test_shares_are_judged_only_where_that_is_requested() -> None:
    assert findings(Scripted(unevenly), Apply(WEB), replace(EVEN, even=False, count=698)) == []


def test_round_robin_is_even() -> None:
    assert findings(Scripted(fairly), Apply(WEB), EVEN) == []


def test_what_reaches_no_endpoint_is_found_once() -> None:
    found = only(findings(Scripted(always(Failure.DROPPED)), Apply(WEB), EVEN))
    assert found.seen == "698 x Failure.DROPPED"


class Biased(Scripted):
    """Exhaustive; reports the first endpoint's chance in two parts."""

    def __init__(self, first: Fraction) -> None:
        super().__init__(exhaustive=True)
        self.first = first

    async def probe(self, instance: Instance, probe: Probe, _: int) -> Sequence[Observation]:
        chances = (self.first / 2, 1 - self.first, self.first / 2)
        return [replace(fairly(instance, probe, n), probability=chance) for n, chance in enumerate(chances)]


def test_an_exhaustive_testbed_is_held_to_equal_chances_exactly() -> None:
    half = Fraction(1, 2)
    assert findings(Biased(half), Apply(WEB), EVEN) == []
    assert findings(Biased(half + Fraction(1, 10**9)), Apply(WEB), EVEN)


def test_a_client_that_does_not_stick_is_found_within_a_probe() -> None:
    found = only(findings(Scripted(), Apply(WEB), replace(TO_WEB, count=4, sticky_group="client")))
    assert found.lawful == "one endpoint each time"
    assert re.fullmatch(r"4 connections reached 10\.244\.1\.\S+, 10\.244\.2\.\S+", found.seen)


def test_of_many_endpoints_on_a_pod_any_will_do_unless_all_possible_outcomes_are_shown() -> None:
    many = service(
        "web", endpoints=(CaseEndpoint(on="a1", many=100), CaseEndpoint(on="b1", many=100, slice=1))
    )
    both = delivered_to_many("a1", 100) | delivered_to_many("b1", 100)
    probe = replace(TO_WEB, expect=both, spread=True)

    def of_each(instance: Instance, step: Question, number: int) -> Observation:
        return met(lawful_outcomes(instance, step)[number % 2 * 100])

    def of_one(instance: Instance, step: Question, _: int) -> Observation:
        return met(lawful_outcomes(instance, step)[0])

    assert findings(Scripted(of_each), Apply(many), probe) == []
    assert only(findings(Scripted(of_one), Apply(many), probe)).seen.endswith(
        "any of 100 from 10.244.34.1:10000 on"
    )
    assert len(findings(Scripted(of_each, exhaustive=True), Apply(many), probe)) == 1


def test_a_client_that_does_not_stick_is_found_between_rounds() -> None:
    sticky = replace(TO_WEB, sticky_group="client")
    found = only(findings(Scripted(changing_at_each_step()), Apply(WEB), sticky, Apply(WEB), sticky))
    assert found.step == 4
    assert re.fullmatch(r"10\.244\.2\.\S+, as before", found.lawful)
    assert found.seen.startswith("1 connections reached 10.244.1.")


@pytest.mark.parametrize(("seconds", "found"), [(1, 0), (60, 1)])
def test_a_machine_that_is_slower_than_an_affinity_lasts_accuses_nobody(seconds: int, found: int) -> None:
    brief = WEB.replace(affinity_seconds=seconds)
    sticky = replace(TO_WEB, sticky_group="client")
    case = small_case(Apply(brief), sticky, Wait(1.1), sticky)
    (progress,) = run_all(Scripted(changing_at_each_step()), case)
    assert len(progress.findings) == found
    late = "from one connection of a client to its next, and the affinity lasts 1 s"
    assert (late in progress.harness_error) == (not found)


def test_a_client_that_moves_once_is_found_once() -> None:
    def moves(instance: Instance, step: Question, _: int) -> Observation:
        return met(lawful_outcomes(instance, step)[next(moved)])

    sticky, moved = replace(TO_WEB, sticky_group="client"), iter((0, 0, 1, 1, 1))
    steps = (sticky, sticky, sticky, sticky, sticky)
    assert only(findings(Scripted(moves), Apply(WEB), *steps)).step == 4


def test_a_client_that_leaves_the_endpoint_of_its_held_flow_is_found() -> None:
    sticky = replace(TO_WEB, sticky_group="f", count=3)

    def moves(instance: Instance, step: Question, _: int) -> Observation:
        return met(lawful_outcomes(instance, step)[isinstance(step, Probe)])

    assert only(findings(Scripted(moves), Apply(WEB), HOLD, sticky)).step == 3


def test_another_name_or_another_sender_may_stick_elsewhere() -> None:
    one, other = replace(TO_WEB, sticky_group="x"), replace(TO_WEB, sticky_group="y")
    neighbour = replace(one, sender=pod("b2"))
    assert findings(Scripted(changing_at_each_step()), Apply(WEB), one, other) == []
    assert findings(Scripted(changing_at_each_step()), Apply(WEB), one, neighbour) == []


def test_who_sticks_is_no_question_where_all_possible_outcomes_are_shown() -> None:
    sticky = replace(TO_WEB, sticky_group="x")
    assert findings(Scripted(changing_at_each_step(), exhaustive=True), Apply(WEB), sticky, sticky) == []
    assert findings(Scripted(changing_at_each_step()), Apply(WEB), sticky, sticky)


def test_a_client_that_never_roams_is_found_once_at_the_last_probe() -> None:
    late = replace(TO_WEB, rebalances="client")
    found = only(findings(Scripted(), Apply(WEB), late, Wait(0), late, Wait(0), late))
    assert (found.step, found.lawful) == (6, "another endpoint for some client, as time has run out between")
    assert findings(Scripted(changing_at_each_step()), Apply(WEB), late, Wait(0), late) == []


def test_one_client_that_roams_is_enough_and_two_clients_with_an_endpoint_each_are_not() -> None:
    late = replace(TO_WEB, rebalances="all")
    neighbour = replace(late, sender=pod("a3"))
    steps = (Apply(WEB), late, neighbour, Wait(0), late, neighbour)

    def each_its_own(instance: Instance, step: Question, _: int) -> Observation:
        return met(lawful_outcomes(instance, step)[step == neighbour])

    def one_roams(instance: Instance, step: Question, number: int) -> Observation:
        return turns(instance, step, number) if step == late else each_its_own(instance, step, number)

    turns = changing_at_each_step()
    assert only(findings(Scripted(each_its_own), *steps)).step == 6
    assert findings(Scripted(one_roams), *steps) == []


# ------------------------------------------------------------------------------ marks


@pytest.mark.parametrize(
    ("marks", "clause", "shown"),
    [
        ((0x10,), "", ""),
        ((0x10, 0x10), "", ""),
        ((0x4010, 0x10), "masquerade.own-mark.cleared", "left with mark 0x4010"),
        ((0,), "masquerade.foreign-mark-bits.kept", "left with mark 0x0"),
        (
            (None,),
            "masquerade.foreign-mark-bits.kept",
            "left with another mark (which, Linux reports from 5.19 on), or was sent by another process",
        ),
    ],
)
def test_a_wrong_mark_is_shown_and_breaks_one_clause(
    marks: tuple[int | None, ...], clause: str, shown: str
) -> None:
    def marked(instance: Instance, step: Question, number: int) -> Observation:
        return replace(fairly(instance, step, number), marks=marks)

    both = {"masquerade.own-mark.cleared", "masquerade.foreign-mark-bits.kept"}
    requested = replace(TO_WEB, mark=0x10, clauses=tuple(sorted(both)))
    found = run_all(Scripted(marked), small_case(Apply(WEB), requested, clauses=both))[0].findings
    assert [(one.lawful, one.seen, one.clauses) for one in found] == (
        [("to leave the node with mark 0x10", shown, (clause,))] if clause else []
    )


# ------------------------------------------------------------------------------ flows


def test_a_flow_that_moves_is_found_where_it_must_be_still() -> None:
    found = only(findings(Scripted(changing_at_each_step()), Apply(WEB), HOLD, USE))
    assert (found.step, found.what) == (3, "exchange on held flow 'f'")
    assert found.lawful.startswith("still ")


def test_a_flow_that_moves_is_lawful_where_the_step_allows_it() -> None:
    moved = replace(USE, expect=TO_WEB.expect)
    assert findings(Scripted(changing_at_each_step()), Apply(WEB), HOLD, moved) == []


def test_a_flow_that_falls_silent_is_found() -> None:
    def silent_later(instance: Instance, step: Question, number: int) -> Observation:
        return met(Failure.DROPPED) if isinstance(step, Send) else fairly(instance, step, number)

    assert only(findings(Scripted(silent_later), Apply(WEB), HOLD, USE)).seen == met(Failure.DROPPED).text
    silent_always = Scripted(always(Failure.DROPPED))
    assert len(findings(silent_always, Apply(WEB), replace(HOLD, expect=DROPPED), USE)) == 1
    silence = replace(USE, expect=DROPPED)
    assert findings(Scripted(silent_later), Apply(WEB), HOLD, silence) == []


# ------------------------------------------------------------------------------ what cannot be observed


def test_what_cannot_be_observed_is_noted_in_its_own_instance_only() -> None:
    steps = (Apply(WEB), TO_WEB)
    bad, good = run_all(
        Scripted(breaking_for("group.bad")), small_case(*steps, id="group.bad"), small_case(*steps)
    )
    assert (bad.harness_error, bad.findings) == ("the capture is full", [])
    assert (good.harness_error, good.findings) == ("", [])


def test_a_case_that_cannot_be_observed_is_queried_no_more() -> None:
    testbed = Scripted(breaking_for("group.name"))
    progress = run_all(testbed, small_case(Apply(WEB), HOLD, Apply(service("web", "b2")), USE, TO_WEB))
    assert progress[0].harness_error == "the capture is full"
    assert testbed.log.count("hold") == 1
    assert "use" not in testbed.log
    assert "probe" not in testbed.log


def test_a_probe_beside_one_that_cannot_be_observed_is_still_judged() -> None:
    broken_step = replace(TO_WEB, count=2)

    def answer(_: Instance, step: Question, __: int) -> Observation:
        if step == broken_step:
            raise HarnessError("lost")
        return met(Failure.RESET)

    progress = run_all(Scripted(answer), small_case(Apply(WEB), broken_step, TO_WEB))
    assert progress[0].harness_error == "lost"
    assert [found.step for found in progress[0].findings] == [3]


def test_a_fault_of_the_harness_itself_is_not_hidden() -> None:
    def answer(*_: object) -> Observation:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_all(Scripted(answer), small_case(Apply(WEB), TO_WEB))


# ------------------------------------------------------------------------------ bystanders

STAND = UnrelatedEntries(node="a", service=WEB, other_service=WEB, endpoint="a1", clauses=("clause.one",))


def test_bystanders_are_looked_at_after_every_change_of_any_case() -> None:
    testbed = Scripted()
    run_all(
        testbed,
        small_case(Apply(WEB), STAND),
        small_case(Apply(WEB), TO_WEB, Apply(WEB), TO_WEB, id="group.two"),
    )
    assert testbed.log.count("entries") == 2


def test_a_bystander_that_goes_is_found_once() -> None:
    testbed = Scripted()
    testbed.entries = [SAME_ENTRIES, "one is gone", "one is gone"]
    steps = (Apply(WEB), STAND, Apply(WEB), TO_WEB, Delete(WEB), HOLD)
    (progress,) = run_all(testbed, small_case(*steps))
    found = only(progress.findings)
    assert (found.step, found.seen, found.clauses) == (2, "one is gone", ("clause.one",))
