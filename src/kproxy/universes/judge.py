"""Judge of a universe: each probe's outcome against the oracle's verdicts on all states that it may reflect. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from kproxy.conformance.binding.bind import BoundPacket, Instance
from kproxy.conformance.case import TargetKind, VantageKind
from kproxy.conformance.testbed import ANSWER_LOST, NO_ANSWER, describe_status
from kproxy.model import api
from kproxy.model.network import Address, Packet, Protocol
from kproxy.spec import health
from kproxy.spec.clauses import clause
from kproxy.spec.established import EstablishedFlow
from kproxy.spec.node import NodeFacts
from kproxy.spec.oracle import expect, matched_ports
from kproxy.spec.outcome import ClauseId, Delivered, Expectation, Failure, Outcome, SourceIP
from kproxy.universes.history import ObjectHistory, TooManyStates
from kproxy.universes.recording import (
    SECOND,
    FlowExchanged,
    HealthChecked,
    Probed,
    Recording,
    outcome_from_text,
    outcomes_text,
)
from kproxy.universes.schedule import FaultKind, Schedule, TimedCheck, TimedFlow, TimedProbe

_BEFORE = 5e-7
"""Seconds: less than lies between two writes of a schedule."""
_DELETED = clause("conntrack.udp.not-to-endpoint-of-deleted-service")

Packets = TimedProbe | TimedFlow
Sent = Packets | TimedCheck


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """Packet whose outcome no state allows; ``at`` in seconds, ``since``: the earliest state that was considered.

    ``established``: it is not the first of its connection or socket; ``source_only``: its endpoint is lawful, and the source it saw
    is not. ``changing``: the rules of its Service may have changed meanwhile. ``faults``: those that its node had not recovered from.
    """

    at: float
    since: float
    sent: Sent
    established: bool
    lawful: tuple[str, ...]
    seen: str
    clauses: tuple[ClauseId, ...]
    source_only: bool = False
    changing: bool = False
    faults: tuple[FaultKind, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Verdict on a universe; ``unjudged``: reasons, each with the number of packets that have it."""

    judged: int
    violations: tuple[Violation, ...]
    unjudged: dict[str, int]
    known: dict[str, int] = field(default_factory=dict)
    """Known deviations of the subject, each with the number of packets that show it."""
    failure: str = ""
    """Why the universe ended too soon."""
    subject_failed: bool = False
    """True if that was the subject's failure, and not the harness's."""

    @property
    def result(self) -> str:
        """The verdict in one word; ``broken``: the harness failed."""
        return "unlawful" if self.unlawful else "broken" if self.failure else "lawful"

    @property
    def unlawful(self) -> bool:
        """True if the subject did what it must not."""
        return bool(self.violations) or self.subject_failed


def judge_universe(
    schedule: Schedule, recording: Recording, excuse: Callable[[Violation], str] = lambda _: ""
) -> Verdict:
    """Verdict on a universe's recording; ``excuse``: returns the known deviation that a violation shows, empty for none."""
    judge = _Judge(ObjectHistory(schedule, recording.caught_up()))
    for probed in recording.probes():
        judge.judge_new(schedule.probes[probed.number], probed)
    for checked in recording.checks():
        judge.judge_check(schedule.checks[checked.number], checked)
    for number, flow in enumerate(schedule.flows):
        judge.judge_flow(flow, recording.exchanges(number))
    known = Counter(map(excuse, judge.violations))
    failed = recording.failure
    unseen = (
        ""
        if judge.judged or not judge.unjudged
        else f"no packet could be judged: {max(judge.unjudged, key=lambda why: judge.unjudged[why])}"
    )
    return Verdict(
        judged=judge.judged,
        violations=tuple(sorted((v for v in judge.violations if not excuse(v)), key=lambda v: v.at)),
        unjudged=judge.unjudged,
        known={deviation: count for deviation, count in known.items() if deviation},
        failure=failed.text if failed else unseen,
        subject_failed=bool(failed and failed.subject),
    )


class Unjudged(Exception):
    """Packet that cannot be judged; the message has the reason."""


@dataclass(slots=True)
class _Judge:
    """Verdicts up to now."""

    history: ObjectHistory
    judged: int = 0
    violations: list[Violation] = field(default_factory=list)
    unjudged: dict[str, int] = field(default_factory=dict)
    _expected: dict[tuple[int, Packet, str], Expectation] = field(default_factory=dict)
    """Verdicts of the oracle, by state (its ``id``; `history` keeps it alive), packet and node: most packets come again."""
    _undisturbed: set[tuple[object, ...]] = field(default_factory=set)
    """Exchanges that one state, the latest, allows, each with that state: most exchanges of a flow are the same."""
    _bounds: dict[Packets, BoundPacket] = field(default_factory=dict)

    def judge_check(self, sent: TimedCheck, seen: HealthChecked) -> None:
        """Judge the response of a health port: true of some state that may be in effect, or unhealthy while a fault lasts."""
        history, at = self.history, seen.at / SECOND
        hostname = history.instance.topology.hostnames[sent.node]
        since = history.window(sent.node, at)
        service = sent.to.service if sent.to else ""
        lawful: set[int | None] = set()
        if history.is_disturbed(sent.node, at):
            lawful |= {health.REFUSED, health.UNAVAILABLE}
        with self._counted():
            for cluster in history.clusters(service, since, seen.until / SECOND):
                if sent.to:
                    name = (history.instance.namespace, service)
                    lawful.add(health.node_port_status(cluster, hostname, name))
                else:
                    lawful.add(health.proxy_status(cluster, hostname))
                if seen.text in set(map(describe_status, lawful)):
                    return
            if history.is_disturbed(sent.node, at) and seen.text == NO_ANSWER:
                return
            clauses = health.node_port_clauses() if sent.to else health.proxy_clauses()
            texts = tuple(sorted(map(describe_status, lawful)))
            self.violations.append(
                Violation(
                    at=at,
                    since=since,
                    sent=sent,
                    established=False,
                    lawful=texts,
                    seen=seen.text,
                    clauses=clauses,
                )
            )

    def judge_new(self, sent: Packets, seen: Probed | FlowExchanged, *, strayed: bool = False) -> None:
        """Judge the first packet of a connection or socket, or one of a socket that has had no answer from an endpoint.

        What such a socket sent while there was no Service has a connection tracking entry until the proxy removes it, at the
        latest when there is an endpoint (``conntrack.udp.served-after-first-endpoint``). IPVS serves the packet in spite of
        that entry, and the kernel drops the answer, whose own entry would be the reverse of it (``conntrack -S`` counts it in
        insert_failed): until the entry must be gone this is lawful. ``strayed``: the socket has sent such a packet.
        """
        with self._counted():
            node, packet = self._facts(sent)
            lawful: set[Outcome] = set()
            clauses: dict[ClauseId, None] = {}
            outcomes = _outcomes(seen)
            for cluster in self._clusters(sent, seen):
                expectation = self._expect(cluster, node, packet)
                if outcomes & expectation.outcomes:
                    return
                if not outcomes:  # no state explains it, or the answer went past the node
                    self._require_answerable(sent, expectation)
                lawful |= expectation.outcomes
                clauses |= dict.fromkeys(expectation.clauses)
            without_endpoint = Failure.UNTOUCHED in lawful or (strayed and Failure.REJECTED in lawful)
            if _sent_before(seen) and not outcomes and without_endpoint:
                return
            self._blame(sent, seen, Expectation(frozenset(lawful), tuple(clauses)))

    def judge_flow(self, flow: TimedFlow, exchanges: Iterable[FlowExchanged]) -> None:
        """Judge all exchanges of a flow."""
        last: frozenset[Delivered] = frozenset()
        opened, strayed = 0.0, False
        for seen in exchanges:
            if seen.opened:
                opened, strayed = seen.at / SECOND, False
            if seen.opened or not last:
                self.judge_new(flow, seen, strayed=strayed)
            else:
                self._judge_established(flow, seen, last, opened)
            if not seen.unclear:
                outcomes = _outcomes(seen)
                last = frozenset(one for one in outcomes if isinstance(one, Delivered))
                strayed = Failure.UNTOUCHED in outcomes or (strayed and not last)

    def _judge_established(
        self, flow: TimedFlow, seen: FlowExchanged, last: frozenset[Delivered], opened: float
    ) -> None:
        with self._counted():
            established = EstablishedFlow(*self._facts(flow), last)
            outcomes = _outcomes(seen)
            for number, cluster in enumerate(self._clusters(flow, seen)):
                exchange = (id(cluster), flow, last, outcomes)
                if number == 0 and exchange in self._undisturbed:
                    return
                established.allow(cluster)
                if established.allows(outcomes):
                    if number == 0:
                        self._undisturbed.add(exchange)
                    return
            self._blame(flow, seen, established.expectation, opened)

    def _expect(self, cluster: api.Cluster, node: NodeFacts, packet: Packet) -> Expectation:
        key = (id(cluster), packet, node.name)
        if key not in self._expected:
            self._expected[key] = expect(cluster, node, packet)
        return self._expected[key]

    @contextmanager
    def _counted(self) -> Iterator[None]:
        try:
            yield
        except (Unjudged, TooManyStates) as why:
            self.unjudged[str(why)] = self.unjudged.get(str(why), 0) + 1
        else:
            self.judged += 1

    def _bound(self, sent: Packets) -> BoundPacket:
        if sent not in self._bounds:
            self._bounds[sent] = self.history.instance.bound_packet(sent.sender, sent.to)
        return self._bounds[sent]

    def _facts(self, sent: Packets) -> tuple[NodeFacts, Packet]:
        bound = self._bound(sent)
        return self.history.world.facts(bound.node), bound.packet

    def _since(self, sent: Packets, seen: Probed | FlowExchanged) -> float:
        return self.history.window(self._bound(sent).node, seen.at / SECOND)

    def _clusters(self, sent: Packets, seen: Probed | FlowExchanged) -> Iterator[api.Cluster]:
        return self.history.clusters(sent.to.service, self._since(sent, seen), seen.until / SECOND)

    def _was_lost_unseen(self, sent: Packets, at: float) -> bool:
        """True if a flow's frontend went unseen by its node's proxy: one that starts later cannot know whose it was.

        It knows the addresses that were cluster IPs, by their ServiceCIDR. A frontend that came back too shortly to be
        noticed changes nothing.
        """
        if sent.to.kind is TargetKind.CLUSTER_IP:
            return False
        at_node, removed = self._bound(sent).node, None
        for changed in self.history.changes(sent.to.service, at):
            if not self._has_frontend(sent, changed - _BEFORE):
                if removed is not None and changed <= self.history.window(at_node, removed):
                    return False
                removed = None
            elif removed is None:
                removed = changed
                if self.history.is_unseen(at_node, removed):
                    return True
        return False

    def _has_frontend(self, sent: Packets, at: float) -> bool:
        node, packet = self._facts(sent)
        (cluster,) = self.history.clusters(sent.to.service, at, at)
        return any(matched_ports(cluster, node, packet))

    def _require_answerable(self, sent: Packets, lawful: Expectation) -> None:
        """Raise `Unjudged` if some lawful outcome is one whose answer the sender cannot get."""
        instance, bound = self.history.instance, self._bound(sent)
        if not all(_is_answerable(instance, sent, bound, outcome) for outcome in lawful.outcomes):
            raise Unjudged("an answer could not return")

    def _blame(
        self,
        sent: Packets,
        seen: Probed | FlowExchanged,
        lawful: Expectation,
        opened: float | None = None,
    ) -> None:
        """Record what no state explains; ``opened``: when the flow began whose packet it is. Raises `Unjudged`."""
        bound = self._bound(sent)
        if self.history.changes_mode(bound.node, seen.at / SECOND):
            raise Unjudged("the mode changes")
        self._require_answerable(sent, lawful)
        begin, end = seen.at / SECOND, seen.until / SECOND
        if self.history.has_lost_link(begin if opened is None else opened, end):
            raise Unjudged("a link was down")
        connection = _sent_before(seen) and bound.packet.protocol is not Protocol.UDP
        if not connection and self.history.has_lost_rules(bound.node, begin):
            raise Unjudged("another program has removed the rules")
        if not connection and self.history.takes_no_connections(begin, end):
            raise Unjudged("connection tracking was full")
        if _DELETED in lawful.clauses and self._was_lost_unseen(sent, begin):
            raise Unjudged("its frontend went while no proxy could see it")
        changing = self.history.is_changing(sent.to.service, bound.node, begin, end)
        if _broke_off(seen, bound.packet) and changing:
            raise Unjudged("the rules may have changed between packet and answer")
        self.violations.append(
            Violation(
                at=begin,
                since=self._since(sent, seen),
                sent=sent,
                established=_sent_before(seen),
                lawful=outcomes_text(lawful.outcomes),
                seen=seen.text,
                clauses=lawful.clauses,
                source_only=not _endpoints(_outcomes(seen)).isdisjoint(_endpoints(lawful.outcomes)),
                changing=changing,
                faults=self.history.faults(bound.node, begin, end),
            )
        )


def _sent_before(seen: Probed | FlowExchanged) -> bool:
    return isinstance(seen, FlowExchanged) and not seen.opened


def _broke_off(seen: Probed | FlowExchanged, packet: Packet) -> bool:
    """True if an exchange broke off that no clause protects: all are protected on an established connection, but no datagram is."""
    if _sent_before(seen) and packet.protocol is not Protocol.UDP:
        return False
    return seen.text.endswith(ANSWER_LOST) or Failure.RESET in _outcomes(seen)


def _outcomes(seen: Probed | FlowExchanged) -> frozenset[Outcome]:
    """Outcomes that an observation is consistent with. Raises `Unjudged`."""
    if seen.unclear:
        raise Unjudged(seen.unclear)
    return frozenset(map(outcome_from_text, seen.outcomes))


def _endpoints(outcomes: Iterable[Outcome]) -> frozenset[tuple[Address, int]]:
    """Addresses and ports that a packet reached."""
    return frozenset((one.address, one.port) for one in outcomes if isinstance(one, Delivered))


def _is_answerable(instance: Instance, sent: Packets, bound: BoundPacket, outcome: Outcome) -> bool:
    """True if the sender can get an answer: an endpoint elsewhere that sees its address answers past the judging node."""
    if not isinstance(outcome, Delivered) or outcome.source is SourceIP.MASQUERADED:
        return True
    if sent.sender.kind in {VantageKind.POD, VantageKind.HOST} and sent.sender.node == bound.node:
        return True
    topology, family = instance.topology, instance.family
    here = {topology.pod_address[name][family] for name in topology.pods[bound.node]}
    return outcome.address in here | set(topology.local_addresses(bound.node, family))
