"""Conformance case of a schedule in which a packet was unlawful: its changes in rounds, and that packet after each. Pure.

Theory of operation. A case knows no times. It makes the changes of a round at once, waits until they are in effect, and checks.
So changes of a schedule that follow each other within `SOON` are a round; after each, the case sends what the universe sent when
something was unlawful, with the oracle's verdict on that state, so those before the last are its controls. Where a change was just
taking effect then, the packet is also sent without a pause while the last round is made.

A flow is opened after the round that it was opened after. Which endpoint it has then is not known here, so a later exchange on it
may have any outcome that is lawful for some endpoint that it may have.

Some faults are steps of a case (`_reasons` has the others). What a case cannot have are the delays of a schedule (`DelayWrites`
has a length of its own): the caller runs it to see if it fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from kproxy.conformance.binding.bind import Instance
from kproxy.conformance.binding.world import World
from kproxy.conformance.case import (
    DEFAULT,
    SAME_ENDPOINT,
    AllowWrites,
    Apply,
    Case,
    CheckHealth,
    CheckProxy,
    ContinuousProbe,
    DelayWrites,
    Delete,
    DuringWatchFault,
    FailWrites,
    Lawful,
    Mutation,
    Open,
    Probe,
    Profile,
    Restart,
    Send,
    Step,
    Target,
    WatchFault,
)
from kproxy.conformance.cases import profiles
from kproxy.conformance.generate.oracle_answers import is_answerable, symbolic_outcomes
from kproxy.model.network import Protocol
from kproxy.spec import health
from kproxy.spec.established import EstablishedFlow
from kproxy.spec.oracle import expect
from kproxy.spec.outcome import Delivered, Expectation, Failure, Outcome
from kproxy.universes.history import SOON
from kproxy.universes.judge import Packets, Violation
from kproxy.universes.recording import SECOND, Recording, outcome_from_text
from kproxy.universes.schedule import (
    CONVERGENCE,
    ChangeStep,
    FaultKind,
    Schedule,
    TimedCheck,
    TimedFault,
    TimedFlow,
)
from kproxy.universes.story import describe_fault

_WATCH_FAULTS: Mapping[FaultKind, WatchFault] = {
    FaultKind.WATCHES_RESET: WatchFault.CONNECTION_RESET,
    FaultKind.WATCHES_STALL: WatchFault.DELAYED,
    FaultKind.HISTORY_GONE: WatchFault.GONE,
}
_WITH_CHANGES = frozenset({FaultKind.PROXY_KILLED, *_WATCH_FAULTS})
"""Faults whose step contains the changes that are made meanwhile."""
_WRITE_FAULTS: Mapping[FaultKind, type[FailWrites | DelayWrites]] = {
    FaultKind.WRITES_REFUSED: FailWrites,
    FaultKind.WRITES_SLOW: DelayWrites,
}
"""Faults that a step begins, and `AllowWrites` ends."""
_EXPRESSIBLE = _WITH_CHANGES.union(_WRITE_FAULTS)
_RESTARTS = Profile(name="universe", isolated=True)
_COUNTS: Mapping[int | None, int | None] = {health.REFUSED: None, health.OK: 1, health.UNAVAILABLE: 0}
"""Numbers of endpoints that a status stands for."""


class InexpressibleSchedule(Exception):
    """Schedule that no case can express; the message has the reasons."""


def case_of_schedule(schedule: Schedule, recording: Recording, violation: Violation) -> Case:
    """Case that checks what a violation is about, after each round of the changes before it. Raises `InexpressibleSchedule`."""
    if reasons := list(_reasons(schedule, violation.at)):
        raise InexpressibleSchedule("; ".join(reasons))
    rounds = list(_rounds(schedule, violation.at))
    mutations = [step for one in rounds for step in one.steps]
    writer = _CaseWriter(schedule, violation, _opened_at(schedule, recording, violation))
    steps = tuple(writer.steps(rounds))
    return Case(
        id=f"universe.seed-{schedule.seed}",
        about="A universe in which something was unlawful, as a case.",
        clauses=frozenset(writer.clauses | set(violation.clauses)),
        steps=steps,
        profile=_profile(mutations),
        families=(schedule.family,),
    )


def _reasons(schedule: Schedule, until: float) -> Iterator[str]:
    """Why no case can express what a schedule does up to a time; none if one can."""
    faults = [fault for fault in schedule.faults if fault.at <= until]
    for fault in faults:
        if fault.kind not in _EXPRESSIBLE or fault.resource is not None:
            yield f"no step of a case is the fault: {describe_fault(fault)}"
        elif fault.kind in _WITH_CHANGES:
            steps = _changes_during(schedule, fault)
            if not all(isinstance(step, Apply | Delete) for step in steps):
                yield f"no step of a case changes nodes or ServiceCIDRs during the fault: {describe_fault(fault)}"
            elif fault.kind is FaultKind.PROXY_KILLED and len(steps) > 1 and not _one_apply(steps):
                yield "a case makes one change while a proxy is down"
    if any(
        one.at < other.end and other.at < one.end for one in faults for other in faults if one is not other
    ):
        yield "faults of a case do not overlap"


def _changes_during(schedule: Schedule, fault: TimedFault) -> list[ChangeStep]:
    return [change.step for change in schedule.changes if fault.at <= change.at < fault.end]


def _one_apply(steps: list[ChangeStep]) -> Apply | None:
    """One step with the same effect as several that apply Services; None where there are none, or others."""
    last = {service.name: service for step in steps if isinstance(step, Apply) for service in step.services}
    only = all(isinstance(step, Apply) for step in steps)
    return Apply(*last.values()) if last and only else None


def _profile(mutations: list[Mutation]) -> Profile:
    """Profile for a case with these changes and faults."""
    if any(isinstance(step, FailWrites | DelayWrites) for step in mutations):
        return profiles.WRITES
    if any(isinstance(step, DuringWatchFault) for step in mutations):
        return profiles.WATCHES
    plain = all(isinstance(step, Apply | Delete) for step in mutations)
    return DEFAULT if plain else _RESTARTS


@dataclass(slots=True)
class _Round:
    """Changes and faults that are one round; ``open``: more may be added."""

    begin: float
    end: float
    steps: list[Mutation]
    open: bool = True


def _rounds(schedule: Schedule, until: float) -> Iterator[_Round]:
    """Rounds of a schedule up to a time."""
    current: _Round | None = None
    for one in sorted(_single_steps(schedule, until), key=lambda one: one.begin):
        joins = current is not None and current.open and one.begin - current.end <= SOON
        if (
            current is not None
            and joins
            and not isinstance(one.steps[0], AllowWrites | FailWrites | DelayWrites)
        ):
            current.steps += one.steps
            current.end, current.open = max(current.end, one.end), one.open
            continue
        if current is not None:
            yield current
        current = one
    if current is not None:
        yield current


def _single_steps(schedule: Schedule, until: float) -> Iterator[_Round]:
    """Rounds of one step each: changes, and faults with the changes that are made meanwhile."""
    faults = [fault for fault in schedule.faults if fault.at <= until]
    inside = [fault for fault in faults if fault.kind in _WITH_CHANGES]
    for change in schedule.changes:
        if change.at <= until and not any(fault.at <= change.at < fault.end for fault in inside):
            yield _Round(change.at, change.done, [change.step])
    for fault in faults:
        if fault.kind in _WRITE_FAULTS:
            yield _Round(fault.at, fault.at, [_WRITE_FAULTS[fault.kind](fault.node)])
            if fault.end <= until:
                yield _Round(fault.end, fault.end, [AllowWrites(fault.node)], open=False)
        else:
            yield _Round(fault.at, fault.end, [_step_of(fault, _changes_during(schedule, fault))], open=False)


def _step_of(fault: TimedFault, steps: list[ChangeStep]) -> Mutation:
    """Step of a fault during which changes are made."""
    changes = [step for step in steps if isinstance(step, Apply | Delete)]
    if fault.kind in _WATCH_FAULTS:
        return DuringWatchFault(_WATCH_FAULTS[fault.kind], *changes)
    return Restart(fault.node, while_down=changes[0] if len(changes) == 1 else _one_apply(steps))


def _opened_at(schedule: Schedule, recording: Recording, violation: Violation) -> float | None:
    """Seconds at which the flow of a violation was last opened before it; None where the packet is the first of its own."""
    if not isinstance(violation.sent, TimedFlow) or not violation.established:
        return None
    exchanges = recording.exchanges(schedule.flows.index(violation.sent))
    return max(
        (one.at / SECOND for one in exchanges if one.opened and one.at / SECOND <= violation.at), default=0.0
    )


@dataclass(slots=True)
class _CaseWriter:
    """Writer of the steps of one case; ``opened``: when the flow that it is about was opened."""

    schedule: Schedule
    violation: Violation
    opened: float | None
    clauses: set[str] = field(default_factory=set)
    """Clauses that the checks written so far are about."""
    _last: list[frozenset[Delivered]] = field(default_factory=list)
    """Endpoints that the open flow may have, each as the outcomes that lead there."""
    _world: World = field(init=False)

    def __post_init__(self) -> None:
        self._world = World(Instance(self.schedule.case, self.schedule.family, 0, 0))

    def steps(self, rounds: list[_Round]) -> Iterator[Step]:
        """Changes of each round, then its checks."""
        for number, one in enumerate(rounds):
            last = number == len(rounds) - 1
            before = self._lawful()
            for step in one.steps:
                self._world.apply_step(step)
            if last and number and self.violation.at < one.end + CONVERGENCE:
                yield from self._continuous(before)
            yield from one.steps
            if isinstance(self.violation.sent, TimedCheck):
                yield self._check_health(self.violation.sent)
            elif self.opened is None:
                yield from self._probe(self.violation.sent)
            elif one.begin <= self.opened and (last or rounds[number + 1].begin > self.opened):
                yield self._open()
                yield from self._exchange() if last else ()
            elif self._last:
                yield from self._exchange()

    def _check_health(self, sent: TimedCheck) -> Step:
        """Request to a health port, with the status that is true now."""
        instance, step = self._world.instance, sent.step
        hostname, cluster = instance.topology.hostnames[sent.node], self._world.cluster()
        if isinstance(step, CheckProxy):
            clauses, status = health.proxy_clauses(), health.proxy_status(cluster, hostname)
            self.clauses.update(clauses)
            return CheckProxy(
                sender=step.sender, node=step.node, path=step.path, expect=status, clauses=clauses
            )
        found = health.node_port_status(cluster, hostname, (instance.namespace, step.to.service))
        clauses = health.node_port_clauses()
        self.clauses.update(clauses)
        return CheckHealth(sender=step.sender, to=step.to, expect=_COUNTS[found], clauses=clauses)

    def _probe(self, sent: Packets) -> Iterator[Step]:
        """New connection, unless its answer could not return now."""
        probe = Probe(sender=sent.sender, to=sent.to, expect=self._lawful())
        if is_answerable(self._world.instance, probe):
            self.clauses.update(self._expectation(sent).clauses)
            yield probe

    def _continuous(self, before: Lawful) -> Iterator[Step]:
        """Connections without a pause while a round is made, which the world has now: what is lawful ``before``, meanwhile, and now."""
        sent = self.violation.sent
        if isinstance(sent, TimedCheck) or self.opened is not None:
            return
        meanwhile = frozenset(map(outcome_from_text, self.violation.lawful))
        lawful = before | self._lawful() | self._symbolic(meanwhile, sent.to)
        if is_answerable(self._world.instance, Probe(sender=sent.sender, to=sent.to, expect=lawful)):
            clauses = tuple(self.violation.clauses)
            yield ContinuousProbe(sender=sent.sender, to=sent.to, expect=lawful, clauses=clauses)

    @property
    def _flow(self) -> tuple[TimedFlow, Open]:
        """Flow that the case is about, and the step that opens it."""
        sent = self.violation.sent
        assert isinstance(sent, TimedFlow)
        return sent, sent.open_step(self.schedule.flows.index(sent))

    def _open(self) -> Step:
        """Flow that begins now."""
        sent, step = self._flow
        expectation = self._expectation(sent)
        self._last = _by_endpoint(expectation.outcomes)
        if not self._last:
            raise InexpressibleSchedule(
                "its flow began before a change was in effect, and a case waits for that"
            )
        self.clauses.update(expectation.clauses)
        return replace(step, expect=self._lawful())

    def _exchange(self) -> Iterator[Step]:
        """Exchange on the flow; none where its connection's frontend is gone, since then no clause says what becomes of it."""
        sent, step = self._flow
        bound = self._world.instance.bound_packet(sent.sender, sent.to)
        allowed: list[Expectation] = []
        for last in self._last:
            flow = EstablishedFlow(self._world.facts(bound.node), bound.packet, last)
            flow.allow(self._world.cluster(bound.node))
            allowed.append(flow.expectation)
        stays = all(one.outcomes == last for one, last in zip(allowed, self._last, strict=True))
        if not stays and bound.packet.protocol is not Protocol.UDP:
            return
        found = frozenset(outcome for one in allowed for outcome in one.outcomes)
        clauses = sorted({clause for one in allowed for clause in one.clauses})
        self.clauses.update(clauses)
        self._last = _by_endpoint(found) or self._last
        lawful = SAME_ENDPOINT if stays else self._symbolic(found, sent.to)
        yield Send(flow=step.flow, expect=lawful, clauses=tuple(clauses))

    def _expectation(self, sent: Packets) -> Expectation:
        """The oracle's verdict on a new connection now."""
        bound = self._world.instance.bound_packet(sent.sender, sent.to)
        return expect(self._world.cluster(bound.node), self._world.facts(bound.node), bound.packet)

    def _lawful(self) -> Lawful:
        """The same of the packet that the case is about, in names."""
        sent = self.violation.sent
        return (
            frozenset()
            if isinstance(sent, TimedCheck)
            else self._symbolic(self._expectation(sent).outcomes, sent.to)
        )

    def _symbolic(self, outcomes: frozenset[Outcome], to: Target) -> Lawful:
        return symbolic_outcomes(self._world.instance, outcomes, to)


def _by_endpoint(outcomes: frozenset[Outcome]) -> list[frozenset[Delivered]]:
    """Deliveries among outcomes, those to one endpoint together."""
    found: dict[tuple[object, int], set[Delivered]] = {}
    for one in outcomes:
        if not isinstance(one, Failure):
            found.setdefault((one.address, one.port), set()).add(one)
    return [frozenset(same) for same in found.values()]
