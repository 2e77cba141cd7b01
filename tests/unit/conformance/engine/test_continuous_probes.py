"""Clients that never pause: they send while objects change, and what they observe then counts."""

from kproxy.conformance.binding.bind import Instance
from kproxy.conformance.case import Apply, ContinuousProbe, delivered_to, pod, service
from kproxy.conformance.testbed import HarnessError, Observation
from kproxy.spec.outcome import Failure
from tests.support.scripted_testbed import (
    TO_WEB,
    WEB,
    Question,
    Scripted,
    fairly,
    findings,
    met,
    run_all,
    small_case,
)

STEADY = ContinuousProbe(
    sender=pod("a2"), to=WEB.cluster_ip, expect=delivered_to("a1", "b1", "b2"), clauses=("clause.two",)
)
GROWN = Apply(service("web", "a1", "b1", "b2"))


def test_a_steady_client_sends_at_its_step_and_at_every_later_change() -> None:
    testbed = Scripted()
    assert findings(testbed, Apply(WEB), STEADY, GROWN, TO_WEB, Apply(WEB), TO_WEB) == []
    assert testbed.log.count("settle") == 3
    assert testbed.log.count("probe") == 1 + 2 + 2
    assert testbed.log[:3] == ["change 2", "settle", "probe"]


def test_it_does_not_send_before_its_step() -> None:
    testbed = Scripted()
    assert findings(testbed, Apply(WEB), TO_WEB, GROWN, STEADY) == []
    assert testbed.log.count("probe") == 2


def test_what_it_meets_while_objects_change_is_judged_and_cites_its_clauses() -> None:
    requested: list[Question] = []

    def answer(instance: Instance, step: Question, number: int) -> Observation:
        requested.append(step)
        return met(Failure.REJECTED) if len(requested) == 2 else fairly(instance, step, number)

    (found,) = findings(Scripted(answer), Apply(WEB), STEADY, GROWN, TO_WEB)
    assert (found.step, found.clauses) == (2, ("clause.two",))
    assert found.what.startswith("without a pause: ")


def test_its_first_packets_must_be_answered_at_once() -> None:
    requested: list[Question] = []

    def answer(instance: Instance, step: Question, number: int) -> Observation:
        requested.append(step)
        return fairly(instance, step, number)

    findings(Scripted(answer), Apply(WEB), STEADY)
    assert getattr(requested[0], "first_packet_only", False)


def test_a_case_whose_steady_client_cannot_be_observed_is_broken() -> None:
    requested: list[Question] = []

    def answer(instance: Instance, step: Question, number: int) -> Observation:
        requested.append(step)
        if len(requested) == 2:
            raise HarnessError("lost")
        return fairly(instance, step, number)

    progress = run_all(Scripted(answer), small_case(Apply(WEB), STEADY, GROWN, TO_WEB))
    assert progress[0].harness_error == "lost"
