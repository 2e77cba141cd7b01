"""All service ports of a plan as ports of the relay, and the plan that rules are made from: its endpoints are the relay's sockets.

A pool of a service port has a socket (`pool_ports`), whatever frontends lead there; where clients keep their addresses it has two, as
the frontend decides whether a client does.  Which pool a packet is for, and whether its sender is admitted, stays a matter of rules; so
`Portals.relayed` is the plan itself, with sockets as the endpoints of each pool: first the one that dials from the node, last the one that
dials from the client's address.
Pure.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from kproxy.model.network import Protocol
from kproxy.proxy.plan import OnEmpty, Pool, PoolEndpoint
from kproxy.proxy.relay.table import RelayFrontend, RelayPort

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from kproxy.model.network import Address
    from kproxy.proxy.plan import Frontend, Plan, PoolScope, ServicePlan, ServicePortName
    from kproxy.proxy.relay.table import RelayKey

RELAYED = (Protocol.TCP, Protocol.UDP)
"""Protocols that the relay speaks.  kube-proxy's userspace mode did not have SCTP either (KEP-614)."""


_Node = tuple["Address", frozenset["Address"]]
_Sockets = tuple["Address", tuple[int | None, ...]]


class Portals:
    """Memory of what was made of each service port: an unchanged one costs a look-up, and stays the same object."""

    def __init__(self, *, keep_sources: bool = False) -> None:
        """Start without memory.  ``keep_sources``: clients may keep their addresses."""
        self._keep_sources = keep_sources
        self._ports: dict[ServicePortName, tuple[ServicePlan, _Node, tuple[RelayPort, ...]]] = {}
        self._plans: dict[ServicePortName, tuple[ServicePlan, _Sockets, ServicePlan]] = {}
        self._left_open: dict[tuple[str, str], list[RelayKey]] = {}

    def adopt(self, left_open: Iterable[RelayKey]) -> None:
        """Take sockets that an earlier daemon left open for those of the plan before the first one."""
        self._left_open = {}
        for key in left_open:
            (service, _, _), address, _, _ = key
            self._left_open.setdefault((service, address), []).append(key)

    def ports(
        self, plan: Plan, address: Address, node: frozenset[Address] = frozenset()
    ) -> tuple[RelayPort, ...]:
        """The ports that the relay is to open for a plan, at that address of the node, each at a number of the kernel's choice.

        ``node``: all addresses of the node.
        """
        known, self._ports = self._ports, {}
        left_open, self._left_open = self._left_open, {}
        here = address, node
        for service in plan.services:
            before = known.get(service.name)
            if before is None or before[0] is not service or before[1] != here:
                ports = tuple(pool_ports(service, *here, keep_sources=self._keep_sources))
                if before is None:
                    earlier = left_open.get((str(service.name), str(address)), [])
                else:
                    earlier = [port.key for port in before[2] if before[1] == here]
                before = service, here, (*ports, *_kept_for_flows(service, ports, earlier))
            self._ports[service.name] = before
        return tuple(port for _, _, ports in self._ports.values() for port in ports)

    def relayed(self, plan: Plan, address: Address, numbers: Mapping[RelayKey, int]) -> Plan:
        """The plan for rules; ``numbers``: of the sockets that are open.  Services that the relay cannot serve are not in it."""
        known, self._plans = self._plans, {}
        for service in plan.services:
            if service.protocol not in RELAYED:
                continue
            sockets = address, tuple(numbers.get(port.key) for port in self._ports[service.name][2])
            before = known.get(service.name)
            if before is None or before[0] is not service or before[1] != sockets:
                before = service, sockets, self._relayed(service, address, numbers)
            self._plans[service.name] = before
        return replace(plan, services=tuple(relayed for _, _, relayed in self._plans.values()))

    def _relayed(
        self, service: ServicePlan, address: Address, numbers: Mapping[RelayKey, int]
    ) -> ServicePlan:
        """A service port's plan with its sockets as endpoints.

        Flows of UDP that another mode translated to an endpoint stay there as long as it serves
        (``conntrack.udp.stays-on-policy-change``): ``serving`` is as it was.
        """
        sockets: dict[PoolScope, tuple[PoolEndpoint, ...]] = {}
        for port in self._ports[service.name][2]:
            if port.key in numbers and port.scope is not None:
                made = PoolEndpoint(address, numbers[port.key], may_be_here=True)
                sockets[port.scope] = (*sockets.get(port.scope, ()), made)
        udp = service.protocol is Protocol.UDP
        return msgspec.structs.replace(
            service,
            frontends=tuple(_relayed_frontend(frontend, sockets) for frontend in service.frontends),
            affinity_seconds=None,
            relay_sockets=tuple(one for found in sockets.values() for one in found) if udp else (),
        )


def pool_ports(
    service: ServicePlan, address: Address, node: frozenset[Address], *, keep_sources: bool
) -> Iterator[RelayPort]:
    """Ports for each pool of a service port that has endpoints; two, where sources are to be kept.

    Clauses ``balancing.every-endpoint-chosen``, ``affinity.client-ip.sticks``,
    ``masquerade.endpoint-of-the-node-itself.preserved``.
    """
    if service.protocol not in RELAYED:
        return
    for pool in _pools(service).values():
        endpoints = tuple((str(one.address), one.port) for one in pool.endpoints)
        serving = frozenset((str(one.address), one.port) for one in service.serving) | set(endpoints)
        here = (one for one in pool.endpoints if one.address in node)
        on_node = frozenset((str(one.address), one.port) for one in here if keep_sources)
        for keeps_source in (False, True) if keep_sources else (False,):
            yield RelayPort(
                service=str(service.name),
                protocol=service.protocol,
                address=str(address),
                port=0,
                scope=pool.scope,
                endpoints=endpoints,
                serving=serving,
                affinity_seconds=service.affinity_seconds,
                keeps_source=keeps_source,
                on_node=on_node,
                frontends=_frontends_of(service, pool.scope),
            )


def _kept_for_flows(
    service: ServicePlan, ports: Iterable[RelayPort], earlier: Iterable[RelayKey]
) -> Iterator[RelayPort]:
    """Sockets that no frontend leads to any more: flows stay with an endpoint that serves, and nothing is chosen there.

    So it is where the policy has become Local and the node has no endpoint (``conntrack.udp.stays-on-policy-change``).
    The second socket of a pool, by which an earlier daemon kept sources, is none of these where sources are not kept now.
    """
    if service.protocol is not Protocol.UDP or not service.serving:
        return
    serving = frozenset((str(one.address), one.port) for one in service.serving)
    in_use = {port.turns for port in ports}
    for key in earlier:
        (name, protocol, scope), address, number, keeps_source = key
        if (name, protocol, scope) not in in_use:
            yield RelayPort(
                service=name,
                protocol=protocol,
                address=address,
                port=number,
                scope=scope,
                endpoints=(),
                serving=serving,
                keeps_source=keeps_source,
                frontends=_frontends_of(service, None),
            )


def _pools(service: ServicePlan) -> dict[PoolScope, Pool]:
    pools = (pool for frontend in service.frontends for pool in (frontend.pool, frontend.shortcut) if pool)
    return {pool.scope: pool for pool in pools if pool.endpoints}


def _frontends_of(service: ServicePlan, scope: PoolScope | None) -> frozenset[RelayFrontend]:
    """The frontends of a UDP port that lead to a pool, all senders or those with a shortcut; flows follow them elsewhere.

    One that leads nowhere has lost no pool yet: where it led, its flows go on (``conntrack.udp.stays-on-policy-change``).
    """
    if service.protocol is not Protocol.UDP:
        return frozenset()
    leading = (
        (frontend, shortcut, led)
        for frontend in service.frontends
        for shortcut, led in ((False, frontend.pool), (True, frontend.shortcut))
    )
    return frozenset(
        RelayFrontend(str(frontend.address or ""), frontend.port, shortcut)
        for frontend, shortcut, led in leading
        if led is not None and (led.scope is scope or not led.endpoints)
    )


def _relayed_frontend(frontend: Frontend, sockets: Mapping[PoolScope, tuple[PoolEndpoint, ...]]) -> Frontend:
    """A frontend with sockets; one whose socket could not be opened refuses, until it can."""
    pool, shortcut = _socket_of(frontend.pool, sockets), frontend.shortcut
    failed = bool(frontend.pool.endpoints) and not pool.endpoints
    return msgspec.structs.replace(
        frontend,
        pool=pool,
        shortcut=None if shortcut is None else _socket_of(shortcut, sockets),
        on_empty=OnEmpty.REJECT if failed else frontend.on_empty,
    )


def _socket_of(pool: Pool, sockets: Mapping[PoolScope, tuple[PoolEndpoint, ...]]) -> Pool:
    return Pool(pool.scope, sockets.get(pool.scope, ()) if pool.endpoints else ())
