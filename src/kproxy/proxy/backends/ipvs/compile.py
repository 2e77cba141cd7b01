"""Compiler of one service port to IPVS: ServicePlan in, virtual servers and ipset members out.  Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from kproxy.model.network import Address, Network, Protocol, format_address
from kproxy.proxy.backends.ipvs.names import IpSet
from kproxy.proxy.backends.ipvs.rules import (
    PERSISTENT,
    SCHEDULER_1,
    SCHEDULER_2,
    AddressKey,
    Destination,
    Key,
    MarkKey,
    Member,
    Server,
)
from kproxy.proxy.plan import Exposure, Frontend, FrontendKey, MasqueradePolicy, OnEmpty, Pool, ServicePlan

STICKY_SCHEDULERS = ("mh", "sh")
"""Schedulers that hash the client's address, best first: affinity where the kernel's persistence cannot be used."""

_PORT_HASHING = {"mh": SCHEDULER_2}
"""Flags that go with a scheduler (``ipvs.schedulers``)."""

_NODE_PORTS = {
    Protocol.TCP: (IpSet.NODE_PORT_TCP, IpSet.NODE_PORT_LOCAL_TCP),
    Protocol.UDP: (IpSet.NODE_PORT_UDP, IpSet.NODE_PORT_LOCAL_UDP),
    Protocol.SCTP: (IpSet.NODE_PORT_SCTP, IpSet.NODE_PORT_LOCAL_SCTP),
}


@dataclass(frozen=True, slots=True)
class Context:
    """Common input of all service ports.

    ``node_addresses``: the node's own without those of the device; ``node_port_addresses``: those of them that accept
    node ports.  ``sticky_scheduler`` is one of `STICKY_SCHEDULERS`.
    """

    node_addresses: frozenset[Address]
    node_port_addresses: tuple[Address, ...]
    scheduler: str = "rr"
    sticky_scheduler: str = STICKY_SCHEDULERS[0]


@dataclass(frozen=True, slots=True)
class DesiredVirtualServer:
    """A virtual server with the destinations that take new connections.

    Without any it refuses what comes. Unless ``created_empty``, it is then not created; one that is there stays.

    Of other destinations in the kernel, those in ``keep_established`` keep their connections
    (``conntrack.udp.stays-with-serving-terminating-endpoint``);
    with ``drain``, all that have connections keep them (``ipvs.graceful``).
    """

    server: Server
    destinations: frozenset[Destination]
    drain: bool
    keep_established: frozenset[Destination] = frozenset()
    created_empty: bool = True


@dataclass(frozen=True, slots=True)
class IpvsObjects:
    """All objects of one service port that the kernel should hold; ``addresses`` belong on the device."""

    virtuals: Mapping[Key, DesiredVirtualServer]
    members: frozenset[Member]
    addresses: frozenset[Address]


def shortcut_keys(service: ServicePlan) -> Iterator[FrontendKey]:
    """The frontends of a service port that may have a shortcut: those for clients outside.

    Each has a virtual server of its own, which goes with the frontend, and its connections with it: one for several
    frontends would keep connections by an address that the Service lost.
    """
    for frontend in service.frontends:
        if frontend.exposure is not Exposure.CLUSTER_IP:
            yield _key(service, frontend)


def _key(service: ServicePlan, frontend: Frontend) -> FrontendKey:
    return frontend.address, frontend.port, service.protocol


def ipvs_objects(
    service: ServicePlan, marks: Mapping[FrontendKey, int], mask: int, context: Context
) -> IpvsObjects:
    """The objects of a service port; ``marks``, under ``mask``, are those of the `shortcut_keys`."""
    virtuals: dict[Key, DesiredVirtualServer] = {}
    members: set[Member] = set()
    addresses: set[Address] = set()
    for frontend in service.frontends:
        keys = [
            AddressKey(a, frontend.port, service.protocol) for a in _frontend_addresses(frontend, context)
        ]
        virtuals |= dict.fromkeys(keys, _by_address(service, frontend, context))
        members.update(_members(service, frontend, keys))
        shortcut, mark = frontend.shortcut, marks.get(_key(service, frontend))
        if mark is not None and shortcut is not None and shortcut.endpoints:
            virtuals[MarkKey(mark)] = _virtual(service, shortcut, _mark_scheduling(service, context))
            members.update(
                Member(IpSet.SHORTCUT, f"{set_element(key)} skbmark {mark:#x}/{mask:#x}") for key in keys
            )
        elif mark is not None:
            virtuals[MarkKey(mark)] = _unused_shortcut(service, frontend.pool, context)
        if frontend.address is not None and frontend.address not in context.node_addresses:
            addresses.add(frontend.address)
    return IpvsObjects(virtuals, frozenset(members), frozenset(addresses))


def _frontend_addresses(frontend: Frontend, context: Context) -> tuple[Address, ...]:
    return context.node_port_addresses if frontend.address is None else (frontend.address,)


def _address_scheduling(service: ServicePlan, context: Context) -> Server:
    flags = _PORT_HASHING.get(context.scheduler, 0)
    if service.affinity_seconds is None:
        return Server(context.scheduler, flags)
    return Server(context.scheduler, flags | PERSISTENT, service.affinity_seconds)


def _mark_scheduling(service: ServicePlan, context: Context) -> Server:
    """Scheduling of a virtual server by mark: without persistence, which would not rewrite ports."""
    if service.affinity_seconds is None:
        return Server(context.scheduler, _PORT_HASHING.get(context.scheduler, 0))
    return Server(context.sticky_scheduler, SCHEDULER_1)


def _virtual(service: ServicePlan, pool: Pool, server: Server) -> DesiredVirtualServer:
    return DesiredVirtualServer(
        server,
        frozenset(Destination(e.address, e.port) for e in pool.endpoints),
        drain=service.protocol is not Protocol.UDP,
        keep_established=frozenset(Destination(e.address, e.port) for e in service.serving),
    )


def _by_address(service: ServicePlan, frontend: Frontend, context: Context) -> DesiredVirtualServer:
    """Virtual server of a frontend.

    Where packets are to be dropped, none is created empty. The chains drop new packets only: a UDP flow that a process of the node
    has answered so far has an entry in conntrack until the end of the sync, and an empty virtual server would refuse it.
    """
    once = _virtual(service, frontend.pool, _address_scheduling(service, context))
    return replace(once, created_empty=frontend.on_empty is OnEmpty.REJECT)


def _unused_shortcut(service: ServicePlan, pool: Pool, context: Context) -> DesiredVirtualServer:
    """Virtual server that nothing leads to: connections that it took under policy Local go on (``established.survives-policy-change``)."""
    once = _virtual(service, pool, _mark_scheduling(service, context))
    kept = once.keep_established | once.destinations
    return replace(once, destinations=frozenset(), keep_established=kept, created_empty=False)


def _members(service: ServicePlan, frontend: Frontend, keys: list[AddressKey]) -> Iterator[Member]:
    yield from _masquerade_members(service, frontend, keys)
    if frontend.address is not None:
        yield from (Member(IpSet.SERVED, set_element(key)) for key in keys)
    if not frontend.pool.endpoints and frontend.on_empty is OnEmpty.DROP:
        internal = frontend.exposure is Exposure.CLUSTER_IP
        unanswered = IpSet.CLUSTER_IP_UNANSWERED if internal else IpSet.EXTERNAL_UNANSWERED
        yield from (Member(unanswered, set_element(key)) for key in keys)
    yield from _source_ranges(frontend, keys)
    for pool in (frontend.pool, frontend.shortcut):
        for endpoint in pool.endpoints if pool else ():
            if endpoint.may_be_here:
                at = set_element(AddressKey(endpoint.address, endpoint.port, service.protocol))
                yield Member(IpSet.LOOP_BACK, f"{at},{format_address(endpoint.address)}")


def _masquerade_members(service: ServicePlan, frontend: Frontend, keys: list[AddressKey]) -> Iterator[Member]:
    """Members of the sets that decide on masquerading."""
    preserved = frontend.masquerade is MasqueradePolicy.NEVER
    elements = [set_element(key) for key in keys]
    match frontend.exposure:
        case Exposure.CLUSTER_IP:
            sets = [IpSet.CLUSTER_IP]
        case Exposure.EXTERNAL_IP:
            sets = [IpSet.EXTERNAL_IP_LOCAL if preserved else IpSet.EXTERNAL_IP]
        case Exposure.LOAD_BALANCER:
            sets = [IpSet.LOAD_BALANCER, *([IpSet.LOAD_BALANCER_LOCAL] if preserved else [])]
        case Exposure.NODE_PORT:
            every, local = _NODE_PORTS[service.protocol]
            sets = [every, *([local] if preserved else [])]
            elements = elements if service.protocol is Protocol.SCTP else [str(frontend.port)]
    yield from (Member(which, text) for which in sets for text in elements)


def _source_ranges(frontend: Frontend, keys: list[AddressKey]) -> Iterator[Member]:
    """Members for source ranges; none if a range has all addresses, which is no restriction (and no ipset holds it)."""
    if frontend.sources is None or any(network.prefixlen == 0 for network in frontend.sources):
        return
    for key in keys:
        at = set_element(key)
        yield Member(IpSet.LOAD_BALANCER_FIREWALL, at)
        for network in frontend.sources:
            yield Member(IpSet.LOAD_BALANCER_SOURCE_CIDR, f"{at},{_network(network)}")
        if frontend.allow_hairpin_source:
            yield Member(IpSet.LOAD_BALANCER_SOURCE_IP, f"{at},{format_address(key.address)}")


def set_element(key: AddressKey) -> str:
    """Element of a virtual server in sets of address and port."""
    return f"{format_address(key.address)},{key.protocol.value.lower()}:{key.port}"


def _network(network: Network) -> str:
    """A network in ipset's format: a single address without its prefix length."""
    single = network.prefixlen == network.max_prefixlen
    return format_address(network.network_address) if single else str(network)
