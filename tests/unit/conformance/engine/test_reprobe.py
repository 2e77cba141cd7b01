"""A probe with an unlawful outcome is sent once more: which one, how often, for how long."""

import asyncio

import pytest

from kproxy.conformance.binding.bind import Instance, bind_cases
from kproxy.conformance.case import Apply, Open, ReadSysctl, Send, Step, delivered_to, pod
from kproxy.conformance.engine.reprobe import Reprober
from kproxy.conformance.engine.runner import run_instances
from tests.support.scripted_testbed import ELSEWHERE, TO_WEB, WEB, Scripted, always, fairly, small_case

HELD = Open(flow="f", sender=pod("a2"), to=WEB.cluster_ip, expect=delivered_to("a1", "b1"))
SYSCTL = ReadSysctl(node="a", name="ipv4/x", expect="1")


def requested(testbed: Scripted, *steps: Step, again: bool = True) -> list[str]:
    """Probes that are sent again in a run of two like cases."""
    cases = [small_case(*steps, id=f"group.n{number}") for number in (1, 2)]
    asyncio.run(run_instances(testbed, bind_cases(cases), reprobe=again))
    return [line for line in testbed.log if line.startswith("again")]


def test_an_unlawful_answer_is_probed_once_more_for_each_case() -> None:
    steps = (Apply(WEB), TO_WEB, TO_WEB, Apply(WEB), TO_WEB)
    lines = requested(Scripted(always(ELSEWHERE)), *steps)
    assert [line.split()[-1] for line in lines] == ["probe", "probe"]
    assert len(set(lines)) == 2


def test_it_is_queried_while_the_objects_are_as_they_were() -> None:
    testbed = Scripted(always(ELSEWHERE))
    requested(testbed, Apply(WEB), TO_WEB, Apply(WEB), TO_WEB)
    log = [line.split()[0] for line in testbed.log]
    assert log.index("again") < len(log) - log[::-1].index("settle") - 1


def test_lawful_answers_are_not_and_nothing_is_where_no_evidence_is_wanted() -> None:
    assert requested(Scripted(fairly), Apply(WEB), TO_WEB) == []
    assert requested(Scripted(always(ELSEWHERE)), Apply(WEB), TO_WEB, again=False) == []


@pytest.mark.parametrize(
    ("steps", "kind"),
    [
        ((Apply(WEB), HELD), "probe"),
        ((Apply(WEB), HELD, Send(flow="f", expect=delivered_to("a1"))), "probe"),
        ((SYSCTL, Apply(WEB), TO_WEB), "probe"),
    ],
)
def test_a_question_that_would_change_something_is_queried_otherwise_or_not(
    steps: tuple[Step, ...], kind: str
) -> None:
    assert {line.split()[-1] for line in requested(Scripted(always(ELSEWHERE)), *steps)} == {kind}


class Slow(Scripted):
    async def reprobe(self, _: Instance, __: object) -> None:
        self.log.append("again")
        await asyncio.sleep(0.02)


def test_a_lab_spends_only_so_long_on_it() -> None:
    testbed = Slow()
    cases = bind_cases([small_case(Apply(WEB), TO_WEB, id=f"group.n{number}") for number in range(9)])

    async def reprobe_all() -> None:
        second = Reprober(testbed, seconds=0.001)
        for instance in cases:
            await second.reprobe(instance, [(2, ())])

    asyncio.run(reprobe_all())
    assert testbed.log == ["again"]


def test_a_step_that_cannot_be_queried_again_is_left() -> None:
    testbed = Scripted()
    (instance,) = bind_cases([small_case(SYSCTL)])
    asyncio.run(Reprober(testbed).reprobe(instance, [(1, ())]))
    assert testbed.log == []
