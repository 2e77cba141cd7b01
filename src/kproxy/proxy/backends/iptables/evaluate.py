"""Walk a `Ruleset` with the first packet of a connection: the kernel's part, played in memory.

The simulator testbed uses it; a netns test holds it to the kernel.  Pure.  It models
what the proxy's rules rely on: the order of hooks and tables, user chains, marks, NAT of the first
packet, ``recent`` lists.  It does not model time, fragments, ICMP errors or later packets.

Hooks (`man 8 iptables`, netfilter's nf_nat): a packet from elsewhere passes nat PREROUTING, then filter
INPUT or FORWARD by its *new* destination, and nat POSTROUTING when it goes on.  A packet of the node's
own passes nat OUTPUT, filter OUTPUT, nat POSTROUTING, and filter INPUT when it comes back by loopback.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TypeVar

from kproxy.model.network import Address, Network, Packet
from kproxy.proxy.backends.iptables.rules import Ruleset
from kproxy.proxy.backends.xtables.rules import (
    Accept,
    Chain,
    Conntrack,
    ConntrackStatus,
    Counted,
    Destination,
    DestinationIsLocal,
    DestinationNAT,
    Drop,
    GoesOn,
    Hook,
    InInterface,
    Jump,
    Mark,
    Masquerade,
    Match,
    OneIn,
    OrMark,
    RecentlySeen,
    Reject,
    RememberSource,
    Return,
    Rule,
    Source,
    SourceIsLocal,
    Table,
    Transport,
    XorMark,
)


class Fate(enum.Enum):
    """What became of a packet."""

    PASSED = "passed"
    REJECTED = "rejected"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True)
class PacketVerdict:
    """One thing that may become of a packet.

    ``destination`` and ``port`` as it leaves; ``rewritten``: by DNAT.  ``masqueraded``: its source is the
    node's.  ``path``: the chains it went through, in order.  ``affinity``: ``recent`` lists it entered.
    ``probability``: how likely it is, exactly (the kernel is given ten digits).
    """

    fate: Fate
    destination: Address
    port: int
    rewritten: bool
    masqueraded: bool
    path: tuple[str, ...]
    affinity: frozenset[str]
    probability: Fraction = field(default=Fraction(1), compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedNode:
    """What a rule may ask of the node: its addresses, and who is in which ``affinity_entries`` list."""

    addresses: frozenset[Address]
    affinity_entries: frozenset[tuple[str, Address]] = frozenset()

    def is_local(self, address: Address) -> bool:
        """Whether routing delivers the address to this node itself (all of 127/8 does)."""
        return address.is_loopback or address in self.addresses


@dataclass(frozen=True, slots=True)
class _State:
    packet: Packet
    interface: str | None
    mark: int = 0
    rewritten: bool = False
    masqueraded: bool = False
    path: tuple[str, ...] = ()
    affinity: frozenset[str] = frozenset()
    probability: Fraction = field(default=Fraction(1), compare=False)


class _End(enum.Enum):
    """How a walk through a chain ended."""

    THROUGH = enum.auto()
    RETURN = enum.auto()
    ACCEPT = enum.auto()
    DROP = enum.auto()
    REJECT = enum.auto()


_Walk = Iterator[tuple[_End, _State]]


def evaluate(ruleset: Ruleset, packet: Packet, machine: SimulatedNode) -> frozenset[PacketVerdict]:
    """Everything that may become of a new connection's first packet, random choices followed both ways."""
    start = _State(packet, packet.entry.interface)
    ways = _Evaluator(ruleset, machine).traverse(start)
    return frozenset(_merge_duplicates(_verdict(end, state) for end, state in ways))


Chancy = TypeVar("Chancy", PacketVerdict, _State)


def _merge_duplicates(found: Iterable[Chancy]) -> Iterator[Chancy]:
    """What came about in several ways once, with the chances of all."""
    chances: dict[Chancy, Fraction] = {}
    for one in found:
        chances[one] = chances.get(one, Fraction(0)) + one.probability
    return (replace(one, probability=chance) for one, chance in chances.items())


def _verdict(end: _End, state: _State) -> PacketVerdict:
    fate = {_End.DROP: Fate.DROPPED, _End.REJECT: Fate.REJECTED}.get(end, Fate.PASSED)
    packet = state.packet
    return PacketVerdict(
        fate,
        packet.destination,
        packet.port,
        state.rewritten,
        state.masqueraded,
        state.path,
        state.affinity,
        state.probability,
    )


@dataclass(frozen=True, slots=True)
class _Evaluator:
    ruleset: Ruleset
    machine: SimulatedNode

    def traverse(self, state: _State) -> _Walk:
        """Through all hooks on the packet's way."""
        if state.packet.entry.from_host:
            way = ((Table.NAT, Hook.OUTPUT), (Table.FILTER, Hook.OUTPUT), (Table.NAT, Hook.POSTROUTING))
            for end, sent in self._hooks(state, way):
                yield from self._loop_back(end, sent)
            return
        for end, arrived in self._hooks(state, ((Table.NAT, Hook.PREROUTING),)):
            yield from [(end, arrived)] if end in _FINAL else self._routed(arrived)

    def _routed(self, state: _State) -> _Walk:
        """From the routing decision on, which sees the new destination."""
        if self.machine.is_local(state.packet.destination):
            return self._hooks(state, ((Table.FILTER, Hook.INPUT),))
        return self._hooks(state, ((Table.FILTER, Hook.FORWARD), (Table.NAT, Hook.POSTROUTING)))

    def _loop_back(self, end: _End, state: _State) -> _Walk:
        """A packet of the node to itself: by loopback to INPUT; its NAT is already decided."""
        if end in _FINAL or not self.machine.is_local(state.packet.destination):
            return iter([(end, state)])
        return self._hooks(replace(state, interface="lo"), ((Table.FILTER, Hook.INPUT),))

    def _hooks(self, state: _State, hooks: Sequence[tuple[Table, Hook]]) -> _Walk:
        """Each hook in turn, until one discards the packet."""
        if not hooks:
            yield _End.THROUGH, state
            return
        (table, hook), *later = hooks
        for end, passed in self._chain(table, hook.value, state):
            yield from [(end, passed)] if end in _FINAL else self._hooks(passed, later)

    def _chain(self, table: Table, name: str, state: _State) -> _Walk:
        """Through one chain; `_End.THROUGH` when it ran out or returned."""
        chain = self.ruleset.tables.get(table, {}).get(name, Chain(name))
        states = [replace(state, path=(*state.path, name)) if chain.rules else state]
        for rule in chain.rules:
            going_on: list[_State] = []
            for current in states:
                for holds, tried in self._matches(rule.matches, current):
                    if not holds:
                        going_on.append(tried)
                        continue
                    for end, after in self._target(table, rule, tried, going_on):
                        yield (_End.THROUGH if end is _End.RETURN else end), after
            states = list(_merge_duplicates(going_on)) if len(going_on) > 1 else going_on
        for left in states:
            yield _End.THROUGH, left

    def _target(self, table: Table, rule: Rule, state: _State, continuing: list[_State]) -> _Walk:
        """Do what a rule says; states that go on to the next rule are put in ``continuing``."""
        match rule.target:
            case Jump(chain=chain):
                for end, back in self._chain(table, chain, state):
                    if end is _End.THROUGH:
                        continuing.append(back)
                    else:
                        yield end, back
            case OrMark(bits=bits):
                continuing.append(replace(state, mark=state.mark | bits))
            case XorMark(bits=bits):
                continuing.append(replace(state, mark=state.mark ^ bits))
            case final:
                yield _ended(final, state)

    def _matches(self, matches: Sequence[Match], state: _State) -> Iterator[tuple[bool, _State]]:
        """Whether all hold; both answers where chance decides."""
        if not matches:
            yield True, state
            return
        first, *others = matches
        match first:
            case OneIn(count=count):
                share = state.probability / count
                if count > 1:
                    yield False, replace(state, probability=state.probability - share)
                yield from self._matches(others, replace(state, probability=share))
            case RememberSource(name=name):
                yield from self._matches(others, replace(state, affinity=state.affinity | {name}))
            case _ if self._holds(first, state):
                yield from self._matches(others, state)
            case _:
                yield False, state

    def _holds(self, match: Match, state: _State) -> bool:
        packet = state.packet
        match match:
            case SourceIsLocal():
                return self.machine.is_local(packet.source)
            case DestinationIsLocal():
                return self.machine.is_local(packet.destination)
            case RecentlySeen(name=name):
                return (name, packet.source) in self.machine.affinity_entries
            case Transport(protocol=protocol, destination_port=port):
                return packet.protocol is protocol and port in {None, packet.port}
            case Source() | Destination() | InInterface() | Conntrack() | Mark():
                return _holds_unnegated(match, state) is not match.negated
            case Counted() | GoesOn():
                return True
            case OneIn() | RememberSource():
                raise AssertionError(match)


def _holds_unnegated(match: Negatable, state: _State) -> bool:
    """Whether a match holds, were it not negated."""
    match match:
        case Source(network=network):
            return _within(state.packet.source, network)
        case Destination(network=network):
            return _within(state.packet.destination, network)
        case InInterface(name=name):
            return _named(state.interface, name)
        case Conntrack(any_of=any_of):
            return bool(_conntrack_statuses(state) & set(any_of))
        case Mark(value=value, mask=mask):
            return state.mark & mask == value


def _ended(target: Final, state: _State) -> tuple[_End, _State]:
    """What a target does that ends the walk through its chain."""
    match target:
        case DestinationNAT(address=address, port=port):
            packet = replace(state.packet, destination=address, port=port)
            return _End.ACCEPT, replace(state, packet=packet, rewritten=True)
        case Masquerade():
            return _End.ACCEPT, replace(state, masqueraded=True)
        case Return():
            return _End.RETURN, state
        case Accept():
            return _End.ACCEPT, state
        case Drop():
            return _End.DROP, state
        case Reject():
            return _End.REJECT, state


Negatable = Source | Destination | InInterface | Conntrack | Mark
Final = DestinationNAT | Masquerade | Return | Accept | Drop | Reject
_FINAL = frozenset({_End.DROP, _End.REJECT})


def _conntrack_statuses(state: _State) -> set[ConntrackStatus]:
    """The packet is the first of its connection; DNAT once its destination was rewritten."""
    return {ConntrackStatus.NEW, ConntrackStatus.DNAT} if state.rewritten else {ConntrackStatus.NEW}


def _within(address: Address, network: Address | Network) -> bool:
    if address.version != network.version:
        return False
    return address == network if isinstance(network, Address) else address in network


def _named(interface: str | None, name: str) -> bool:
    if interface is None:
        return False
    return interface.startswith(name[:-1]) if name.endswith("+") else interface == name
