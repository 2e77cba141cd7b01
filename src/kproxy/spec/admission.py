"""Which sources a Service's load balancer IPs let in.

Part of the specification: from the Service, the packet and the Node object.
"""

from __future__ import annotations

import enum

from kproxy.model import api
from kproxy.model.network import Address, Network, Packet, family_of, parse_network
from kproxy.spec.clauses import clause
from kproxy.spec.node import NodeFacts
from kproxy.spec.node_addresses import primary_address
from kproxy.spec.sender import Sender, SenderKind
from kproxy.spec.services import Reasons, ServiceAddressKind, load_balancer_ips


class Admission(enum.Enum):
    """Verdict of loadBalancerSourceRanges on a packet's source."""

    ALLOWED = "let in"
    DENIED = "dropped"
    EITHER = "either is lawful"


AdmissionDecision = tuple[Admission, Reasons]

_EXEMPT = {
    ServiceAddressKind.CLUSTER_IP: "source-ranges.cluster-ip-exempt",
    ServiceAddressKind.NODE_PORT: "source-ranges.node-port-exempt",
    ServiceAddressKind.EXTERNAL_IP: "source-ranges.external-ip-exempt",
}


def check_source_ranges(
    cluster: api.Cluster,
    node: NodeFacts,
    packet: Packet,
    service: api.Service,
    kind: ServiceAddressKind,
    sender: Sender,
) -> AdmissionDecision:
    """Verdict of loadBalancerSourceRanges on a packet, and the clauses it rests on."""
    texts = service.spec.load_balancer_source_ranges or []
    if not texts:
        return Admission.ALLOWED, ()
    ranges = _of_family(texts, packet)
    if kind is not ServiceAddressKind.LOAD_BALANCER_IP:
        barred_there = not _inside(packet.source, ranges)
        return Admission.ALLOWED, (clause(_EXEMPT[kind]),) if barred_there else ()
    if not ranges:
        return Admission.EITHER, (clause("source-ranges.other-family-only.either"),)
    if any(r.prefixlen == 0 for r in ranges):
        return Admission.ALLOWED, (clause("source-ranges.zero-range.allows-all"),)
    if _inside(packet.source, ranges):
        return Admission.ALLOWED, _inside_reasons(texts)
    if _is_from_vip_of_node(cluster, node, packet, service, ranges):
        return Admission.ALLOWED, (clause("source-ranges.node-with-vip-as-source.allowed"),)
    return Admission.DENIED, _outside_reasons(sender)


def _of_family(texts: list[str], packet: Packet) -> list[Network]:
    parsed = (parse_network(text) for text in texts)
    return [r for r in parsed if r is not None and family_of(r) is packet.family]


def _inside(source: Address, ranges: list[Network]) -> bool:
    return any(source in r for r in ranges)


def _inside_reasons(texts: list[str]) -> Reasons:
    reasons: Reasons = (clause("source-ranges.inside-allowed"),)
    if any(text != text.strip() for text in texts):
        reasons += (clause("source-ranges.blanks-trimmed"),)
    return reasons


def _outside_reasons(sender: Sender) -> Reasons:
    reasons: Reasons = (clause("source-ranges.outside-dropped"),)
    match sender.kind:
        case SenderKind.HOST:
            reasons += (clause("source-ranges.apply-to-host"),)
        case SenderKind.POD | SenderKind.OTHER_NODES_POD:
            reasons += (clause("source-ranges.apply-to-pods"),)
        case SenderKind.OUTSIDE:
            pass
    return reasons


def _is_from_vip_of_node(
    cluster: api.Cluster, node: NodeFacts, packet: Packet, service: api.Service, ranges: list[Network]
) -> bool:
    """A node that has the load balancer IP on an interface sends with it as source."""
    vips = {door.address for door in load_balancer_ips(service, packet.family)}
    primary = primary_address(cluster, node, packet.family)
    return packet.source in vips and primary is not None and _inside(primary, ranges)
