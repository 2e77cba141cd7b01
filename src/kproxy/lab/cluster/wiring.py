"""The cluster's network as text for ``ip -batch``: nodes and clients outside on one switch.  Pure.

`kproxy.lab.network.build_network` runs it. Links of pods are the CNI plugin's. A client outside chooses the node that its
packets go through by its source address: from the first address it is the first node, from the second one the second.

Nodes have the kernel's default limits of ICMP errors, as nodes do, but send no redirects, and the clients outside accept none.
After one they would go round the node that a case is about. And a node that would send redirects to a client rejects nothing
of its: each packet that calls for one sets back the clock by which the limit of ICMP errors to that peer counts (Linux,
net/ipv4/route.c, ``ip_rt_send_redirect``, and net/ipv4/icmp.c, ``inet_peer_xrlim_allow``, share ``rate_last``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kproxy.lab.cluster.layout import (
    EXTERNAL_NETWORK,
    OUTSIDE,
    POD_NETWORK,
    SERVICE_NETWORK,
    ClusterLayout,
    control_plane_address,
    elsewhere_address,
    prefixed,
)
from kproxy.lab.topology import ELSEWHERE, SWITCH, UPLINK
from kproxy.model.network import Address, Family

BRIDGE = "nodes"
_FIRST_TABLE = 101

_EVERYWHERE: Mapping[str, str] = {
    "ipv4/conf/all/rp_filter": "0",
    "ipv4/conf/default/rp_filter": "0",
    "ipv6/conf/all/accept_dad": "0",
    "ipv6/conf/default/accept_dad": "0",
    "ipv6/conf/default/accept_ra": "0",
    "ipv6/conf/default/router_solicitations": "0",
}
_FORWARDS: Mapping[str, str] = {"ipv4/ip_forward": "1", "ipv6/conf/all/forwarding": "1"}
_LASTING: Mapping[str, str] = {"netfilter/nf_conntrack_udp_timeout": "600"}
"""A slow run's idle UDP flow does not expire, as in the lab (`kproxy.lab.wiring.SYSCTLS`)."""
_SENDS_NO_REDIRECTS: Mapping[str, str] = {
    "ipv4/conf/all/send_redirects": "0",
    "ipv4/conf/default/send_redirects": "0",
}
_NO_REDIRECTS: Mapping[str, str] = {
    "ipv4/conf/all/accept_redirects": "0",
    "ipv4/conf/default/accept_redirects": "0",
    "ipv6/conf/all/accept_redirects": "0",
    "ipv6/conf/default/accept_redirects": "0",
}


def _bridges_filtered(value: str) -> dict[str, str]:
    return {f"bridge/bridge-nf-call-{tool}": value for tool in ("iptables", "ip6tables")}


@dataclass(frozen=True, slots=True)
class ClusterWiring:
    """Texts for one layout."""

    layout: ClusterLayout

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Names of all namespaces; the control plane lives in the switch's."""
        return (SWITCH, *self._members)

    @property
    def _members(self) -> tuple[str, ...]:
        return (*self.layout.nodes, ELSEWHERE, *OUTSIDE)

    def sysctls(self, name: str) -> Mapping[str, str]:
        """Sysctls below ``/proc/sys/net`` of a namespace."""
        if name in OUTSIDE:
            return {**_EVERYWHERE, **_NO_REDIRECTS}
        filtered = _bridges_filtered("1" if name in self.layout.nodes else "0")
        return {**_EVERYWHERE, **_FORWARDS, **_SENDS_NO_REDIRECTS, **_LASTING, **filtered}

    def links(self, path: Mapping[str, str]) -> str:
        """Batch that makes every link, run inside the switch."""
        members = self._members
        ports = (
            f"link add {self._port(name)} type veth peer name {UPLINK} netns {path[name]}" for name in members
        )
        return "\n".join([f"link add {BRIDGE} type bridge mcast_snooping 0", *ports])

    def addressing(self, name: str, family: Family) -> str:
        """Batch (for ``ip -4`` or ``ip -6``) of one namespace."""
        if name == SWITCH:
            lines = self._switch(family)
        elif name in OUTSIDE:
            lines = self._outside(name, family)
        else:
            lines = self._member(name, family)
        return "\n".join(["link set lo up", *lines])

    def _port(self, name: str) -> str:
        return f"port-{self._members.index(name)}"

    def _switch(self, family: Family) -> Iterator[str]:
        yield from (f"link set {self._port(name)} master {BRIDGE} up" for name in self._members)
        yield f"link set {BRIDGE} up"
        yield _own(control_plane_address(family), BRIDGE)
        yield from self._pod_routes(family)
        yield f"route add default via {elsewhere_address(family)}"

    def _member(self, name: str, family: Family) -> Iterator[str]:
        elsewhere = name == ELSEWHERE
        yield f"link set {UPLINK} up"
        yield _own(elsewhere_address(family) if elsewhere else self.layout.node_address(name, family), UPLINK)
        yield from self._pod_routes(family, but=name)
        if not elsewhere:
            yield f"route add default via {elsewhere_address(family)}"

    def _outside(self, name: str, family: Family) -> Iterator[str]:
        yield f"link set {UPLINK} up"
        ranges = (SERVICE_NETWORK[family], EXTERNAL_NETWORK[family], POD_NETWORK[family])
        chosen = self.layout.nodes[:2] if self.layout.size > 1 else self.layout.nodes * 2
        for index, node in enumerate(chosen):
            own, table = self.layout.outside_address(name, index, family), _FIRST_TABLE + index
            yield _own(own, UPLINK)
            yield f"route add default via {self.layout.node_address(node, family)} table {table}"
            yield from (f"rule add from {own} to {network} lookup {table}" for network in ranges)
        yield from self._pod_routes(family)
        yield f"route add default via {elsewhere_address(family)}"

    def _pod_routes(self, family: Family, but: str = "") -> Iterator[str]:
        for node in self.layout.nodes:
            if node != but:
                via = self.layout.node_address(node, family)
                yield f"route add {self.layout.pod_range(node, family)} via {via}"


def _own(address: Address, interface: str) -> str:
    return f"address add {prefixed(address)} dev {interface}{' nodad' if address.version == 6 else ''}"
