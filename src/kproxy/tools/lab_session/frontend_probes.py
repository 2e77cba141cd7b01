"""Every frontend of a cluster from every vantage point, as packets.  Pure.

Frontends: cluster IPs, external IPs and load balancer IPs, each port and protocol, and one port that a Service does not
have; node ports at a node's primary address, at another one of it and at localhost; a cluster IP that no Service has.
Senders: a pod on each node, the node itself, an on-link and a routed client through each node, an endpoint itself, and,
where a Service lists source ranges, a client of each range.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_address

from kproxy.lab.topology import CLIENT, LOOPBACK, REMOTE, UPLINK, Topology
from kproxy.model import api
from kproxy.model.network import (
    Address,
    Entry,
    Family,
    Packet,
    Protocol,
    family_of,
    parse_address,
    parse_network,
)
from kproxy.tools.explain.dump import Dump
from kproxy.tools.lab_session.layout import PROBE_POD

UNDEFINED_PORT = 7777
POD_LINK = "a pod's link"


class ProbedAddressKind(enum.Enum):
    """Kinds of address that are probed; the value is their name in reports."""

    CLUSTER_IP = "cluster IP"
    EXTERNAL_IP = "external IP"
    LOAD_BALANCER_IP = "load balancer IP"
    NODE_PORT = "node port"
    NODE_PORT_OTHER_ADDRESS = "node port at another address of the node"
    NODE_PORT_LOCALHOST = "node port at localhost"
    UNDEFINED_PORT = "port that the Service does not have, at its cluster IP"
    UNALLOCATED = "cluster IP that no Service has"


class ClientKind(enum.Enum):
    """Kinds of sender."""

    POD = "pod"
    HOST = "node"
    ON_LINK = "on-link client"
    ROUTED = "routed client"
    GUEST = "client of a source range"
    ENDPOINT = "endpoint itself"


@dataclass(frozen=True, slots=True)
class ProbeSender:
    """Sender.

    ``namespace``: where the probe starts; ``node``: the sender's, or the one that its packets go through.
    """

    kind: ClientKind
    namespace: str
    node: str
    source: Address


@dataclass(frozen=True, slots=True)
class FrontendProbe:
    """One packet: its Service, kind of address and sender, and the lab node whose proxy decides."""

    service: api.Key
    frontend: ProbedAddressKind
    sender: ProbeSender
    judge: str
    packet: Packet
    node_port: int = 0

    @property
    def to(self) -> str:
        """Destination, as a socket."""
        address = self.packet.destination
        shown = f"[{address}]" if address.version == 6 else str(address)
        return f"{shown}:{self.packet.port}/{self.packet.protocol.value}"

    @property
    def name(self) -> str:
        """Name of the Service, as ``namespace/name``."""
        return "/".join(filter(None, self.service)) or "(no Service)"


@dataclass(frozen=True, slots=True)
class _Target:
    service: api.Key
    front: ProbedAddressKind
    address: Address
    port: int
    protocol: Protocol
    node_port: int = 0


def frontend_probes(dump: Dump, topology: Topology) -> tuple[FrontendProbe, ...]:
    """All probes, Service by Service."""
    found: list[FrontendProbe] = []
    for service in dump.cluster.services.values():
        for family in topology.families:
            found += _of_service(dump, topology, service, family)
    return (*found, *_unallocated(dump, topology))


def _of_service(
    dump: Dump, topology: Topology, service: api.Service, family: Family
) -> Iterator[FrontendProbe]:
    if not _proxied(service, family):
        return
    key = api.key_of(service)
    for port in service.spec.ports or []:
        protocol = _protocol(port.protocol)
        if protocol is None:
            continue
        for front, address in _addresses(service, family):
            target = _Target(key, front, address, port.port, protocol)
            yield from _from_senders(topology, target, tuple(_everybody(topology, family)))
            yield from _from_senders(
                topology, target, tuple(_special(dump, topology, service, front, family))
            )
        if port.node_port:
            yield from _node_port(
                topology, _Target(key, ProbedAddressKind.NODE_PORT, _ANY, port.node_port, protocol), family
            )
    yield from _undefined(topology, service, family)


def _proxied(service: api.Service, family: Family) -> bool:
    """True if a Service has an address of the family that a proxy may serve."""
    elsewhere = api.PROXY_NAME_LABEL in service.metadata.labels or service.spec.type == "ExternalName"
    return not elsewhere and any(
        front is ProbedAddressKind.CLUSTER_IP for front, _ in _addresses(service, family)
    )


def _protocol(text: str) -> Protocol | None:
    return next((protocol for protocol in Protocol if protocol.value == (text or "TCP")), None)


_ANY = ip_address("0.0.0.0")  # noqa: S104 (stands for whichever address of a node)


def _addresses(service: api.Service, family: Family) -> Iterator[tuple[ProbedAddressKind, Address]]:
    spec = service.spec
    texts = [(ProbedAddressKind.CLUSTER_IP, text) for text in spec.cluster_ips or [spec.cluster_ip]]
    texts += [(ProbedAddressKind.EXTERNAL_IP, text) for text in spec.external_ips or []]
    texts += [(ProbedAddressKind.LOAD_BALANCER_IP, e.ip) for e in service.status.load_balancer.ingress or []]
    for front, text in dict.fromkeys(texts):
        address = parse_address(text)
        if address is not None and family_of(address) is family:
            yield front, address


# --------------------------------------------------------------------------- senders


def _everybody(topology: Topology, family: Family) -> Iterator[ProbeSender]:
    for node in topology.nodes:
        yield _visitor(topology, node, family)
        yield _host(topology, node, family)
        yield from _clients(topology, node, family)


def _visitor(topology: Topology, node: str, family: Family) -> ProbeSender:
    name = PROBE_POD[node]
    return ProbeSender(ClientKind.POD, name, node, topology.pod_address[name][family])


def _host(topology: Topology, node: str, family: Family) -> ProbeSender:
    return ProbeSender(ClientKind.HOST, node, node, topology.node_address[node][family])


def _clients(topology: Topology, node: str, family: Family) -> Iterator[ProbeSender]:
    yield ProbeSender(ClientKind.ON_LINK, CLIENT, node, topology.client_address[node][family])
    yield ProbeSender(ClientKind.ROUTED, REMOTE, node, topology.remote_address[node][family])


def _special(
    dump: Dump, topology: Topology, service: api.Service, front: ProbedAddressKind, family: Family
) -> Iterator[ProbeSender]:
    """An endpoint on each node that is a pod, and, for load balancer IPs, a client of each range."""
    seen: set[str] = set()
    for address in _endpoints(dump, service, family):
        pod = topology.namespace_of(address)
        node = topology.node_of(pod) if pod in topology.pod_addresses else ""
        if node and node not in seen:
            seen.add(node)
            yield ProbeSender(ClientKind.ENDPOINT, pod, node, address)
    if front is ProbedAddressKind.LOAD_BALANCER_IP:
        yield from _guests(topology, service, family)


def _endpoints(dump: Dump, service: api.Service, family: Family) -> Iterator[Address]:
    namespace, name = api.key_of(service)
    for piece in dump.cluster.slices.values():
        labels = piece.metadata.labels
        if piece.metadata.namespace == namespace and labels.get(api.SERVICE_NAME_LABEL) == name:
            for endpoint in piece.endpoints or []:
                address = parse_address((endpoint.addresses or [""])[0])
                if address is not None and family_of(address) is family:
                    yield address


def _guests(topology: Topology, service: api.Service, family: Family) -> Iterator[ProbeSender]:
    ranges = [parse_network(text) for text in service.spec.load_balancer_source_ranges or []]
    for node in topology.nodes:
        for guest in topology.range_clients[node]:
            if family_of(guest) is family and any(r is not None and guest in r for r in ranges):
                yield ProbeSender(ClientKind.GUEST, REMOTE, node, guest)


# --------------------------------------------------------------------------- packets


def _from_senders(
    topology: Topology, target: _Target, senders: tuple[ProbeSender, ...]
) -> Iterator[FrontendProbe]:
    """Probes of one address by several senders; outside clients reach a node's own address through that node only."""
    owner = topology.namespace_of(target.address)
    for sender in senders:
        outside = sender.kind in {ClientKind.ON_LINK, ClientKind.ROUTED, ClientKind.GUEST}
        if owner in topology.nodes and outside and sender.node != owner:
            continue
        yield _question(target, sender, sender.node)


def _question(target: _Target, sender: ProbeSender, judge: str) -> FrontendProbe:
    source = sender.source
    own = sender.kind is ClientKind.HOST and sender.node == judge
    if own and target.front in _LOCAL:
        source = target.address
    entry = None if own else POD_LINK if sender.node == judge and sender.kind in _INSIDE else UPLINK
    packet = Packet(Entry(entry), source, target.address, target.protocol, target.port)
    return FrontendProbe(target.service, target.front, sender, judge, packet, target.node_port)


_INSIDE = {ClientKind.POD, ClientKind.ENDPOINT}
_LOCAL = {
    ProbedAddressKind.NODE_PORT,
    ProbedAddressKind.NODE_PORT_OTHER_ADDRESS,
    ProbedAddressKind.NODE_PORT_LOCALHOST,
}
"""Kinds of address of the node's own, where the kernel uses the destination as the source."""


def _node_port(topology: Topology, port: _Target, family: Family) -> Iterator[FrontendProbe]:
    for node in topology.nodes:
        at_primary = _at(port, ProbedAddressKind.NODE_PORT, topology.node_address[node][family])
        for sender in _everybody(topology, family):
            if sender.kind in {ClientKind.POD, ClientKind.HOST} or sender.node == node:
                yield _question(at_primary, sender, node)
        other = _at(port, ProbedAddressKind.NODE_PORT_OTHER_ADDRESS, topology.pod_gateway[node][family])
        for sender in (_visitor(topology, node, family), _host(topology, node, family)):
            yield _question(other, sender, node)
        localhost = _at(port, ProbedAddressKind.NODE_PORT_LOCALHOST, LOOPBACK[family])
        yield _question(localhost, _host(topology, node, family), node)


def _at(port: _Target, front: ProbedAddressKind, address: Address) -> _Target:
    return _Target(port.service, front, address, port.port, port.protocol, port.port)


def _undefined(topology: Topology, service: api.Service, family: Family) -> Iterator[FrontendProbe]:
    taken = {port.port for port in service.spec.ports or []}
    address = next(
        address for front, address in _addresses(service, family) if front is ProbedAddressKind.CLUSTER_IP
    )
    node = topology.nodes[0]
    number = next(number for number in range(UNDEFINED_PORT, 65536) if number not in taken)
    target = _Target(api.key_of(service), ProbedAddressKind.UNDEFINED_PORT, address, number, Protocol.TCP)
    yield _question(target, _visitor(topology, node, family), node)


def _unallocated(dump: Dump, topology: Topology) -> Iterator[FrontendProbe]:
    taken = {
        a for s in dump.cluster.services.values() for f in topology.families for _, a in _addresses(s, f)
    }
    for item in dump.cluster.service_cidrs.values():
        for text in item.spec.cidrs or []:
            network = parse_network(text)
            if network is not None and family_of(network) in topology.families and network.num_addresses > 2:
                free = (network[-2 - number] for number in range(min(network.num_addresses - 2, 4096)))
                address = next((one for one in free if one not in taken), None)
                if address is not None:
                    target = _Target(("", ""), ProbedAddressKind.UNALLOCATED, address, 80, Protocol.TCP)
                    sender = _visitor(topology, topology.nodes[0], family_of(network))
                    yield _question(target, sender, topology.nodes[0])
