"""Sentinel Services: added after other changes, they are served when those have been applied. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from kproxy.conformance.binding.kubernetes_objects import Document
from kproxy.conformance.binding.world import Key, document_key
from kproxy.lab.topology import LAB, Topology
from kproxy.model.network import Address, Family

SENTINEL_PORT = 9999
MOVED_PORT, MOVED = 9998, "the sentinels' other port"
"""Port that its endpoint moves to, and the name of the server there."""
NAMESPACE = "kproxy-lab"


@dataclass(frozen=True, slots=True)
class Sentinel:
    """The ``number``-th sentinel: a Service of these families (both: dual-stack) with one endpoint."""

    number: int
    port: int = 80
    families: tuple[Family, ...] = tuple(Family)
    target: int = SENTINEL_PORT
    topology: Topology = LAB

    @property
    def name(self) -> str:
        """Name of the Service."""
        return f"sentinel-{self.number}"

    def cluster_ip(self, family: Family) -> Address:
        """Cluster IP of the Service; reused only after as many further sentinels as there are addresses."""
        addresses = self.topology.sentinel_addresses[family]
        return addresses[self.number % len(addresses)]

    @property
    def documents(self) -> tuple[Document, ...]:
        """Objects of the sentinel: the Service, then its EndpointSlices."""
        return (self._service(), *(self._slice(family) for family in self.families))

    @property
    def keys(self) -> tuple[Key, ...]:
        """Keys of its objects."""
        return tuple(map(document_key, self.documents))

    def _service(self) -> Document:
        addresses = [str(self.cluster_ip(family)) for family in self.families]
        return {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": self.name, "namespace": NAMESPACE},
            "spec": {
                "type": "ClusterIP",
                "clusterIP": addresses[0],
                "clusterIPs": addresses,
                "ipFamilies": [family.value for family in self.families],
                "ipFamilyPolicy": "RequireDualStack" if len(self.families) > 1 else "SingleStack",
                "internalTrafficPolicy": "Cluster",
                "sessionAffinity": "None",
                "ports": [{"protocol": "TCP", "port": self.port, "targetPort": self.target}],
            },
        }

    def _slice(self, family: Family) -> Document:
        topology, pod = self.topology, self.topology.sentinel_pod
        return {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": f"{self.name}-{family.value.lower()}",
                "namespace": NAMESPACE,
                "labels": {"kubernetes.io/service-name": self.name},
            },
            "addressType": family.value,
            "endpoints": [
                {
                    "addresses": [str(topology.pod_address[pod][family])],
                    "conditions": {"ready": True},
                    "nodeName": topology.hostnames[topology.node_of(pod)],
                }
            ],
            "ports": [{"name": "", "protocol": "TCP", "port": self.target}],
        }
