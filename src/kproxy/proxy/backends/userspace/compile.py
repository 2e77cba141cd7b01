"""Compiler of one service port to iptables rules: a `ServicePlan` whose endpoints are the relay's sockets in, typed rules out.

The sockets of each pool are its endpoints: the first dials from an address of the node, the last from the client's; it may be
the same, and there may be none.  The way of a packet::

    nat     KUBE-PORTALS-CONTAINER (from elsewhere) or KUBE-PORTALS-HOST (the node's own): to the socket of the sender's pool,
            or, for the node's own addresses, on to KUBE-NODEPORT-CONTAINER or KUBE-NODEPORT-HOST
    filter  KUBE-PORTALS-INPUT: the relay's sockets take translated packets alone
            KUBE-PORTALS-FILTER: a Service's address that nat left alone is refused, or dropped

Which endpoint answers is no matter of rules.  Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_network
from typing import TYPE_CHECKING

from kproxy.linux.netfilter.matches import destination_in, in_state, source_in
from kproxy.linux.netfilter.patterns import FieldName
from kproxy.linux.netfilter.rules import Dnat, End, Is, Reject, Rule
from kproxy.proxy.backends.node_ports import node_port_destinations
from kproxy.proxy.backends.pods import from_pods
from kproxy.proxy.backends.userspace import names
from kproxy.proxy.backends.userspace.rules import ChainRule
from kproxy.proxy.backends.xtables.rules import Destination, to_port
from kproxy.proxy.plan import MasqueradePolicy, OnEmpty

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kproxy.linux.netfilter.patterns import Pattern
    from kproxy.linux.netfilter.rules import Match, Step
    from kproxy.model.network import Family, Network
    from kproxy.proxy.backends.xtables.rules import ChainName
    from kproxy.proxy.plan import Frontend, LocalDetector, NodePorts, PoolEndpoint, ServicePlan

_TRANSLATED = in_state("dnat")


@dataclass(frozen=True, slots=True)
class Context:
    """All that a service port's rules depend on besides its own plan."""

    family: Family
    detector: LocalDetector
    node_ports: NodePorts


def translations(service: ServicePlan, context: Context) -> Iterator[ChainRule]:
    """Rules of nat, which send packets for its frontends to a socket.

    Clauses ``cluster-ip.undefined-port.not-served``, ``source-ranges.inside-allowed``,
    ``external-policy.local.host-reaches-all-endpoints``, ``external-policy.local.pods-reach-all-endpoints``.
    """
    for frontend in service.frontends:
        container, host = (
            (names.PORTALS_CONTAINER, names.PORTALS_HOST)
            if frontend.address is not None
            else (names.NODE_PORT_CONTAINER, names.NODE_PORT_HOST)
        )
        for sender, socket in _sockets(frontend, context.detector):
            yield from _translate(service, frontend, container, sender, socket)
        own = frontend.shortcut if frontend.shortcut is not None else frontend.pool
        for socket in own.endpoints[:1]:
            yield from _translate(service, frontend, host, (), socket)


def refusals(service: ServicePlan, context: Context) -> Iterator[ChainRule]:
    """Rules of KUBE-PORTALS-FILTER: packets that come there for its frontends have been translated by no rule.

    Clauses ``source-ranges.outside-dropped``, ``endpoints.none.rejected``,
    ``external-policy.local.drop-without-local-endpoint``, ``internal-policy.local.drop-without-local-endpoint``.
    """
    for frontend in service.frontends:
        to, empty = _destination(service, frontend), not frontend.pool.endpoints
        target: Step = End.DROP if frontend.on_empty is OnEmpty.DROP else Reject()
        comment = f"{service.name} has no endpoints"
        where = (
            node_port_destinations(context.family, context.node_ports) if frontend.address is None else ((),)
        )
        if empty:
            for sender in _senders(frontend):
                for destination in where:
                    rule = Rule((*destination, *sender, *to.matches, target), comment)
                    yield ChainRule(names.PORTALS_FILTER, rule, to)
        if frontend.sources is not None:
            rule = Rule((*to.matches, End.DROP), f"{service.name} is not for this source")
            yield ChainRule(names.PORTALS_FILTER, rule, to)


def admissions(service: ServicePlan) -> Iterator[ChainRule]:
    """Rules of KUBE-PORTALS-INPUT, two for each socket: nobody reaches it but through a frontend."""
    pools = (pool for frontend in service.frontends for pool in (frontend.pool, frontend.shortcut) if pool)
    for socket in dict.fromkeys(endpoint for pool in pools for endpoint in pool.endpoints):
        matches = destination_in(socket.address), to_port(service.protocol, socket.port)
        accept = Rule((*matches, _TRANSLATED, End.ACCEPT), str(service.name))
        yield ChainRule(names.PORTALS_INPUT, accept)
        yield ChainRule(names.PORTALS_INPUT, Rule((*matches, Reject()), str(service.name)))


def _sockets(frontend: Frontend, detector: LocalDetector) -> Iterator[tuple[tuple[Match, ...], PoolEndpoint]]:
    """Senders other than the node itself, each with the socket for its packets; the first that fits counts.

    Clauses ``masquerade.cluster-ip.pod-source-preserved``, ``masquerade.cluster-ip.outside-rewritten``,
    ``masquerade.external-policy-cluster.rewritten``, ``external-policy.local.local-endpoints-source-preserved``.
    """
    if frontend.shortcut is not None and frontend.shortcut.endpoints and (pods := from_pods(detector)):
        yield pods, frontend.shortcut.endpoints[-1]
    if not frontend.pool.endpoints:
        return
    from_node, from_client = frontend.pool.endpoints[0], frontend.pool.endpoints[-1]
    match frontend.masquerade:
        case MasqueradePolicy.ALWAYS:
            yield (), from_node
        case MasqueradePolicy.OFF_CLUSTER if elsewhere := from_pods(detector, negated=True):
            yield elsewhere, from_node
            yield (), from_client
        case _:
            yield (), from_client


def _translate(
    service: ServicePlan,
    frontend: Frontend,
    chain: ChainName,
    sender: tuple[Match, ...],
    socket: PoolEndpoint,
) -> Iterator[ChainRule]:
    to, target = _destination(service, frontend), Dnat(socket.address, socket.port)
    for source in _senders(frontend):
        both = _both(sender, source)
        if both is not None:
            rule = Rule((*both, *to.matches, target), str(service.name))
            yield ChainRule(chain, rule, to)


def _both(sender: tuple[Match, ...], source: tuple[Match, ...]) -> tuple[Match, ...] | None:
    """A match of both, as iptables takes one source alone: of two networks the narrower; None where nothing is in both."""
    match sender, source:
        case (Is((FieldName.SOURCE,), (pods,), negated=False),), (Is((FieldName.SOURCE,), (admitted,)),):
            narrow, wide = sorted(map(_network, (pods, admitted)), key=lambda one: -one.prefixlen)
            return (source_in(narrow),) if narrow.subnet_of(wide) else None  # type: ignore[arg-type]
        case _:
            return (*sender, *source)


def _network(found: Pattern) -> Network:
    """A network or address as a network."""
    return ip_network(str(found))


def _destination(service: ServicePlan, frontend: Frontend) -> Destination:
    return Destination(frontend.address, service.protocol, frontend.port)


def _senders(frontend: Frontend) -> tuple[tuple[Match, ...], ...]:
    """Alternative matches of the sources that the frontend admits."""
    if frontend.sources is None:
        return ((),)
    own = (frontend.address,) if frontend.allow_hairpin_source and frontend.address is not None else ()
    return tuple((source_in(source),) for source in (*frontend.sources, *own))
