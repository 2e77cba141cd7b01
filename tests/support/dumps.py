"""Output of kubectl for a realistic cluster of any size, with the usual mix of Services.

The same for the same arguments.  Types, policies, affinity, several ports and protocols, no endpoints, endpoints that
are not ready or on their way out, hints, source ranges, host-network endpoints, single and dual stack, headless Services.
"""

from __future__ import annotations

import json
import random
from typing import Any

Document = dict[str, Any]

NODES = 5
ZONES = ("east", "west", "north")


def dump(services: int = 200, seed: int = 1) -> bytes:
    """The output of ``kubectl get services,endpointslices,nodes,servicecidrs -A -o json``."""
    items = [*map(node, range(NODES)), service_cidr()]
    for number in range(services):
        items += Maker(number, random.Random(f"{seed}-{number}")).documents()
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items}).encode()


def node(number: int) -> Document:
    name = f"worker-{number}"
    labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": ZONES[number % len(ZONES)]}
    cidrs = [f"10.244.{number}.0/24", f"fd00:10:244:{number}::/64"]
    addresses = [f"172.18.0.{number + 2}", f"fc00:f853:ccd:e793::{number + 2}"]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {"podCIDR": cidrs[0], "podCIDRs": cidrs},
        "status": {
            "addresses": [
                *({"type": "InternalIP", "address": text} for text in addresses),
                {"type": "Hostname", "address": name},
            ]
        },
    }


def service_cidr() -> Document:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "ServiceCIDR",
        "metadata": {"name": "kubernetes"},
        "spec": {"cidrs": ["10.96.0.0/16", "fd00:10:96::/112"]},
    }


class Maker:
    """One Service with its EndpointSlices."""

    def __init__(self, number: int, chance: random.Random) -> None:
        self.number, self.chance = number, chance
        self.namespace = f"team-{number % 12}"
        self.name = f"{chance.choice(['web', 'api', 'db', 'cache', 'queue', 'auth'])}-{number}"
        self.kind = chance.choices(["ClusterIP", "NodePort", "LoadBalancer"], [65, 20, 15])[0]
        self.headless = self.kind == "ClusterIP" and chance.random() < 0.06
        self.families = chance.choices([["IPv4"], ["IPv6"], ["IPv4", "IPv6"]], [60, 4, 36])[0]
        self.ports = self._ports()
        self.endpoints = self._endpoints()

    def documents(self) -> list[Document]:
        return [self._service(), *(self._slice(family) for family in self.families)]

    def _ports(self) -> list[Document]:
        many = self.chance.choices([1, 2, 3], [75, 20, 5])[0]
        found = []
        for at in range(many):
            protocol = "UDP" if self.chance.random() < 0.15 else "TCP"
            port = {"name": f"p{at}", "protocol": protocol, "port": 80 + at * 363, "targetPort": 8080 + at}
            if self.kind != "ClusterIP":
                port["nodePort"] = 30000 + self.number * 4 + at
            found.append(port)
        return found

    def _endpoints(self) -> list[Document]:
        many = self.chance.choices([0, 1, 2, 3, 6], [10, 25, 30, 25, 10])[0]
        hints = self.chance.random() < 0.12
        state = self.chance.random()
        return [self._endpoint(at, hints=hints, state=state) for at in range(many)]

    def _endpoint(self, at: int, *, hints: bool, state: float) -> Document:
        where = self.chance.randrange(NODES)
        host = self.chance.random() < 0.02
        conditions: Document = {"ready": True, "serving": True, "terminating": False}
        if state < 0.06 or (state < 0.15 and at == 0):
            conditions = {"ready": False, "serving": True, "terminating": True}
        elif state < 0.2 and at == 0:
            conditions = {"ready": False, "serving": False, "terminating": False}
        number = 3 + (self.number * 6 + at) % 250
        found: Document = {
            "number": number,
            "where": where,
            "host": host,
            "conditions": conditions,
            "nodeName": f"worker-{where}",
            "targetRef": {"kind": "Pod", "name": f"{self.name}-{at}", "namespace": self.namespace},
        }
        if hints:
            found["hints"] = {"forZones": [{"name": ZONES[where % len(ZONES)]}]}
        return found

    def _service(self) -> Document:
        addresses = [self._cluster_ip(family) for family in self.families]
        spec: Document = {
            "type": self.kind,
            "clusterIP": "None" if self.headless else addresses[0],
            "clusterIPs": ["None"] if self.headless else addresses,
            "ipFamilies": self.families,
            "ipFamilyPolicy": "RequireDualStack" if len(self.families) > 1 else "SingleStack",
            "internalTrafficPolicy": self.chance.choices(["Cluster", "Local"], [92, 8])[0],
            "sessionAffinity": self.chance.choices(["None", "ClientIP"], [88, 12])[0],
            "ports": self.ports,
        }
        if spec["sessionAffinity"] == "ClientIP":
            spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": 10800}}
        status: Document = {"loadBalancer": {}}
        if self.kind != "ClusterIP":
            spec["externalTrafficPolicy"] = self.chance.choices(["Cluster", "Local"], [65, 35])[0]
        if self.kind == "LoadBalancer":
            status = {"loadBalancer": {"ingress": [{"ip": self._vip(family)} for family in self.families]}}
            if spec["externalTrafficPolicy"] == "Local":
                spec["healthCheckNodePort"] = 32000 + self.number
            if self.chance.random() < 0.35:
                spec["loadBalancerSourceRanges"] = ["203.0.113.0/24", "2001:db8:aa::/48"]
        elif not self.headless and self.chance.random() < 0.06:
            spec["externalIPs"] = [self._vip(family) for family in self.families]
            spec["externalTrafficPolicy"] = "Cluster"
        return {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": self.name, "namespace": self.namespace},
            "spec": spec,
            "status": status,
        }

    def _slice(self, family: str) -> Document:
        labels = {"kubernetes.io/service-name": self.name}
        if self.headless:
            labels["service.kubernetes.io/headless"] = ""
        return {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": f"{self.name}-{family.lower()}",
                "namespace": self.namespace,
                "labels": labels,
            },
            "addressType": family,
            "endpoints": [self._of_family(endpoint, family) for endpoint in self.endpoints],
            "ports": [
                {"name": p["name"], "protocol": p["protocol"], "port": p["targetPort"]} for p in self.ports
            ],
        }

    def _of_family(self, endpoint: Document, family: str) -> Document:
        found = dict(endpoint)
        number, where, host = (found.pop(name) for name in ("number", "where", "host"))
        if family == "IPv4":
            address = f"172.18.0.{where + 2}" if host else f"10.244.{where}.{number}"
        else:
            address = f"fc00:f853:ccd:e793::{where + 2}" if host else f"fd00:10:244:{where}::{number:x}"
        return {"addresses": [address], **found}

    def _cluster_ip(self, family: str) -> str:
        return (
            f"10.96.{self.number // 200}.{self.number % 200 + 10}"
            if family == "IPv4"
            else f"fd00:10:96::{self.number + 16:x}"
        )

    def _vip(self, family: str) -> str:
        return f"192.0.2.{self.number % 250 + 1}" if family == "IPv4" else f"2001:db8:1::{self.number + 1:x}"


if __name__ == "__main__":
    import sys

    sys.stdout.buffer.write(dump(int(sys.argv[1]) if len(sys.argv) > 1 else 200))
