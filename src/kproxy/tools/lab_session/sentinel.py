"""Sentinel Services of a replica: added after everything else, they are served when it has been applied. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kproxy.lab.apiserver import ResourceKind
from kproxy.model.network import Address, Family
from kproxy.tools.lab_session.layout import PROBE_POD, Layout

SENTINEL_PORT = 9999
NAMESPACE = "kproxy-lab"


@dataclass(frozen=True, slots=True)
class ReplicaSentinel:
    """The ``number``-th one: a Service whose endpoint is the first node's probe pod."""

    number: int
    layout: Layout

    def cluster_ip(self, family: Family) -> Address:
        """Cluster IP of the sentinel: a free address."""
        return self.layout.spare[family][self.number]

    @property
    def documents(self) -> tuple[tuple[ResourceKind, dict[str, Any]], ...]:
        """Objects of the sentinel: the Service, then its EndpointSlices."""
        slices = ((ResourceKind.ENDPOINT_SLICE, self._slice(family)) for family in self.layout.families)
        return ((ResourceKind.SERVICE, self._service()), *slices)

    @property
    def _name(self) -> str:
        return f"sentinel-{self.number}"

    def _service(self) -> dict[str, Any]:
        addresses = [str(self.cluster_ip(family)) for family in self.layout.families]
        return {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": self._name, "namespace": NAMESPACE},
            "spec": {
                "type": "ClusterIP",
                "clusterIP": addresses[0],
                "clusterIPs": addresses,
                "ipFamilies": [family.value for family in self.layout.families],
                "ipFamilyPolicy": "PreferDualStack",
                "internalTrafficPolicy": "Cluster",
                "sessionAffinity": "None",
                "ports": [{"protocol": "TCP", "port": 80, "targetPort": SENTINEL_PORT}],
            },
        }

    def _slice(self, family: Family) -> dict[str, Any]:
        node = self.layout.nodes[0]
        address = self.layout.probe_pods[PROBE_POD[node.name]][family]
        return {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": f"{self._name}-{family.value.lower()}",
                "namespace": NAMESPACE,
                "labels": {"kubernetes.io/service-name": self._name},
            },
            "addressType": family.value,
            "endpoints": [
                {"addresses": [str(address)], "conditions": {"ready": True}, "nodeName": node.hostname}
            ],
            "ports": [{"name": "", "protocol": "TCP", "port": SENTINEL_PORT}],
        }
