"""Compiler of one service port to map elements: ServicePlan in, elements out.

A frontend has one element in the map of frontends, whose verdict is for its number of endpoints (``goto one-of-3``), and
one for each endpoint, with frontend and number as key.  The chain ``one-of-3`` draws a number below three and looks up
frontend and number together.  So endpoints are elements, and only *counts* of endpoints are chains.  Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from ipaddress import ip_network
from typing import NamedTuple

from kproxy.linux.netfilter.matches import of_protocol, one_in
from kproxy.linux.netfilter.patterns import FieldName
from kproxy.linux.netfilter.rules import Chain, Dnat, End, Goto, InSet, Remember, Rule
from kproxy.model.network import Address, Network
from kproxy.proxy.backends.nftables import names
from kproxy.proxy.backends.nftables.names import FrontendMaps, PoolRole
from kproxy.proxy.backends.nftables.rules import CollectionName, ElementKey, Key, Value, constant
from kproxy.proxy.plan import (
    Exposure,
    Frontend,
    MasqueradePolicy,
    OnEmpty,
    Pool,
    PoolEndpoint,
    PoolScope,
    ServicePlan,
)

NumberedEndpoints = dict[PoolScope, tuple[PoolEndpoint, ...]]
"""The endpoints of each pool by number."""


class SetElement(NamedTuple):
    """One element of a set or map."""

    collection: CollectionName
    key: ElementKey
    value: Value = None


class CountChain(NamedTuple):
    """A chain that picks one of two or more endpoints (that for one always exists); Services share it."""

    maps: FrontendMaps
    pool_role: PoolRole
    endpoints: int

    @property
    def name(self) -> str:
        """The chain's name."""
        return self.pool_role.one_of(self.maps, self.endpoints)


Shared = SetElement | CountChain
"""Object that several service ports may need; it stays as long as one of them does."""


def service_elements(service: ServicePlan, numbered: NumberedEndpoints) -> Iterator[SetElement]:
    """All elements that belong to this service port alone."""
    for frontend in service.frontends:
        yield from _frontend_elements(service, frontend, numbered)


def shared_objects(service: ServicePlan, numbered: NumberedEndpoints) -> Iterator[Shared]:
    """Objects that the service port needs and others may need too, each once."""
    internal = {f.address for f in service.frontends if f.exposure is Exposure.CLUSTER_IP and f.address}
    for address in internal:
        yield SetElement(names.CLUSTER_IPS, (address,))
    for address in {e.address for pool in numbered.values() for e in pool if e.may_be_here}:
        yield SetElement(names.HAIRPIN, (address, address))
    if service.affinity_seconds is None:
        yield from dict.fromkeys(
            CountChain(_maps_of(frontend), role, len(pool.endpoints))
            for frontend in service.frontends
            for role, pool in _pools(frontend)
            if len(pool.endpoints) > 1
        )


def affinity_chains(service: ServicePlan, numbered: NumberedEndpoints) -> tuple[Chain, ...]:
    """The chains of a service port with affinity, none without; a chain comes after those it leads to.

    No expression of nft can tell which endpoint a map has chosen, so each endpoint has a chain that remembers its
    clients (ADR 10).  All frontends share them (``affinity.scope.per-port``), each policy sees its own endpoints only
    (``affinity.within-policy``), and clients of a removed endpoint can be sent to another at once
    (``affinity.endpoint-gone.moves-at-once``).
    """
    if service.affinity_seconds is None:
        return ()
    seconds = service.affinity_seconds
    endpoints = {(e.address, e.port): e for pool in numbered.values() for e in pool}
    return (
        *(_endpoint_chain(service, endpoint, seconds) for endpoint in endpoints.values()),
        *(_sticky_chain(service, scope, pool, seconds) for scope, pool in numbered.items() if pool),
    )


def used_pools(service: ServicePlan) -> dict[PoolScope, Pool]:
    """The pools that some frontend uses, empty ones too."""
    used = [p for f in service.frontends for p in (f.pool, f.shortcut) if p is not None]
    return {pool.scope: pool for pool in used}


def assign_numbers(
    before: Sequence[PoolEndpoint], wanted: Sequence[PoolEndpoint]
) -> tuple[PoolEndpoint, ...]:
    """``wanted`` in an order in which endpoints keep their index in ``before`` if possible: fewer elements change."""
    stay = set(wanted)
    kept = [endpoint if endpoint in stay else None for endpoint in before[: len(wanted)]]
    placed = set(kept)
    rest = iter([endpoint for endpoint in wanted if endpoint not in placed])
    filled = [endpoint if endpoint is not None else next(rest) for endpoint in kept]
    return (*filled, *rest)


def _frontend_elements(
    service: ServicePlan, frontend: Frontend, numbered: NumberedEndpoints
) -> Iterator[SetElement]:
    maps, key = _maps_of(frontend), _key(service, frontend)
    for role, pool in _pools(frontend):
        yield SetElement(role.dispatch(maps), key, Goto(_picking_chain(service, maps, role, pool)))
        if service.affinity_seconds is None:
            name = role.endpoints(maps)
            for number, endpoint in enumerate(numbered[pool.scope]):
                yield SetElement(name, (*key, number), (endpoint.address, endpoint.port))
    if (policy := _policy(frontend, maps)) is not None:
        yield SetElement(maps.policies, key, Goto(policy))
    if not frontend.pool.endpoints:
        refusal = End.DROP if frontend.on_empty is OnEmpty.DROP else Goto(names.REJECT)
        yield SetElement(maps.no_endpoints, key, refusal)
    if frontend.sources is not None:
        yield SetElement(names.FIREWALL_IPS, key)
        for source in _admitted(frontend):
            yield SetElement(names.FIREWALL_SOURCES, (*key, source))


def _pools(frontend: Frontend) -> Iterator[tuple[PoolRole, Pool]]:
    """The pools with endpoints, each with its role."""
    if frontend.pool.endpoints:
        yield PoolRole.POOL, frontend.pool
    if frontend.shortcut is not None and frontend.shortcut.endpoints:
        yield PoolRole.SHORTCUT, frontend.shortcut


def _picking_chain(service: ServicePlan, maps: FrontendMaps, role: PoolRole, pool: Pool) -> str:
    if service.affinity_seconds is not None:
        return names.sticky_chain(service, pool.scope)
    return role.one_of(maps, len(pool.endpoints))


def _policy(frontend: Frontend, maps: FrontendMaps) -> str | None:
    """The chain between the frontend and its pools; None for a cluster IP, and without endpoints."""
    if frontend.exposure is Exposure.CLUSTER_IP or not any(_pools(frontend)):
        return None
    match frontend.masquerade:
        case MasqueradePolicy.ALWAYS if frontend.shortcut is None:
            return maps.cluster
        case MasqueradePolicy.NEVER if frontend.shortcut is not None:
            return maps.local
    raise AssertionError(f"no traffic policy asks for {frontend.masquerade} of {frontend.exposure}")


def _admitted(frontend: Frontend) -> Iterable[Network]:
    """Source ranges of the frontend, without those inside another: intervals must not overlap."""
    found = list(frontend.sources or ())
    if frontend.allow_hairpin_source and frontend.address is not None:
        found.append(_host_network(frontend.address))
    found.sort(key=lambda network: network.prefixlen)
    kept: list[Network] = []
    for network in found:
        if not any(network.network_address in wider for wider in kept):
            kept.append(network)
    return kept


def _host_network(address: Address) -> Network:
    return ip_network(address)


def _maps_of(frontend: Frontend) -> FrontendMaps:
    return FrontendMaps.NODE_PORT if frontend.address is None else FrontendMaps.ADDRESS


def _key(service: ServicePlan, frontend: Frontend) -> ElementKey:
    if frontend.address is None:
        return (service.protocol, frontend.port)
    return (frontend.address, service.protocol, frontend.port)


def _endpoint_chain(service: ServicePlan, endpoint: PoolEndpoint, seconds: int) -> Chain:
    """The chain of one endpoint: one rule records the client, a second serves it when the set of clients is full."""
    client = _client_key(service, endpoint, seconds)
    rules = (
        Rule((Remember(names.AFFINITY_CLIENTS, client, seconds),)),
        Rule((of_protocol(service.protocol), Dnat(endpoint.address, endpoint.port))),
    )
    return Chain(names.endpoint_chain(service, endpoint), rules)


def _sticky_chain(
    service: ServicePlan, scope: PoolScope, pool: Sequence[PoolEndpoint], seconds: int
) -> Chain:
    """The chain that picks the endpoint that recorded the client, else any, with equal chances."""
    known, chosen = [], []
    for left, endpoint in zip(range(len(pool), 0, -1), pool, strict=True):
        client = _client_key(service, endpoint, seconds)
        target = Goto(names.endpoint_chain(service, endpoint))
        known.append(Rule((InSet(client, names.AFFINITY_CLIENTS), target)))
        chosen.append(Rule((one_in(left), target) if left > 1 else (target,)))
    return Chain(names.sticky_chain(service, scope), (*known, *chosen))


def _client_key(service: ServicePlan, endpoint: PoolEndpoint, seconds: int) -> Key:
    return FieldName.SOURCE, constant(names.client_number(service, endpoint, seconds))
