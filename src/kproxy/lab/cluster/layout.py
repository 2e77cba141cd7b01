"""Names and addresses of a cluster on this machine, of both families.  Pure.

The switch's own address is the control plane's. Nodes are numbered from 1; each has the pod range of its number, so that
routes are known before any node has registered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_network

from kproxy.model.network import Address, Family, Network

MOST_NODES = 9
ZONES = 3
API_PORT, DNS_PORT = 6443, 53
OUTSIDE: Mapping[str, int] = {"client": 100, "remote": 110}
"""Clients outside of the cluster, with the last number of their first address; the second is the next one."""

NODE_NETWORK: Mapping[Family, Network] = {
    Family.IPV4: ip_network("192.168.130.0/24"),
    Family.IPV6: ip_network("fd30::/64"),
}
"""Cases have ranges of sources that clients outside must be in or not: 128.0.0.0/1, and not 172.16.0.0/12."""
POD_NETWORK: Mapping[Family, Network] = {
    Family.IPV4: ip_network("10.244.0.0/16"),
    Family.IPV6: ip_network("fd00:10:244::/48"),
}
SERVICE_NETWORK: Mapping[Family, Network] = {
    Family.IPV4: ip_network("10.96.0.0/16"),
    Family.IPV6: ip_network("fd00:96::/112"),
}
EXTERNAL_NETWORK: Mapping[Family, Network] = {
    Family.IPV4: ip_network("198.18.0.0/15"),
    Family.IPV6: ip_network("2001:2::/48"),
}
"""Kept for tests by RFC 2544 and RFC 5180; external addresses of the catalogue's Services are here."""

_CONTROL_PLANE, _FIRST_NODE, _ELSEWHERE = 1, 11, 254
_DNS = 10


@dataclass(frozen=True, slots=True)
class ClusterLayout:
    """Layout of a cluster of this many nodes."""

    size: int = 3

    def __post_init__(self) -> None:
        """Raise ValueError for a number of nodes that has no addresses."""
        if not 1 <= self.size <= MOST_NODES:
            raise ValueError(f"a cluster has 1 to {MOST_NODES} nodes, not {self.size}")

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names of the nodes, in order."""
        return tuple(f"node-{number}" for number in range(1, self.size + 1))

    def zone(self, node: str) -> str:
        """A node's zone: one of three, in turn."""
        return f"zone-{(self._number(node) - 1) % ZONES + 1}"

    def node_address(self, node: str, family: Family) -> Address:
        """A node's InternalIP."""
        return NODE_NETWORK[family][_FIRST_NODE - 1 + self._number(node)]

    def pod_range(self, node: str, family: Family) -> Network:
        """A node's PodCIDR."""
        number = self._number(node)
        return ip_network(f"10.244.{number}.0/24" if family is Family.IPV4 else f"fd00:10:244:{number}::/64")

    def outside_address(self, name: str, index: int, family: Family) -> Address:
        """One of the two addresses of a client outside."""
        return NODE_NETWORK[family][OUTSIDE[name] + index]

    def _number(self, node: str) -> int:
        return self.nodes.index(node) + 1


def control_plane_address(family: Family) -> Address:
    """Address of the switch, where the API server listens."""
    return NODE_NETWORK[family][_CONTROL_PLANE]


def elsewhere_address(family: Family) -> Address:
    """Default gateway, which refuses what no route claims."""
    return NODE_NETWORK[family][_ELSEWHERE]


def dns_address() -> Address:
    """Cluster IP that pods are given as their resolver."""
    return SERVICE_NETWORK[Family.IPV4][_DNS]


def api_service_address() -> Address:
    """Cluster IP of the Service ``kubernetes``: the first of the range."""
    return SERVICE_NETWORK[Family.IPV4][1]


def prefixed(address: Address) -> str:
    """An address on the nodes' network, with its prefix length."""
    family = Family.IPV4 if address.version == 4 else Family.IPV6
    return f"{address}/{NODE_NETWORK[family].prefixlen}"
