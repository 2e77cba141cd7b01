"""Result of a trace: paths of a packet through a node's rules, grouped by its fate.  Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from kproxy.linux.netfilter.node_state import TracedNode
from kproxy.linux.netfilter.packet_path import PacketPath, follow_packet
from kproxy.linux.netfilter.packet_state import Effect, TracedPacket, TraceStep
from kproxy.linux.netfilter.walk import PathFate
from kproxy.model.network import Address
from kproxy.tools.trace import service


@dataclass(frozen=True, slots=True)
class Decision:
    """Possible fate of the packet, with probability ``chance`` among connections under the same ``conditions``.

    ``destination`` and ``port`` after translation; ``delivered``: to the node's own sockets; ``how``: the action that
    rejected or dropped it.
    """

    fate: PathFate
    destination: Address
    port: int
    translated: bool
    masqueraded: str
    delivered: bool
    out: str | None
    how: str
    by: str
    conditions: frozenset[tuple[str, bool]]
    chance: Fraction

    @property
    def kind(self) -> str:
        """``translated``, ``rejected``, ``dropped``, ``untouched`` (none of these), or ``unknown``."""
        refused = {PathFate.REJECTED: "rejected", PathFate.DROPPED: "dropped", PathFate.UNKNOWN: "unknown"}
        return refused.get(self.fate, "translated" if self.translated else "untouched")


@dataclass(frozen=True, slots=True, kw_only=True)
class RelaySocket:
    """A relay's socket that a decision leads to, in one of the relay's processes.

    ``endpoint``: address and port of the one that the client's next connection is tried at, by its affinity if ``bound``, else the
    next in turn; ``source_kept``: it sees the client's address.  ``open``: endpoints of what the client has open, with the number of
    connections or flows.
    """

    destination: Address
    port: int
    process: str
    service: str
    pool: str
    endpoint: tuple[str, int]
    bound: bool
    source_kept: bool
    open: tuple[tuple[tuple[str, int], int], ...]


@dataclass(frozen=True, slots=True)
class TraceResult:
    """The packet, its possible fates and paths, the Service ports that rules on the paths name, and sockets of a relay."""

    packet: TracedPacket
    decisions: tuple[Decision, ...]
    paths: tuple[PacketPath, ...]
    services: tuple[str, ...]
    assumed: tuple[str, ...]
    relays: tuple[RelaySocket, ...] = ()

    @property
    def taken(self) -> bool:
        """True if some rule affects the packet."""
        return any(
            one.translated or one.masqueraded or one.fate is not PathFate.THROUGH for one in self.decisions
        )


def trace_packet(node: TracedNode, packet: TracedPacket, assumed: Sequence[str] = ()) -> TraceResult:
    """Trace the first packet of a connection through a node's rules."""
    ways = tuple(follow_packet(node, packet))
    decisions: dict[tuple[object, ...], Decision] = {}
    for way in ways:
        made = _decision(way)
        key = (
            made.fate,
            made.destination,
            made.port,
            made.masqueraded,
            made.delivered,
            made.how,
            made.conditions,
        )
        known = decisions.get(key)
        decisions[key] = made if known is None else _more(known, made)
    unreached = sorted(table.label for table in node.tables if not table.families)
    decisive = [
        *assumed,
        *(f"table {label} changes nothing: its hooks are not modelled" for label in unreached),
        *sorted({one for way in ways for one in way.state.assumed}),
    ]
    ordered = sorted(
        decisions.values(), key=lambda one: (sorted(one.conditions), one.destination.packed, one.port)
    )
    return TraceResult(
        packet, tuple(ordered), ways, service.service_names(way.state for way in ways), tuple(decisive)
    )


def _more(known: Decision, made: Decision) -> Decision:
    by = known.by if known.by == made.by else ""
    return replace(known, by=by, chance=known.chance + made.chance)


def _decision(way: PacketPath) -> Decision:
    state = way.state
    wanted = Effect.DISCARDED if way.fate is not PathFate.THROUGH else Effect.TRANSLATED
    decisive = next((note for note in reversed(state.steps) if note.effect is wanted), None)
    return Decision(
        way.fate,
        state.packet.destination,
        state.packet.port,
        state.translated,
        state.masqueraded,
        way.delivered,
        state.out,
        decisive.description if decisive is not None and way.fate is not PathFate.THROUGH else "",
        "" if decisive is None else step_location(decisive),
        state.conditions,
        state.chance,
    )


def step_location(note: TraceStep) -> str:
    """Chain and rule of a step."""
    return f"{note.chain} {note.rule}".strip()
