"""What one service port needs of IPVS and the ipsets: ServicePlan in, virtual servers and members out.  Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kproxy.backends.ipvs.names import Set
from kproxy.backends.ipvs.rules import (
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
from kproxy.net import Address, Network, Protocol, text_of
from kproxy.plan import Exposure, Frontend, Masquerade, OnEmpty, Pool, ServicePlan

STICKY_SCHEDULERS = ("mh", "sh")
"""Those that choose by the client's address, best first: affinity where the kernel's persistence cannot be used."""

_PORT_HASHING = {"mh": SCHEDULER_2}
"""Flags that go with a scheduler (``ipvs.schedulers``)."""

_NODE_PORTS = {
    Protocol.TCP: (Set.NODE_PORT_TCP, Set.NODE_PORT_LOCAL_TCP),
    Protocol.UDP: (Set.NODE_PORT_UDP, Set.NODE_PORT_LOCAL_UDP),
    Protocol.SCTP: (Set.NODE_PORT_SCTP, Set.NODE_PORT_LOCAL_SCTP),
}


@dataclass(frozen=True, slots=True)
class Context:
    """What the parts of all service ports depend on.

    ``node_addresses`` are the node's own, the device's not among them; ``node_port_addresses`` those of
    them that accept node ports.  ``sticky_scheduler`` is one of `STICKY_SCHEDULERS`.
    """

    node_addresses: frozenset[Address]
    node_port_addresses: tuple[Address, ...]
    scheduler: str = "rr"
    sticky_scheduler: str = STICKY_SCHEDULERS[0]


@dataclass(frozen=True, slots=True)
class Virtual:
    """A virtual server with the destinations that take new connections.

    Of others that are there still, those in ``lingering`` keep what they have (``term.udp-keeps-serving``);
    with ``drains``, all that have connections do (``ipvs.graceful``).
    """

    server: Server
    destinations: frozenset[Destination]
    drains: bool
    lingering: frozenset[Destination] = frozenset()


@dataclass(frozen=True, slots=True)
class Part:
    """One service port's part of what the kernel should hold; ``addresses`` belong on the device."""

    virtuals: Mapping[Key, Virtual]
    members: frozenset[Member]
    addresses: frozenset[Address]


def part(service: ServicePlan, mark: int, mask: int, context: Context) -> Part:
    """A service port's part; ``mark`` under ``mask`` is that of its shortcut."""
    virtuals: dict[Key, Virtual] = {}
    members: set[Member] = set()
    addresses: set[Address] = set()
    for frontend in service.frontends:
        keys = [AddressKey(a, frontend.port, service.protocol) for a in _asked_at(frontend, context)]
        virtuals |= dict.fromkeys(keys, _virtual(service, frontend.pool, _by_address(service, context)))
        members.update(_members(service, frontend, keys))
        shortcut = frontend.shortcut
        if shortcut is not None and shortcut.endpoints:
            virtuals[MarkKey(mark)] = _virtual(service, shortcut, _by_mark(service, context))
            members.update(
                Member(Set.SHORTCUT, f"{element(key)} skbmark {mark:#x}/{mask:#x}") for key in keys
            )
        if frontend.address is not None and frontend.address not in context.node_addresses:
            addresses.add(frontend.address)
    return Part(virtuals, frozenset(members), frozenset(addresses))


def _asked_at(frontend: Frontend, context: Context) -> tuple[Address, ...]:
    return context.node_port_addresses if frontend.address is None else (frontend.address,)


def _by_address(service: ServicePlan, context: Context) -> Server:
    flags = _PORT_HASHING.get(context.scheduler, 0)
    if service.affinity_seconds is None:
        return Server(context.scheduler, flags)
    return Server(context.scheduler, flags | PERSISTENT, service.affinity_seconds)


def _by_mark(service: ServicePlan, context: Context) -> Server:
    """A persistent virtual server by mark would not rewrite ports."""
    if service.affinity_seconds is None:
        return Server(context.scheduler, _PORT_HASHING.get(context.scheduler, 0))
    return Server(context.sticky_scheduler, SCHEDULER_1)


def _virtual(service: ServicePlan, pool: Pool, server: Server) -> Virtual:
    return Virtual(
        server,
        frozenset(Destination(e.address, e.port) for e in pool.endpoints),
        drains=service.protocol is not Protocol.UDP,
        lingering=frozenset(Destination(e.address, e.port) for e in service.serving),
    )


def _members(service: ServicePlan, frontend: Frontend, keys: list[AddressKey]) -> Iterator[Member]:
    yield from _of_exposure(service, frontend, keys)
    if frontend.address is not None:
        yield from (Member(Set.SERVED, element(key)) for key in keys)
    if not frontend.pool.endpoints and frontend.on_empty is OnEmpty.DROP:
        internal = frontend.exposure is Exposure.CLUSTER_IP
        unanswered = Set.CLUSTER_IP_UNANSWERED if internal else Set.EXTERNAL_UNANSWERED
        yield from (Member(unanswered, element(key)) for key in keys)
    yield from _source_ranges(frontend, keys)
    for pool in (frontend.pool, frontend.shortcut):
        for endpoint in pool.endpoints if pool else ():
            if endpoint.local:
                at = element(AddressKey(endpoint.address, endpoint.port, service.protocol))
                yield Member(Set.LOOP_BACK, f"{at},{text_of(endpoint.address)}")


def _of_exposure(service: ServicePlan, frontend: Frontend, keys: list[AddressKey]) -> Iterator[Member]:
    """The sets that decide on masquerading."""
    preserved = frontend.masquerade is Masquerade.NEVER
    elements = [element(key) for key in keys]
    match frontend.exposure:
        case Exposure.CLUSTER_IP:
            sets = [Set.CLUSTER_IP]
        case Exposure.EXTERNAL_IP:
            sets = [Set.EXTERNAL_IP_LOCAL if preserved else Set.EXTERNAL_IP]
        case Exposure.LOAD_BALANCER:
            sets = [Set.LOAD_BALANCER, *([Set.LOAD_BALANCER_LOCAL] if preserved else [])]
        case Exposure.NODE_PORT:
            every, local = _NODE_PORTS[service.protocol]
            sets = [every, *([local] if preserved else [])]
            elements = elements if service.protocol is Protocol.SCTP else [str(frontend.port)]
    yield from (Member(which, text) for which in sets for text in elements)


def _source_ranges(frontend: Frontend, keys: list[AddressKey]) -> Iterator[Member]:
    """A range of all addresses is no restriction (and no ipset would hold it)."""
    if frontend.sources is None or any(network.prefixlen == 0 for network in frontend.sources):
        return
    for key in keys:
        at = element(key)
        yield Member(Set.LOAD_BALANCER_FIREWALL, at)
        for network in frontend.sources:
            yield Member(Set.LOAD_BALANCER_SOURCE_CIDR, f"{at},{_network(network)}")
        if frontend.admit_self:
            yield Member(Set.LOAD_BALANCER_SOURCE_IP, f"{at},{text_of(key.address)}")


def element(key: AddressKey) -> str:
    """How the sets of addresses and ports know a virtual server."""
    return f"{text_of(key.address)},{key.protocol.value.lower()}:{key.port}"


def _network(network: Network) -> str:
    """As ipset prints it: a single address without its length."""
    single = network.prefixlen == network.max_prefixlen
    return text_of(network.network_address) if single else str(network)
