"""What every simulated backend offers: a node's rules for a plan, and what becomes of a packet that walks them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from kproxy.model.network import Address, Packet
from kproxy.proxy.plan import Plan
from kproxy.spec.outcome import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """What rules may ask of the node: its addresses, and what they themselves remember of clients (list, source)."""

    addresses: frozenset[Address]
    recent: frozenset[tuple[str, Address]]


@dataclass(frozen=True, slots=True)
class Walked:
    """One thing that may become of a packet.

    ``by``: the chains of ours it went through.  ``remembered``: the lists its source was put in.  ``chance``: how
    likely it is.
    """

    outcome: Outcome
    by: tuple[str, ...]
    remembered: frozenset[str]
    chance: Fraction


PacketWalk = Callable[[Packet, NodeView], tuple[Walked, ...]]
"""All that may become of a connection's first packet at a node."""

Compile = Callable[[Plan, int], PacketWalk]
"""A plan and the mark that asks for masquerading, as rules to be walked."""
