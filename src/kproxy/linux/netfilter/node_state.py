"""The state of a node beside its rules, as far as it is known: addresses, routes, virtual servers, lists of clients.  Pure.

None, or an empty tuple of routes, means not known: the walk then follows both ways where it matters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from ipaddress import ip_network
from typing import NamedTuple

from kproxy.linux.netfilter.patterns import Value
from kproxy.linux.netfilter.rules import Table
from kproxy.model.network import Address, Family, Network, family_of


@dataclass(frozen=True, slots=True)
class Route:
    """A way to a network; ``type`` as in ``ip route`` (``unicast``, ``local``, ``unreachable``, ...)."""

    network: Network
    interface: str
    type: str = "unicast"
    source: Address | None = None
    metric: int = 0
    table: str = "main"


@dataclass(frozen=True, slots=True)
class IpvsRealServer:
    """One server behind a virtual one."""

    address: Address
    port: int
    weight: int = 1
    method: str = "masquerading"


@dataclass(frozen=True, slots=True)
class IpvsVirtualServer:
    """A virtual server of IPVS; ``persistent``: how long it remembers a client, as text; None: it does not."""

    scheduler: str
    persistent: str | None
    servers: tuple[IpvsRealServer, ...]


VirtualKey = tuple[Address, str, int] | int
"""An address, a protocol and a port; or the mark that packets must have."""


class ClientEntry(NamedTuple):
    """Entry of a list, or set, of clients, or of IPVS for a client of the virtual server ``name``: the client, and where it goes."""

    name: str
    key: tuple[Value, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedNode:
    """All that a packet meets on a node.

    ``clients``: who is in which list of the ``recent`` match; for how long is not known.  ``remembered``: what earlier
    packets have left in lists, sets and virtual servers, and is still valid.  ``route_localnet``: the kernel routes what
    comes from elsewhere for a loopback address.
    """

    tables: tuple[Table, ...] = ()
    virtual_servers: Mapping[VirtualKey, IpvsVirtualServer] = field(default_factory=dict)
    addresses: frozenset[Address] | None = None
    routes: tuple[Route, ...] = ()
    clients: Mapping[str, frozenset[Address]] | None = None
    remembered: frozenset[ClientEntry] | None = None
    route_localnet: bool | None = None

    @property
    def knows_clients(self) -> bool:
        """True if the lists of clients were read."""
        return self.clients is not None or self.remembered is not None

    def merged(self, other: TracedNode) -> TracedNode:
        """The node with the knowledge of both."""
        known = [one for one in (self.addresses, other.addresses) if one is not None]
        return replace(
            self,
            tables=self.tables + other.tables,
            virtual_servers={**self.virtual_servers, **other.virtual_servers},
            addresses=frozenset().union(*known) if known else None,
            routes=self.routes + other.routes,
            clients=self.clients if other.clients is None else {**(self.clients or {}), **other.clients},
        )

    def is_local(self, address: Address) -> bool | None:
        """True if routing delivers the address to the node itself (all of 127/8 does); None: not known."""
        if address.is_loopback:
            return True
        route = self.route(address)
        if route is not None and route.type == "local":
            return True
        return None if self.addresses is None else address in self.addresses

    def type_of(self, address: Address) -> str | None:
        """The address's type, as ``fib`` and ``addrtype`` ask for it."""
        if address.is_multicast:
            return "multicast"
        local = self.is_local(address)
        if local is None:
            return None
        route = None if local else self.route(address)
        return "local" if local else route.type if route is not None else "unicast"

    def route(self, address: Address) -> Route | None:
        """The narrowest route to an address; rules for routing (``ip rule``) are not consulted, nor tables they name."""
        found = [
            r
            for r in self.routes
            if r.network.version == address.version and address in r.network and r.table in PLAIN_TABLES
        ]
        order = PLAIN_TABLES.index
        return max(found, key=lambda r: (-order(r.table), r.network.prefixlen, -r.metric), default=None)

    def other_tables(self, address: Address) -> tuple[str, ...]:
        """Tables that only rules for routing ask, and that have a route to the address."""
        held = [r for r in self.routes if r.network.version == address.version and address in r.network]
        return tuple(sorted({r.table for r in held} - set(PLAIN_TABLES)))

    def knows_routes(self, family: Family) -> bool:
        """True if the node's routes of a family were read; there are some to its own addresses at least."""
        return any(family_of(r.network) is family for r in self.routes)

    def address_of(self, interface: str, family: Family) -> Address | None:
        """An address that routing delivers to the node by way of this interface."""
        held = (
            r.network.network_address
            for r in self.routes
            if r.interface == interface and r.type == "local" and family_of(r.network) is family
        )
        return next(held, None)

    def source_for(self, destination: Address) -> Address | None:
        """The address that the node would send from."""
        if self.is_local(destination):
            return destination
        route = self.route(destination)
        if route is None:
            return None
        return route.source or self.address_of(route.interface, family_of(destination))


PLAIN_TABLES = ("local", "main", "default")
"""Routing tables in the order in which an unchanged node consults them."""


def any_network(family: Family) -> Network:
    """The network of all addresses."""
    return ip_network("0.0.0.0/0" if family is Family.IPV4 else "::/0")


def server_shares(virtual: IpvsVirtualServer) -> Sequence[tuple[IpvsRealServer, Fraction]]:
    """The servers that take new connections, each with its share in the long run."""
    taking = [server for server in virtual.servers if server.weight]
    if virtual.scheduler in {"fo", "ovf"}:  # the heaviest as long as it is there, and is not overloaded
        taking = sorted(taking, key=lambda server: -server.weight)[:1]
    total = sum(server.weight for server in taking)
    by_weight = virtual.scheduler.startswith("w") or virtual.scheduler in {"sed", "mh", "twos"}
    return [
        (server, Fraction(server.weight, total) if by_weight else Fraction(1, len(taking)))
        for server in taking
    ]
