"""Lawful outcomes of packets that are sent to no Service port, and why.

Part of the specification: reached only when no address, protocol and port of a served Service matches.
"""

from __future__ import annotations

from collections.abc import Iterator

from kproxy.model import api
from kproxy.model.network import Packet, parse_address, parse_network
from kproxy.spec.clauses import clause
from kproxy.spec.node import NodeFacts
from kproxy.spec.outcome import ClauseId, Expectation, Failure
from kproxy.spec.services import (
    Reasons,
    ServiceAddressKind,
    external_ips,
    ip_mode_proxy_addresses,
    protocol_of,
    proxied_services,
    service_addresses,
    service_ports,
    why_not_proxied,
)


def expect_unserved(cluster: api.Cluster, node: NodeFacts, packet: Packet) -> Expectation:
    """The lawful outcomes of a packet that is sent to no port of a Service."""
    served = _served_address(cluster, node, packet)
    if served is not None:
        kind, service = served
        if _another_nodes_address(cluster, node, packet):
            return Expectation(frozenset({Failure.UNTOUCHED}), tuple(_other_node_reasons(service, packet)))
        return _undefined_port(node, packet, kind, service)
    if _unallocated(cluster, packet):
        reasons = (*_unserved_reasons(cluster, node, packet), clause("cluster-ip.unallocated.not-served"))
        return Expectation(frozenset({Failure.UNTOUCHED, Failure.DROPPED}), reasons)
    reasons = _unserved_reasons(cluster, node, packet) or (clause("traffic.not-for-a-service.untouched"),)
    return Expectation(frozenset({Failure.UNTOUCHED}), reasons)


def _served_address(
    cluster: api.Cluster, node: NodeFacts, packet: Packet
) -> tuple[ServiceAddressKind, api.Service] | None:
    """The Service whose own address a packet is sent to."""
    for service in proxied_services(cluster, packet.family):
        for service_address in service_addresses(
            service, packet.family, allow_external_ips=node.allow_external_ips
        ):
            if service_address.address == packet.destination:
                return service_address.kind, service
    return None


def _other_node_reasons(service: api.Service, packet: Packet) -> Iterator[ClauseId]:
    yield clause("external-ip.node-address.node-in-reach")
    if _is_node_port(service, packet):
        yield clause("node-port.other-node.untouched")


def _undefined_port(
    node: NodeFacts, packet: Packet, kind: ServiceAddressKind, service: api.Service
) -> Expectation:
    """The lawful outcomes at a Service's address with a port that it does not have: untouched or rejected.

    An address that is also the node's own is the node's at other ports.
    """
    reasons = (_which_undefined(packet, kind, service),)
    if packet.destination in node.addresses:
        return Expectation(frozenset({Failure.UNTOUCHED}), reasons)
    return Expectation(frozenset({Failure.UNTOUCHED, Failure.REJECTED}), reasons)


def _which_undefined(packet: Packet, kind: ServiceAddressKind, service: api.Service) -> ClauseId:
    same_protocol = [p for p in service_ports(service) if protocol_of(p.protocol) is packet.protocol]
    if any(p.node_port == packet.port for p in same_protocol):
        return clause("node-port.number-on-service-address.not-served")
    if kind is not ServiceAddressKind.CLUSTER_IP:
        return clause("external-address.undefined-port.not-served")
    if any(p.port == packet.port for p in service_ports(service)):
        return clause("cluster-ip.undefined-protocol.not-served")
    return clause("cluster-ip.undefined-port.not-served")


def _unallocated(cluster: api.Cluster, packet: Packet) -> bool:
    """True if the destination, which is no Service's, is in a range for cluster IPs (ServiceCIDR)."""
    texts = (text for item in cluster.service_cidrs.values() for text in item.spec.cidrs or [])
    ranges = (parse_network(text) for text in texts)
    return any(packet.destination in r for r in ranges if r is not None)


def _unserved_reasons(cluster: api.Cluster, node: NodeFacts, packet: Packet) -> Reasons:
    """Clauses that exclude Services which mention the destination."""
    found = dict.fromkeys(_exclusion_reasons(cluster, node, packet))
    return tuple(found)


def _exclusion_reasons(cluster: api.Cluster, node: NodeFacts, packet: Packet) -> Iterator[ClauseId]:
    for service in cluster.services.values():
        reason = why_not_proxied(service, packet.family)
        if reason is not None:
            if _mentions(service, node, packet):
                yield reason
            continue
        if packet.destination in ip_mode_proxy_addresses(service):
            yield clause("load-balancer.ip-mode-proxy.untouched")
        if packet.destination in {door.address for door in external_ips(service, packet.family)}:
            yield clause("external-ip.disabled.untouched")
        if _is_node_port(service, packet) and _another_nodes_address(cluster, node, packet):
            yield clause("node-port.other-node.untouched")


def _mentions(service: api.Service, node: NodeFacts, packet: Packet) -> bool:
    """True if a Service that is not served lists the destination, as address or as node port."""
    ingress = service.status.load_balancer.ingress or []
    texts = [
        service.spec.cluster_ip,
        *(service.spec.cluster_ips or []),
        *(service.spec.external_ips or []),
        *(entry.ip for entry in ingress),
    ]
    listed = packet.destination in {parse_address(text) for text in texts}
    return listed or (packet.destination in node.addresses and _is_node_port(service, packet))


def _is_node_port(service: api.Service, packet: Packet) -> bool:
    return any(
        port.node_port == packet.port and protocol_of(port.protocol) is packet.protocol
        for port in service_ports(service)
    )


def _another_nodes_address(cluster: api.Cluster, node: NodeFacts, packet: Packet) -> bool:
    return any(
        parse_address(entry.address) == packet.destination
        for other in cluster.nodes.values()
        if other.metadata.name != node.name
        for entry in other.status.addresses or []
    )
