"""The oracle of flows that last: a connection, or a client's socket that keeps its port, which an endpoint answered before.

Part of the specification, for `kproxy.universes`. A node's rules reflect one of several states of the cluster, and
`EstablishedFlow` is given one after the other: each may allow more. What becomes of the first packet of a flow is decided by
`kproxy.spec.oracle`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from kproxy.model import api
from kproxy.model.network import Packet, Protocol
from kproxy.spec.candidates import endpoint_candidates
from kproxy.spec.clauses import clause
from kproxy.spec.node import NodeFacts
from kproxy.spec.oracle import expect, matched_ports
from kproxy.spec.outcome import ClauseId, Delivered, Expectation, Failure, Outcome

_ENDED = frozenset({Failure.RESET, Failure.REJECTED, Failure.DROPPED, Failure.UNTOUCHED})
"""Outcomes of a connection to a frontend that is gone: no clause says that it goes on, none that it ends."""


@dataclass(slots=True)
class EstablishedFlow:
    """Lawful outcomes of the next packet of a flow, in the states given so far.

    ``last``: the outcome before, as `Delivered` of one endpoint with each source that it may have seen.
    """

    node: NodeFacts
    packet: Packet
    last: frozenset[Delivered]
    _anew: set[Outcome] = field(default_factory=set)
    """Outcomes of a new flow."""
    _may_stay: bool = False
    _must_stay: bool = True
    _served: bool = True
    """True if the destination was a Service's in all states."""

    def allow(self, cluster: api.Cluster) -> None:
        """Add a state that may be in effect."""
        matched = list(matched_ports(cluster, self.node, self.packet))
        self._served &= bool(matched)
        if self.packet.protocol is not Protocol.UDP:
            return
        places = {(one.address, one.port) for one in self.last}
        behind = [
            found
            for one in matched
            for found in endpoint_candidates(cluster, one.service, one.port, self.packet.family).endpoints
            if (found.address, found.port) in places
        ]
        self._may_stay |= any(found.ready or found.serving for found in behind)
        self._must_stay &= any(found.usable for found in behind)
        self._anew |= expect(cluster, self.node, self.packet).outcomes

    def allows(self, seen: Collection[Outcome]) -> bool:
        """True if an observation that is consistent with these outcomes is lawful.

        Where a frontend goes, its address may leave the node, and with it the source of the node's own sockets: anything may be
        seen then, also what is no outcome.
        """
        if not self._served and not seen:
            return True
        return not self.expectation.outcomes.isdisjoint(seen)

    @property
    def expectation(self) -> Expectation:
        """Lawful outcomes, and the clauses."""
        if self.packet.protocol is not Protocol.UDP:
            return Expectation(self.last | (frozenset() if self._served else _ENDED), _of_connections())
        if self._must_stay:  # source ranges may hold for all packets of a flow, or for its first one only
            dropped = self._anew & {Failure.DROPPED}
            return Expectation(self.last | dropped, (clause("conntrack.udp.stays-on-policy-change"),))
        staying = self.last if self._may_stay else frozenset()
        return Expectation(frozenset(self._anew) | staying, self._reasons_to_move())

    def _reasons_to_move(self) -> tuple[ClauseId, ...]:
        if not self._served:
            return (clause("conntrack.udp.not-to-endpoint-of-deleted-service"),)
        if not any(isinstance(outcome, Delivered) for outcome in self._anew):
            return (clause("conntrack.udp.not-to-dead-endpoint-when-none-left"),)
        return (
            clause("conntrack.udp.moves-off-removed-endpoint"),
            clause("conntrack.udp.moves-off-old-target-port"),
            clause("conntrack.udp.stays-with-serving-terminating-endpoint"),
        )


def _of_connections() -> tuple[ClauseId, ...]:
    return (
        clause("established.survives-endpoint-change"),
        clause("established.survives-removal-of-its-endpoint"),
        clause("established.survives-policy-change"),
        clause("established.survives-source-range-change"),
        clause("established.survives-proxy-restart"),
    )
