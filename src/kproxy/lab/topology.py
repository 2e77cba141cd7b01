r"""The lab as a value: nodes, pods, clients, how they are wired, which address each has.

A `Topology` is bound late: `kproxy.conformance.binding.bind` turns names into its addresses, the simulator and
`kproxy.lab.wiring` build it.  `LAB` is the default one, in which the catalogue runs; a cluster's copy is another value
(`kproxy.tools.lab_session.layout`).  Pure: it opens nothing.

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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from ipaddress import ip_address, ip_network

from kproxy.model.network import Address, Family, Network, family_of

V4, V6 = Family.IPV4, Family.IPV6
Pair = Mapping[Family, Address]
Ranges = Mapping[Family, Network]

NODES = ("a", "b")
"""Names of nodes in cases and tables; a topology has both, or the first alone."""

CLIENT, REMOTE, ROUTER, ELSEWHERE, SWITCH = "client", "remote", "router", "elsewhere", "switch"
UPLINK, SECOND_UPLINK = "eth0", "eth1"
POD_INTERFACE_PREFIX = "veth"

LOOPBACK: Pair = {V4: ip_address("127.0.0.1"), V6: ip_address("::1")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stub:
    """Namespace behind the router, on a link of its own: the router's address there, and its own addresses.

    Without ``network`` the first address of each family is on the link, and packets to the others go through it.
    ``mtu``: of the router's end.
    """

    gateway: Pair
    addresses: Sequence[Address]
    network: Ranges = field(default_factory=dict)
    mtu: int = 0


@dataclass(frozen=True, kw_only=True, eq=False)
class Topology:
    """Nodes, pods, clients and ranges of a lab; ``hostnames``: names of Node objects, by the node's name.

    Without ``node_network`` every address is alone (/32, /128), and every route explicit. What a topology lacks is empty.
    """

    families: tuple[Family, ...] = tuple(Family)
    hostnames: Mapping[str, str]
    zones: Mapping[str, str]
    pods: Mapping[str, tuple[str, ...]]
    """Pods of each node."""
    node_address: Mapping[str, Pair]
    second_address: Mapping[str, Pair] = field(default_factory=dict)
    gained_address: Mapping[str, Pair] = field(default_factory=dict)
    """Address that a node may get in the course of a case, on its uplink; it sends nothing from there."""
    pod_gateway: Mapping[str, Pair]
    """Address of the node's end of every one of its pod links (as /32, /128)."""
    pod_addresses: Mapping[str, Sequence[Address]]
    """Addresses of each pod; several of a family where pods share a namespace."""
    pod_range: Mapping[str, Ranges] = field(default_factory=dict)
    """Range of further addresses of a pod, at all of which it replies: endpoints of Services that have hundreds."""
    sentinel_pod: str
    sentinel_addresses: Mapping[Family, Sequence[Address]]
    """Cluster IPs of the Services that show what has been applied (`kproxy.conformance.testbeds.sentinel`)."""

    client_address: Mapping[str, Pair]
    """Addresses of the on-link client: packets from the first go through node a, from the second through node b."""
    client_second_address: Pair = field(default_factory=dict)
    """The on-link client's address on the second network."""
    remote_address: Mapping[str, Pair]
    """Addresses of the routed client: packets from the first go through node a, from the second through node b."""
    range_clients: Mapping[str, Sequence[Address]] = field(default_factory=dict)
    """Further addresses of the routed client, by the node that their packets go through."""
    router_address: Pair
    stubs: Mapping[str, Stub]
    """Namespaces behind the router, by name; elsewhere has what no route claims."""
    ranges_through_nodes: Sequence[Ranges]
    """Destinations that clients outside reach through a node, chosen by their source address."""

    node_network: Ranges = field(default_factory=dict)
    second_network: Ranges = field(default_factory=dict)
    remote_network: Ranges = field(default_factory=dict)
    cluster_cidr: Ranges = field(default_factory=dict)
    pod_cidrs: Mapping[str, Ranges] = field(default_factory=dict)
    service_cidr: Ranges = field(default_factory=dict)
    second_service_cidr: Ranges = field(default_factory=dict)
    """Range that becomes a ServiceCIDR in the course of a case; outside clients have no routes to it."""
    external_ip_range: Ranges = field(default_factory=dict)
    load_balancer_range: Ranges = field(default_factory=dict)
    """Addresses for Services; no interface has any of them.  The client reaches them through a node."""

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names of the nodes."""
        return tuple(self.hostnames)

    @cached_property
    def all_pods(self) -> tuple[str, ...]:
        """Pods of all nodes."""
        return tuple(pod for node in self.nodes for pod in self.pods[node])

    @property
    def senders(self) -> tuple[str, ...]:
        """Namespaces that send probes."""
        return (*self.nodes, *self.all_pods, CLIENT, REMOTE)

    @cached_property
    def _node_of(self) -> Mapping[str, str]:
        return {pod: node for node, pods in self.pods.items() for pod in pods}

    def node_of(self, pod: str) -> str:
        """Node that a pod is on. Raises `KeyError` when there is no such pod."""
        return self._node_of[pod]

    @cached_property
    def pod_address(self) -> Mapping[str, Pair]:
        """First address of each pod in each family."""
        return {pod: {family_of(a): a for a in reversed(own)} for pod, own in self.pod_addresses.items()}

    def pod_interface(self, pod: str) -> str:
        """Name of the node's end of a pod's veth: with the pod's name, or its number where that has a namespace."""
        return f"{POD_INTERFACE_PREFIX}-{self.all_pods.index(pod) if '/' in pod else pod}"

    def local_addresses(self, node: str, family: Family) -> tuple[Address, ...]:
        """All addresses of a node's interfaces in one family, loopback included."""
        pairs = (self.node_address, self.second_address, self.pod_gateway)
        return (*(pair[node][family] for pair in pairs if node in pair), LOOPBACK[family])

    @cached_property
    def _namespaces(self) -> Mapping[Address, str]:
        found = {address: name for name, stub in self.stubs.items() for address in stub.addresses}
        found |= {address: pod for pod, own in self.pod_addresses.items() for address in own}
        return found | {address: node for node, own in self.node_address.items() for address in own.values()}

    def namespace_of(self, address: Address) -> str:
        """Namespace that has an address of a node, a pod or a stub; empty if none has."""
        return self._namespaces.get(address, "")


# --------------------------------------------------------------------------- the default


def _pair(v4: str, v6: str) -> Pair:
    return {V4: ip_address(v4), V6: ip_address(v6)}


def _nets(v4: str, v6: str) -> Ranges:
    return {V4: ip_network(v4), V6: ip_network(v6)}


_PODS = {"a": ("a1", "a2", "a3"), "b": ("b1", "b2", "b3")}
_PLACES = [(pod, i, k) for i, node in enumerate(NODES, 1) for k, pod in enumerate(_PODS[node], 1)]
_SERVICE_CIDR = _nets("10.96.0.0/16", "fd00:96::/112")
_EXTERNAL_IPS = _nets("100.64.0.0/16", "fd00:64::/112")
_LOAD_BALANCERS = _nets("100.65.0.0/16", "fd00:65::/112")
_REMOTE_NETWORK = _nets("198.51.100.0/24", "2001:db8:51::/64")
_REMOTE_ADDRESS = {
    "a": _pair("198.51.100.10", "2001:db8:51::10"),
    "b": _pair("198.51.100.11", "2001:db8:51::11"),
}
_FIRST_SENTINEL, _SENTINELS = 512, 256

LAB = Topology(
    hostnames={"a": "node-a", "b": "node-b"},
    zones={"a": "zone-a", "b": "zone-b"},
    pods=_PODS,
    node_address={"a": _pair("172.18.0.2", "fd00:18::2"), "b": _pair("172.18.0.3", "fd00:18::3")},
    second_address={"a": _pair("172.19.0.2", "fd00:19::2"), "b": _pair("172.19.0.3", "fd00:19::3")},
    gained_address={"a": _pair("172.18.0.12", "fd00:18::12"), "b": _pair("172.18.0.13", "fd00:18::13")},
    pod_gateway={"a": _pair("10.244.1.1", "fd00:244:0:1::1"), "b": _pair("10.244.2.1", "fd00:244:0:2::1")},
    pod_addresses={
        pod: tuple(_pair(f"10.244.{i}.{10 + k}", f"fd00:244:0:{i}::{10 + k}").values())
        for pod, i, k in _PLACES
    },
    pod_range={
        pod: _nets(f"10.244.{16 * i + 2 * k}.0/23", f"fd00:244:0:{i}{k}::/64") for pod, i, k in _PLACES
    },
    sentinel_pod="a3",
    sentinel_addresses={
        family: [network[_FIRST_SENTINEL + number] for number in range(_SENTINELS)]
        for family, network in _SERVICE_CIDR.items()
    },
    client_address={"a": _pair("172.18.0.100", "fd00:18::100"), "b": _pair("172.18.0.101", "fd00:18::101")},
    client_second_address=_pair("172.19.0.100", "fd00:19::100"),
    remote_address=_REMOTE_ADDRESS,
    router_address=_pair("172.18.0.1", "fd00:18::1"),
    stubs={
        REMOTE: Stub(
            gateway=_pair("198.51.100.1", "2001:db8:51::1"),
            addresses=[address for pair in _REMOTE_ADDRESS.values() for address in pair.values()],
            network=_REMOTE_NETWORK,
            mtu=1400,  # a larger packet to the routed client makes the router send an ICMP error
        ),
        ELSEWHERE: Stub(
            gateway=_pair("192.0.2.1", "2001:db8:2::1"),
            addresses=tuple(_pair("192.0.2.2", "2001:db8:2::2").values()),
            network=_nets("192.0.2.0/29", "2001:db8:2::/64"),
        ),
    },
    ranges_through_nodes=(_SERVICE_CIDR, _EXTERNAL_IPS, _LOAD_BALANCERS),
    node_network=_nets("172.18.0.0/24", "fd00:18::/64"),
    second_network=_nets("172.19.0.0/24", "fd00:19::/64"),
    remote_network=_REMOTE_NETWORK,
    cluster_cidr=_nets("10.244.0.0/16", "fd00:244::/48"),
    pod_cidrs={
        "a": _nets("10.244.1.0/24", "fd00:244:0:1::/64"),
        "b": _nets("10.244.2.0/24", "fd00:244:0:2::/64"),
    },
    service_cidr=_SERVICE_CIDR,
    second_service_cidr=_nets("10.97.0.0/16", "fd00:97::/112"),
    external_ip_range=_EXTERNAL_IPS,
    load_balancer_range=_LOAD_BALANCERS,
)
"""Topology of the lab in which the catalogue runs."""
