"""Names to addresses: what a case says in names, as Kubernetes objects, packets and outcomes.

Sits between the catalogue (`kproxy.conformance.case`) and the testbeds; the double-entry test uses
it to put a case's questions to the oracle.  Every case in every family is an `Instance` with cluster
IPs, node ports, external addresses and target ports of its own, so that all run beside one another.
Pure: the same instance always binds alike.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from ipaddress import ip_address, ip_network
from typing import Any

from kproxy.conformance.case import (
    Apply,
    Backend,
    Case,
    Delete,
    Lawful,
    Place,
    Policy,
    Port,
    Profile,
    ReachedBackend,
    Restart,
    Service,
    Target,
    TargetKind,
    Type,
    Vantage,
    VantageKind,
)
from kproxy.lab import topology
from kproxy.net import Address, Entry, Family, Network, Packet, Protocol
from kproxy.spec.node import PRIMARY, DetectMode, NodeFacts, Primary
from kproxy.spec.outcome import Delivered, Outcome

Document = dict[str, Any]
"""A Kubernetes object as JSON."""

SERVICES_PER_CASE = 8
"""Address blocks: (service name, generation) pairs a case may have."""
PORTS_PER_SERVICE = 4
EXTERNALS_PER_SERVICE = 4
FIRST_NODE_PORT = 30000
FIRST_TARGET_PORT = 10000
FIRST_HEALTH_PORT = 40000
FIRST_SERVICE_OFFSET = 1024
FIRST_FOREIGN_OFFSET = 40000
"""Cluster IPs outside the ServiceCIDR start here in the range of external IPs."""
SECONDARY_SLICES = 100
"""Numbers of slices of a dual-stack Service's second family start here."""
UNDEFINED_PORT = 7777
LOOPBACK_DAEMON_PORT = 7070

LOOPBACK: dict[Family, Address] = {
    Family.IPV4: ip_address("127.0.0.1"),
    Family.IPV6: ip_address("::1"),
}


class BadCase(Exception):
    """A case says something that cannot be bound: a mistake of its author."""


@dataclass(frozen=True, slots=True)
class Question:
    """A packet, and the node whose proxy is the first that may touch it."""

    judge: str
    packet: Packet


@dataclass(frozen=True)
class Instance:
    """One case in one family; ``number`` is unique in its lab."""

    case: Case
    family: Family
    number: int
    _slots: dict[tuple[str, int], int] = field(default_factory=dict, compare=False)

    @property
    def name(self) -> str:
        """``case-id/IPv4``: how results name it."""
        return f"{self.case.id}/{self.family.value}"

    @property
    def namespace(self) -> str:
        """The Kubernetes namespace of its objects."""
        return f"{self.case.id.replace('.', '-')}-{self.family.value.lower()}"

    # ---------------------------------------------------------------- declared services

    @cached_property
    def services(self) -> tuple[Service, ...]:
        """Every form of every Service that the case's steps declare, in order of appearance."""
        return tuple(itertools.chain.from_iterable(_declared(step) for step in self.case.steps))

    def _slot(self, name: str, generation: int) -> int:
        """The index of a Service's address block within the case."""
        if not self._slots:
            for declared in self.services:
                self._slots.setdefault((declared.name, declared.generation), len(self._slots))
        slot = self._slots.get((name, generation))
        if slot is None or slot >= SERVICES_PER_CASE:
            message = f"{self.case.id}: no step applies Service {name!r} (generation {generation})"
            raise BadCase(message)
        return slot

    def _any_form(self, name: str, generation: int, port: str = "") -> Service:
        """A declared form of a Service, one that has that port if any does."""
        forms = [s for s in self.services if (s.name, s.generation) == (name, generation)]
        named = [s for s in forms if any(p.name == port for p in s.ports)]
        return (named or forms)[0]

    # ---------------------------------------------------------------- addresses and ports

    def _block(self, service: Service) -> int:
        return self.number * SERVICES_PER_CASE + self._slot(service.name, service.generation)

    def cluster_ip(self, service: Service, family: Family | None = None) -> Address:
        """The Service's cluster IP (of a family; the instance's own if not said)."""
        owner = service
        if service.share_cluster_ip_of:
            owner = self._any_form(service.share_cluster_ip_of, 0)
        block = self._block(owner)
        if service.outside_service_cidr:
            return topology.EXTERNAL_IP_RANGE[family or self.family][FIRST_FOREIGN_OFFSET + block]
        return topology.SERVICE_CIDR[family or self.family][FIRST_SERVICE_OFFSET + block]

    @property
    def unallocated(self) -> Address:
        """A cluster IP that no Service of any case has."""
        return topology.SERVICE_CIDR[self.family][60000 + self.number]

    def external_ip(self, service: Service, index: int) -> Address:
        """One of the Service's externalIPs."""
        return self._external(topology.EXTERNAL_IP_RANGE[self.family], service, index)

    def vip(self, service: Service, index: int) -> Address:
        """One of the Service's load balancer IPs."""
        return self._external(topology.LOAD_BALANCER_RANGE[self.family], service, index)

    def _external(self, network: Network, service: Service, index: int) -> Address:
        owner = self._any_form(service.share_vip_of, 0) if service.share_vip_of else service
        return network[256 + self._block(owner) * EXTERNALS_PER_SERVICE + index]

    def node_port(self, service: Service, port: Port) -> int:
        """The node port of a service port; 0 when it has none."""
        if service.type not in {Type.NODE_PORT, Type.LOAD_BALANCER} or not port.node_port:
            return 0
        owner = port.same_node_port_as if port.same_node_port_as is not None else port.name
        return FIRST_NODE_PORT + self._block(service) * PORTS_PER_SERVICE + _port_slot(owner)

    def target_port(self, service: Service, port: Port, shift: int = 0) -> int:
        """The port its endpoints listen on; unique to this instance, service port and shift."""
        slot = self._block(service) * PORTS_PER_SERVICE + _port_slot(port.name)
        return FIRST_TARGET_PORT + slot * 2 + shift

    def address_on(self, on: str, family: Family | None = None) -> Address:
        """The address of an endpoint on a pod, or of a host-network endpoint on a node."""
        wanted = family or self.family
        if on in topology.NODES:
            return topology.NODE_ADDRESS[on][wanted]
        return topology.POD_ADDRESS[on][wanted]

    # ---------------------------------------------------------------- Kubernetes objects

    def documents(self, service: Service) -> tuple[Document, ...]:
        """The Service and its EndpointSlices as JSON, Service first."""
        return (self._service(service), *self._slices(service))

    def _service(self, service: Service) -> Document:
        spec: Document = {
            "type": service.type.value,
            "ports": [self._service_port(service, port) for port in service.ports],
            "ipFamilies": [family.value for family in self._families(service)],
            "ipFamilyPolicy": "RequireDualStack" if service.dual_stack else "SingleStack",
            "internalTrafficPolicy": (service.internal_policy or Policy.CLUSTER).value,
            "sessionAffinity": "None",
        }
        addresses = [str(self.cluster_ip(service, family)) for family in self._families(service)]
        spec["clusterIPs"] = ["None"] if service.headless else addresses
        spec["clusterIP"] = spec["clusterIPs"][0]
        spec.update(self._external_fields(service))
        if service.affinity_seconds is not None:
            spec["sessionAffinity"] = "ClientIP"
            spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": service.affinity_seconds}}
        if service.type is Type.EXTERNAL_NAME:
            spec["externalName"] = "example.com"
        return {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": self._metadata(service.name, dict(service.labels)),
            "spec": spec,
            "status": {"loadBalancer": self._load_balancer(service)},
        }

    def _families(self, service: Service) -> tuple[Family, ...]:
        """The Service's families, its primary one first."""
        others = tuple(family for family in Family if family is not self.family)
        return (self.family, *others) if service.dual_stack else (self.family,)

    def _external_fields(self, service: Service) -> Document:
        fields: Document = {}
        external_ips = [str(self.external_ip(service, i)) for i in range(service.external_ips)]
        if external_ips or service.raw_external_ips:
            fields["externalIPs"] = [*service.raw_external_ips, *external_ips]
        if external_ips or service.type in {Type.NODE_PORT, Type.LOAD_BALANCER}:
            fields["externalTrafficPolicy"] = (service.external_policy or Policy.CLUSTER).value
        if service.type is Type.LOAD_BALANCER:
            fields["allocateLoadBalancerNodePorts"] = any(p.node_port for p in service.ports)
            if service.external_policy is type(Policy.CLUSTER).LOCAL:
                fields["healthCheckNodePort"] = FIRST_HEALTH_PORT + self._block(service)
        ranges = [*service.raw_source_ranges, *(str(self.range_of(r)) for r in service.source_ranges)]
        if ranges:
            fields["loadBalancerSourceRanges"] = ranges
        return fields

    def _service_port(self, service: Service, port: Port) -> Document:
        document: Document = {
            "protocol": port.protocol.value,
            "port": port.number,
            "targetPort": self.target_port(service, port),
        }
        if port.name:
            document["name"] = port.name
        if node_port := self.node_port(service, port):
            document["nodePort"] = node_port
        return document

    def _load_balancer(self, service: Service) -> Document:
        ingress: list[Document] = []
        for index, vip in enumerate(service.vips):
            if vip.hostname_only:
                ingress.append({"hostname": f"lb-{index}.example.com"})
                continue
            entry: Document = {"ip": str(self.vip(service, index))}
            if vip.ip_mode:
                entry["ipMode"] = vip.ip_mode
            ingress.append(entry)
        return {"ingress": ingress} if ingress else {}

    def range_of(self, place: Place | str) -> Network:
        """The network a source-range entry stands for."""
        if isinstance(place, Place):
            return _PLACES[place][self.family]
        match place:
            case "client":
                return ip_network(topology.CLIENT_ADDRESS["a"][self.family])
            case "remote":
                return ip_network(topology.REMOTE_ADDRESS["a"][self.family])
            case _:
                return ip_network(self.address_on(place))

    def _slices(self, service: Service) -> Iterator[Document]:
        groups: dict[tuple[int, int], list[Backend]] = {}
        for backend in service.backends:
            groups.setdefault((backend.slice, backend.shift), []).append(backend)
        for (number, shift), backends in groups.items():
            yield self._slice(service, f"{service.name}-{number}-{shift}", shift, backends)
            for family in self._families(service)[1:]:
                name = f"{service.name}-{SECONDARY_SLICES + number}-{shift}"
                yield self._slice(service.but(address_type=family.value), name, shift, backends)

    def _slice(self, service: Service, name: str, shift: int, backends: list[Backend]) -> Document:
        labels = dict(service.slice_labels)
        if service.slice_owner:
            labels["kubernetes.io/service-name"] = service.name
        return {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": self._metadata(name, labels),
            "addressType": service.address_type or self.family.value,
            "endpoints": [self._endpoint(service, backend) for backend in backends],
            "ports": [
                {
                    "name": port.name,
                    "protocol": port.protocol.value,
                    "port": self.target_port(service, port, shift),
                }
                for port in service.ports
            ],
        }

    def _endpoint(self, service: Service, backend: Backend) -> Document:
        node = backend.on if backend.on in topology.NODES else topology.node_of(backend.on)
        document: Document = {"addresses": [self._endpoint_address(service, backend)]}
        conditions = {
            name: value
            for name in ("ready", "serving", "terminating")
            if (value := getattr(backend, name)) is not None
        }
        if conditions:
            document["conditions"] = conditions
        listed = topology.HOSTNAMES[node] if backend.listed_node is None else backend.listed_node
        if listed:
            document["nodeName"] = listed
        hints: Document = {}
        if backend.zones:
            hints["forZones"] = [{"name": zone} for zone in backend.zones]
        if backend.nodes:
            hints["forNodes"] = [{"name": topology.HOSTNAMES[name]} for name in backend.nodes]
        if hints:
            document["hints"] = hints
        return document

    def _endpoint_address(self, service: Service, backend: Backend) -> str:
        match service.address_type:
            case None:
                return str(self.address_on(backend.on))
            case "FQDN":
                return f"{backend.on}.example.com"
            case other:
                return str(self.address_on(backend.on, Family(other)))

    def _metadata(self, name: str, labels: dict[str, str]) -> Document:
        return {"name": name, "namespace": self.namespace, "labels": labels}

    # ---------------------------------------------------------------- packets and outcomes

    def question(self, sender: Vantage, to: Target, source_port: int = 0) -> Question:
        """The packet that a probe sends, and where it is judged."""
        destination, port, protocol = self.destination(to)
        judge = self._judge(sender, to)
        source = self.source_address(sender, to)
        interface = self._entry(sender, to, judge)
        return Question(judge, Packet(Entry(interface), source, destination, protocol, port, source_port))

    def destination(self, to: Target) -> tuple[Address, int, Protocol]:
        """Address, port and protocol that a target stands for."""
        if to.kind is TargetKind.UNALLOCATED:
            return self.unallocated, 80, to.protocol or Protocol.TCP
        if to.kind is TargetKind.LOOPBACK_DAEMON:
            return LOOPBACK[self.family], LOOPBACK_DAEMON_PORT, to.protocol or Protocol.TCP
        service = self._any_form(to.service, to.generation, to.port)
        port = self.port_of(to)
        return self._address(service, to), self._port_number(service, port, to), to.protocol or port.protocol

    def port_of(self, to: Target) -> Port:
        """The service port that a target names."""
        service = self._any_form(to.service, to.generation, to.port)
        named = [port for port in service.ports if port.name == to.port]
        return named[0] if named else service.ports[0]

    def _address(self, service: Service, to: Target) -> Address:
        match to.kind:
            case TargetKind.CLUSTER_IP:
                return self.cluster_ip(service)
            case TargetKind.NODE_PORT:
                return topology.NODE_ADDRESS[to.node][self.family]
            case TargetKind.NODE_PORT_SECOND:
                return topology.SECOND_ADDRESS[to.node][self.family]
            case TargetKind.NODE_PORT_LOCALHOST:
                return LOOPBACK[self.family]
            case TargetKind.EXTERNAL_IP:
                return self.external_ip(service, to.index)
            case TargetKind.VIP:
                return self.vip(service, to.index)
            case TargetKind.BACKEND:
                return self.address_on(to.node)
            case TargetKind.LOOPBACK_DAEMON | TargetKind.UNALLOCATED:
                raise AssertionError(to.kind)

    def _port_number(self, service: Service, port: Port, to: Target) -> int:
        if to.undefined:
            return UNDEFINED_PORT
        if to.kind is TargetKind.BACKEND:
            return self.target_port(service, port)
        if to.kind in NODE_PORT_KINDS or to.node_port_number:
            # A Service that has lost its node port is still asked for the number it had.
            forms = (s for s in self.services if (s.name, s.generation) == (to.service, to.generation))
            numbers = (self.node_port(form, port) for form in forms)
            number = next((n for n in numbers if n), 0)
            return number or FIRST_NODE_PORT + self._block(service) * PORTS_PER_SERVICE
        return port.number

    def _judge(self, sender: Vantage, to: Target) -> str:
        if to.kind in _ON_NODE_KINDS:
            return to.node
        return sender.node

    def source_address(self, sender: Vantage, to: Target) -> Address:
        """The address the sender's packet carries."""
        family = self.family
        match sender.kind:
            case VantageKind.POD:
                return topology.POD_ADDRESS[sender.name][family]
            case VantageKind.ON_LINK if to.kind is TargetKind.NODE_PORT_SECOND:
                return topology.CLIENT_SECOND_ADDRESS[family]
            case VantageKind.ON_LINK:
                return topology.CLIENT_ADDRESS[sender.node][family]
            case VantageKind.ROUTED:
                return topology.REMOTE_ADDRESS[sender.node][family]
            case VantageKind.HOST:
                return self._host_source(sender.node, to)

    def _host_source(self, node: str, to: Target) -> Address:
        """What the kernel picks: the destination itself when local, else the way out's address."""
        own = to.node == node
        match to.kind:
            case TargetKind.NODE_PORT_LOCALHOST | TargetKind.LOOPBACK_DAEMON:
                return LOOPBACK[self.family]
            case TargetKind.NODE_PORT_SECOND:
                return topology.SECOND_ADDRESS[node][self.family]
            case TargetKind.BACKEND if to.node in topology.PODS[node]:
                return topology.POD_GATEWAY[node][self.family]
            case TargetKind.NODE_PORT if own:
                return topology.NODE_ADDRESS[node][self.family]
            case _:
                return topology.NODE_ADDRESS[node][self.family]

    def _entry(self, sender: Vantage, to: Target, judge: str) -> str | None:
        if sender.kind is VantageKind.HOST and sender.node == judge:
            return None
        if sender.kind is VantageKind.POD and sender.node == judge:
            return topology.pod_interface(sender.name)
        second = to.kind is TargetKind.NODE_PORT_SECOND
        return topology.SECOND_UPLINK if second else topology.UPLINK

    def outcomes(self, lawful: Lawful, to: Target) -> frozenset[Outcome]:
        """What a case expects of a target, with addresses."""
        return frozenset(
            self._delivered(seen, to) if isinstance(seen, ReachedBackend) else seen for seen in lawful
        )

    def _delivered(self, seen: ReachedBackend, to: Target) -> Delivered:
        service = self._any_form(to.service, to.generation, to.port)
        port = self.target_port(service, self.port_of(to), seen.shift)
        return Delivered(self.address_on(seen.on), port, seen.source)


def _declared(step: object) -> Iterator[Service]:
    match step:
        case Apply(services=services):
            yield from services
        case Delete(service=deleted):
            yield deleted
        case Restart(meanwhile=meanwhile) if meanwhile is not None:
            yield from _declared(meanwhile)
        case _:
            return


def _port_slot(name: str) -> int:
    """A small number for a port name, the same in every form of the Service."""
    names = ("", "a", "b", "c")
    if name not in names:
        message = f"port names of cases are {names}, not {name!r}"
        raise BadCase(message)
    return names.index(name)


NODE_PORT_KINDS = frozenset(
    {TargetKind.NODE_PORT, TargetKind.NODE_PORT_SECOND, TargetKind.NODE_PORT_LOCALHOST}
)
_ON_NODE_KINDS = NODE_PORT_KINDS | {TargetKind.LOOPBACK_DAEMON}


def _both(v4: str, v6: str) -> dict[Family, Network]:
    return {Family.IPV4: ip_network(v4), Family.IPV6: ip_network(v6)}


_PLACES: dict[Place, dict[Family, Network]] = {
    Place.EVERYWHERE: _both("0.0.0.0/0", "::/0"),
    Place.LOWER_HALF: _both("0.0.0.0/1", "::/1"),
    Place.UPPER_HALF: _both("128.0.0.0/1", "8000::/1"),
    Place.CLUSTER_CIDR: topology.CLUSTER_CIDR,
    Place.NODE_NETWORK: topology.NODE_NETWORK,
    Place.REMOTE_NETWORK: topology.REMOTE_NETWORK,
    Place.NOWHERE: _both("192.0.2.128/25", "2001:db8:ffff::/64"),
}


# -------------------------------------------------------------------- what surrounds the Services


def node_documents() -> tuple[Document, ...]:
    """The lab's Node objects."""
    return tuple(node_document(node, topology.ZONES[node]) for node in topology.NODES)


def node_document(node: str, zone: str) -> Document:
    """One Node object; an empty zone leaves the label out."""
    labels = {"kubernetes.io/hostname": topology.HOSTNAMES[node]}
    if zone:
        labels["topology.kubernetes.io/zone"] = zone
    cidrs = [str(topology.POD_CIDRS[node][family]) for family in Family]
    addresses = [str(topology.NODE_ADDRESS[node][family]) for family in Family]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": topology.HOSTNAMES[node], "labels": labels},
        "spec": {"podCIDR": cidrs[0], "podCIDRs": cidrs},
        "status": {"addresses": [{"type": "InternalIP", "address": text} for text in addresses]},
    }


def service_cidr_document() -> Document:
    """The lab's ServiceCIDR object."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "ServiceCIDR",
        "metadata": {"name": "kubernetes"},
        "spec": {"cidrs": [str(topology.SERVICE_CIDR[family]) for family in Family]},
    }


def node_facts(node: str, profile: Profile) -> NodeFacts:
    """What the oracle must know of a node under a profile."""
    addresses = itertools.chain.from_iterable(topology.local_addresses(node, family) for family in Family)
    mode = DetectMode(profile.detect) if profile.detect else DetectMode.CLUSTER_CIDR
    networks: tuple[Network, ...] = tuple(topology.CLUSTER_CIDR.values()) if profile.detect else ()
    return NodeFacts(
        name=topology.HOSTNAMES[node],
        addresses=frozenset(addresses),
        detect_mode=mode,
        cluster_cidrs=networks,
        detect_interface=profile.detect_interface,
        masquerade_all=profile.masquerade_all,
        node_port_addresses=_node_port_addresses(profile),
        localhost_node_ports=profile.localhost_node_ports,
        allow_external_ips=profile.allow_external_ips,
    )


def _node_port_addresses(profile: Profile) -> tuple[Network, ...] | Primary:
    if profile.node_port_addresses == ("primary",):
        return PRIMARY
    return tuple(ip_network(text) for text in profile.node_port_addresses)


def instances(cases: tuple[Case, ...]) -> tuple[Instance, ...]:
    """Every case in each of its families, numbered."""
    pairs = ((case, family) for case in cases for family in case.families)
    return tuple(Instance(case, family, number) for number, (case, family) in enumerate(pairs))
