"""On which of the node's addresses node ports are served.

Part of the specification: from the Node object and the proxy's configuration.
"""

from __future__ import annotations

import enum
from ipaddress import IPv4Address

from kproxy.model import api
from kproxy.model.network import Address, Family, Network, family_of, parse_address
from kproxy.spec.clauses import clause
from kproxy.spec.node import NodeFacts, Primary
from kproxy.spec.services import Reasons


class Serves(enum.Enum):
    """Service of node ports at an address of the node."""

    YES = "yes"
    NO = "no"
    EITHER = "either is lawful"


ServedDecision = tuple[Serves, Reasons]


def check_node_port_address(cluster: api.Cluster, node: NodeFacts, address: Address) -> ServedDecision:
    """Service of node ports at one of the node's own addresses, and the clauses that decide."""
    if address.is_loopback:
        return _loopback_serves(node, address)
    match node.node_port_addresses:
        case Primary.PRIMARY:
            return _primary_serves(cluster, node, address)
        case ():
            return _serves_by_default(cluster, node, address)
        case ranges if address in node.late_addresses:
            return _ranges_serve_late(_ranges_serve(ranges, address), ranges, address)
        case ranges:
            return _ranges_serve(ranges, address)


def _loopback_serves(node: NodeFacts, address: Address) -> ServedDecision:
    """127.0.0.1 serves if localhostNodePorts and nodePortAddresses admit it; ::1 never."""
    if not isinstance(address, IPv4Address):
        return Serves.NO, (clause("node-port.localhost.ipv6.untouched"),)
    if node.localhost_node_ports is False:
        return Serves.NO, (clause("node-port.localhost.disabled.untouched"),)
    match node.node_port_addresses:
        case Primary.PRIMARY:
            return Serves.NO, (clause("node-port.addresses.not-primary.untouched"),)
        case ranges if ranges and _ranges_serve(ranges, address)[0] is Serves.NO:
            return _ranges_serve(ranges, address)
    if node.localhost_node_ports:
        return Serves.YES, (clause("node-port.localhost.enabled.served"),)
    return Serves.EITHER, (clause("node-port.localhost.default.either"),)


def _primary_serves(cluster: api.Cluster, node: NodeFacts, address: Address) -> ServedDecision:
    primary = primary_address(cluster, node, family_of(address))
    if primary is None:
        return Serves.EITHER, (clause("node-port.addresses.primary-unknown.either"),)
    if address == primary:
        return Serves.YES, (clause("node-port.addresses.primary.served"),)
    return Serves.NO, (clause("node-port.addresses.not-primary.untouched"),)


def _serves_by_default(cluster: api.Cluster, node: NodeFacts, address: Address) -> ServedDecision:
    if address == primary_address(cluster, node, family_of(address)):
        return Serves.YES, ()
    return Serves.EITHER, (clause("node-port.addresses.default-not-primary.either"),)


def _ranges_serve(ranges: tuple[Network, ...], address: Address) -> ServedDecision:
    own = [r for r in ranges if family_of(r) is family_of(address)]
    if not own:
        return Serves.YES, (clause("node-port.addresses.family-not-listed.served"),)
    if any(r.prefixlen == 0 for r in own):
        return Serves.YES, (clause("node-port.addresses.zero-range.served"),)
    if any(address in r for r in own):
        return Serves.YES, (clause("node-port.addresses.inside-configured.served"),)
    return Serves.NO, (clause("node-port.addresses.outside-configured.untouched"),)


def _ranges_serve_late(
    answer: ServedDecision, ranges: tuple[Network, ...], address: Address
) -> ServedDecision:
    """Service at an address that was added after the proxy had started.

    It is served if nodePortAddresses has no range of its family, or a range of all addresses.  Within another range
    either is lawful: a proxy may resolve ranges to addresses once, at its start.
    """
    serves, reasons = answer
    if serves is Serves.NO:
        return answer
    own = [r for r in ranges if family_of(r) is family_of(address)]
    if not own or any(r.prefixlen == 0 for r in own):
        return serves, (*reasons, clause("node-port.addresses.gained.served"))
    return Serves.EITHER, (*reasons, clause("node-port.addresses.gained-inside-configured.either"))


def primary_address(cluster: api.Cluster, node: NodeFacts, family: Family) -> Address | None:
    """The first InternalIP of the family that the Node object lists, else its first ExternalIP."""
    known = cluster.node(node.name)
    listed = known.status.addresses or [] if known else []
    for wanted in ("InternalIP", "ExternalIP"):
        for entry in listed:
            address = parse_address(entry.address) if entry.type == wanted else None
            if address is not None and family_of(address) is family:
                return address
    return None
