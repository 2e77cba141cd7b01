"""Lawful outcomes in names. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from kproxy.spec.outcome import Failure, SourceIP


@dataclass(frozen=True, slots=True)
class ReachedEndpoint:
    """Delivery to a pod (or node), with the source preserved or not; bound to `kproxy.spec.outcome.Delivered`.

    ``many``: any of so many endpoints on it, as `CaseEndpoint.many` has them.
    """

    on: str
    source: SourceIP
    shift: int = 0
    service: str = ""
    """Service whose endpoint it is, where that is not the target's."""
    first: int = 0
    many: int = 0


SymbolicOutcome = ReachedEndpoint | Failure
Lawful = frozenset[SymbolicOutcome]

PRESERVED = SourceIP.PRESERVED
MASQUERADED = SourceIP.MASQUERADED
REJECTED: Lawful = frozenset({Failure.REJECTED})
DROPPED: Lawful = frozenset({Failure.DROPPED})
UNTOUCHED: Lawful = frozenset({Failure.UNTOUCHED})
RESET: Lawful = frozenset({Failure.RESET})


def delivered_to(*on: str, source: SourceIP = PRESERVED, shift: int = 0, service: str = "") -> Lawful:
    """Delivered to one of these pods (or nodes), which sees the client's own address or the node's.

    ``service``: the Service whose endpoints they are, if not that of the target.
    """
    return frozenset(ReachedEndpoint(name, source, shift, service) for name in on)


def delivered_to_many(on: str, many: int, *, first: int = 0, source: SourceIP = PRESERVED) -> Lawful:
    """Delivered to any of so many endpoints on a pod."""
    return frozenset({ReachedEndpoint(on, source, first=first, many=many)})
