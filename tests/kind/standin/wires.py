"""The stand-in's network as text for ``ip -batch``: three nodes on one switch, and pods that come and go.

Pure; `kproxy.lab.network` builds the nodes, `tests.kind.standin.places` the pods.  Names and addresses are none of the
lab's own topology, as those of a real cluster are not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from ipaddress import ip_address, ip_network

from kproxy.lab import wiring
from kproxy.lab.topology import ELSEWHERE, SWITCH, UPLINK
from kproxy.model.network import Address, Family, Network

CONTROL_PLANE = "control-plane"
WORKERS = ("worker-1", "worker-2")
NODES = (CONTROL_PLANE, *WORKERS)
ZONES = {CONTROL_PLANE: "zone-0", "worker-1": "zone-1", "worker-2": "zone-2"}

OUTSIDE = {"client": 100, "remote": 110}
"""Clients outside: each has two addresses; packets from the first go through the first worker, and so on."""
SERVICES = {
    Family.IPV4: ("10.96.0.0/16", "198.18.0.0/15"),
    Family.IPV6: ("fd00:96::/112", "2001:2::/48"),
}
"""Cluster IPs (as `kproxy.lab.kube` gives them), and where the testbed's external addresses are."""

BRIDGE = "nodes"
POD_RANGES = {Family.IPV4: ip_network("10.60.0.0/16"), Family.IPV6: ip_network("fd60::/48")}
_NODE_PREFIX = {Family.IPV4: "172.30.0.{}/24", Family.IPV6: "fd30::{}/64"}
_GATEWAY, _FIRST_NODE = 1, 10
"""Of the last number of an address: elsewhere, which refuses whatever no route claims, and the first node."""


def node_address(node: str, family: Family) -> Address:
    """Its InternalIP."""
    return ip_address(_on_node_network(_FIRST_NODE + NODES.index(node), family).partition("/")[0])


def pod_range(node: str, family: Family) -> Network:
    """Its PodCIDR."""
    number = NODES.index(node)
    return ip_network(f"10.60.{number}.0/24" if family is Family.IPV4 else f"fd60:0:0:{number}::/64")


def pod_address(node: str, number: int, family: Family) -> Address:
    """Of a node's pods; number 1 is the node's end of each of their links."""
    return pod_range(node, family)[number]


def links(path: Mapping[str, str]) -> str:
    """The batch that makes every link, run inside the switch."""
    ports = (f"link add {_port(name)} type veth peer name {UPLINK} netns {path[name]}" for name in _MEMBERS)
    return "\n".join([f"link add {BRIDGE} type bridge mcast_snooping 0", *ports])


def addressing(name: str, family: Family) -> str:
    """The batch (for ``ip -4`` or ``ip -6``) of one namespace."""
    lines = (
        _switch() if name == SWITCH else _outside(name, family) if name in OUTSIDE else _member(name, family)
    )
    return "\n".join(["link set lo up", *lines])


def pod_links(interface: str, path: str) -> str:
    """The batch that makes a pod's link, run on its node; ``path``: where the pod's namespace can be opened."""
    return f"link add {interface} type veth peer name {UPLINK} netns {path}"


def pod_on_node(node: str, number: int, interface: str, family: Family) -> str:
    """The batch of its node's end."""
    gateway, pod = (pod_address(node, n, family) for n in (1, number))
    return f"link set {interface} up\n{_own(gateway, interface)}\nroute add {pod} dev {interface}"


def pod_inside(node: str, number: int, family: Family) -> str:
    """The batch of its own end."""
    gateway, pod = (pod_address(node, n, family) for n in (1, number))
    lines = ("link set lo up", f"link set {UPLINK} up", _own(pod, UPLINK))
    return "\n".join((*lines, f"route add {gateway} dev {UPLINK}", f"route add default via {gateway}"))


_MEMBERS = (*NODES, ELSEWHERE, *OUTSIDE)


class StandInWiring:
    """The network of the stand-in, whose nodes all forward."""

    namespaces = (SWITCH, *_MEMBERS)
    links = staticmethod(links)
    addressing = staticmethod(addressing)

    def sysctls(self, _: str) -> Mapping[str, str]:
        """Those of a namespace that forwards."""
        return wiring.sysctls(forwards=True)


def _port(name: str) -> str:
    return f"port-{_MEMBERS.index(name)}"


def _on_node_network(number: int, family: Family) -> str:
    return _NODE_PREFIX[family].format(number)


def _switch() -> Iterator[str]:
    yield from (f"link set {_port(name)} master {BRIDGE} up" for name in _MEMBERS)
    yield f"link set {BRIDGE} up"


def _member(name: str, family: Family) -> Iterator[str]:
    number = _GATEWAY if name == ELSEWHERE else _FIRST_NODE + NODES.index(name)
    yield f"link set {UPLINK} up"
    yield f"address add {_on_node_network(number, family)} dev {UPLINK}{_nodad(family)}"
    for node in NODES:
        if node != name:
            yield f"route add {pod_range(node, family)} via {node_address(node, family)}"
    if name != ELSEWHERE:
        yield f"route add default via {_on_node_network(_GATEWAY, family).partition('/')[0]}"


def _outside(name: str, family: Family) -> Iterator[str]:
    yield f"link set {UPLINK} up"
    for number in range(len(WORKERS)):
        own = _on_node_network(OUTSIDE[name] + number, family)
        yield f"address add {own} dev {UPLINK}{_nodad(family)}"
    for number, worker in enumerate(WORKERS):
        via, table = node_address(worker, family), 101 + number
        own = _on_node_network(OUTSIDE[name] + number, family).partition("/")[0]
        yield f"route add default via {via} table {table}"
        for network in (*SERVICES[family], POD_RANGES[family]):
            yield f"rule add from {own} to {network} lookup {table}"
    yield f"route add default via {_on_node_network(_GATEWAY, family).partition('/')[0]}"


def _own(address: Address, interface: str) -> str:
    family = Family.IPV4 if address.version == 4 else Family.IPV6
    return f"address add {address}/{address.max_prefixlen} dev {interface}{_nodad(family)}"


def _nodad(family: Family) -> str:
    return " nodad" if family is Family.IPV6 else ""
