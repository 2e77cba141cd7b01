"""A simulated kernel of one node and family, and what becomes of a packet there, in the specification's terms.

A backend's kernel is given what the real one would be given, and holds it as netfilter's model; the walk is that of
`kproxy.linux.netfilter`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

from kproxy.conformance.testbed import HarnessError
from kproxy.linux.netfilter.node_state import ClientEntry, TracedNode
from kproxy.linux.netfilter.packet_path import PacketPath, follow_packet
from kproxy.linux.netfilter.packet_state import Effect, TracedPacket
from kproxy.linux.netfilter.walk import PathFate
from kproxy.model.network import Address, Family, Packet
from kproxy.proxy.plan import Plan
from kproxy.spec.outcome import Delivered, Failure, Outcome, SourceIP


class SimulatedKernel(Protocol):
    """The packet filter of one node and family, which a backend programs."""

    def apply(self, plan: Plan, addresses: frozenset[Address]) -> None:
        """Give it what the backend writes for a plan on a node with these addresses."""

    def walk(self, packet: Packet, view: NodeView) -> Sequence[Walked]:
        """All that may become of a connection's first packet."""


@dataclass(frozen=True, slots=True)
class NodeView:
    """State of the node that rules may read: its addresses, and what earlier packets have left in lists of clients."""

    addresses: frozenset[Address]
    remembered: frozenset[ClientEntry]


OpenKernel = Callable[[Family, int], SimulatedKernel]
"""An empty kernel of a family; the number is the mark that asks for masquerading."""


@dataclass(frozen=True, slots=True)
class Walked:
    """One thing that may become of a packet.

    ``chains``: those in which something was done to it.  ``remembered``: what lists of clients have because of it.
    ``chance``: how likely it is.
    """

    outcome: Outcome
    chains: tuple[str, ...]
    remembered: frozenset[ClientEntry]
    chance: Fraction


def walk_packet(node: TracedNode, packet: Packet) -> list[Walked]:
    """All that may become of a connection's first packet at a node.  Raises `HarnessError` for what is not modelled.

    The node sends from the address it sends to, where that is its own by a device of the proxy.
    """
    own_address = packet.entry.from_host and bool(node.virtual_servers) and node.is_local(packet.destination)
    traced = TracedPacket(
        packet.destination if own_address else packet.source,
        packet.destination,
        packet.protocol.value.lower(),
        packet.port,
        packet.entry.interface or "",
    )
    return [_walked(path) for path in follow_packet(node, traced)]


def _walked(path: PacketPath) -> Walked:
    state = path.state
    if path.fate is PathFate.UNKNOWN or state.conditions:
        last = state.steps[-1].description if state.steps else ""
        unknown = sorted(condition for condition, _ in state.conditions)
        raise HarnessError(f"the model of netfilter does not know: {'; '.join(unknown) or last}")
    chains = dict.fromkeys(step.chain for step in state.steps if step.effect is not Effect.IDLE)
    return Walked(_outcome(path), tuple(chains), state.remembered, state.chance)


def _outcome(path: PacketPath) -> Outcome:
    state = path.state
    match path.fate:
        case PathFate.REJECTED:
            return Failure.REJECTED
        case PathFate.DROPPED:
            return Failure.DROPPED
        case _ if state.translated or (state.masqueraded and not path.delivered):
            source = SourceIP.MASQUERADED if state.masqueraded else SourceIP.PRESERVED
            return Delivered(state.packet.destination, state.packet.port, source)
        case _:
            return Failure.UNTOUCHED
