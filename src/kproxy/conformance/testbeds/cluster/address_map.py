"""Address map between the lab and a cluster: a bijection of addresses and ports.

Pure. Theory of operation: cases are bound to the lab's addresses (`kproxy.lab.topology`), and the oracle's verdicts
are in them, but in a cluster pods and nodes have other addresses, and Services may only have free ones. Rather than
binding cases to each cluster, the map translates at the edge: requests and objects to the cluster's addresses,
observations back to the lab's. Everything between sees the lab.

`build_address_map` makes it once for the instances that a testbed runs:

- Nodes, pods and clients: the lab's address maps to that of the node or pod with the same role.
- Cluster IPs that the cases use, and the sentinels': free addresses of the cluster's ServiceCIDR, past its first `SPARED` ones.
- External and load balancer IPs: the same host number in ranges reserved for tests, which no real host has.
- Node ports: free ports of the cluster's range.  Target ports: moved by `TARGET_PORTS_AWAY`, out of the kubelets' range.

The mapping has to be invertible for every address that may be observed, also for those it does not contain: a cluster
may use for a foreign pod an address that is one of the lab's. `kproxy.conformance.testbeds.cluster.permutation`
therefore completes the pairs to a permutation. Further addresses of nodes (a pod's gateway) map to the lab's gateways
in observations only.

Values of `kproxy.lab.probes.observation` are mapped by `AddressMap`, Kubernetes objects by `object_map`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_network

from kproxy.conformance.binding.bind import HEALTH_CHECK_KINDS, NODE_PORT_KINDS, Instance
from kproxy.conformance.case import Policy, Target, Type
from kproxy.conformance.subjects.configuration import HEALTHZ_PORT
from kproxy.conformance.testbeds.cluster.cluster_topology import ClusterTopology
from kproxy.conformance.testbeds.cluster.permutation import Permutation
from kproxy.lab.probes.observation import (
    Answered,
    Evidence,
    Observation,
    ProbeRequest,
    Reception,
    Refused,
    Sighting,
    Silent,
    Socket,
)
from kproxy.lab.topology import LAB
from kproxy.model.network import Address, Family, Network, family_of

SPARED = 256
"""Number of first addresses of a ServiceCIDR that are left to the cluster's DNS and others, where it is large enough."""

TARGET_PORTS_AWAY, SHIFTS = 10000, 2

_OUTSIDE = {
    Family.IPV4: (ip_network("198.18.0.0/16"), ip_network("198.19.0.0/16")),
    Family.IPV6: (ip_network("2001:2::1:0/112"), ip_network("2001:2::2:0/112")),
}
"""Ranges for external and load balancer IPs, reserved for tests by RFC 2544 and RFC 5180, so that no host has them."""


CLIENT = "client"
"""Name of the lab's on-link client, which has an address for each node; a neighbour node in a cluster has one."""
OUTSIDE = {CLIENT: LAB.client_address, "remote": LAB.remote_address}
"""Addresses of the lab's clients outside of the cluster, by their names."""


class AddressesExhausted(Exception):
    """The cluster has too few free addresses or ports; the message has the numbers and the remedy."""


@dataclass(frozen=True)
class AddressMap:
    """Address map between the lab and a cluster, for addresses, ports and gateways."""

    cluster: ClusterTopology
    addresses: Permutation[Address]
    ports: Permutation[int]
    gateways: Mapping[Address, Address]
    """The lab's addresses for further addresses of nodes, in observations only."""

    # ------------------------------------------------------------------ outward

    def request(self, request: ProbeRequest) -> ProbeRequest:
        """Request in the cluster's addresses."""
        neighbour = request.sender == CLIENT and self.cluster.neighbour is not None
        source = None if neighbour else request.source
        return replace(
            request,
            destination=self.addresses.apply(request.destination),
            port=self.ports.apply(request.port),
            source=source and self.addresses.apply(source),
            source_port=self.ports.apply(request.source_port),
        )

    # ------------------------------------------------------------------ inward

    def address(self, address: Address) -> Address:
        """The lab's address for one observed in the cluster."""
        return self.gateways.get(address) or self.addresses.invert(address)

    def socket(self, socket: Socket) -> Socket:
        """The lab's address and port of a socket observed in the cluster."""
        return Socket(self.address(socket.address), self.ports.invert(socket.port))

    def observation(self, seen: Observation) -> Observation:
        """Observation in the lab's addresses."""
        match seen:
            case Answered(at=at, peer=peer, own=own):
                return replace(seen, at=self.socket(at), peer=self.socket(peer), own=self.socket(own))
            case Refused(by=by, about=about):
                return replace(seen, by=self.address(by), about=self.socket(about))
            case Silent(evidence=evidence):
                return replace(seen, evidence=self.evidence(evidence))
            case _:
                return seen

    def evidence(self, evidence: Evidence) -> Evidence:
        """Evidence of captures and servers in the lab's addresses."""
        return replace(
            evidence,
            sightings=tuple(map(self._sighting, evidence.sightings)),
            receptions=tuple(map(self._reception, evidence.receptions)),
        )

    def _sighting(self, seen: Sighting) -> Sighting:
        return replace(seen, source=self.socket(seen.source), destination=self.socket(seen.destination))

    def _reception(self, seen: Reception) -> Reception:
        return replace(seen, at=self.socket(seen.at), peer=self.socket(seen.peer))


def build_address_map(cluster: ClusterTopology, instances: Sequence[Instance]) -> AddressMap:
    """Address map for these instances. Raises `AddressesExhausted`."""
    return AddressMap(
        cluster,
        Permutation(dict(_addresses(cluster, instances))),
        Permutation({**_node_ports(cluster, instances), **_target_ports(instances)}),
        dict(_gateways(cluster)),
    )


def _gateways(cluster: ClusterTopology) -> Iterator[tuple[Address, Address]]:
    for name, node in cluster.nodes.items():
        for address in node.others:
            yield address, LAB.pod_gateway[name][family_of(address)]


def _addresses(cluster: ClusterTopology, instances: Sequence[Instance]) -> Iterator[tuple[Address, Address]]:
    for family in cluster.families:
        for name, node in cluster.nodes.items():
            yield LAB.node_address[name][family], node.addresses[family]
        for pod, its in cluster.pods.items():
            yield LAB.pod_address[pod][family], its[family]
        if cluster.neighbour is not None:
            yield LAB.client_address["a"][family], cluster.neighbour[family]
        for who, addresses in cluster.outside.items():
            yield from ((OUTSIDE[who][node][family], at[family]) for node, at in addresses.items())
        yield from _cluster_ips(cluster, instances, family)
        for own, range_ in zip(
            (LAB.external_ip_range[family], LAB.load_balancer_range[family]),
            _OUTSIDE[family],
            strict=True,
        ):
            used = {address for address in _used(instances) if address in own}
            yield from ((address, _same_host(address, own, range_)) for address in used)


def _cluster_ips(
    cluster: ClusterTopology, instances: Sequence[Instance], family: Family
) -> Iterator[tuple[Address, Address]]:
    sentinels = set(LAB.sentinel_addresses[family])
    wanted = {address for address in _used(instances) if address in LAB.service_cidr[family]}
    network = cluster.service_cidrs[family]
    given = list(itertools.islice(_free(network, cluster.taken_addresses), len(sentinels | wanted)))
    if len(given) < len(sentinels | wanted):
        raise AddressesExhausted(
            f"the ServiceCIDR {network} has {len(given)} addresses left, {len(sentinels | wanted)} are needed: "
            "run fewer cases at a time with --case"
        )
    yield from zip(sorted(sentinels | wanted, key=int), given, strict=True)


def _free(network: Network, taken: frozenset[Address]) -> Iterator[Address]:
    first = SPARED if network.num_addresses > 16 * SPARED else 16
    last = network.num_addresses - 1
    return (address for number in range(first, last) if (address := network[number]) not in taken)


def _same_host(address: Address, own: Network, other: Network) -> Address:
    return other[int(address) - int(own.network_address)]


def _used(instances: Sequence[Instance]) -> Iterator[Address]:
    """Every address of a Service that the cases declare or probe."""
    for instance in instances:
        for service in instance.services:
            for family in Family:
                own = replace(instance, family=family)
                yield own.cluster_ip(service)
                yield from (own.external_ip(service, index) for index in range(service.external_ips))
                yield from (own.vip(service, index) for index in range(len(service.vips)))
        for to in _targets(instance):
            yield instance.in_target_family(to).destination(to)[0]


def _targets(instance: Instance) -> Iterator[Target]:
    """Targets of its steps, and those whose port numbers they send from."""
    for step in instance.case.steps:
        destinations = (getattr(step, name, None) for name in ("to", "from_port_of"))
        yield from (to for to in destinations if isinstance(to, Target))


def _node_ports(cluster: ClusterTopology, instances: Sequence[Instance]) -> dict[int, int]:
    wanted = dict.fromkeys(_used_ports(instances))
    first, last = cluster.node_ports
    free = (number for number in range(first, last + 1) if number not in cluster.taken_ports)
    given = list(itertools.islice(free, len(wanted)))
    if len(given) < len(wanted):
        raise AddressesExhausted(
            f"of the node ports {first} to {last} there are {len(given)} left, {len(wanted)} are needed: "
            "run fewer cases at a time with --case"
        )
    return dict(zip(wanted, given, strict=True))


def _target_ports(instances: Sequence[Instance]) -> dict[int, int]:
    """Target ports moved by `TARGET_PORTS_AWAY`, out of the range of kubelets and other daemons on nodes.

    Endpoints may be on the host's network. `HEALTHZ_PORT` keeps its number.
    """
    return {
        number: number + TARGET_PORTS_AWAY
        for instance in instances
        for service in instance.services
        for port in (*service.ports, *(service.slice_ports or ()))
        for shift in range(SHIFTS)
        if (number := instance.target_port(service, port, shift)) != HEALTHZ_PORT
    }


def _used_ports(instances: Sequence[Instance]) -> Iterator[int]:
    for instance in instances:
        for service in instance.services:
            yield from (number for port in service.ports if (number := instance.node_port(service, port)))
            if service.type is Type.LOAD_BALANCER and service.external_policy is Policy.LOCAL:
                yield instance.health_check_port(service)
        for to in _targets(instance):
            if to.kind in NODE_PORT_KINDS | HEALTH_CHECK_KINDS or to.node_port_number:
                yield instance.in_target_family(to).destination(to)[1]
