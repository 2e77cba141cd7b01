"""Walk ipvs mode's chains, sets and virtual servers with the first packet of a connection.

The simulator testbed uses it; the kernel tests hold the same program to the kernel.  Pure.  It models the order in
which hooks, tables and IPVS see a packet (see `kproxy.proxy.backends.ipvs.static_rules`), that addresses on the device are the
node's own, and that the node sends from the address it sends to.  It does not model time, weights or later packets.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from ipaddress import ip_network

from kproxy.model.network import Address, Packet, format_address
from kproxy.proxy.backends.ipvs.compile import STICKY_SCHEDULERS, DesiredVirtualServer
from kproxy.proxy.backends.ipvs.desired_state import DesiredState
from kproxy.proxy.backends.ipvs.names import IpSet as Ipset
from kproxy.proxy.backends.ipvs.names import SetType
from kproxy.proxy.backends.ipvs.rules import (
    AddressKey,
    Conntrack,
    Destination,
    Goto,
    InSet,
    Key,
    MapMark,
    Mark,
    MarkKey,
    Match,
    Member,
    OfProtocol,
    OrMark,
    Rule,
    Source,
    State,
    Verdict,
    XorMark,
)
from kproxy.proxy.backends.xtables.rules import (
    DestinationIsLocal,
    GoesOn,
    InInterface,
    Jump,
    Masquerade,
    SourceIsLocal,
    Table,
)


class Fate(enum.Enum):
    """What became of a packet."""

    PASSED = "passed"
    REJECTED = "rejected"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True)
class PacketVerdict:
    """One thing that may become of a packet.

    ``destination``: who IPVS chose, None when it had no part.  ``path``: our chains it went through.
    ``affinity``: what its source sticks to from now on.  ``probability``: the share of connections it becomes of,
    all destinations weighing 1.
    """

    fate: Fate
    destination: Destination | None = None
    masqueraded: bool = False
    path: tuple[str, ...] = ()
    affinity: frozenset[str] = frozenset()
    probability: Fraction = field(default=Fraction(1), compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedNode:
    """The node's own addresses, and to what clients stick (what, source)."""

    addresses: frozenset[Address]
    affinity_entries: frozenset[tuple[str, Address]] = frozenset()


def evaluate(program: DesiredState, packet: Packet, machine: SimulatedNode) -> frozenset[PacketVerdict]:
    """All that may become of the packet."""
    bound = {use for use in program.needs if not isinstance(use, Member)}
    if packet.entry.from_host and packet.destination in bound:
        packet = replace(packet, source=packet.destination)
    return frozenset(_Walk(program, machine, machine.addresses | bound, packet).outcomes())


class _Terminated(Exception):
    """No error: how a verdict leaves nested chains."""

    def __init__(self, verdict: Verdict) -> None:
        self.verdict = verdict


class _Walk:
    """One packet's way; ``_mark`` and ``_masqueraded`` change as it goes."""

    def __init__(
        self, program: DesiredState, machine: SimulatedNode, local: frozenset[Address], packet: Packet
    ) -> None:
        self._program, self._machine, self._local, self._packet = program, machine, local, packet
        self._members = program.needs
        self._virtuals = program.virtuals()
        self._mark = 0
        self._masqueraded = False
        self._path: list[str] = []

    def outcomes(self) -> Iterator[PacketVerdict]:
        """From the sender to IPVS, and from there to each destination it may choose."""
        first = "OUTPUT" if self._packet.entry.from_host else "PREROUTING"
        if self._packet.destination.is_loopback and first == "PREROUTING":
            yield self._ended(Fate.DROPPED)
            return
        for table in (Table.MANGLE, Table.NAT):
            if (fate := self._hook(table, first)) is not Fate.PASSED:
                yield self._ended(fate)
                return
        key = self._key()
        comes_in = self._packet.destination in self._local and (key is None or first == "PREROUTING")
        if comes_in and (fate := self._hook(Table.FILTER, "INPUT")) is not Fate.PASSED:
            yield self._ended(fate)
        elif key is None or self._packet.destination not in self._local:
            yield self._ended(Fate.PASSED)
        elif not self._virtuals[key].destinations:
            yield self._ended(Fate.REJECTED)
        else:
            yield from self._chosen(key)

    def _chosen(self, key: Key) -> Iterator[PacketVerdict]:
        virtual, mark, path = self._virtuals[key], self._mark, list(self._path)
        candidates = _candidates(key, virtual, self._packet.source, self._machine)
        for destination in candidates:
            self._mark, self._masqueraded, self._path = mark, False, list(path)
            if self._packet.entry.from_host or destination.address not in self._machine.addresses:
                self._hook(Table.NAT, "POSTROUTING", destination)
            sticks = frozenset({_name(key, destination)} if _sticky(virtual) else ())
            share = Fraction(1, len(candidates))
            yield PacketVerdict(Fate.PASSED, destination, self._masqueraded, tuple(self._path), sticks, share)

    def _ended(self, fate: Fate) -> PacketVerdict:
        return PacketVerdict(fate, path=tuple(self._path))

    def _key(self) -> Key | None:
        packet = self._packet
        keys: tuple[Key, ...] = (
            MarkKey(self._mark),
            AddressKey(packet.destination, packet.port, packet.protocol),
        )
        return next((key for key in keys if key in self._virtuals), None)

    # ------------------------------------------------------------------ chains

    def _hook(self, table: Table, chain: str, destination: Destination | None = None) -> Fate:
        fates = {Verdict.DROP: Fate.DROPPED, Verdict.REJECT: Fate.REJECTED}
        try:
            for hook in self._program.ruleset.hooks:
                if (hook.table, hook.chain) == (table, chain):
                    self._apply(hook.rule, table, destination)
        except _Terminated as end:
            return fates.get(end.verdict, Fate.PASSED)
        return Fate.PASSED

    def _go_through(self, table: Table, chain: str, destination: Destination | None) -> None:
        self._path.append(chain)
        for rule in self._program.ruleset.chains[table][chain]:
            if all(self._holds(match, destination) for match in rule.matches):
                self._apply(rule, table, destination)
                if isinstance(rule.target, Goto) or rule.target is Verdict.RETURN:
                    return

    def _apply(self, rule: Rule, table: Table, destination: Destination | None) -> None:
        match rule.target:
            case Jump(chain) | Goto(chain):
                self._go_through(table, chain, destination)
            case Verdict.RETURN:
                pass
            case Verdict() as verdict:
                raise _Terminated(verdict)
            case Masquerade():
                self._masqueraded = True
                raise _Terminated(Verdict.ACCEPT)
            case OrMark(bits):
                self._mark |= bits
            case XorMark(bits):
                self._mark ^= bits
            case MapMark():
                self._mark = self._mapped()

    def _mapped(self) -> int:
        """The mark in the packet's member of the set, under its mask."""
        element = self._element("dst,dst", None) + " skbmark "
        found = (m.text for m in self._members if isinstance(m, Member) and m.text.startswith(element))
        value, _, mask = next(found).rpartition(" ")[2].partition("/")
        return (self._mark & ~int(mask, 16)) ^ int(value, 16)

    def _holds(self, match: Match, destination: Destination | None) -> bool:
        packet = self._packet
        match match:
            case InSet(which, _, fields):
                return self._in_set(which, fields, destination)
            case Source(network, negated):
                return (packet.source in network) is not negated
            case InInterface(name, negated):
                return _matches(name, packet.entry.interface) is not negated
            case SourceIsLocal():
                return packet.source in self._local
            case DestinationIsLocal():
                return packet.destination in self._local
            case OfProtocol(protocol):
                return packet.protocol is protocol
            case Conntrack() | GoesOn():
                return match in {GoesOn(), Conntrack(State.NEW)}
            case Mark(value, mask, negated):
                return (self._mark & mask == value) is not negated

    def _in_set(self, which: Ipset, fields: str, destination: Destination | None) -> bool:
        element = str(self._packet.port) if which.type is SetType.PORT else self._element(fields, destination)
        if which is Ipset.SHORTCUT:
            return any(
                isinstance(m, Member) and m.set is which and m.element == element for m in self._members
            )
        if which.type is SetType.ADDRESS_PORT_NETWORK:
            return any(
                isinstance(m, Member) and m.set is which and _inside(m.text, element, self._packet.source)
                for m in self._members
            )
        return Member(which, element) in self._members

    def _element(self, fields: str, destination: Destination | None) -> str:
        packet = self._packet
        target = destination or Destination(packet.destination, packet.port)
        address, socket = format_address(target.address), f"{packet.protocol.value.lower()}:{target.port}"
        parts: dict[str, Callable[[], str]] = {
            "src": lambda: format_address(packet.source),
            "dst": lambda: address,
            "dst,dst": lambda: f"{address},{socket}",
            "dst,dst,src": lambda: f"{address},{socket},{format_address(packet.source)}",
        }
        return parts[fields]()


def _candidates(
    key: Key, virtual: DesiredVirtualServer, source: Address, machine: SimulatedNode
) -> frozenset[Destination]:
    """Those a new connection may get: the one its source sticks to, or any."""
    stuck = {d for d in virtual.destinations if (_name(key, d), source) in machine.affinity_entries}
    return frozenset(stuck) if stuck and _sticky(virtual) else virtual.destinations


def _sticky(virtual: DesiredVirtualServer) -> bool:
    server = virtual.server
    return server.persistence is not None or server.scheduler in STICKY_SCHEDULERS


def _name(key: Key, destination: Destination) -> str:
    return f"{key} -> {destination}"


def _matches(name: str, interface: str | None) -> bool:
    if interface is None:
        return False
    return interface.startswith(name[:-1]) if name.endswith("+") else interface == name


def _inside(text: str, element: str, source: Address) -> bool:
    """Whether a member with a network holds an element and its source."""
    member, _, network = text.rpartition(",")
    return element.rpartition(",")[0] == member and source in ip_network(network)
