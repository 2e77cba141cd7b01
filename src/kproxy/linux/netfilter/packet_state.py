"""A packet on its way: what rules can read of it, and what has become of it so far.  Pure."""

from __future__ import annotations

import enum
from collections.abc import Callable
from fractions import Fraction

import msgspec
from msgspec.structs import replace

from kproxy.linux.netfilter.node_state import ClientEntry, TracedNode
from kproxy.linux.netfilter.patterns import FieldName, FieldOf, Masked, Selector, Value
from kproxy.model.network import Address, Family, family_of


class TracedPacket(msgspec.Struct, frozen=True, gc=False):
    """The first packet of a connection.

    ``interface``: by which it comes in; empty: the node itself sends it; None: not known.
    """

    source: Address
    destination: Address
    protocol: str
    port: int
    interface: str | None = ""
    source_port: int = 40000

    @property
    def own(self) -> bool:
        """True if the node itself is the sender."""
        return self.interface == ""

    @property
    def family(self) -> Family:
        """The family of both addresses."""
        return family_of(self.destination)


class Effect(enum.Enum):
    """Effect of a step of the way on the packet."""

    NONE = "none"
    IDLE = "idle"
    MARK = "mark"
    TRANSLATED = "translated"
    MASQUERADED = "masqueraded"
    DISCARDED = "discarded"


class TraceStep(msgspec.Struct, frozen=True, gc=False):
    """One step of the way.  `Effect.IDLE`: a chain that was walked and did nothing."""

    chain: str
    rule: str
    description: str
    text: str = ""
    comment: str = ""
    effect: Effect = Effect.NONE


class Tracking(enum.Enum):
    """State of connection tracking for a packet, which it sees at priority -200 of PREROUTING and OUTPUT."""

    NOT_YET = "not yet"
    YES = "yes"
    NEVER = "never"


class PacketState(msgspec.Struct, frozen=True, gc=False):
    """A packet somewhere on its way.

    ``out``: the interface it leaves by; empty: before routing; None: no route is known.  ``mark``: None:
    something that is not modelled.  ``to_node``: it was sent to whatever address of the node.  ``remembered``: what lists of
    clients have because of it.  ``conditions``: assumptions that were followed both ways, and which of both this is.
    ``assumed``: what is taken for granted.  ``chance``: the share of connections that go this way, among those of the same conditions.
    """

    packet: TracedPacket
    original: TracedPacket
    out: str | None = ""
    mark: int | None = 0
    connection_mark: int | None = 0
    translated: bool = False
    to_node: bool = False
    masqueraded: str = ""
    tracked: Tracking = Tracking.NOT_YET
    by_ipvs: bool = False
    remembered: frozenset[ClientEntry] = frozenset()
    chance: Fraction = Fraction(1)
    steps: tuple[TraceStep, ...] = ()
    conditions: frozenset[tuple[str, bool]] = frozenset()
    assumed: frozenset[str] = frozenset()

    def with_step(self, step: TraceStep) -> PacketState:
        """With one more step."""
        return replace(self, steps=(*self.steps, step))

    def assuming(self, what: str) -> PacketState:
        """Taking one more thing for granted."""
        return replace(self, assumed=self.assumed | {what})

    def with_condition(self, condition: str, held: bool) -> PacketState:  # noqa: FBT001 (which of both it is)
        """One of both ways of what is not known."""
        return replace(self, conditions=self.conditions | {(condition, held)})

    def effect(self) -> PacketState:
        """Without how it came about: to tell whether anything was done."""
        return replace(self, steps=(), conditions=frozenset(), assumed=frozenset(), chance=Fraction(1))


class FieldAbsent(Exception):
    """No error: the packet has no such field, and a rule that matches on it does not hold."""


def read_selector(selector: Selector, state: PacketState, node: TracedNode) -> Value | None:
    """The value that a rule reads; None: that is not known.  Raises `FieldAbsent`."""
    if isinstance(selector, FieldName):
        if selector in _OF_CONNECTION and state.tracked is not Tracking.YES:
            raise FieldAbsent
        return _READERS[selector](state, node)
    match selector:
        case FieldOf(field, protocol, family):
            if (protocol and state.packet.protocol != protocol) or (
                family is not None and state.packet.family is not family
            ):
                raise FieldAbsent
            return read_selector(field, state, node)
        case Masked(field, mask):
            value = read_selector(field, state, node)
            return value & mask if isinstance(value, int) else None
        case _:
            return None


def _status(state: PacketState) -> frozenset[str]:
    translated = {"dnat"} if state.translated else set()
    return frozenset({"snat", *translated} if state.masqueraded else translated)


def _state(state: PacketState) -> Value:
    """The states; iptables counts DNAT and SNAT among them (man 8 iptables-extensions, conntrack).

    What conntrack has not seen yet counts as invalid (linux/net/netfilter/nft_ct.c, xt_conntrack.c).
    """
    match state.tracked:
        case Tracking.YES:
            return frozenset({"new"}) | _status(state)
        case Tracking.NEVER:
            return frozenset({"untracked"})
        case Tracking.NOT_YET:
            return frozenset({"invalid"})


_OF_CONNECTION = frozenset(
    {
        FieldName.STATUS,
        FieldName.DIRECTION,
        FieldName.CONNECTION_MARK,
        FieldName.ORIGINAL_SOURCE,
        FieldName.ORIGINAL_DESTINATION,
        FieldName.ORIGINAL_PORT,
        FieldName.ORIGINAL_PROTOCOL,
    }
)
"""Fields that a packet without a connection does not have."""


_READERS: dict[FieldName, Callable[[PacketState, TracedNode], Value | None]] = {
    FieldName.STATE: lambda state, _: _state(state),
    FieldName.STATUS: lambda state, _: _status(state),
    FieldName.OUT: lambda state, _: state.out,
    FieldName.IN: lambda state, _: state.packet.interface,
    FieldName.SOURCE: lambda state, _: state.packet.source,
    FieldName.DESTINATION: lambda state, _: state.packet.destination,
    FieldName.PROTOCOL: lambda state, _: state.packet.protocol,
    FieldName.SOURCE_PORT: lambda state, _: state.packet.source_port,
    FieldName.PORT: lambda state, _: state.packet.port,
    FieldName.MARK: lambda state, _: state.mark,
    FieldName.CONNECTION_MARK: lambda state, _: state.connection_mark,
    FieldName.FAMILY: lambda state, _: "ipv4" if state.packet.family is Family.IPV4 else "ipv6",
    FieldName.DIRECTION: lambda *_: "original",
    FieldName.ORIGINAL_SOURCE: lambda state, _: state.original.source,
    FieldName.ORIGINAL_DESTINATION: lambda state, _: state.original.destination,
    FieldName.ORIGINAL_PORT: lambda state, _: state.original.port,
    FieldName.ORIGINAL_PROTOCOL: lambda state, _: state.original.protocol,
    FieldName.SOURCE_TYPE: lambda state, node: node.type_of(state.packet.source),
    FieldName.DESTINATION_TYPE: lambda state, node: node.type_of(state.packet.destination),
    FieldName.TCP_FLAGS: lambda *_: frozenset({"syn"}),
}
"""A connection's first packet: new, in the original direction, a SYN."""
