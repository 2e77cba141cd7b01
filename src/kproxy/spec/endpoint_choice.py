"""Which endpoints of a service port may answer: readiness, termination, locality, topology hints.

Part of the specification: from the endpoints and the node; the address of the Service does not matter.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from kproxy.spec.candidates import Candidate
from kproxy.spec.clauses import clause
from kproxy.spec.outcome import ClauseId
from kproxy.spec.services import Reasons


class EndpointScope(enum.Enum):
    """Where an endpoint may be."""

    CLUSTER = "anywhere in the cluster"
    NODE = "on the node the packet is at"


@dataclass(frozen=True, slots=True)
class NodeLocality:
    """The node a packet is at: its name and its zone (empty: no zone label)."""

    node: str
    zone: str


@dataclass(frozen=True, slots=True)
class EndpointChoice:
    """The endpoints that may answer (maybe none), and the clauses that decided."""

    endpoints: tuple[Candidate, ...]
    reasons: Reasons = ()


def choose_endpoints(
    endpoints: Iterable[Candidate], scope: EndpointScope, locality: NodeLocality
) -> EndpointChoice:
    """The endpoints that may answer a new connection in a scope."""
    everywhere = tuple(endpoints)
    if scope is EndpointScope.CLUSTER:
        return _choose_in_cluster(everywhere, locality)
    return _choose_on_node(everywhere, locality)


def _choose_in_cluster(endpoints: tuple[Candidate, ...], place: NodeLocality) -> EndpointChoice:
    """The ready ones that hints leave; with none ready, those that serve while they terminate."""
    ready = _ready(endpoints)
    if ready.endpoints:
        hinted = _by_hints(ready.endpoints, place)
        return EndpointChoice(
            hinted.endpoints, (*ready.reasons, *_unready_hints(endpoints, hinted, place), *hinted.reasons)
        )
    last = _terminating(endpoints)
    reasons: Reasons = (clause("endpoints.terminating.used-when-none-ready"),) if last else ()
    if last and _any_hints(endpoints):
        reasons += (clause("topology.terminating.hints-ignored"),)
    return EndpointChoice(last, reasons)


def _choose_on_node(endpoints: tuple[Candidate, ...], place: NodeLocality) -> EndpointChoice:
    """The node's own ready ones; with none ready here, its own that serve while they terminate."""
    here = tuple(e for e in endpoints if e.node == place.node)
    nowhere = any(e.usable and e.node is None for e in endpoints)
    reasons: Reasons = (clause("slices.endpoint.on-node-by-name"),) if nowhere else ()
    if _any_hints(endpoints):
        reasons += (clause("topology.local-policy.hints-ignored"),)
    ready = _ready(here)
    if ready.endpoints:
        return EndpointChoice(ready.endpoints, (*ready.reasons, *reasons))
    last = _terminating(here)
    if last:
        reasons += (clause("endpoints.terminating.used-when-none-ready-on-node"),)
    return EndpointChoice(last, reasons)


def _ready(endpoints: tuple[Candidate, ...]) -> EndpointChoice:
    """Endpoints that are ready, and the clauses on the condition ``ready`` or its absence."""
    ready = tuple(e for e in endpoints if e.ready)
    passed_over = [e for e in endpoints if not e.ready]
    signs = {
        "endpoints.conditions.missing-means-ready": any(not e.conditions_written for e in ready),
        "endpoints.ready-flag-trusted": any(e.terminating or not e.serving for e in ready),
        "endpoints.ready-only": any(not e.usable for e in passed_over),
        "endpoints.terminating.not-used-beside-ready": any(e.usable for e in passed_over),
    }
    return EndpointChoice(ready, tuple(clause(id) for id, holds in signs.items() if holds))


def _terminating(endpoints: tuple[Candidate, ...]) -> tuple[Candidate, ...]:
    return tuple(e for e in endpoints if e.serves_while_terminating)


def _any_hints(endpoints: Iterable[Candidate]) -> bool:
    return any(e.zones or e.nodes for e in endpoints)


def _by_hints(ready: tuple[Candidate, ...], place: NodeLocality) -> EndpointChoice:
    """Node hints first, then zone hints; a hint counts only if every ready endpoint has one of its kind."""
    on_node = tuple(e for e in ready if place.node in e.nodes)
    if on_node and all(e.nodes for e in ready):
        return EndpointChoice(on_node, (clause("topology.same-node"),))
    in_zone = tuple(e for e in ready if place.zone and place.zone in e.zones)
    if in_zone and all(e.zones for e in ready):
        return EndpointChoice(in_zone, _zone_reasons(ready, in_zone))
    return EndpointChoice(ready, _hints_not_followed(ready, place))


def _zone_reasons(ready: tuple[Candidate, ...], in_zone: tuple[Candidate, ...]) -> Reasons:
    reasons = [clause("topology.same-zone")]
    if any(len(e.zones) > 1 for e in in_zone):
        reasons.append(clause("topology.several-zones-in-hint"))
    if any(e.nodes for e in ready):
        reasons.append(clause("topology.no-node-match.zone-decides"))
    return tuple(reasons)


def _hints_not_followed(ready: tuple[Candidate, ...], place: NodeLocality) -> Reasons:
    """Clauses by which existing hints exclude no endpoint."""
    if not _any_hints(ready):
        return ()
    if any(e.zones for e in ready) and not place.zone:
        return (clause("topology.no-zone-label.all-endpoints"),)
    mixed = any(_some_without(getattr(e, kind) for e in ready) for kind in ("zones", "nodes"))
    return (clause("topology.missing-hint.all-endpoints" if mixed else "topology.no-match.all-endpoints"),)


def _some_without(hints: Iterable[frozenset[str]]) -> bool:
    given = [bool(hint) for hint in hints]
    return any(given) and not all(given)


def _unready_hints(
    endpoints: tuple[Candidate, ...], hinted: EndpointChoice, place: NodeLocality
) -> tuple[ClauseId, ...]:
    """Clause on hints of endpoints that are not ready, where they would have changed the choice."""
    counted = tuple(e for e in _by_hints(endpoints, place).endpoints if e.ready)
    return (clause("topology.unready-hints-ignored"),) if counted != hinted.endpoints else ()
