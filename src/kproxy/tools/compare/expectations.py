"""Specification's expectation of a probe, about no mode in particular. Pure.

The oracle examines all Services for each packet. A `ServiceIndex` passes it only those that have the probed address
or node port: no other can matter.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace

from kproxy.lab.topology import Topology
from kproxy.model import api
from kproxy.model.network import Address, parse_address
from kproxy.spec.oracle import expect
from kproxy.spec.outcome import Expectation
from kproxy.tools.explain.dump import Dump
from kproxy.tools.explain.explanation import ProxySettings, dump_node_facts
from kproxy.tools.lab_session.frontend_probes import FrontendProbe


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


def _places(service: api.Service) -> set[Address | int]:
    spec, ingress = service.spec, service.status.load_balancer.ingress or []
    texts = [spec.cluster_ip, *(spec.cluster_ips or []), *(spec.external_ips or []), *(e.ip for e in ingress)]
    found: set[Address | int] = {a for a in map(parse_address, texts) if a is not None}
    return found | {port.node_port for port in spec.ports or [] if port.node_port}


@dataclass(frozen=True, slots=True)
class ReplicaOracle:
    """Oracle for one lab."""

    focus: ServiceIndex
    topology: Topology
    settings: ProxySettings

    def expect(self, question: FrontendProbe) -> Expectation:
        """Lawful outcomes, with the clauses."""
        packet = question.packet
        cluster = self.focus.on(packet.destination, packet.port)
        known = cluster.node(self.topology.hostnames[question.judge])
        assert known is not None
        more = tuple(self.topology.pod_gateway[question.judge].values())
        settings = replace(self.settings, extra_addresses=(*self.settings.extra_addresses, *more))
        return expect(cluster, dump_node_facts(known, settings), packet)


def replica_oracle(dump: Dump, topology: Topology, settings: ProxySettings) -> ReplicaOracle:
    """Oracle for a lab of this cluster."""
    return ReplicaOracle(ServiceIndex(dump.cluster), topology, settings)
