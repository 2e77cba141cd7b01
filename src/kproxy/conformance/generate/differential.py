"""Differential run: two subjects on the same worlds, and the packets that they treat differently.

Packets that both treat alike, lawful or not, are not shown; differences are shown with whether they are lawful.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from kproxy.conformance.binding.bind import Instance
from kproxy.conformance.case import Probe, Profile
from kproxy.conformance.case.descriptions import describe_lawful, describe_step
from kproxy.conformance.engine.session import OpenTestbed
from kproxy.conformance.testbed import Observation, Testbed
from kproxy.spec.outcome import Delivered

Answers = dict[tuple[str, int], frozenset[str]]
"""Observations at a step (instance's name, number of the step), as texts that do not depend on chance."""


@dataclass(frozen=True, slots=True)
class SubjectDifference:
    """Packet with different outcomes; ``unlawful``: for each subject, whether its outcome was unlawful."""

    case: str
    step: int
    step_text: str
    lawful: str
    seen: tuple[str, str]
    unlawful: tuple[bool, bool]


@dataclass(slots=True)
class ProbeLog:
    """Observations of one subject."""

    outcomes: Answers = field(default_factory=dict)
    unlawful: set[tuple[str, int]] = field(default_factory=set)


def recording_testbed(open_testbed: OpenTestbed, record: ProbeLog) -> OpenTestbed:
    """The same testbeds, with every observation of a probe recorded."""

    @asynccontextmanager
    async def opened(profile: Profile, instances: Sequence[Instance]) -> AsyncIterator[Testbed]:
        async with open_testbed(profile, instances) as testbed:
            yield _RecordingTestbed(testbed, record)

    return opened


class _RecordingTestbed:
    """Testbed that delegates to another and records the observations."""

    def __init__(self, testbed: Testbed, record: ProbeLog) -> None:
        self._record = record
        self._probe = testbed.probe
        self.name, self.exhaustive = testbed.name, testbed.exhaustive
        self.has_long_rounds = testbed.has_long_rounds
        self.not_runnable_reason, self.change, self.settle = (
            testbed.not_runnable_reason,
            testbed.change,
            testbed.settle,
        )
        self.open_flow, self.send_on_flow, self.reopen = (
            testbed.open_flow,
            testbed.send_on_flow,
            testbed.reopen,
        )
        self.ping, self.check_health = testbed.ping, testbed.check_health
        self.read_node, self.act = testbed.read_node, testbed.act
        self.watch_entries, self.convergence = testbed.watch_entries, testbed.convergence
        self.reprobe = testbed.reprobe
        self.evidence = testbed.evidence

    async def probe(self, instance: Instance, probe: Probe, count: int) -> Sequence[Observation]:
        seen = await self._probe(instance, probe, count)
        _note(self._record, instance, probe, seen)
        return seen


def _note(record: ProbeLog, instance: Instance, step: Probe, seen: Sequence[Observation]) -> None:
    number = next(n for n, own in enumerate(instance.case.steps, 1) if own is step)
    lawful = instance.outcomes(step.expect, step.to)
    record.outcomes[instance.case.id, number] = frozenset(_outcome_kinds(one) for one in seen)
    if any(not one.outcomes & lawful for one in seen):
        record.unlawful.add((instance.case.id, number))


def _outcome_kinds(seen: Observation) -> str:
    """Kind of outcome, without the endpoint, which is chosen by chance."""
    kinds = {
        f"delivered, source {o.source.value}" if isinstance(o, Delivered) else o.value for o in seen.outcomes
    }
    return " or ".join(sorted(kinds)) or seen.text


def differing_probes(
    instances: Mapping[str, Instance], one: ProbeLog, other: ProbeLog
) -> Iterator[SubjectDifference]:
    """Probes with different observations for two subjects."""
    for key in sorted(one.outcomes.keys() & other.outcomes.keys()):
        if one.outcomes[key] != other.outcomes[key]:
            id, number = key
            step = instances[id].case.steps[number - 1]
            assert isinstance(step, Probe)
            yield SubjectDifference(
                case=id,
                step=number,
                step_text=describe_step(step),
                lawful=describe_lawful(step.expect),
                seen=(_outcome_text(one, key), _outcome_text(other, key)),
                unlawful=(key in one.unlawful, key in other.unlawful),
            )


def _outcome_text(record: ProbeLog, key: tuple[str, int]) -> str:
    return "; ".join(sorted(record.outcomes[key]))
