"""userspace mode, simulated: the text that ``iptables-restore`` would be given, and the sockets that packets come to.

Of the relay itself only its table of ports is here: a socket may dial each of its endpoints, and whether from the client's address is
what `kproxy.proxy.relay.dialing` decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count

from kproxy.conformance.testbeds.simulator.walk import NodeView, Walked, walk_packet
from kproxy.linux.netfilter.node_state import ClientEntry, TracedNode
from kproxy.linux.netfilter.restore import RestoredTables
from kproxy.model.network import Address, Family, Packet, parse_address
from kproxy.proxy.backends.userspace.desired_state import DesiredState, desired_state
from kproxy.proxy.backends.userspace.diff import diff
from kproxy.proxy.backends.userspace.static_rules import hook_rules
from kproxy.proxy.backends.xtables.blocks import Block
from kproxy.proxy.backends.xtables.rules import TableName, insert_lines
from kproxy.proxy.plan import Plan
from kproxy.proxy.relay.dialing import source_for
from kproxy.proxy.relay.portals import Portals
from kproxy.proxy.relay.table import RelayEndpoint, RelayKey, RelayPort
from kproxy.spec.outcome import Delivered, SourceIP


class UserspaceTables:
    """The chains, and by number the ports that the relay has open at one address of the node."""

    def __init__(self, family: Family, mark: int) -> None:
        """Empty tables."""
        self._family = family
        self._portals = Portals(keep_sources=True)
        self._tables = RestoredTables()
        self._applied: DesiredState | None = None
        self._node = TracedNode()
        self._free = count(40_000)
        self._numbers: dict[RelayKey, int] = {}
        self._sockets: dict[tuple[Address, int], RelayPort] = {}

    def apply(self, plan: Plan, addresses: frozenset[Address]) -> None:
        """Open the ports, and restore what the backend's diff gives."""
        usable = [one for one in addresses if not (one.is_loopback or one.is_link_local)]
        address = min(usable, key=int)
        ports = self._portals.ports(plan, address, addresses)
        self._numbers = {port.key: self._numbers.get(port.key) or next(self._free) for port in ports}
        self._sockets = {(address, self._numbers[port.key]): port for port in ports}
        desired = desired_state(self._portals.relayed(plan, address, self._numbers), self._applied)
        blocks = [*diff(self._applied, desired), *(_hook_blocks() if self._applied is None else ())]
        self._tables.apply("".join(map(str, blocks)))
        self._applied = desired
        self._node = TracedNode(tables=tuple(self._tables.netfilter_tables(self._family, {})))

    def walk(self, packet: Packet, view: NodeView) -> Sequence[Walked]:
        """Through the tables to a socket, and on to each endpoint that it may dial."""
        node = replace(self._node, addresses=view.addresses, remembered=frozenset())
        return [
            relayed for found in walk_packet(node, packet) for relayed in self._relay(found, packet, view)
        ]

    def _relay(self, found: Walked, packet: Packet, view: NodeView) -> Iterator[Walked]:
        outcome = found.outcome
        port = isinstance(outcome, Delivered) and self._sockets.get((outcome.address, outcome.port))
        if not port:
            yield found
            return
        bound = [one for one in port.endpoints if _entry(port, packet, one) in view.remembered]
        for endpoint in bound or port.endpoints:
            affinity = port.affinity_seconds is not None
            remembered = frozenset({_entry(port, packet, endpoint)}) if affinity else frozenset()
            chance = found.chance / len(bound or port.endpoints)
            yield replace(
                found,
                outcome=_delivered(packet, endpoint, port),
                remembered=view.remembered | remembered,
                chance=chance,
            )


def _entry(port: RelayPort, packet: Packet, endpoint: RelayEndpoint) -> ClientEntry:
    """The relay's memory of a client under affinity, as an entry of a list of clients."""
    return ClientEntry(f"{port.turns} {endpoint}", (packet.source,))


def _delivered(packet: Packet, endpoint: RelayEndpoint, port: RelayPort) -> Delivered:
    """The outcome at an endpoint: one that is the client itself is dialled from the node.

    Where the client is the node, the endpoint sees an address of the node in either way.
    """
    client = str(packet.source), 1
    kept = source_for(client, endpoint, port, keeps_source=port.keeps_source) and endpoint[0] != client[0]
    kept = kept and not packet.entry.from_host
    address = parse_address(endpoint[0])
    assert address is not None
    return Delivered(address, endpoint[1], SourceIP.PRESERVED if kept else SourceIP.MASQUERADED)


def _hook_blocks() -> list[Block]:
    """The jumps of builtin chains, as they are written where none stands yet."""
    lines = {table: list[str]() for table in TableName}
    for hook in hook_rules():
        lines[hook.table] += insert_lines(hook)
    return [Block(table, found) for table, found in lines.items() if found]
