"""The finer clauses that a delivered packet also rests on: how addresses, ports and endpoints are written.

Part of the specification: names clauses only; it settles no outcome.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address

from kproxy.model import api
from kproxy.model.network import Address, Family, Packet, Protocol, family_of, parse_address, parse_network
from kproxy.spec.candidates import Candidate
from kproxy.spec.clauses import clause
from kproxy.spec.node import NodeFacts
from kproxy.spec.policy import LOCAL
from kproxy.spec.services import (
    Reasons,
    ServiceAddress,
    ServiceAddressKind,
    cluster_ip,
    load_balancer_ips,
    protocol_of,
    service_ports,
)


def address_clauses(
    cluster: api.Cluster,
    packet: Packet,
    service: api.Service,
    port: api.ServicePort,
    service_address: ServiceAddress,
) -> Reasons:
    """Clauses on the address and port of the packet's destination."""
    several_ips = len(set(load_balancer_ips(service, packet.family))) > 1
    at_load_balancer = service_address.kind is ServiceAddressKind.LOAD_BALANCER_IP
    signs = {
        "protocol.udp.served": packet.protocol is Protocol.UDP,
        "protocol.sctp.served": packet.protocol is Protocol.SCTP,
        "protocol.same-number.independent": _number_shared(service, port, service_address.kind),
        "cluster-ip.any-range.served": service_address.kind is ServiceAddressKind.CLUSTER_IP
        and _outside_known_ranges(cluster, packet),
        "node-port.both-families.served": service_address.kind is ServiceAddressKind.NODE_PORT
        and _dual_stack(service),
        "load-balancer.every-ip.served": at_load_balancer and several_ips,
        "load-balancer.without-node-port.served": at_load_balancer and not port.node_port,
        "load-balancer.hostname-only.ignored": _hostname_only(service),
        "load-balancer.other-family.skipped": any(_load_balancer_ips_of_no_family_of(service)),
        "external-ip.bad-text.skipped": any(_bad_external_ips(service)),
        "objects.addresses.leading-zeros-decimal": has_leading_zeros(
            service_address.text, service_address.address
        ),
    }
    return tuple(clause(id) for id, holds in signs.items() if holds)


def endpoint_clauses(
    cluster: api.Cluster,
    node: NodeFacts,
    service: api.Service,
    kind: ServiceAddressKind,
    endpoints: tuple[Candidate, ...],
) -> Reasons:
    """Clauses on the endpoints that may answer."""
    nodes = _node_addresses(cluster) | node.addresses
    elsewhere = all(endpoint.node != node.name for endpoint in endpoints)
    cluster_policy = service.spec.external_traffic_policy != LOCAL
    signs = {
        "node-port.every-node.served": kind is ServiceAddressKind.NODE_PORT and cluster_policy and elsewhere,
        "slices.target-port.per-endpoint": len({endpoint.port for endpoint in endpoints}) > 1,
        "slices.endpoint.host-network.reached": any(endpoint.address in nodes for endpoint in endpoints),
        "objects.dual-stack.node-of-one-family.served": len(node.families) == 1,
        "slices.endpoint.outside-cluster.reached": any(endpoint.node is None for endpoint in endpoints),
        "objects.addresses.leading-zeros-decimal": any(
            has_leading_zeros(e.text, e.address) for e in endpoints
        ),
    }
    return tuple(clause(id) for id, holds in signs.items() if holds)


def has_leading_zeros(text: str, address: Address | None) -> bool:
    """True if an IPv4 address is written in another form than its canonical one."""
    return isinstance(address, IPv4Address) and bool(text) and ":" not in text and text != str(address)


def _number_shared(service: api.Service, port: api.ServicePort, kind: ServiceAddressKind) -> bool:
    number = _number(port, kind)
    twins = [other for other in service_ports(service) if _number(other, kind) == number]
    return len({protocol_of(twin.protocol) for twin in twins}) > 1


def _number(port: api.ServicePort, kind: ServiceAddressKind) -> int:
    return port.node_port if kind is ServiceAddressKind.NODE_PORT else port.port


def _outside_known_ranges(cluster: api.Cluster, packet: Packet) -> bool:
    texts = (text for item in cluster.service_cidrs.values() for text in item.spec.cidrs or [])
    parsed = [parse_network(text) for text in texts]
    ranges = [r for r in parsed if r is not None and family_of(r) is packet.family]
    return bool(ranges) and not any(packet.destination in r for r in ranges)


def _dual_stack(service: api.Service) -> bool:
    return all(cluster_ip(service, family) is not None for family in Family)


def _hostname_only(service: api.Service) -> bool:
    return any(entry.hostname and not entry.ip for entry in service.status.load_balancer.ingress or [])


def _bad_external_ips(service: api.Service) -> Iterator[bool]:
    for text in service.spec.external_ips or []:
        address = parse_address(text)
        yield address is None or cluster_ip(service, family_of(address)) is None


def _load_balancer_ips_of_no_family_of(service: api.Service) -> Iterator[bool]:
    for entry in service.status.load_balancer.ingress or []:
        address = parse_address(entry.ip or "")
        yield address is not None and cluster_ip(service, family_of(address)) is None


def _node_addresses(cluster: api.Cluster) -> frozenset[Address]:
    texts = (entry.address for node in cluster.nodes.values() for entry in node.status.addresses or [])
    parsed = (parse_address(text) for text in texts)
    return frozenset(address for address in parsed if address is not None)
