"""Survey of a cluster from its objects: nodes to use, and addresses that Services may have. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address, ip_network

from kproxy.conformance.binding.kubernetes_objects import Document
from kproxy.conformance.testbeds.cluster.cluster_topology import Addresses
from kproxy.conformance.testbeds.cluster.connection import NoCluster
from kproxy.lab.topology import NODES
from kproxy.model.network import Address, Family, Network, family_of

ZONE = "topology.kubernetes.io/zone"
CONTROL_PLANE = "node-role.kubernetes.io/control-plane"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSurvey:
    """State of a cluster before the harness creates anything.

    ``nodes``: the Node objects that are ``a`` and ``b``; ``neighbour``: a third one, None where there is none.
    """

    nodes: Mapping[str, Document]
    neighbour: Document | None
    service_cidrs: Mapping[Family, Network]
    taken_addresses: frozenset[Address]
    taken_ports: frozenset[int]

    @property
    def families(self) -> tuple[Family, ...]:
        """Families that Services may have."""
        return tuple(family for family in Family if family in self.service_cidrs)

    @property
    def zones_differ(self) -> bool:
        """True if both nodes have a zone, and not the same one."""
        first, second = (node_zone(node) for node in self.nodes.values())
        return bool(first and second) and first != second


def survey_cluster(
    nodes: Sequence[Document], services: Sequence[Document], service_cidrs: Sequence[Document]
) -> ClusterSurvey:
    """Survey of these objects. Raises `NoCluster` when cases cannot be run among them."""
    ready = sorted(filter(_is_ready, nodes), key=lambda node: (_is_set_apart(node), object_name(node)))
    if len(ready) < len(NODES):
        names = ", ".join(map(object_name, ready)) or "none"
        raise NoCluster(f"cases need two nodes that are ready, here are: {names}")
    first, others = ready[0], ready[1:]
    second = next((node for node in others if _in_another_zone(node, first)), others[0])
    cidrs = [text for one in service_cidrs for text in one["spec"]["cidrs"]]
    if not cidrs:
        raise NoCluster(
            "the cluster has no ServiceCIDR object: it must serve networking.k8s.io/v1 (1.33 or later)"
        )
    return ClusterSurvey(
        nodes={"a": first, "b": second},
        neighbour=next((node for node in others if node is not second), None),
        service_cidrs={family_of(network): network for network in map(ip_network, reversed(cidrs))},
        taken_addresses=frozenset(_cluster_ips(services)),
        taken_ports=frozenset(_node_ports(services)),
    )


def object_name(document: Document) -> str:
    """An object's name."""
    return str(document["metadata"]["name"])


def node_zone(node: Document) -> str:
    """A node's zone; empty when it has none."""
    return str(node["metadata"].get("labels", {}).get(ZONE, ""))


def node_internal_addresses(node: Document) -> Addresses:
    """A node's internal address of each family, the first where it has several."""
    found: dict[Family, Address] = {}
    for entry in node["status"]["addresses"]:
        if entry["type"] == "InternalIP":
            address = ip_address(entry["address"])
            found.setdefault(family_of(address), address)
    return found


def pod_addresses(pod: Document) -> Addresses:
    """A pod's address of each family; none before it has any."""
    addresses = [ip_address(entry["ip"]) for entry in pod.get("status", {}).get("podIPs", ())]
    return {family_of(address): address for address in addresses}


def _is_ready(node: Document) -> bool:
    conditions = node["status"].get("conditions", ())
    ready = any((c["type"], c["status"]) == ("Ready", "True") for c in conditions)
    return ready and not node.get("spec", {}).get("unschedulable", False)


def _is_set_apart(node: Document) -> bool:
    """True if others' pods are kept away from it, as from a control plane: it is used last."""
    return CONTROL_PLANE in node["metadata"].get("labels", {}) or bool(node.get("spec", {}).get("taints"))


def _in_another_zone(node: Document, than: Document) -> bool:
    return not _is_set_apart(node) and node_zone(node) != node_zone(than)


def _cluster_ips(services: Sequence[Document]) -> Iterator[Address]:
    for service in services:
        for text in service["spec"].get("clusterIPs", ()):
            if text != "None":
                yield ip_address(text)


def _node_ports(services: Sequence[Document]) -> Iterator[int]:
    for service in services:
        ports = (port.get("nodePort") for port in service["spec"].get("ports", ()))
        yield from (number for number in (*ports, service["spec"].get("healthCheckNodePort")) if number)
