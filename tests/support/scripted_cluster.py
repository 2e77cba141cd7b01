"""A fixed cluster for tests: every address differs from the lab's, some are the lab's address of another object."""

from ipaddress import ip_address, ip_network

from kproxy.conformance.testbeds.cluster.cluster_topology import ClusterNode, ClusterTopology
from kproxy.lab.topology import LAB
from kproxy.model.network import Address, Family

V4, V6 = Family.IPV4, Family.IPV6


def pair(v4: str, v6: str) -> dict[Family, Address]:
    return {V4: ip_address(v4), V6: ip_address(v6)}


PODS = [pod for pods in LAB.pods.values() for pod in pods]
PLACE = ClusterTopology(
    namespace="kproxy-conformance-1",
    nodes={
        "a": ClusterNode(
            name="worker-1",
            addresses=pair("192.168.7.5", "fd07::5"),
            zone="east",
            others=frozenset({ip_address("10.244.1.1"), ip_address("10.244.2.11")}),
        ),
        "b": ClusterNode(name="worker-2", addresses=pair("192.168.7.6", "fd07::6"), zone="west"),
    },
    pods={pod: pair(f"10.244.1.{11 + n}", f"fd07:1::{n + 1:x}") for n, pod in enumerate(reversed(PODS))},
    service_cidrs={V4: ip_network("10.96.0.0/16"), V6: ip_network("fd07:96::/112")},
    taken_addresses=frozenset({ip_address("10.96.1.0"), ip_address("10.96.1.3")}),
    taken_ports=frozenset({30000, 30002}),
    neighbour=pair("192.168.7.7", "fd07::7"),
)
"""Topology whose pods have the lab's pod addresses, exchanged, as in kind's."""
