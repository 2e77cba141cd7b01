"""What may be seen: outcomes in names.  Pure."""

from __future__ import annotations

from dataclasses import dataclass

from kproxy.spec.outcome import Failure, Source


@dataclass(frozen=True, slots=True)
class ReachedBackend:
    """The symbolic twin of `kproxy.spec.outcome.Delivered`: which pod (or node), source kept or not."""

    on: str
    source: Source
    shift: int = 0


Seen = ReachedBackend | Failure
Lawful = frozenset[Seen]

PRESERVED = Source.PRESERVED
MASQUERADED = Source.MASQUERADED
REJECTED: Lawful = frozenset({Failure.REJECTED})
DROPPED: Lawful = frozenset({Failure.DROPPED})
UNTOUCHED: Lawful = frozenset({Failure.UNTOUCHED})
RESET: Lawful = frozenset({Failure.RESET})


def delivered_to(*on: str, source: Source = PRESERVED, shift: int = 0) -> Lawful:
    """Delivered to one of these pods (or nodes), which sees the client's own address or the node's."""
    return frozenset(ReachedBackend(name, source, shift) for name in on)
