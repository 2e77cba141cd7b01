r"""The lab as a value: nodes, pods, clients, how they are wired, which address each has.

Read by `kproxy.conformance.binding.bind` (names to addresses), by the simulator and by the builder of
namespaces, so that all agree.  Pure: it opens nothing.

    a1 a2 a3          b1 b2 b3         pods, each on a point-to-point veth to its node
      |  |  |           |  |  |
      node a            node b         eth0 on the node network, eth1 on the second network
            \          /
             [ switch ]----- client    on-link: a neighbour of the nodes on both networks
                 |
               router ------ remote    routed: a client one hop away
                 |
             elsewhere                 whatever no route claims ends here, and is answered
"""

from __future__ import annotations

from ipaddress import ip_address, ip_network

from kproxy.model.network import Address, Family, Network

V4, V6 = Family.IPV4, Family.IPV6

NODES = ("a", "b")
PODS = {"a": ("a1", "a2", "a3"), "b": ("b1", "b2", "b3")}
_NODE_OF = {pod: node for node, pods in PODS.items() for pod in pods}
ZONES = {"a": "zone-a", "b": "zone-b"}
HOSTNAMES = {"a": "node-a", "b": "node-b"}
"""Names of Node objects; cases and tables use ``a`` and ``b``."""

UPLINK, SECOND_UPLINK = "eth0", "eth1"
POD_INTERFACE_PREFIX = "veth"


def _pair(v4: str, v6: str) -> dict[Family, Address]:
    return {V4: ip_address(v4), V6: ip_address(v6)}


def _nets(v4: str, v6: str) -> dict[Family, Network]:
    return {V4: ip_network(v4), V6: ip_network(v6)}


NODE_NETWORK = _nets("172.18.0.0/24", "fd00:18::/64")
SECOND_NETWORK = _nets("172.19.0.0/24", "fd00:19::/64")
REMOTE_NETWORK = _nets("198.51.100.0/24", "2001:db8:51::/64")
TRANSIT_NETWORK = _nets("192.0.2.0/29", "2001:db8:2::/64")
"""Between router (.1) and elsewhere (.2)."""

CLUSTER_CIDR = _nets("10.244.0.0/16", "fd00:244::/48")
POD_CIDRS = {
    "a": _nets("10.244.1.0/24", "fd00:244:0:1::/64"),
    "b": _nets("10.244.2.0/24", "fd00:244:0:2::/64"),
}
SERVICE_CIDR = _nets("10.96.0.0/16", "fd00:96::/112")
SECOND_SERVICE_CIDR = _nets("10.97.0.0/16", "fd00:97::/112")
"""Range that becomes a ServiceCIDR in the course of a case; outside clients have no routes to it."""
EXTERNAL_IP_RANGE = _nets("100.64.0.0/16", "fd00:64::/112")
LOAD_BALANCER_RANGE = _nets("100.65.0.0/16", "fd00:65::/112")
"""Addresses for Services; no interface has any of them.  The client reaches them through a node."""

NODE_ADDRESS = {
    "a": _pair("172.18.0.2", "fd00:18::2"),
    "b": _pair("172.18.0.3", "fd00:18::3"),
}
SECOND_ADDRESS = {
    "a": _pair("172.19.0.2", "fd00:19::2"),
    "b": _pair("172.19.0.3", "fd00:19::3"),
}
GAINED_ADDRESS = {
    "a": _pair("172.18.0.12", "fd00:18::12"),
    "b": _pair("172.18.0.13", "fd00:18::13"),
}
"""Address that a node may get in the course of a case, on its uplink; it sends nothing from there."""

POD_GATEWAY = {
    "a": _pair("10.244.1.1", "fd00:244:0:1::1"),
    "b": _pair("10.244.2.1", "fd00:244:0:2::1"),
}
"""Address of the node's end of every one of its pod links (as /32, /128)."""

POD_ADDRESS = {
    pod: _pair(f"10.244.{i}.{10 + k}", f"fd00:244:0:{i}::{10 + k}")
    for i, node in enumerate(NODES, 1)
    for k, pod in enumerate(PODS[node], 1)
}
POD_RANGE = {
    pod: _nets(f"10.244.{16 * i + 2 * k}.0/23", f"fd00:244:0:{i}{k}::/64")
    for i, node in enumerate(NODES, 1)
    for k, pod in enumerate(PODS[node], 1)
}
"""Range of further addresses of a pod, at all of which it replies: endpoints of Services that have hundreds."""

ROUTER_ADDRESS = _pair("172.18.0.1", "fd00:18::1")
REMOTE_GATEWAY = _pair("198.51.100.1", "2001:db8:51::1")
TRANSIT_ROUTER = _pair("192.0.2.1", "2001:db8:2::1")
TRANSIT_ELSEWHERE = _pair("192.0.2.2", "2001:db8:2::2")

CLIENT_ADDRESS = {
    "a": _pair("172.18.0.100", "fd00:18::100"),
    "b": _pair("172.18.0.101", "fd00:18::101"),
}
"""Addresses of the on-link client: packets from the first go through node a, from the second through node b."""

CLIENT_SECOND_ADDRESS = _pair("172.19.0.100", "fd00:19::100")
"""The on-link client's address on the second network."""

REMOTE_ADDRESS = {
    "a": _pair("198.51.100.10", "2001:db8:51::10"),
    "b": _pair("198.51.100.11", "2001:db8:51::11"),
}
"""Addresses of the routed client: packets from the first go through node a, from the second through node b."""


def node_of(pod: str) -> str:
    """Node that a pod is on. Raises `KeyError` when there is no such pod."""
    return _NODE_OF[pod]


def pod_interface(pod: str) -> str:
    """Name of the node's end of a pod's veth."""
    return f"{POD_INTERFACE_PREFIX}-{pod}"


def local_addresses(node: str, family: Family) -> tuple[Address, ...]:
    """All addresses of a node's interfaces in one family, loopback included."""
    loopback = ip_address("127.0.0.1" if family is V4 else "::1")
    return (
        NODE_ADDRESS[node][family],
        SECOND_ADDRESS[node][family],
        POD_GATEWAY[node][family],
        loopback,
    )
