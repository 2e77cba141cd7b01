"""Cases of a cluster that kubectl printed: every frontend from every vantage point.  Pure.

Frontends: cluster IPs, external IPs and load balancer IPs, each port and protocol, and one port that a Service does not
have; node ports at a node's primary address, at another one of it and at localhost; a cluster IP that no Service has.
Senders: a pod on each node, the node itself, an on-link and a routed client through each node, an endpoint itself, and,
where a Service lists source ranges, a client of each range.

The Services are there already, with addresses of their own: a `CopiedInstance` is bound to these, in the topology of
the cluster's copy, and has the oracle's outcomes about no mode in particular. The oracle examines all Services for each
packet; a `ServiceIndex` passes it only those that have the probed address or node port: no other can matter.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from ipaddress import ip_address

from kproxy.conformance.binding.bind import UNDEFINED_PORT, BoundPacket, Instance
from kproxy.conformance.case import (
    Case,
    Lawful,
    Probe,
    ReachedEndpoint,
    Target,
    TargetKind,
    Vantage,
    VantageKind,
    client,
    host,
    pod,
    remote,
    unallocated,
)
from kproxy.lab.topology import LOOPBACK, UPLINK, Topology
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
from kproxy.spec.node import NodeFacts
from kproxy.spec.oracle import expect
from kproxy.spec.outcome import Delivered, Outcome

PROBE_POD = {"a": "a1", "b": "b1"}
"""Pod of each node that sends probes and is no Service's endpoint."""
POD_LINK = "a pod's link"

_OUTSIDE = {VantageKind.ON_LINK, VantageKind.ROUTED}
_ON_NODE = {TargetKind.NODE_PORT, TargetKind.NODE_PORT_SECOND, TargetKind.NODE_PORT_LOCALHOST}
"""Kinds of address of the node's own, where the kernel uses the destination as the source."""


@dataclass(frozen=True, kw_only=True)
class CopiedInstance(Instance):
    """Case of one probe of a Service that a cluster has; ``lawful``: the oracle's outcomes, with addresses."""

    service: api.Key
    bound: BoundPacket
    lawful: frozenset[Outcome]

    @property
    def probe(self) -> Probe:
        """Its only step."""
        (step,) = self.case.steps
        assert isinstance(step, Probe)
        return step

    def bound_packet(self, sender: Vantage, to: Target, source_port: int = 0) -> BoundPacket:
        """Packet that the probe sends, and the node that judges it."""
        assert (sender, to, source_port) == (self.probe.sender, self.probe.to, 0)
        return self.bound

    def outcomes(self, lawful: Lawful, to: Target) -> frozenset[Outcome]:
        """Outcomes that are lawful for the probe."""
        assert (lawful, to) == (self.probe.expect, self.probe.to)
        return self.lawful


class ServiceIndex:
    """Index of the cluster's Services by address and by node port.

    So the oracle examines only those that a packet can concern.
    """

    def __init__(self, cluster: api.Cluster) -> None:
        self._cluster = cluster
        self._at: dict[Address | int, dict[api.Key, api.Service]] = defaultdict(dict)
        self._slices: dict[api.Key, dict[api.Key, api.EndpointSlice]] = defaultdict(dict)
        for key, service in cluster.services.items():
            for place in _places(service):
                self._at[place][key] = service
        for key, piece in cluster.slices.items():
            owner = (piece.metadata.namespace, piece.metadata.labels.get(api.SERVICE_NAME_LABEL, ""))
            self._slices[owner][key] = piece

    def on(self, destination: Address, port: int) -> api.Cluster:
        """The cluster without the Services that have neither this address nor this node port."""
        services = {**self._at.get(destination, {}), **self._at.get(port, {})}
        slices = {k: piece for owner in services for k, piece in self._slices.get(owner, {}).items()}
        return replace(self._cluster, services=services, slices=slices)

    def endpoints(self, service: api.Key, family: Family) -> Iterator[tuple[Address, api.Endpoint]]:
        """Endpoints of a Service in a family, with their addresses."""
        for piece in self._slices.get(service, {}).values():
            for endpoint in piece.endpoints or []:
                address = parse_address((endpoint.addresses or [""])[0])
                if address is not None and family_of(address) is family:
                    yield address, endpoint


def _places(service: api.Service) -> set[Address | int]:
    spec, ingress = service.spec, service.status.load_balancer.ingress or []
    texts = [spec.cluster_ip, *(spec.cluster_ips or []), *(spec.external_ips or []), *(e.ip for e in ingress)]
    found: set[Address | int] = {a for a in map(parse_address, texts) if a is not None}
    return found | {port.node_port for port in spec.ports or [] if port.node_port}


def copied_instances(
    cluster: api.Cluster, topology: Topology, facts: Mapping[str, NodeFacts]
) -> tuple[CopiedInstance, ...]:
    """All probes of a cluster, Service by Service; ``facts``: what the oracle knows of each node."""
    index = ServiceIndex(cluster)
    writer = _ProbeWriter(cluster, topology, index)
    made = []
    for number, (service, sender, to, bound) in enumerate(writer.probes()):
        packet = bound.packet
        found = expect(index.on(packet.destination, packet.port), facts[bound.node], packet)
        lawful = frozenset(
            ReachedEndpoint(topology.namespace_of(o.address), o.source) if isinstance(o, Delivered) else o
            for o in found.outcomes
        )
        case = Case(
            id="/".join(filter(None, service)) or "(no Service)",
            about="",
            clauses=frozenset(found.clauses),
            steps=(Probe(sender=sender, to=to, expect=lawful, clauses=found.clauses),),
            families=(packet.family,),
        )
        made.append(
            CopiedInstance(
                case,
                packet.family,
                number,
                0,
                topology,
                service=service,
                bound=bound,
                lawful=found.outcomes,
            )
        )
    return tuple(made)


_ANY = ip_address("0.0.0.0")  # noqa: S104 (stands for whichever address of a node)
_Sender = tuple[Vantage, Address]
_Probed = tuple[api.Key, Vantage, Target, BoundPacket]


@dataclass(frozen=True, slots=True)
class _Frontend:
    service: api.Key
    to: Target
    address: Address
    port: int
    protocol: Protocol


@dataclass(frozen=True, slots=True)
class _ProbeWriter:
    """Writer of a cluster's probes as packets."""

    cluster: api.Cluster
    topology: Topology
    index: ServiceIndex

    def probes(self) -> Iterator[_Probed]:
        """Probes of each Service, then those of cluster IPs that no Service has."""
        for service in self.cluster.services.values():
            for family in self.topology.families:
                if _proxied(service, family):
                    yield from self._of_service(service, family)
        yield from self._unallocated()

    def _of_service(self, service: api.Service, family: Family) -> Iterator[_Probed]:
        key = api.key_of(service)
        for port in service.spec.ports or []:
            protocol = next((p for p in Protocol if p.value == (port.protocol or "TCP")), None)
            if protocol is None:
                continue
            for kind, address in _addresses(service, family):
                to = Target(kind, key[1], port=port.name or "")
                frontend = _Frontend(key, to, address, port.port, protocol)
                yield from self._from_senders(frontend, self._everybody(family))
                yield from self._from_senders(frontend, self._special(service, kind, family))
            if port.node_port:
                to = Target(TargetKind.NODE_PORT, key[1], port=port.name or "")
                yield from self._node_port(_Frontend(key, to, _ANY, port.node_port, protocol), family)
        yield self._undefined(service, family)

    # ------------------------------------------------------------------- senders

    def _everybody(self, family: Family) -> Iterator[_Sender]:
        t = self.topology
        for node in t.nodes:
            yield self._visitor(node, family)
            yield self._host(node, family)
            yield client(node), t.client_address[node][family]
            yield remote(node), t.remote_address[node][family]

    def _visitor(self, node: str, family: Family) -> _Sender:
        return pod(PROBE_POD[node]), self.topology.pod_address[PROBE_POD[node]][family]

    def _host(self, node: str, family: Family) -> _Sender:
        return host(node), self.topology.node_address[node][family]

    def _special(self, service: api.Service, kind: TargetKind, family: Family) -> Iterator[_Sender]:
        """An endpoint on each node that is a pod, and, for load balancer IPs, a client of each range."""
        t = self.topology
        seen: set[str] = set()
        for address, _ in self.index.endpoints(api.key_of(service), family):
            place = t.namespace_of(address)
            node = t.node_of(place) if place in t.pod_addresses else ""
            if node and node not in seen:
                seen.add(node)
                yield Vantage(VantageKind.POD, node, place), address
        if kind is TargetKind.VIP:
            ranges = [parse_network(text) for text in service.spec.load_balancer_source_ranges or []]
            for node, guests in t.range_clients.items():
                for guest in guests:
                    if family_of(guest) is family and any(r is not None and guest in r for r in ranges):
                        yield remote(node), guest

    # ------------------------------------------------------------------- packets

    def _from_senders(self, frontend: _Frontend, senders: Iterator[_Sender]) -> Iterator[_Probed]:
        """Probes of an address by several senders; outside clients reach a node's own address through that node only."""
        owner = self.topology.namespace_of(frontend.address)
        for sender, source in senders:
            elsewhere = owner in self.topology.nodes and sender.node != owner
            if not (elsewhere and sender.kind in _OUTSIDE):
                yield _probed(frontend, (sender, source), sender.node)

    def _node_port(self, frontend: _Frontend, family: Family) -> Iterator[_Probed]:
        t = self.topology
        for node in t.nodes:
            own = replace(frontend, to=replace(frontend.to, node=node), address=t.node_address[node][family])
            for sender, source in self._everybody(family):
                if sender.kind not in _OUTSIDE or sender.node == node:
                    yield _probed(own, (sender, source), node)
            to, gateway = replace(own.to, kind=TargetKind.NODE_PORT_SECOND), t.pod_gateway[node][family]
            for one in (self._visitor(node, family), self._host(node, family)):
                yield _probed(replace(own, to=to, address=gateway), one, node)
            to = replace(own.to, kind=TargetKind.NODE_PORT_LOCALHOST)
            yield _probed(replace(own, to=to, address=LOOPBACK[family]), self._host(node, family), node)

    def _undefined(self, service: api.Service, family: Family) -> _Probed:
        taken = {port.port for port in service.spec.ports or []}
        address = next(at for kind, at in _addresses(service, family) if kind is TargetKind.CLUSTER_IP)
        number = next(number for number in range(UNDEFINED_PORT, 65536) if number not in taken)
        key, node = api.key_of(service), self.topology.nodes[0]
        to = Target(TargetKind.CLUSTER_IP, key[1]).at_undefined_port()
        frontend = _Frontend(key, to, address, number, Protocol.TCP)
        return _probed(frontend, self._visitor(node, family), node)

    def _unallocated(self) -> Iterator[_Probed]:
        families, node = self.topology.families, self.topology.nodes[0]
        taken = {a for s in self.cluster.services.values() for f in families for _, a in _addresses(s, f)}
        texts = (text for item in self.cluster.service_cidrs.values() for text in item.spec.cidrs or [])
        for network in map(parse_network, texts):
            if network is not None and family_of(network) in families and network.num_addresses > 2:
                free = (network[-2 - number] for number in range(min(network.num_addresses - 2, 4096)))
                address = next((one for one in free if one not in taken), None)
                if address is not None:
                    frontend = _Frontend(("", ""), unallocated(), address, 80, Protocol.TCP)
                    yield _probed(frontend, self._visitor(node, family_of(network)), node)


def _proxied(service: api.Service, family: Family) -> bool:
    """True if a Service has an address of the family that a proxy may serve."""
    elsewhere = api.PROXY_NAME_LABEL in service.metadata.labels or service.spec.type == "ExternalName"
    return not elsewhere and any(kind is TargetKind.CLUSTER_IP for kind, _ in _addresses(service, family))


def _addresses(service: api.Service, family: Family) -> Iterator[tuple[TargetKind, Address]]:
    spec = service.spec
    texts = [(TargetKind.CLUSTER_IP, text) for text in spec.cluster_ips or [spec.cluster_ip]]
    texts += [(TargetKind.EXTERNAL_IP, text) for text in spec.external_ips or []]
    texts += [(TargetKind.VIP, entry.ip) for entry in service.status.load_balancer.ingress or []]
    for kind, text in dict.fromkeys(texts):
        address = parse_address(text)
        if address is not None and family_of(address) is family:
            yield kind, address


def _probed(frontend: _Frontend, sender: _Sender, judge: str) -> _Probed:
    who, source = sender
    own = who.kind is VantageKind.HOST and who.node == judge
    if own and frontend.to.kind in _ON_NODE:
        source = frontend.address
    inside = who.kind is VantageKind.POD and who.node == judge
    entry = Entry(None if own else POD_LINK if inside else UPLINK)
    packet = Packet(entry, source, frontend.address, frontend.protocol, frontend.port)
    return frontend.service, who, frontend.to, BoundPacket(judge, packet)
