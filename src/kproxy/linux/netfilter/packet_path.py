"""The way of a packet through a node: hooks in order, routing, IPVS.

Sources: netfilter's ``NF_IP_PRI_*`` (linux/netfilter_ipv4.h), nf_nat_core.c (all nat chains of a hook are traversed one after
the other at one place, until one has decided), ip_vs_core.c and ip_vs_xmit.c (IPVS takes a packet of others at INPUT and
one of the node's own at OUTPUT, and sends it on by OUTPUT and POSTROUTING, never by FORWARD).  Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from msgspec.structs import replace

from kproxy.linux.netfilter.node_state import (
    ClientEntry,
    IpvsRealServer,
    IpvsVirtualServer,
    TracedNode,
    VirtualKey,
    server_shares,
)
from kproxy.linux.netfilter.packet_state import Effect, PacketState, TracedPacket, TraceStep, Tracking
from kproxy.linux.netfilter.rules import Chain, Point, Table
from kproxy.linux.netfilter.walk import FINAL, PathFate, Paths, Walk, merged
from kproxy.model.network import Address, Family, format_socket

NAT_PRIORITY = {
    Point.PREROUTING: -100,
    Point.OUTPUT: -100,
    Point.INPUT: 100,
    Point.POSTROUTING: 100,
    Point.FORWARD: 0,
}
"""Priority at which nat chains are traversed, whatever their own priority, which only orders them among themselves."""

CONNTRACK_PRIORITY = -200
IPVS_PRIORITY = {Point.INPUT: 99, Point.OUTPUT: -98}

IPVS = "ipvs"


@dataclass(frozen=True, slots=True)
class PacketPath:
    """One thing that may become of the packet; ``delivered``: to the node's own sockets, else it leaves."""

    fate: PathFate
    state: PacketState
    delivered: bool


def follow_packet(node: TracedNode, packet: TracedPacket) -> list[PacketPath]:
    """All ways that the first packet of a connection may go."""
    return _Journey(node).go(PacketState(packet, packet))


@dataclass(frozen=True, slots=True)
class _Journey:
    node: TracedNode

    def go(self, state: PacketState) -> list[PacketPath]:
        packet = state.packet
        if packet.own:
            if (refused := self._unroutable(state)) is not None:
                return [refused]
            sent = replace(state, out=self._out(packet.destination))
            return self._sent(self._hook(Point.OUTPUT, sent))
        if packet.destination.is_loopback and packet.family is Family.IPV6:
            return [
                _refused(state, PathFate.DROPPED, "dropped", _ALIEN)
            ]  # before any rule (net/ipv6/ip6_input.c)
        return self._after(self._hook(Point.PREROUTING, state), self._routed)

    def _after(self, ways: Paths, then: Callable[[PacketState], list[PacketPath]]) -> list[PacketPath]:
        """On with those that were not discarded."""
        found: list[PacketPath] = []
        for fate, state in ways:
            found += [PacketPath(fate, state, delivered=False)] if fate in FINAL else then(state)
        return found

    def _routed(self, state: PacketState) -> list[PacketPath]:
        """By the destination it has now; where local addresses are not known, what was translated is not."""
        destination = state.packet.destination
        if destination.is_loopback and not (state.to_node or self.node.route_localnet):
            return [_alien(state)]
        local = True if state.to_node else self.node.is_local(destination)
        if local is None:
            state = state.assuming(f"{destination} is no address of the node")
        if not local:
            return self._forwarded(state)
        return self._after(self._hook(Point.INPUT, state), self._arrived)

    def _unroutable(self, state: PacketState) -> PacketPath | None:
        """Discards packets that routing refuses; where no route is known at all it refuses none."""
        destination = state.packet.destination
        if self.node.is_local(destination) or not self.node.knows_routes(state.packet.family):
            return None
        route = self.node.route(destination)
        if route is None and self.node.other_tables(destination):
            return None
        kind = "no route" if route is None else route.type
        fate, text = _REFUSALS.get(kind, (None, ""))
        if fate is None:
            return None
        return _refused(state, fate, text, f"the node has {kind} to {destination}")

    def _forwarded(self, state: PacketState) -> list[PacketPath]:
        if (refused := self._unroutable(state)) is not None:
            return [refused]
        for table in self.node.other_tables(state.packet.destination):
            state = state.assuming(f"no rule for routing (ip rule) asks table {table} about it")
        state = replace(state, out=self._out(state.packet.destination))
        return self._after(self._hook(Point.FORWARD, state), self._leaving)

    def _arrived(self, state: PacketState) -> list[PacketPath]:
        return self._taken(state) if state.by_ipvs else [PacketPath(PathFate.THROUGH, state, delivered=True)]

    def _leaving(self, state: PacketState) -> list[PacketPath]:
        return self._after(self._hook(Point.POSTROUTING, state), _left)

    def _sent(self, ways: Paths) -> list[PacketPath]:
        """Path of packets that the node itself sends; those to itself come in by loopback."""
        return self._after(ways, self._sent_on)

    def _sent_on(self, state: PacketState) -> list[PacketPath]:
        if state.by_ipvs:
            return self._taken(state)
        destination = state.packet.destination
        if (refused := self._unroutable(state)) is not None:
            return [refused]
        state = replace(state, out=self._out(destination))
        if not self.node.is_local(destination):
            return self._leaving(state)
        return self._after(self._hook(Point.POSTROUTING, state), self._looped)

    def _looped(self, state: PacketState) -> list[PacketPath]:
        """By loopback to the node itself: its translation is decided already."""
        inward = replace(state, packet=replace(state.packet, interface="lo"), out="")
        again = self._hook(Point.PREROUTING, inward, nat=False)
        return self._after(again, lambda one: self._after(self._hook(Point.INPUT, one, nat=False), _stays))

    def _taken(self, state: PacketState) -> list[PacketPath]:
        """Path of packets that IPVS has translated: through OUTPUT again, but not its nat, and out."""
        state = replace(state, by_ipvs=False, out=self._out(state.packet.destination))
        local = self.node.is_local(state.packet.destination)
        if local and not state.packet.own:
            return [PacketPath(PathFate.THROUGH, state, delivered=True)]
        again = self._hook(Point.OUTPUT, state, nat=False, ipvs=False)
        return self._after(again, self._sent_on if local else self._leaving)

    def _out(self, destination: Address) -> str | None:
        """The interface it leaves by; None: no route is known."""
        if self.node.is_local(destination):
            return "lo"
        route = self.node.route(destination)
        return None if route is None else route.interface

    # ------------------------------------------------------------------ hooks

    def _hook(self, point: Point, state: PacketState, *, nat: bool = True, ipvs: bool = True) -> Paths:
        """Through all that stands there, in order; a packet that IPVS takes sees no more of it."""
        ways: Paths = [(PathFate.THROUGH, state)]
        for station in self._stations(point, nat=nat, ipvs=ipvs):
            ways = _through(station, ways)
        return ways

    def _stations(self, point: Point, *, nat: bool, ipvs: bool) -> list[Callable[[PacketState], Paths]]:
        found: list[tuple[int, Callable[[PacketState], Paths]]] = []
        dispatched: list[tuple[int, Table, Chain]] = []
        for table in self.node.tables:
            for hook, chain in table.base_chains:
                if hook.point is not point:
                    continue
                if hook.nat:
                    dispatched.append((hook.priority, table, chain))
                else:
                    found.append((hook.priority, self._station(table, chain)))
        if nat and dispatched:
            chains = [(table, chain) for _, table, chain in sorted(dispatched, key=lambda one: one[0])]
            found.append((NAT_PRIORITY[point], self._nat(chains)))
        if point in {Point.PREROUTING, Point.OUTPUT}:
            found.append((CONNTRACK_PRIORITY, _seen))
        if ipvs and self.node.virtual_servers and point in IPVS_PRIORITY:
            found.append((IPVS_PRIORITY[point], self._ipvs))
        return [station for _, station in sorted(found, key=lambda one: one[0])]

    def _station(self, table: Table, chain: Chain) -> Callable[[PacketState], Paths]:
        def station(state: PacketState) -> Paths:
            if state.packet.family not in table.families:
                return [(PathFate.THROUGH, state)]
            return Walk(self.node, table).base_chain(chain, state)

        return station

    def _nat(self, chains: Sequence[tuple[Table, Chain]]) -> Callable[[PacketState], Paths]:
        """One chain after another, until one has translated."""

        def station(state: PacketState) -> Paths:
            ways: Paths = [(PathFate.THROUGH, state)]
            for table, chain in chains if state.tracked is Tracking.YES else ():
                condition = self._station(table, chain)
                ways = _through(lambda one, condition=condition: _undecided(one, state, condition), ways)  # type: ignore[misc]
            return ways

        return station

    # ------------------------------------------------------------------ IPVS

    def _ipvs(self, state: PacketState) -> Paths:
        found = self._virtual(state)
        if found is None:
            return [(PathFate.THROUGH, state)]
        key, virtual = found
        taking = server_shares(virtual)
        name = _name(key)
        if not taking:
            text = f"virtual server {name} has no server to send to: rejected with icmp port unreachable"
            return [(PathFate.REJECTED, state.with_step(TraceStep(IPVS, "", text, effect=Effect.DISCARDED)))]
        if virtual.persistent is not None and self.node.remembered is None:
            state = state.assuming(
                f"virtual server {name} has no connection of {state.packet.source} in the last {virtual.persistent}"
            )
        known = [
            server for server, _ in taking if _entry(name, state, server) in (self.node.remembered or ())
        ]
        if known and _is_sticky(virtual):
            taking = [(server, Fraction(1, len(known))) for server in known]
        return [
            _served(replace(state, chance=state.chance * share), name, virtual, server)
            for server, share in taking
        ]

    def _virtual(self, state: PacketState) -> tuple[VirtualKey, IpvsVirtualServer] | None:
        """That of the packet's mark, else that of its destination, else one for all ports of it."""
        packet = state.packet
        wanted: Iterable[VirtualKey] = (
            *((state.mark,) if state.mark else ()),
            (packet.destination, packet.protocol, packet.port),
            (packet.destination, packet.protocol, 0),
        )
        return next(
            ((key, self.node.virtual_servers[key]) for key in wanted if key in self.node.virtual_servers),
            None,
        )


def _served(
    state: PacketState, name: str, virtual: IpvsVirtualServer, server: IpvsRealServer
) -> tuple[PathFate, PacketState]:
    packet = state.packet
    text = f"virtual server {name} ({virtual.scheduler}) sends it to {format_socket(server.address, server.port)} ({server.method})"
    if server.method != "masquerading":
        note = TraceStep(
            IPVS, "", f"not known, because this is not modelled: {text}", effect=Effect.DISCARDED
        )
        return PathFate.UNKNOWN, state.with_step(note)
    packet = replace(packet, destination=server.address, port=server.port or packet.port)
    served = replace(state, packet=packet, translated=True, by_ipvs=True)
    if _is_sticky(virtual):
        served = replace(served, remembered=state.remembered | {_entry(name, state, server)})
    return PathFate.THROUGH, served.with_step(TraceStep(IPVS, "", text, effect=Effect.TRANSLATED))


def _is_sticky(virtual: IpvsVirtualServer) -> bool:
    """True if a client goes on to the server it has: by persistence, or by a hash of its address."""
    return virtual.persistent is not None or virtual.scheduler in {"sh", "mh"}


def _entry(name: str, state: PacketState, server: IpvsRealServer) -> ClientEntry:
    """The entry of a virtual server for a client."""
    return ClientEntry(name, (state.packet.source, server.address, server.port))


def _name(key: VirtualKey) -> str:
    if isinstance(key, int):
        return f"of mark {key:#x}"
    address, protocol, port = key
    return f"{format_socket(address, port)}/{protocol}"


_REFUSALS = {
    "no route": (PathFate.REJECTED, "rejected with icmp net-unreachable"),
    "unreachable": (PathFate.REJECTED, "rejected with icmp host-unreachable"),
    "prohibit": (PathFate.REJECTED, "rejected with icmp admin-prohibited"),
    "blackhole": (PathFate.DROPPED, "dropped"),
}
"""Fates of packets by type of route (man 8 ip-route)."""


_ALIEN = "it comes from elsewhere for a loopback address"


def _alien(state: PacketState) -> PacketPath:
    """IPv4 takes it for a martian; IPv6, which a rule alone has brought here, has no route to it (seen: Linux 6.18)."""
    if state.packet.family is Family.IPV6:
        return _refused(state, PathFate.REJECTED, "rejected with icmpv6 no-route", _ALIEN)
    known = state.assuming("net.ipv4.conf.*.route_localnet is 0")
    return _refused(known, PathFate.DROPPED, "dropped", _ALIEN)


def _refused(state: PacketState, fate: PathFate, text: str, reason: str) -> PacketPath:
    """Discards packets that routing does not let through."""
    note = TraceStep("routing", "", f"{text}: {reason}", effect=Effect.DISCARDED)
    return PacketPath(fate, state.with_step(note), delivered=False)


def _seen(state: PacketState) -> Paths:
    """By connection tracking, to which this is the first packet of a connection."""
    known = state if state.tracked is Tracking.NEVER else replace(state, tracked=Tracking.YES)
    return [(PathFate.THROUGH, known)]


def _left(state: PacketState) -> list[PacketPath]:
    return [PacketPath(PathFate.THROUGH, state, delivered=False)]


def _stays(state: PacketState) -> list[PacketPath]:
    return [PacketPath(PathFate.THROUGH, state, delivered=True)]


def _undecided(state: PacketState, before: PacketState, condition: Callable[[PacketState], Paths]) -> Paths:
    """A chain of nat is not traversed once another one of its hook has decided."""
    decided = (state.translated, state.masqueraded) != (before.translated, before.masqueraded)
    return [(PathFate.THROUGH, state)] if decided else condition(state)


def _through(station: Callable[[PacketState], Paths], ways: Paths) -> Paths:
    """Those that were not discarded go on, each through the station; equal ones as one."""
    ended: Paths = [(fate, state) for fate, state in ways if fate in FINAL or state.by_ipvs]
    going = [state for fate, state in ways if fate not in FINAL and not state.by_ipvs]
    after = [one for state in going for one in station(state)]
    passed = [state for fate, state in after if fate not in FINAL]
    return [
        *ended,
        *((f, s) for f, s in after if f in FINAL),
        *((PathFate.THROUGH, s) for s in merged(passed)),
    ]
