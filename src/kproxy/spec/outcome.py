"""Outcomes of a packet: the vocabulary that the oracle, the cases and the lab share.

Pure values.  Nothing here decides anything.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import NewType

from kproxy.model.network import Address

ClauseId = NewType("ClauseId", str)


class SourceIP(enum.Enum):
    """Which source address the endpoint sees."""

    PRESERVED = "preserved"
    MASQUERADED = "masqueraded"


@dataclass(frozen=True, slots=True)
class Delivered:
    """The packet reached this endpoint, and the client got its reply from the address it sent to."""

    address: Address
    port: int
    source: SourceIP


class Failure(enum.Enum):
    """The ways not to be delivered; distinguishable on the wire."""

    REJECTED = "rejected"
    """ICMP port unreachable (IPv4 type 3 code 3, IPv6 type 1 code 4); never a TCP RST."""
    DROPPED = "dropped"
    """Silence, and nothing went on beyond the node."""
    UNTOUCHED = "untouched"
    """The service proxy left it alone: ordinary routing took it on, or the node's own socket got it."""
    RESET = "reset"
    """A TCP RST."""


Outcome = Delivered | Failure


@dataclass(frozen=True, slots=True)
class Expectation:
    """The lawful outcomes of a packet, and the clauses that allow them (never empty)."""

    outcomes: frozenset[Outcome]
    clauses: tuple[ClauseId, ...]
