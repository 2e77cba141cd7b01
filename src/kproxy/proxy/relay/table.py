"""Ports that the relay serves, as values, and those that a `Plan` wants at IPv4 loopback: its node ports.  Pure.

Rules cannot serve 127.0.0.1 without ``route_localnet``, which lets neighbours send to loopback daemons (CVE-2020-8558).  A socket
that is bound to 127.0.0.1 can, and nothing from outside reaches it (KEP-6032 plans the same for kube-proxy).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from kproxy.model.network import Family, Protocol
from kproxy.proxy.plan import Exposure, PoolScope

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kproxy.proxy.plan import Plan, ServicePlan

LOOPBACK = "127.0.0.1"

RelayEndpoint = tuple[str, int]
"""An endpoint's address and port, as sockets take them."""


TurnsKey = tuple[str, Protocol, PoolScope | None]
"""Name of the ports that take turns together."""

RelayKey = tuple[TurnsKey, str, int, bool]
"""Name of a port of the relay."""


class RelayFrontend(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A frontend as clients reach it; ``address`` empty: a node port. ``shortcut``: only for clients that have one."""

    address: str
    port: int
    shortcut: bool = False

    @property
    def place(self) -> tuple[str, int]:
        """Its address and number, whoever sends there."""
        return self.address, self.port


class RelayPort(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One listening socket, and the endpoints that its connections and datagrams are spread over.

    ``serving``: endpoints that a UDP flow which has one of them may keep, chosen or not.  ``affinity_seconds`` None: no ClientIP
    affinity.  ``port`` 0: any number.  ``scope``: of the pool, where a service port has sockets for each.  ``keeps_source``: endpoints are dialled
    from the client's address, as those ``on_node`` always are: processes of this node.  ``frontends``: those of UDP that lead to the pool, or nowhere.  ``endpoints`` is empty only at a socket that is kept for its flows of UDP: where nothing can answer there is none, and the kernel refuses.
    """

    service: str
    protocol: Protocol
    address: str
    port: int
    endpoints: tuple[RelayEndpoint, ...]
    serving: frozenset[RelayEndpoint] = frozenset()
    affinity_seconds: int | None = None
    scope: PoolScope | None = None
    keeps_source: bool = False
    on_node: frozenset[RelayEndpoint] = frozenset()
    frontends: frozenset[RelayFrontend] = frozenset()

    @property
    def key(self) -> RelayKey:
        """Name of the socket: with another name it is another one; no two ports of a table have the same."""
        return self.turns, self.address, self.port, self.keeps_source

    @property
    def places(self) -> frozenset[tuple[str, int]]:
        """The addresses and numbers of its frontends, whoever sends there."""
        return frozenset(frontend.place for frontend in self.frontends)

    @property
    def turns(self) -> TurnsKey:
        """Ports of the same service port and pool share the turn of endpoints, and clients' affinity."""
        return self.service, self.protocol, self.scope


def lost_frontends(
    before: Iterable[RelayPort], now: Iterable[RelayPort]
) -> dict[RelayKey, frozenset[RelayFrontend]]:
    """Frontends that led to each of these ports and lead nowhere now, whatever else leads to it; ``before``: as the ports were.

    One that leads to another socket of its service port is not lost, also where clients with a shortcut still come by it.
    """
    before = [port for port in before if port.frontends]
    if not before:  # then no look at every port is needed
        return {}
    led: dict[str, set[tuple[str, int]]] = {port.service: set() for port in before}
    for port in now:
        if port.service in led:
            led[port.service] |= port.places
    lost = {
        port.key: frozenset(one for one in port.frontends if one.place not in led[port.service])
        for port in before
    }
    return {key: frontends for key, frontends in lost.items() if frontends}


def loopback_node_ports(plan: Plan) -> tuple[RelayPort, ...]:
    """The node ports of a plan at 127.0.0.1; none where the plan does not want them there, nor for SCTP.

    Clauses ``node-port.localhost.enabled.served``, ``node-port.localhost.disabled.untouched``.
    """
    if plan.family is not Family.IPV4 or not plan.node_ports.localhost:
        return ()
    return tuple(port for service in plan.services for port in _ports(service))


def _ports(service: ServicePlan) -> Iterator[RelayPort]:
    """The node itself is bound by no external traffic policy, so the shortcut's pool serves it where there is one.

    Clause ``external-policy.local.host-reaches-all-endpoints``.
    """
    for frontend in service.frontends:
        pool = frontend.shortcut if frontend.shortcut is not None else frontend.pool
        relayed = frontend.exposure is Exposure.NODE_PORT and service.protocol is not Protocol.SCTP
        if relayed and pool.endpoints:
            endpoints = tuple((str(one.address), one.port) for one in pool.endpoints)
            yield RelayPort(
                service=str(service.name),
                protocol=service.protocol,
                address=LOOPBACK,
                port=frontend.port,
                endpoints=endpoints,
                serving=frozenset((str(one.address), one.port) for one in service.serving) | set(endpoints),
                affinity_seconds=service.affinity_seconds,
            )
