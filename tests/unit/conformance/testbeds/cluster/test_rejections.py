"""Silence that may be the kernel's limit of ICMP errors, and silence that is a proxy's."""

import asyncio
from collections.abc import Sequence

import pytest

from kproxy.conformance.case import Lawful
from kproxy.conformance.testbed import Observation
from kproxy.conformance.testbeds.cluster.rejections import REPEATS, RejectionPacer
from kproxy.spec.outcome import Failure

SILENT = Observation(frozenset({Failure.DROPPED}), "silence")
REJECTED = Observation(frozenset({Failure.REJECTED}), "ICMP 3/3")
WENT_ON = Observation(frozenset(), "silence; it left node a by eth0")
REJECTION: Lawful = frozenset({Failure.REJECTED})


def judged(
    seen: Observation, then: Sequence[Observation], expect: Lawful = REJECTION
) -> tuple[Observation, int]:
    """The judgement, and how often it was sent again."""
    answers, sent = iter(then), list[int]()

    async def repeat() -> Observation:
        sent.append(1)
        return next(answers)

    found = asyncio.run(RejectionPacer(pause=0).judge("a1", seen, expect, repeat))
    return found, len(sent)


@pytest.mark.parametrize("silent_times", range(REPEATS))
def test_a_rejection_that_comes_when_sent_again_alone_counts(silent_times: int) -> None:
    found, sent = judged(SILENT, [*[SILENT] * silent_times, REJECTED])
    assert found.outcomes == REJECTION
    assert f"{silent_times + 1} of {REPEATS}" in found.text
    assert sent == silent_times + 1


def test_a_proxy_that_drops_is_silent_each_time() -> None:
    found, sent = judged(SILENT, [SILENT] * REPEATS)
    assert found.outcomes == SILENT.outcomes
    assert "also when sent again" in found.text
    assert sent == REPEATS


@pytest.mark.parametrize(
    ("seen", "expect"),
    [
        (REJECTED, REJECTION),
        (WENT_ON, REJECTION),
        (SILENT, frozenset({Failure.REJECTED, Failure.DROPPED})),
        (SILENT, frozenset({Failure.UNTOUCHED})),
    ],
)
def test_what_is_not_in_doubt_is_not_sent_again(seen: Observation, expect: Lawful) -> None:
    assert judged(seen, [], expect) == (seen, 0)


def test_one_that_is_answered_otherwise_when_sent_again_is_judged_by_that() -> None:
    found, _ = judged(SILENT, [WENT_ON])
    assert found.outcomes == frozenset()


def test_what_expects_a_rejection_is_sent_in_turns_of_its_sender() -> None:
    under_way = {"a1": 0, "a2": 0}
    most = dict(under_way)

    async def run() -> None:
        pacer = RejectionPacer(pause=0)

        async def one(sender: str) -> Observation:
            async def send() -> Observation:
                under_way[sender] += 1
                most[sender] = max(most[sender], under_way[sender])
                await asyncio.sleep(0)
                under_way[sender] -= 1
                return REJECTED

            return await pacer.send(sender, REJECTION, send)

        assert await asyncio.gather(*map(one, ["a1", "a2"] * 5)) == [REJECTED] * 10

    asyncio.run(run())
    assert most == {"a1": 1, "a2": 1}
