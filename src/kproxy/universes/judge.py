"""Judge of a universe: each probe's outcome against the oracle's verdicts on all states that it may reflect. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from kproxy.conformance.binding.bind import BoundPacket, Instance
from kproxy.conformance.case import VantageKind
from kproxy.spec.oracle import expect
from kproxy.spec.outcome import ClauseId, Delivered, Outcome, SourceIP
from kproxy.universes.history import ObjectHistory, TooManyStates
from kproxy.universes.recording import SECOND, Probed, Recording, outcome_from_text, outcomes_text
from kproxy.universes.schedule import Schedule, TimedProbe


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """Probe whose outcome no state allows; ``at`` in seconds, ``since``: the earliest state that was considered."""

    number: int
    at: float
    since: float
    probe: TimedProbe
    lawful: tuple[str, ...]
    seen: str
    clauses: tuple[ClauseId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Verdict on a universe; ``unjudged``: reasons, each with the number of probes that have it."""

    judged: int
    violations: tuple[Violation, ...]
    unjudged: dict[str, int]
    failure: str = ""
    """Why the universe ended too soon."""
    subject_failed: bool = False
    """True if that was the subject's failure, and not the harness's."""

    @property
    def unlawful(self) -> bool:
        """True if the subject did what it must not."""
        return bool(self.violations) or self.subject_failed


def judge_universe(schedule: Schedule, recording: Recording) -> Verdict:
    """Verdict on a universe's recording."""
    history = ObjectHistory(schedule)
    violations: list[Violation] = []
    unjudged: dict[str, int] = {}
    judged = 0
    for probed in recording.probes():
        try:
            found = _violation(schedule.probes[probed.number], probed, history)
        except (Unjudged, TooManyStates) as why:
            unjudged[str(why)] = unjudged.get(str(why), 0) + 1
        else:
            judged += 1
            violations += [found] if found else []
    failed = recording.failure
    return Verdict(
        judged=judged,
        violations=tuple(violations),
        unjudged=unjudged,
        failure=failed.text if failed else "",
        subject_failed=bool(failed and failed.subject),
    )


class Unjudged(Exception):
    """Probe that cannot be judged; the message has the reason."""


def _violation(probe: TimedProbe, probed: Probed, history: ObjectHistory) -> Violation | None:
    if probed.unclear:
        raise Unjudged(probed.unclear)
    instance = history.instance
    bound = instance.bound_packet(probe.sender, probe.to)
    begin = history.window(bound.node, probed.at / SECOND)
    facts = history.world.facts(bound.node)
    seen = frozenset(map(outcome_from_text, probed.outcomes))
    lawful: set[Outcome] = set()
    clauses: dict[ClauseId, None] = {}
    for cluster in history.clusters(probe.to.service, begin, probed.until / SECOND):
        expectation = expect(cluster, facts, bound.packet)
        if seen & expectation.outcomes:
            return None
        lawful |= expectation.outcomes
        clauses |= dict.fromkeys(expectation.clauses)
    if not all(_is_answerable(instance, probe, bound, outcome) for outcome in lawful):
        raise Unjudged("an answer could not return")
    return Violation(
        number=probed.number,
        at=probed.at / SECOND,
        since=begin,
        probe=probe,
        lawful=outcomes_text(lawful),
        seen=probed.text,
        clauses=tuple(clauses),
    )


def _is_answerable(instance: Instance, probe: TimedProbe, bound: BoundPacket, outcome: Outcome) -> bool:
    """True if the sender can get an answer: an endpoint elsewhere that sees its address answers past the judging node."""
    if not isinstance(outcome, Delivered) or outcome.source is SourceIP.MASQUERADED:
        return True
    if probe.sender.kind in {VantageKind.POD, VantageKind.HOST} and probe.sender.node == bound.node:
        return True
    topology, family = instance.topology, instance.family
    here = {topology.pod_address[name][family] for name in topology.pods[bound.node]}
    return outcome.address in here | set(topology.local_addresses(bound.node, family))
