"""Objects of cases, as a cluster may hold them: its addresses, ports, names and nodes for the lab's.  Pure.

All objects are in one namespace; a name says by a number which of the lab's namespaces it stands for.
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
from kproxy.lab import topology
from kproxy.model.network import Network, family_of

MANAGER = "kproxy-conformance"
MANAGED_BY = "endpointslice.kubernetes.io/managed-by"
SERVICE_NAME = "kubernetes.io/service-name"
CASE = "kproxy.example/case"
"""The label of an object that says whose it is: the lab's namespace, which has the name of the case."""


def mapped_name(namespace: str, name: str) -> str:
    """What an object of one of the lab's namespaces is called: a DNS label, as long as its name is short."""
    return f"{name}-{crc32(namespace.encode()):08x}"


@dataclass(frozen=True, slots=True)
class ObjectMap:
    """Objects through a lens."""

    addresses: AddressMap

    def key(self, key: Key) -> Key:
        """The identity that an object has in the cluster."""
        kind, namespace, name = key
        return kind, self.addresses.cluster.namespace, mapped_name(namespace, name)

    def document(self, document: Document) -> Document:
        """A Service, EndpointSlice or Endpoints object for the cluster."""
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
        zones = {topology.ZONES[name]: node.zone for name, node in self.addresses.cluster.nodes.items()}
        outward: Document = {}
        if "forZones" in hints:
            outward["forZones"] = [{"name": zones.get(z["name"]) or z["name"]} for z in hints["forZones"]]
        if "forNodes" in hints:
            outward["forNodes"] = [{"name": self._node(node["name"])} for node in hints["forNodes"]]
        return outward

    def _node(self, hostname: str) -> str:
        """A Node object's name; one that is nobody's stays."""
        names = {topology.HOSTNAMES[name]: node.name for name, node in self.addresses.cluster.nodes.items()}
        return names.get(hostname, hostname)

    def _address(self, text: str) -> str:
        """An address; what is none, such as ``None`` or a host's name, stays."""
        try:
            return str(self.addresses.addresses.apply(ip_address(text)))
        except ValueError:
            return text

    def _range(self, text: str) -> Iterator[str]:
        """A source range: those of the lab become the addresses that there are in the cluster."""
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
        """Who of ours is in one of the lab's networks, each by itself; empty for every other network."""
        family, place = family_of(network), self.addresses.cluster
        neighbours = [place.neighbour] if place.neighbour else [*place.outside.get("client", {}).values()]
        known: dict[Network, Sequence[Addresses]] = {
            topology.CLUSTER_CIDR[family]: tuple(place.pods.values()),
            topology.NODE_NETWORK[family]: (*(n.addresses for n in place.nodes.values()), *neighbours),
            topology.REMOTE_NETWORK[family]: tuple(place.outside.get("remote", {}).values()),
        }
        if network not in known or family not in place.families:
            return []
        return [str(ip_network(addresses[family])) for addresses in known[network]]
