"""Map of Kubernetes objects of cases into a cluster: its addresses, ports, names and nodes in place of the lab's.

Pure.

All objects are in one namespace; a checksum in a name stands for one of the lab's namespaces.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from zlib import crc32

from kproxy.conformance.binding.kubernetes_objects import Document
from kproxy.conformance.binding.world import Key
from kproxy.conformance.testbeds.cluster.address_map import AddressMap
from kproxy.conformance.testbeds.cluster.cluster_topology import Addresses
from kproxy.lab.topology import LAB
from kproxy.model.network import Network, family_of

MANAGER = "kproxy-conformance"
MANAGED_BY = "endpointslice.kubernetes.io/managed-by"
SERVICE_NAME = "kubernetes.io/service-name"
CASE = "kproxy.example/case"
"""Label with the lab's namespace of an object, which has the name of its case."""


def mapped_name(namespace: str, name: str) -> str:
    """Name in the cluster of an object in one of the lab's namespaces: a DNS label, as long as its name is short."""
    return f"{name}-{crc32(namespace.encode()):08x}"


@dataclass(frozen=True, slots=True)
class ObjectMap:
    """Map of Kubernetes objects: a case's objects with the cluster's addresses, ports, names and nodes in place of the lab's."""

    addresses: AddressMap

    def key(self, key: Key) -> Key:
        """Key of an object in the cluster."""
        kind, namespace, name = key
        return kind, self.addresses.cluster.namespace, mapped_name(namespace, name)

    def document(self, document: Document) -> Document:
        """Service, EndpointSlice or Endpoints object for the cluster."""
        metadata = document["metadata"]
        namespace = metadata["namespace"]
        labels = {**metadata.get("labels", {}), CASE: namespace}
        if SERVICE_NAME in labels:
            labels[SERVICE_NAME] = mapped_name(namespace, labels[SERVICE_NAME])
        outward: Document = {
            **document,
            "metadata": {
                **metadata,
                "name": mapped_name(namespace, metadata["name"]),
                "namespace": self.addresses.cluster.namespace,
                "labels": labels,
            },
        }
        if document["kind"] == "Service":
            outward["spec"] = self._service(document["spec"])
            if "status" in document:
                outward["status"] = self._status(document["status"])
        elif document["kind"] == "EndpointSlice":
            labels[MANAGED_BY] = MANAGER
            outward["endpoints"] = [self._endpoint(endpoint) for endpoint in document["endpoints"]]
            outward["ports"] = [self._slice_port(port) for port in document["ports"]]
        return outward

    def _service(self, spec: Document) -> Document:
        outward = {**spec, "ports": [self._port(port) for port in spec["ports"]]}
        if "clusterIP" in spec:
            outward["clusterIP"] = self._address(spec["clusterIP"])
            outward["clusterIPs"] = [self._address(text) for text in spec["clusterIPs"]]
        if "externalIPs" in spec:
            outward["externalIPs"] = [self._address(text) for text in spec["externalIPs"]]
        if "loadBalancerSourceRanges" in spec:
            ranges = spec["loadBalancerSourceRanges"]
            outward["loadBalancerSourceRanges"] = [text for one in ranges for text in self._range(one)]
        if "healthCheckNodePort" in spec:
            outward["healthCheckNodePort"] = self.addresses.ports.apply(spec["healthCheckNodePort"])
        if spec["type"] == "LoadBalancer":
            outward["loadBalancerClass"] = self.addresses.cluster.load_balancer_class
        return outward

    def _port(self, port: Document) -> Document:
        there = self.addresses.ports.apply
        return {**port, **{name: there(port[name]) for name in ("nodePort", "targetPort") if name in port}}

    def _slice_port(self, port: Document) -> Document:
        return {**port, "port": self.addresses.ports.apply(port["port"])} if port.get("port") else port

    def _status(self, status: Document) -> Document:
        ingress = status.get("loadBalancer", {}).get("ingress", [])
        if not ingress:
            return status
        outward = [{**one, "ip": self._address(one["ip"])} if "ip" in one else one for one in ingress]
        return {**status, "loadBalancer": {"ingress": outward}}

    def _endpoint(self, endpoint: Document) -> Document:
        outward = {**endpoint, "addresses": [self._address(text) for text in endpoint["addresses"]]}
        if "nodeName" in endpoint:
            outward["nodeName"] = self._node(endpoint["nodeName"])
        if "hints" in endpoint:
            outward["hints"] = self._hints(endpoint["hints"])
        return outward

    def _hints(self, hints: Document) -> Document:
        zones = {LAB.zones[name]: node.zone for name, node in self.addresses.cluster.nodes.items()}
        outward: Document = {}
        if "forZones" in hints:
            outward["forZones"] = [{"name": zones.get(z["name"]) or z["name"]} for z in hints["forZones"]]
        if "forNodes" in hints:
            outward["forNodes"] = [{"name": self._node(node["name"])} for node in hints["forNodes"]]
        return outward

    def _node(self, hostname: str) -> str:
        """Cluster node name for a lab hostname; any other name is returned unchanged."""
        names = {LAB.hostnames[name]: node.name for name, node in self.addresses.cluster.nodes.items()}
        return names.get(hostname, hostname)

    def _address(self, text: str) -> str:
        """Address for the cluster; a text that is none, such as ``None`` or a host's name, is returned unchanged."""
        try:
            return str(self.addresses.addresses.apply(ip_address(text)))
        except ValueError:
            return text

    def _range(self, text: str) -> Iterator[str]:
        """Source range: one of the lab's networks becomes the cluster's addresses of its members."""
        try:
            network = ip_network(text.strip())
        except ValueError:
            yield text
            return
        if network.num_addresses == 1:
            yield text.replace(text.strip(), str(ip_network(self.addresses.addresses.apply(network[0]))))
        elif members := self._members(network):
            yield from (text.replace(text.strip(), member) for member in members)
        else:
            yield text

    def _members(self, network: Network) -> list[str]:
        """Cluster addresses (as /32 or /128) of the pods, nodes and clients inside a network of the lab; empty for any other."""
        family, place = family_of(network), self.addresses.cluster
        neighbours = [place.neighbour] if place.neighbour else [*place.outside.get("client", {}).values()]
        known: dict[Network, Sequence[Addresses]] = {
            LAB.cluster_cidr[family]: tuple(place.pods.values()),
            LAB.node_network[family]: (*(n.addresses for n in place.nodes.values()), *neighbours),
            LAB.remote_network[family]: tuple(place.outside.get("remote", {}).values()),
        }
        if network not in known or family not in place.families:
            return []
        return [str(ip_network(addresses[family])) for addresses in known[network]]
