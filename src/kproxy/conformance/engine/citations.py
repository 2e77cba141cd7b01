"""Which clauses an unlawful observation breaks, by its step and the respect in which it differs.

A step that checks one thing names its clauses itself; of any other new connection the oracle names those that
its answer rests on.  Pure; `kproxy.conformance.engine.runner` cites by it, and a unit test holds every step of the catalogue to few.
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
    | UnrelatedEntries
    | CheckLatency
)
"""Steps that a finding may be of."""


class MismatchKind(enum.Enum):
    """In which respect an observation differs from what its step expects."""

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
"""Clauses that one respect alone shows."""

_GENERAL = (
    ".reaches-ready-endpoint",
    ".from-outside.served",
    ".every-node.served",
    ".addresses.inside-configured.served",
    "protocol.udp.served",
    "protocol.sctp.served",
    "traffic.not-for-a-service.untouched",
)
"""Ends of clauses that say only that somebody answers, or nobody: where a step is about one thing, that says as much."""

_OF_ONE_KIND = frozenset(name for names in _CLAUSES_BY_KIND.values() for name in names)


def cited_clauses(instance: Instance, world: World, step: JudgedStep, kind: MismatchKind) -> tuple[str, ...]:
    """The clauses that are broken when an observation of the step differs in that respect; never empty.

    ``world``: the objects as they are when the step is judged.
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
    """The clauses of the case that the oracle answers a new connection by; none for other steps."""
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
    """Those of them on the source where that differs; all others where it cannot matter.

    Where an answer is lost it may: what is not rewritten is answered past the node.
    """
    match kind:
        case MismatchKind.SOURCE:
            return [name for name in names if name in SOURCE_CLAUSES]
        case MismatchKind.ANSWER:
            return list(names)
        case _:
            return [name for name in names if name not in SOURCE_ONLY_CLAUSES]


def specific_clauses(names: Collection[str]) -> list[str]:
    """Those of the clauses that say more than that somebody answers, and from which source."""
    return [name for name in names if not name.endswith(_GENERAL) and name not in SOURCE_ONLY_CLAUSES]


def _breakable(names: Collection[str]) -> set[str]:
    """Without clauses that leave several answers open, where there are others."""
    binding = {
        name for name in names if name not in CLAUSES or CLAUSES[ClauseId(name)].level is not Level.MAY
    }
    return binding or set(names)
