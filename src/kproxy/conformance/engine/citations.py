"""Clauses that an unlawful observation breaks, by its step and the kind of mismatch.

A step that checks one thing names its clauses itself; for any other new connection the oracle names those that its
verdict rests on. Pure; `kproxy.conformance.engine.runner` cites by it, and a unit test checks that every step of the
catalogue cites few.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping
from types import MappingProxyType

from kproxy.conformance.binding.bind import Instance
from kproxy.conformance.binding.world import World
from kproxy.conformance.case import (
    CheckHealth,
    CheckLatency,
    CheckProxy,
    CheckTraces,
    ContinuousProbe,
    Open,
    Ping,
    Probe,
    ReadSysctl,
    Reopen,
    Send,
    UnrelatedEntries,
)
from kproxy.spec.clauses import CLAUSES, SOURCE_CLAUSES, SOURCE_ONLY_CLAUSES, Level
from kproxy.spec.oracle import expect
from kproxy.spec.outcome import ClauseId

JudgedStep = (
    Probe
    | ContinuousProbe
    | Ping
    | Open
    | Send
    | Reopen
    | CheckHealth
    | CheckProxy
    | ReadSysctl
    | CheckTraces
    | UnrelatedEntries
    | CheckLatency
)
"""Steps that a finding may be of."""


class MismatchKind(enum.Enum):
    """Kind of difference between an observation and its step's expectation."""

    OUTCOME = "what became of the packet"
    ANSWER = "whether an answer came back"
    ENDPOINT = "which endpoint answered"
    SOURCE = "which source the endpoint saw"
    COVERAGE = "which endpoints were never reached"
    SHARES = "how often each endpoint was reached"
    AFFINITY = "whether a client keeps its endpoint"
    SOURCE_PORT = "from which port the endpoint was reached"
    FOREIGN_MARK = "which bits of another's mark were lost"
    OWN_MARK = "which bits were added to a mark"


_CLAUSES_BY_KIND: Mapping[MismatchKind, tuple[str, ...]] = MappingProxyType(
    {
        MismatchKind.COVERAGE: ("balancing.every-endpoint-chosen",),
        MismatchKind.SHARES: ("balancing.even",),
        MismatchKind.AFFINITY: ("affinity.client-ip.sticks", "affinity.client-ip.by-original-source"),
        MismatchKind.SOURCE_PORT: ("masquerade.source-ports.redrawn",),
        MismatchKind.FOREIGN_MARK: ("masquerade.foreign-mark-bits.kept",),
        MismatchKind.OWN_MARK: ("masquerade.own-mark.cleared",),
    }
)
"""Clauses that are broken by one kind of mismatch only."""

_GENERAL = (
    ".reaches-ready-endpoint",
    ".from-outside.served",
    ".every-node.served",
    ".addresses.inside-configured.served",
    "protocol.udp.served",
    "protocol.sctp.served",
    "traffic.not-for-a-service.untouched",
)
"""Suffixes of general clauses ("is delivered" or "is left alone"); not cited where a step names a more specific clause."""

_OF_ONE_KIND = frozenset(name for names in _CLAUSES_BY_KIND.values() for name in names)


def cited_clauses(instance: Instance, world: World, step: JudgedStep, kind: MismatchKind) -> tuple[str, ...]:
    """Clauses that are broken by this kind of mismatch of the step; never empty.

    ``world``: the objects at the time the step is judged.
    """
    case = instance.case
    shown = _CLAUSES_BY_KIND.get(kind, ())
    own = [name for name in step.clauses if name in shown or name not in _OF_ONE_KIND]
    special = own if set(shown).intersection(own) else [name for name in shown if name in case.clauses]
    answered = _oracle_clauses(instance, world, step)
    match kind:
        case MismatchKind.OUTCOME | MismatchKind.ANSWER | MismatchKind.ENDPOINT:
            about = _clauses_on(kind, answered)
            found = [*own, *specific_clauses(about)] if own else about
        case MismatchKind.SOURCE:
            found = _clauses_on(kind, answered) or own
        case MismatchKind.COVERAGE:
            found = [*own, *specific_clauses(_clauses_on(kind, answered)), *special]
        case MismatchKind.AFFINITY:
            found = own or special
        case _:
            found = special or own
    return tuple(sorted(_breakable(found or answered or step.clauses or case.clauses)))


def _oracle_clauses(instance: Instance, world: World, step: JudgedStep) -> list[str]:
    """Clauses of the case that the oracle derives the verdict of a new connection from; none for other steps."""
    if not isinstance(step, Probe | Open):
        return []
    packets = (
        instance.bound_packet(step.sender, step.to),
        instance.packet_at_sender_node(step.sender, step.to),
    )
    return [
        name
        for bound in packets
        if bound is not None
        for name in expect(world.cluster(bound.node), world.facts(bound.node), bound.packet).clauses
        if name in instance.case.clauses
    ]


def _clauses_on(kind: MismatchKind, names: Collection[str]) -> list[str]:
    """Clauses relevant to a kind of mismatch: source clauses for a wrong source.

    All for a missing reply, since a packet that was not rewritten is answered past the node; all but source-only
    clauses otherwise.
    """
    match kind:
        case MismatchKind.SOURCE:
            return [name for name in names if name in SOURCE_CLAUSES]
        case MismatchKind.ANSWER:
            return list(names)
        case _:
            return [name for name in names if name not in SOURCE_ONLY_CLAUSES]


def specific_clauses(names: Collection[str]) -> list[str]:
    """Clauses that are more specific than delivery as such, or the source."""
    return [name for name in names if not name.endswith(_GENERAL) and name not in SOURCE_ONLY_CLAUSES]


def _breakable(names: Collection[str]) -> set[str]:
    """Clauses without those that allow several outcomes, where there are others."""
    binding = {
        name for name in names if name not in CLAUSES or CLAUSES[ClauseId(name)].level is not Level.MAY
    }
    return binding or set(names)
