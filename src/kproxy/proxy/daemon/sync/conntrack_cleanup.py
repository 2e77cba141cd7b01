"""Removal of UDP connection tracking entries that contradict the plan.

DNAT is decided once per connection, and for a UDP client that keeps its socket a connection lasts as
long as it sends.  So when endpoints go, come, or change their port, entries made before must go too.
Entries of TCP and SCTP stay (``established.survives-removal-of-its-endpoint``); so does a flow to an endpoint
that still serves,
even where policy would now choose another (``conntrack.udp.stays-on-policy-change``,
``conntrack.udp.stays-with-serving-terminating-endpoint``).

Beyond kube-proxy: entries of a service port without endpoints go, so that its clients see the refusal
(kubernetes/kubernetes#139628); entries of a deleted one go (kubernetes/kubernetes#141371); and a node
port is one only where the plan serves it, so flows through this node to the same port elsewhere stay
(``conntrack.unrelated.untouched``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from kproxy.linux import conntrack
from kproxy.linux.conntrack import Socket, UdpFlow
from kproxy.model.network import Address, Family, Network, Protocol, family_of
from kproxy.proxy.plan import NodePorts, Plan, PoolEndpoint, ServicePlan


@dataclass(frozen=True, slots=True)
class UdpFrontends:
    """UDP frontends, and the serving endpoints of each.

    ``node_addresses`` and ``localhost``: the destinations at which the ports of ``by_node_port`` are frontends.
    ``other_addresses``: the node's further ones, at which an earlier process, in another mode, may have served them.
    ``ranges``: any destination in them is a frontend, of no endpoint if it is not in ``by_socket``. ``relay_sockets``: all of a
    relay's; ``pools``: those that frontends lead to, by address and port, or by node port alone. Both are empty in modes without one.
    """

    by_socket: Mapping[Socket, frozenset[Socket]] = field(default_factory=dict)
    by_node_port: Mapping[int, frozenset[Socket]] = field(default_factory=dict)
    node_addresses: frozenset[Address] = frozenset()
    localhost: bool = False
    other_addresses: frozenset[Address] = frozenset()
    ranges: tuple[Network, ...] = ()
    relay_sockets: frozenset[Socket] = frozenset()
    pools: Mapping[Socket | int, frozenset[Socket]] = field(default_factory=dict)

    def leads_elsewhere(self, flow: UdpFlow, before: UdpFrontends) -> bool:
        """True if a flow came to a relay's socket by a frontend that leads to another since ``before``.

        The relay keeps the flow's endpoint while that serves; then it chooses in the pool of the socket that the flow comes to
        (``internal-policy.local.same-node``). A frontend that leads nowhere now keeps its flows (``conntrack.udp.stays-on-policy-change``).
        Nor does a flow stay that came by a shortcut to the pool which all senders are led to now: that has sockets which keep the
        source and such as do not, and the rules choose (``masquerade.external-policy-cluster.rewritten``).
        """
        now, then = self._pool(flow.destination), before._pool(flow.destination)
        if not now or then == now:
            return False
        return flow.reply_source in self.relay_sockets - (now if then is None else now & then)

    def _pool(self, destination: Socket) -> frozenset[Socket] | None:
        """Sockets of the pool that a frontend leads to, maybe none; None where it is no frontend."""
        address, port = destination
        found = self.pools.get(destination)
        if found is None and self._accepts_node_ports(address):
            found = self.pools.get(port)
        return found

    def serving(self, destination: Socket) -> frozenset[Socket] | None:
        """The endpoints behind a destination, maybe none; None when it is no frontend."""
        address, port = destination
        found = self.by_socket.get(destination)
        if found is None and port in self.by_node_port and self._accepts_node_ports(address):
            return self.by_node_port[port]
        if found is None and any(address in network for network in self.ranges):
            return frozenset()
        return found

    def may_be_left(self, destination: Socket) -> bool:
        """True if it is a node port at an address of the node that serves none."""
        address, port = destination
        return port in self.by_node_port and address in self.other_addresses

    def leads(self, flow: UdpFlow) -> bool:
        """True if a flow to such a destination goes to an endpoint of the node port."""
        there = self.may_be_left(flow.destination)
        return there and flow.is_dnat and flow.reply_source in self.by_node_port[flow.destination[1]]

    def __bool__(self) -> bool:
        return bool(self.by_socket or self.by_node_port or self.ranges)

    def _accepts_node_ports(self, address: Address) -> bool:
        if address.is_loopback:
            return self.localhost and address.version == 4
        return address in self.node_addresses


def udp_frontends(plan: Plan, local: Iterable[Address]) -> UdpFrontends:
    """The UDP frontends of a plan; ``local`` are the addresses of this node's interfaces."""
    by_socket: dict[Socket, frozenset[Socket]] = {}
    by_node_port: dict[int, frozenset[Socket]] = {}
    pools: dict[Socket | int, frozenset[Socket]] = {}
    relay_sockets: set[Socket] = set()
    own = tuple(local)
    for service in plan.services:
        if service.protocol is not Protocol.UDP:
            continue
        serving = _serving(service)
        relay_sockets |= _sockets(service.relay_sockets)
        for frontend in service.frontends:
            if frontend.address is None:
                by_node_port[frontend.port] = serving
            else:
                by_socket[frontend.address, frontend.port] = serving
            if service.relay_sockets:
                where = frontend.port if frontend.address is None else (frontend.address, frontend.port)
                pools[where] = _sockets(frontend.pool.endpoints)
    return UdpFrontends(
        by_socket,
        by_node_port,
        _node_addresses(plan.node_ports, plan.family, own),
        plan.node_ports.localhost,
        _other_addresses(plan.node_ports, plan.family, own),
        relay_sockets=frozenset(relay_sockets),
        pools=pools,
    )


def is_stale(flow: UdpFlow, before: UdpFrontends, now: UdpFrontends) -> bool:
    """True if a flow contradicts the frontends ``now``; ``before``: those until now.

    A frontend's flow must be answered by one of its serving endpoints.  So an entry made before there were any, which goes
    to the service's own address, is stale (``conntrack.udp.served-after-first-endpoint``).  Of flows to a destination that
    is no frontend any more only translated ones are stale: they were the service's.  So are those that an earlier process
    led to a node port's endpoint at an address of the node which serves none now, once that is no endpoint.

    Clauses ``conntrack.udp.moves-off-removed-endpoint``, ``conntrack.udp.moves-off-old-target-port``.
    """
    serving = now.serving(flow.destination)
    if serving is not None:
        return flow.reply_source not in serving or now.leads_elsewhere(flow, before)
    if before.serving(flow.destination) is not None:
        return flow.is_dnat
    return before.leads(flow) and not now.leads(flow)


class ConntrackCleaner:
    """Removes one family's stale entries at the first plan, whenever UDP frontends or endpoints change, and once rules are restored."""

    def __init__(self, family: Family, node_addresses: Callable[[], Iterable[Address]]) -> None:
        """Start without a previous plan: the first `remove` checks all entries (``restart.stale-udp-entries.reconciled``).

        An earlier process may have served what is deleted by now: every address of a ServiceCIDR may have been a Service's, so
        once these are known all entries are checked again.

        ``node_addresses`` returns those of this node's interfaces now, as `kproxy.linux.node_addresses.AddressMonitor.current`.
        """
        self._family, self._node_addresses = family, node_addresses
        self._handled: tuple[NodePorts, tuple[ServicePlan, ...], tuple[Network, ...]] | None = None
        self._frontends = UdpFrontends()
        self._unsure = False

    def forget(self) -> None:
        """Look at all entries at the next `remove`: flows that came while the rules were another program's passed by them untranslated."""
        self._unsure = True

    def remove(self, plan: Plan) -> int:
        """Remove entries that contradict the plan, which must be applied already; returns their number.

        Raises `HostError`; the next call then repeats the removal.
        """
        services = tuple(s for s in plan.services if s.protocol is Protocol.UDP)
        handled = plan.node_ports, services, plan.service_cidrs
        if handled == self._handled and not self._unsure:
            return 0
        known = self._handled is not None and self._handled[2] == plan.service_cidrs
        before = self._frontends if known else replace(self._frontends, ranges=plan.service_cidrs)
        now = udp_frontends(plan, self._local_addresses(services))
        removed = self._remove(before, now) if before or now else 0
        self._handled, self._frontends, self._unsure = handled, now, False
        return removed

    def _remove(self, before: UdpFrontends, now: UdpFrontends) -> int:
        def wanted(destination: Socket) -> bool:
            return any(
                frontends.serving(destination) is not None or frontends.may_be_left(destination)
                for frontends in (now, before)
            )

        flows = conntrack.list_udp_flows(self._family, wanted)
        return conntrack.delete_flows([flow for flow in flows if is_stale(flow, before, now)])

    def _local_addresses(self, services: Iterable[ServicePlan]) -> Iterable[Address]:
        """Addresses of this node, read only if a Service has a node port."""
        has_node_ports = any(
            frontend.address is None for service in services for frontend in service.frontends
        )
        return self._node_addresses() if has_node_ports else ()


def _serving(service: ServicePlan) -> frozenset[Socket]:
    pools = {id(p): p for f in service.frontends for p in (f.pool, f.shortcut) if p is not None}
    chosen = (endpoint for pool in pools.values() for endpoint in pool.endpoints)
    return _sockets((*service.serving, *service.relay_sockets, *chosen))


def _sockets(endpoints: Iterable[PoolEndpoint]) -> frozenset[Socket]:
    return frozenset((endpoint.address, endpoint.port) for endpoint in endpoints)


def _node_addresses(ports: NodePorts, family: Family, local: Iterable[Address]) -> frozenset[Address]:
    if ports.addresses is not None:
        return frozenset(ports.addresses)
    return _of_family(family, local)


def _other_addresses(ports: NodePorts, family: Family, local: Iterable[Address]) -> frozenset[Address]:
    return frozenset() if ports.addresses is None else _of_family(family, local) - set(ports.addresses)


def _of_family(family: Family, local: Iterable[Address]) -> frozenset[Address]:
    return frozenset(a for a in local if family_of(a) is family and not a.is_loopback)
