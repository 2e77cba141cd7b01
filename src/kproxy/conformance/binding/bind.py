"""Names to addresses: binds cases to a topology.

Sits between the catalogue (`kproxy.conformance.case`) and the testbeds; the double-entry test sends the same packets
to the oracle. Pure: the same instance always binds alike.

Theory of operation. A case speaks of ``pod("a1")``, ``web.cluster_ip``, ``delivered_to("b1")``. An `Instance` is one
case in one family, with a number that is unique in its lab, and turns these names into addresses, ports and packets:

- Each Service of an instance (a name and a generation) has a *block*, a small integer that no other Service of the lab
  has.  Everything that a Service owns is a function of its block: cluster IP (`FIRST_SERVICE_OFFSET` + block in the
  ServiceCIDR), node ports, external and load balancer IPs, health check node port, and, with the port's name, the target ports
  of its endpoints.  So all cases run at the same time in one lab and share pods, but no address and port, and an
  endpoint that replies is identified by its address and target port.
- A sender has the address from which its packets leave: a pod's own, for a node the address the kernel's source selection
  picks, for an outside client the one by which the topology's policy routes select the node (`source_address`).
- A packet is judged by the node that first may rewrite it (`BoundPacket`): the sender's own for pods and nodes, the one its route
  leads through for clients.  A packet to another node's port or to an address of its second interface passes the sender's
  node first, so it has a second view (`packet_at_sender_node`).
- Lawful outcomes become `kproxy.spec.outcome.Outcome` values with addresses (`Instance.outcomes`), which testbeds' observations
  and the oracle's verdicts are compared with.

The topology (`kproxy.lab.topology.Topology`) is bound here, and no earlier; a testbed on a real cluster has the lab's and
translates at its edge.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import attrgetter
from zlib import crc32

from kproxy.conformance.case import (
    Apply,
    Case,
    CaseService,
    Delete,
    DuringWatchFault,
    Lawful,
    Port,
    ReachedEndpoint,
    Restart,
    Target,
    TargetKind,
    Type,
    Vantage,
    VantageKind,
    targets,
)
from kproxy.lab.topology import LAB, LOOPBACK, SECOND_UPLINK, UPLINK, Pair, Topology
from kproxy.model.network import Address, Entry, Family, Network, Packet, Protocol
from kproxy.spec.outcome import Delivered, Outcome

PORT_NAMES = ("", "a", "b", "c")
PORTS_PER_SERVICE = len(PORT_NAMES)
EXTERNALS_PER_SERVICE = 4
FIRST_NODE_PORT = 30000
FIRST_TARGET_PORT = 10000
FIRST_SERVICE_OFFSET = 1024
FIRST_UNALLOCATED = 60000
FIRST_FOREIGN_OFFSET = 40000
"""First offset, in the range of external IPs, of cluster IPs outside the ServiceCIDR."""
FIRST_HEALTH_PORT = 50000
UNDEFINED_PORT = 7777
FIRST_UNUSED_HOST = 20
"""First host number, in the routed client's network, of the sources of `UNUSED_HOSTS`."""
LOOPBACK_DAEMON_PORT = 7070
LONGEST_LABEL = 63
"""Characters of a DNS label (RFC 1123)."""


class InvalidCase(Exception):
    """Case that cannot be bound: a mistake of its author."""


@dataclass(frozen=True, slots=True)
class BoundPacket:
    """Packet, and the node whose proxy is the first that may rewrite it."""

    node: str
    packet: Packet


@dataclass(frozen=True)
class Instance:
    """One case in one family; ``number`` is unique in its lab.

    Each of its Services (a name and a generation) has a block of addresses and ports of its own; ``first_block`` is
    the first of them.
    """

    case: Case
    family: Family
    number: int
    first_block: int
    topology: Topology = field(default=LAB, repr=False, compare=False)

    @property
    def name(self) -> str:
        """Name in results: ``case-id/IPv4``."""
        return f"{self.case.id}/{self.family.value}"

    @property
    def namespace(self) -> str:
        """Kubernetes namespace of its objects: a DNS label, so of 63 characters at most."""
        text = f"{self.case.id.replace('.', '-')}-{self.family.value.lower()}"
        return text if len(text) <= LONGEST_LABEL else f"{text[:54]}-{crc32(text.encode()):08x}"

    # ---------------------------------------------------------------- declared services

    @cached_property
    def services(self) -> tuple[CaseService, ...]:
        """Every form of every Service that the case's steps declare, in order of appearance."""
        return tuple(itertools.chain.from_iterable(_declared_services(step) for step in self.case.steps))

    @cached_property
    def _forms(self) -> dict[tuple[str, int], list[CaseService]]:
        """Forms of each Service, by name and generation."""
        forms: dict[tuple[str, int], list[CaseService]] = {}
        for service in self.services:
            forms.setdefault((service.name, service.generation), []).append(service)
        return forms

    @cached_property
    def _forms_with_port(self) -> dict[tuple[str, int, str], CaseService]:
        """First form of each Service that has a port, by name, generation and the port's name."""
        return {(s.name, s.generation, p.name): s for s in reversed(self.services) for p in s.ports}

    @cached_property
    def blocks(self) -> dict[tuple[str, int], int]:
        """Block of each Service, by name and generation."""
        declared = dict.fromkeys((service.name, service.generation) for service in self.services)
        return {key: self.first_block + number for number, key in enumerate(declared)}

    def block(self, service: CaseService) -> int:
        """Block of the Service."""
        return self.blocks[service.name, service.generation]

    def _declared_service(self, name: str, generation: int, port: str = "") -> CaseService:
        """Declared form of a Service, one that has that port if any does."""
        forms = self._forms.get((name, generation))
        if forms is None:
            raise InvalidCase(f"{self.case.id}: no step applies Service {name!r} (generation {generation})")
        return self._forms_with_port.get((name, generation, port), forms[0])

    # ---------------------------------------------------------------- addresses and ports

    def cluster_ip(self, service: CaseService, family: Family | None = None) -> Address:
        """Cluster IP of the Service, in ``family`` or else the instance's own."""
        owner = service
        if service.same_cluster_ip_as:
            owner = self._declared_service(service.same_cluster_ip_as, 0)
        block = self.block(owner)
        if service.in_second_service_cidr:
            return self.topology.second_service_cidr[family or self.family][FIRST_SERVICE_OFFSET + block]
        if service.outside_service_cidr:
            return self.topology.external_ip_range[family or self.family][FIRST_FOREIGN_OFFSET + block]
        return self.topology.service_cidr[family or self.family][FIRST_SERVICE_OFFSET + block]

    def unallocated(self, index: int) -> Address:
        """Cluster IP that no Service of any case has, of the first or the second ServiceCIDR."""
        ranges = (self.topology.service_cidr, self.topology.second_service_cidr)
        return ranges[index][self.family][FIRST_UNALLOCATED + self.number]

    def external_ip(self, service: CaseService, index: int) -> Address:
        """One of the Service's externalIPs."""
        if index < len(service.external_ips_of):
            second = service.external_ips_second
            own = self.topology.second_address if second else self.topology.node_address
            return own[service.external_ips_of[index]][self.family]
        return self._external(self.topology.external_ip_range[self.family], service, index)

    def vip(self, service: CaseService, index: int) -> Address:
        """One of the Service's load balancer IPs."""
        if index < len(service.vips) and (node := service.vips[index].node):
            own = self.topology.second_address if service.vips[index].second else self.topology.node_address
            return own[node][self.family]
        return self._external(self.topology.load_balancer_range[self.family], service, index)

    def _external(self, network: Network, service: CaseService, index: int) -> Address:
        owner = self._declared_service(service.same_vip_as, 0) if service.same_vip_as else service
        return network[256 + self.block(owner) * EXTERNALS_PER_SERVICE + index]

    def node_port(self, service: CaseService, port: Port) -> int:
        """Node port of a service port; 0 when it has none."""
        if service.type not in {Type.NODE_PORT, Type.LOAD_BALANCER} or not port.node_port:
            return 0
        owner = port.same_node_port_as if port.same_node_port_as is not None else port.name
        return FIRST_NODE_PORT + self.block(service) * PORTS_PER_SERVICE + _port_slot(owner)

    def health_check_port(self, service: CaseService) -> int:
        """Health check node port of the Service."""
        return FIRST_HEALTH_PORT + self.block(service)

    def target_port(self, service: CaseService, port: Port, shift: int = 0) -> int:
        """Port that the endpoints of a service port listen on; unique to this instance, service port and shift.

        Services that share their target ports have the same.
        """
        other = service.same_target_ports_as
        owner = self._declared_service(other, 0) if other else service
        slot = self.block(owner) * PORTS_PER_SERVICE + _port_slot(port.name)
        return FIRST_TARGET_PORT + slot * 2 + shift

    def address_on(self, on: str, family: Family | None = None) -> Address:
        """Address of an endpoint on a pod, or of a host-network endpoint on a node."""
        wanted = family or self.family
        if on in self.topology.nodes:
            return self.topology.node_address[on][wanted]
        return self.topology.pod_address[on][wanted]

    def addresses_on(self, on: str, first: int, many: int) -> tuple[Address, ...]:
        """Addresses of ``many`` endpoints on a pod; for ``many`` 0, its own address."""
        if not many:
            return (self.address_on(on),)
        network = self.topology.pod_range[on][self.family]
        return tuple(network[number] for number in range(first + 1, first + 1 + many))

    # ---------------------------------------------------------------- packets and outcomes

    def in_target_family(self, to: Target) -> Instance:
        """Instance of the target's family: the same one, or that of the same case in the other family."""
        other = next(family for family in Family if family is not self.family)
        return replace(self, family=other) if to.other_family else self

    def packet_at_sender_node(self, sender: Vantage, to: Target) -> BoundPacket | None:
        """Packet as seen at the sender's own node, when another node judges it; else None."""
        bound = self.bound_packet(sender, to)
        if sender.kind not in {VantageKind.POD, VantageKind.HOST} or sender.node == bound.node:
            return None
        interface = self.topology.pod_interface(sender.name) if sender.kind is VantageKind.POD else None
        return BoundPacket(sender.node, replace(bound.packet, entry=Entry(interface)))

    def bound_packet(self, sender: Vantage, to: Target, source_port: int = 0) -> BoundPacket:
        """Packet that a probe sends, and the node that judges it."""
        if to.other_family:
            return self.in_target_family(to).bound_packet(
                sender, replace(to, other_family=False), source_port
            )
        destination, port, protocol = self.destination(to)
        node = self._judging_node(sender, to)
        source = self.source_address(sender, to)
        interface = self._entry(sender, to, node)
        return BoundPacket(node, Packet(Entry(interface), source, destination, protocol, port, source_port))

    def destination(self, to: Target) -> tuple[Address, int, Protocol]:
        """Address, port and protocol of a target."""
        if to.kind is TargetKind.UNALLOCATED:
            return self.unallocated(to.index), 80, to.protocol or Protocol.TCP
        if to.kind is TargetKind.LOOPBACK_DAEMON:
            return LOOPBACK[self.family], LOOPBACK_DAEMON_PORT, to.protocol or Protocol.TCP
        service = self._declared_service(to.service, to.generation, to.port)
        port = self.port_of(to)
        return self._address(service, to), self._port_number(service, port, to), to.protocol or port.protocol

    def port_of(self, to: Target) -> Port:
        """Service port that a target names."""
        service = self._declared_service(to.service, to.generation, to.port)
        named = [port for port in service.ports if port.name == to.port]
        return named[0] if named else service.ports[0]

    def _address(self, service: CaseService, to: Target) -> Address:
        if (of_node := _NODE_ADDRESSES.get(to.kind)) is not None:
            return of_node(self.topology)[to.node][self.family]
        match to.kind:
            case TargetKind.CLUSTER_IP | TargetKind.HEALTH_CHECK_CLUSTER_IP:
                return self.cluster_ip(service)
            case TargetKind.NODE_PORT_LOCALHOST:
                return LOOPBACK[self.family]
            case TargetKind.EXTERNAL_IP:
                return self.external_ip(service, to.index)
            case TargetKind.VIP:
                return self.vip(service, to.index)
            case TargetKind.ENDPOINT:
                return self.address_on(to.node)
            case _:
                raise AssertionError(to.kind)

    def _port_number(self, service: CaseService, port: Port, to: Target) -> int:
        if to.undefined:
            return UNDEFINED_PORT
        if to.kind is TargetKind.ENDPOINT:
            return self.target_port(service, port)
        if to.kind in HEALTH_CHECK_KINDS:
            return self.health_check_port(service)
        if to.kind in NODE_PORT_KINDS or to.node_port_number:
            # A Service that has lost its node port is still probed at the number it had.
            numbers = (self.node_port(form, port) for form in self._forms[to.service, to.generation])
            number = next((n for n in numbers if n), 0)
            return number or FIRST_NODE_PORT + self.block(service) * PORTS_PER_SERVICE
        return port.number

    def _judging_node(self, sender: Vantage, to: Target) -> str:
        if to.kind in _ON_NODE_KINDS:
            return to.node
        return sender.node

    def source_address(self, sender: Vantage, to: Target, host_index: int = 0) -> Address:
        """Source address of the sender's packet; ``host_index``: number of a host among `UNUSED_HOSTS`."""
        family = self.family
        match sender.kind:
            case VantageKind.POD:
                return self.topology.pod_address[sender.name][family]
            case VantageKind.ON_LINK if self._at_second_interface(to):
                return self.topology.client_second_address[family]
            case VantageKind.ON_LINK:
                return self.topology.client_address[sender.node][family]
            case VantageKind.ROUTED:
                return self.topology.remote_address[sender.node][family]
            case VantageKind.SPOOFED:
                return self._spoofed_source(sender.name, host_index)
            case VantageKind.HOST:
                return self._host_source(sender.node, to)

    def _spoofed_source(self, name: str, host_index: int) -> Address:
        if name == targets.UNUSED_HOSTS:
            return self.topology.remote_network[self.family][FIRST_UNUSED_HOST + host_index]
        return LOOPBACK[self.family] if name == targets.LOOPBACK else self.address_on(name)

    def _host_source(self, node: str, to: Target) -> Address:
        """Source address that the kernel picks: the destination itself when local, else the outgoing interface's address."""
        if self._at_second_interface(to):
            return self.topology.second_address[node][self.family]
        match to.kind:
            case TargetKind.NODE_PORT_LOCALHOST | TargetKind.LOOPBACK_DAEMON:
                return LOOPBACK[self.family]
            case TargetKind.NODE_PORT_ADDED_ADDRESS if to.node == node:
                return self.topology.gained_address[node][self.family]
            case TargetKind.ENDPOINT if to.node in self.topology.pods[node]:
                return self.topology.pod_gateway[node][self.family]
            case _:
                return self.topology.node_address[node][self.family]

    def _entry(self, sender: Vantage, to: Target, node: str) -> str | None:
        if sender.kind is VantageKind.HOST and sender.node == node:
            return None
        if sender.kind is VantageKind.POD and sender.node == node:
            return self.topology.pod_interface(sender.name)
        return SECOND_UPLINK if self._at_second_interface(to) else UPLINK

    def _at_second_interface(self, to: Target) -> bool:
        """True if a target is at the address of a node's second interface."""
        if to.kind is not TargetKind.VIP:
            return to.kind in _SECOND_KINDS
        vips = self._declared_service(to.service, to.generation, to.port).vips
        return to.index < len(vips) and vips[to.index].second

    def outcomes(self, lawful: Lawful, to: Target) -> frozenset[Outcome]:
        """Outcomes that a case expects of a target, with addresses."""
        facing = self.in_target_family(to)
        failures: set[Outcome] = {seen for seen in lawful if not isinstance(seen, ReachedEndpoint)}
        return frozenset(failures.union(*(facing.delivered(seen, to) for seen in _reached_endpoints(lawful))))

    def groups(self, lawful: Lawful, to: Target) -> frozenset[frozenset[tuple[Address, int]]]:
        """Expected endpoints in groups; one of each group must be reached.

        A group is the many endpoints of one `ReachedEndpoint`, or a single endpoint.
        """
        facing = self.in_target_family(to)
        found = (facing.delivered(seen, to) for seen in _reached_endpoints(lawful))
        return frozenset(frozenset((one.address, one.port) for one in group) for group in found)

    def delivered(self, seen: ReachedEndpoint, to: Target) -> frozenset[Delivered]:
        """Deliveries to an endpoint, or to each of many, with address and port."""
        service = self._declared_service(
            seen.service or to.service, 0 if seen.service else to.generation, to.port
        )
        port = self.target_port(service, self.port_of(to), seen.shift)
        addresses = self.addresses_on(seen.on, seen.first, seen.many)
        return frozenset(Delivered(address, port, seen.source) for address in addresses)


def _reached_endpoints(lawful: Lawful) -> Iterator[ReachedEndpoint]:
    return (seen for seen in lawful if isinstance(seen, ReachedEndpoint))


def _declared_services(step: object) -> Iterator[CaseService]:
    match step:
        case Apply(services=services):
            yield from services
        case Delete(service=deleted):
            yield deleted
        case Restart(while_down=meanwhile) if meanwhile is not None:
            yield from _declared_services(meanwhile)
        case DuringWatchFault(changes=changes):
            for change in changes:
                yield from _declared_services(change)
        case _:
            return


def _port_slot(name: str) -> int:
    """Small number for a port name, the same in every form of the Service."""
    if name not in PORT_NAMES:
        raise InvalidCase(f"port names of cases are {PORT_NAMES}, not {name!r}")
    return PORT_NAMES.index(name)


NODE_PORT_KINDS = frozenset(
    {
        TargetKind.NODE_PORT,
        TargetKind.NODE_PORT_SECOND,
        TargetKind.NODE_PORT_ADDED_ADDRESS,
        TargetKind.NODE_PORT_LOCALHOST,
    }
)
_HEALTH_CHECKS_ON_NODES = frozenset({TargetKind.HEALTH_CHECK, TargetKind.HEALTH_CHECK_SECOND})
HEALTH_CHECK_KINDS = _HEALTH_CHECKS_ON_NODES | {TargetKind.HEALTH_CHECK_CLUSTER_IP}
_NODE_ADDRESSES: Mapping[TargetKind, Callable[[Topology], Mapping[str, Pair]]] = {
    TargetKind.NODE_PORT: attrgetter("node_address"),
    TargetKind.NODE_PORT_SECOND: attrgetter("second_address"),
    TargetKind.NODE_PORT_ADDED_ADDRESS: attrgetter("gained_address"),
    TargetKind.HEALTH_CHECK: attrgetter("node_address"),
    TargetKind.HEALTH_CHECK_SECOND: attrgetter("second_address"),
}
_SECOND_KINDS = frozenset({TargetKind.NODE_PORT_SECOND, TargetKind.HEALTH_CHECK_SECOND})
_ON_NODE_KINDS = NODE_PORT_KINDS | _HEALTH_CHECKS_ON_NODES | {TargetKind.LOOPBACK_DAEMON}


def bind_cases(cases: Sequence[Case], topology: Topology = LAB) -> tuple[Instance, ...]:
    """Instances of every case in each of its families, numbered, with blocks that do not overlap."""
    made: list[Instance] = []
    block = 0
    for number, (case, family) in enumerate((c, family) for c in cases for family in c.families):
        made.append(Instance(case, family, number, block, topology))
        block += len(made[-1].blocks)
    return tuple(made)
