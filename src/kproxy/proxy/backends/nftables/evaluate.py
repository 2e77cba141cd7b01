"""Walk our `SimulatedTable` with the first packet of a connection: the kernel's part, played in memory.

The simulator testbed uses it; the netns testbed holds it to the kernel.  Pure.  It models what our
rules rely on: hooks in the order of their priorities, jumps and gotos, sets, maps and verdict maps, random numbers
(all followed), marks, NAT of the first packet, sets that rules fill.  It does not model time, fragments,
ICMP errors or later packets.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from ipaddress import IPv4Network, IPv6Network

from kproxy.model.network import Address, Packet
from kproxy.proxy.backends.nftables.rules import (
    AddressIsLocal,
    AddressWithin,
    CollectionName,
    Constant,
    Dispatch,
    Drop,
    ElementKey,
    Ending,
    Field,
    GoesOn,
    Goto,
    Hook,
    HookPoint,
    InInterface,
    InSet,
    IsInvalid,
    IsNew,
    IsTranslated,
    Jump,
    Key,
    Marked,
    Masquerade,
    OfProtocol,
    OneIn,
    Part,
    Random,
    Reject,
    Remember,
    Rule,
    SetMark,
    Step,
    ToggleMark,
    Translate,
    TranslateBy,
    Value,
)
from kproxy.proxy.backends.nftables.table import SimulatedTable


class Fate(enum.Enum):
    """What became of a packet."""

    PASSED = "passed"
    REJECTED = "rejected"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True)
class PacketVerdict:
    """One thing that may become of a packet.

    ``destination`` and ``port`` as it leaves; ``rewritten``: by DNAT.  ``masqueraded``: its source is the
    node's.  ``path``: the chains it went through, in order.  ``affinity``: the numbers of endpoints that know it now.
    ``probability``: how likely it is.
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
    """What a rule may ask of the node: its addresses, and which endpoint (by number) knows whom."""

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
    ACCEPT = enum.auto()
    DROP = enum.auto()
    REJECT = enum.auto()


_Walk = Iterator[tuple[_End, _State]]
_FINAL = frozenset({_End.DROP, _End.REJECT})


def evaluate(table: SimulatedTable, packet: Packet, machine: SimulatedNode) -> frozenset[PacketVerdict]:
    """Everything that may become of a new connection's first packet, random choices followed all ways."""
    start = _State(packet, packet.entry.interface)
    chances: dict[PacketVerdict, Fraction] = {}
    for end, state in _Evaluator(table, machine).traverse(start):
        verdict = _verdict(end, state)
        chances[verdict] = chances.get(verdict, Fraction(0)) + state.probability
    return frozenset(replace(verdict, probability=chance) for verdict, chance in chances.items())


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
    )


@dataclass(frozen=True, slots=True)
class _Evaluator:
    table: SimulatedTable
    machine: SimulatedNode

    def traverse(self, state: _State) -> _Walk:
        """Through all hooks on the packet's way."""
        if state.packet.entry.from_host:
            for end, sent in self._points(state, (HookPoint.OUTPUT, HookPoint.POSTROUTING)):
                yield from self._loop_back(end, sent)
            return
        for end, arrived in self._points(state, (HookPoint.PREROUTING,)):
            yield from [(end, arrived)] if end in _FINAL else self._routed(arrived)

    def _routed(self, state: _State) -> _Walk:
        """From the routing decision on, which sees the new destination.

        It discards what comes from elsewhere for a loopback address: nobody here sets ``route_localnet``.
        """
        if state.packet.destination.is_loopback:
            return iter([(_End.DROP, state)])
        if self.machine.is_local(state.packet.destination):
            return self._points(state, (HookPoint.INPUT,))
        return self._points(state, (HookPoint.FORWARD, HookPoint.POSTROUTING))

    def _loop_back(self, end: _End, state: _State) -> _Walk:
        """A packet of the node to itself: by loopback to INPUT; its NAT is already decided."""
        if end in _FINAL or not self.machine.is_local(state.packet.destination):
            return iter([(end, state)])
        return self._points(replace(state, interface="lo"), (HookPoint.INPUT,))

    def _points(self, state: _State, points: tuple[HookPoint, ...]) -> _Walk:
        hooked = [chain for point in points for chain in self._hooked(point)]
        return self._hooks(state, tuple(hooked))

    def _hooked(self, point: HookPoint) -> list[str]:
        found: list[tuple[Hook, str]] = [
            (chain.hook, name)
            for name, chain in self.table.chains.items()
            if chain.hook is not None and chain.hook.point is point
        ]
        return [name for _, name in sorted(found, key=lambda item: item[0].priority)]

    def _hooks(self, state: _State, chains: tuple[str, ...]) -> _Walk:
        """Each base chain in turn, until one discards the packet."""
        if not chains:
            yield _End.THROUGH, state
            return
        for end, passed in self._chain(chains[0], state):
            yield from [(end, passed)] if end in _FINAL else self._hooks(passed, chains[1:])

    def _chain(self, name: str, state: _State) -> _Walk:
        """Through one chain; `_End.THROUGH` when it ran out."""
        state = replace(state, path=(*state.path, name))
        yield from self._rules(self.table.chains[name].rules, state)

    def _rules(self, rules: tuple[Rule, ...], state: _State) -> _Walk:
        if not rules:
            yield _End.THROUGH, state
            return
        for end, after in self._steps(rules[0].steps, state):
            if end is None:
                yield from self._rules(rules[1:], after)
            else:
                yield end, after

    def _steps(self, steps: tuple[Step, ...], state: _State) -> Iterator[tuple[_End | None, _State]]:
        """How a rule ends; None: on to the next rule."""
        if not steps:
            yield None, state
            return
        step = steps[0]
        match step:
            case (
                Jump() | Goto() | Drop() | Reject() | Masquerade() | Translate() | Dispatch() | TranslateBy()
            ):
                yield from self._ending(step, state)
            case SetMark(bit):
                yield from self._steps(steps[1:], replace(state, mark=state.mark | bit))
            case ToggleMark(bit):
                yield from self._steps(steps[1:], replace(state, mark=state.mark ^ bit))
            case Remember(key):
                known = state.affinity | {_numbers(key)}
                yield from self._steps(steps[1:], replace(state, affinity=known))
            case OneIn(count):
                share = state.probability / count
                yield from self._steps(steps[1:], replace(state, probability=share))
                if count > 1:
                    yield None, replace(state, probability=state.probability - share)
            case _ if self._holds(step, state):
                yield from self._steps(steps[1:], state)
            case _:
                yield None, state

    def _ending(self, step: Ending, state: _State) -> Iterator[tuple[_End | None, _State]]:
        """What a rule ends with; None: on to the next rule."""
        match step:
            case Jump(chain):
                for end, back in self._chain(chain, state):
                    yield (None if end is _End.THROUGH else end), back
            case Goto(chain):
                yield from self._chain(chain, state)
            case Drop() | Reject():
                yield (_End.DROP if isinstance(step, Drop) else _End.REJECT), state
            case Masquerade():
                yield _End.ACCEPT, replace(state, masqueraded=True)
            case Translate(address, port):
                yield _End.ACCEPT, _translated(state, address, port)
            case Dispatch(key, name) | TranslateBy(key, name):
                for value, chance in self._look_up(key, name, state):
                    yield from self._apply_verdict(value, replace(state, probability=chance))

    def _apply_verdict(self, value: Value, state: _State) -> Iterator[tuple[_End | None, _State]]:
        match value:
            case None:
                yield None, state
            case (address, port):
                yield _End.ACCEPT, _translated(state, address, port)
            case _:
                yield from self._ending(value, state)

    def _look_up(self, key: Key, name: CollectionName, state: _State) -> Iterator[tuple[Value, Fraction]]:
        """What a map may have for the packet, each with its chance; None where it may have nothing."""
        elements = self.table.elements[name]
        found = Counter(elements.get(tried) for tried in _keys(key, state))
        for value, times in found.items():
            yield value, state.probability * times / found.total()

    def _holds(self, step: Step, state: _State) -> bool:
        packet = state.packet
        match step:
            case InSet(key, name, negated):
                return self._is_in(key, name, state) is not negated
            case AddressWithin(field, network, negated):
                return _within(_address(field, packet), network) is not negated
            case AddressIsLocal(field):
                return self.machine.is_local(_address(field, packet))
            case InInterface(name, negated):
                return _named(state.interface, name) is not negated
            case OfProtocol(protocol):
                return packet.protocol is protocol
            case GoesOn() | IsNew() | IsInvalid():
                return not isinstance(step, IsInvalid)
            case IsTranslated():
                return state.rewritten
            case Marked(bit):
                return bool(state.mark & bit)
            case _:
                raise AssertionError(step)

    def _is_in(self, key: Key, name: CollectionName, state: _State) -> bool:
        collection = self.table.collections[name]
        if collection.filled_up_to is not None:
            return (_numbers(key), state.packet.source) in self.machine.affinity_entries
        wanted = next(_keys(key, state))
        elements = self.table.elements[name]
        return wanted in elements or (
            collection.interval and any(_covers(element, wanted) for element in elements)
        )


def _keys(key: Key, state: _State) -> Iterator[ElementKey]:
    """The values of a key, one for each number that may be drawn."""
    random = next((part.modulus for part in key if isinstance(part, Random)), 1)
    for number in range(random):
        yield tuple(number if isinstance(part, Random) else _read(part, state.packet) for part in key)


def _numbers(key: Key) -> str:
    """The constants of a key: what of it the rule knows beforehand."""
    return " ".join(str(part.number) for part in key if isinstance(part, Constant))


def _read(part: Field | Constant, packet: Packet) -> Part:
    match part:
        case Constant(number):
            return number
        case Field.PROTOCOL:
            return packet.protocol
        case Field.PORT:
            return packet.port
        case _:
            return _address(part, packet)


def _address(field: Field, packet: Packet) -> Address:
    return packet.source if field is Field.SOURCE else packet.destination


def _covers(element: ElementKey, wanted: ElementKey) -> bool:
    """Whether an element of an interval set, whose last part may be a network, contains that."""
    *element_prefix, last = element
    *wanted_prefix, address = wanted
    return element_prefix == wanted_prefix and isinstance(last, IPv4Network | IPv6Network) and address in last


def _within(address: Address, network: IPv4Network | IPv6Network) -> bool:
    return address.version == network.version and address in network


def _named(interface: str | None, name: str) -> bool:
    if interface is None:
        return False
    return interface.startswith(name[:-1]) if name.endswith("*") else interface == name


def _translated(state: _State, address: Address, port: int) -> _State:
    return replace(state, packet=replace(state.packet, destination=address, port=port), rewritten=True)
