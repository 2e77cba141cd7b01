"""Objects that all cases share: Nodes, the ServiceCIDR; and the facts about a node for the oracle.

Pure.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from ipaddress import ip_network

from kproxy.conformance.binding.kubernetes_objects import Document
from kproxy.conformance.case import Profile
from kproxy.lab.topology import LAB, Topology
from kproxy.model.network import Family, Network
from kproxy.spec.node import PRIMARY, DetectMode, NodeFacts, Primary


def node_documents(topology: Topology = LAB) -> tuple[Document, ...]:
    """Node objects of the lab."""
    return tuple(node_document(topology, node, topology.zones[node]) for node in topology.nodes)


def unlabelled_node_documents(topology: Topology = LAB) -> tuple[Document, ...]:
    """Node objects of the lab before a cloud's controller has labelled them with zones."""
    return tuple(node_document(topology, node, "") for node in topology.nodes)


DELETION_METADATA = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["node.example/wait"]}


def node_document(
    topology: Topology, node: str, zone: str, taints: Sequence[str] = (), *, deleting: bool = False
) -> Document:
    """One Node object; an empty zone leaves the label out; ``taints``: their keys; ``deleting``: with a deletionTimestamp."""
    labels = {"kubernetes.io/hostname": topology.hostnames[node]}
    if zone:
        labels["topology.kubernetes.io/zone"] = zone
    cidrs = [str(topology.pod_cidrs[node][family]) for family in Family]
    addresses = [str(topology.node_address[node][family]) for family in Family]
    tainted = {"taints": [{"key": key, "effect": "NoSchedule"} for key in taints]} if taints else {}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": topology.hostnames[node],
            "labels": labels,
            **(DELETION_METADATA if deleting else {}),
        },
        "spec": {"podCIDR": cidrs[0], "podCIDRs": cidrs, **tainted},
        "status": {"addresses": [{"type": "InternalIP", "address": text} for text in addresses]},
    }


def service_cidr_document(topology: Topology = LAB, *, second: bool = False) -> Document:
    """ServiceCIDR object of the lab, or the one that a case may add."""
    ranges = topology.second_service_cidr if second else topology.service_cidr
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "ServiceCIDR",
        "metadata": {"name": "second" if second else "kubernetes"},
        "spec": {"cidrs": [str(ranges[family]) for family in Family]},
    }


def node_facts(node: str, profile: Profile, topology: Topology = LAB) -> NodeFacts:
    """Facts about a node under a profile, for the oracle."""
    addresses = itertools.chain.from_iterable(topology.local_addresses(node, family) for family in Family)
    mode = DetectMode(profile.detect_mode) if profile.detect_mode else DetectMode.CLUSTER_CIDR
    detected = profile.detect_families if profile.detect_mode else ()
    networks: tuple[Network, ...] = tuple(topology.cluster_cidr[family] for family in detected)
    return NodeFacts(
        name=topology.hostnames[node],
        addresses=frozenset(addresses),
        detect_mode=mode,
        cluster_cidrs=networks,
        detect_interface=profile.detect_interface,
        masquerade_all=profile.masquerade_all,
        node_port_addresses=_node_port_addresses(profile),
        localhost_node_ports=profile.localhost_node_ports,
        allow_external_ips=profile.allow_external_ips,
        families=profile.families,
    )


def _node_port_addresses(profile: Profile) -> tuple[Network, ...] | Primary:
    if profile.node_port_addresses == ("primary",):
        return PRIMARY
    return tuple(ip_network(text) for text in profile.node_port_addresses)
