"""Vantage points and targets: senders and destinations of probes, in names. Pure."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

from kproxy.model.network import Protocol

LOOPBACK = "loopback"
"""Name for spoofed sources: the loopback address."""

UNUSED_HOSTS = "unused-hosts"
"""Name for spoofed sources in the routed client's network that no host has; each packet of a probe uses another."""


class VantageKind(enum.Enum):
    """Kind of sender."""

    POD = enum.auto()
    HOST = enum.auto()
    ON_LINK = enum.auto()
    ROUTED = enum.auto()
    SPOOFED = enum.auto()
    """The on-link client, with a source address that is not its own; UDP only, and it gets no reply."""


@dataclass(frozen=True, slots=True)
class Vantage:
    """Sender; ``node``: its node, or the node an outside client's packets go through."""

    kind: VantageKind
    node: str
    name: str

    @property
    def spoofs_node(self) -> bool:
        """True if it spoofs an address of the node's own."""
        return self.kind is VantageKind.SPOOFED and self.name in {self.node, LOOPBACK}

    def __str__(self) -> str:
        """Name in tables."""
        match self.kind:
            case VantageKind.POD:
                return f"pod {self.name}"
            case VantageKind.HOST:
                return f"host {self.node}"
            case VantageKind.SPOOFED:
                return f"client as {self.name} via {self.node}"
            case _:
                return f"{self.name} via {self.node}"


def pod(name: str) -> Vantage:
    """Process in a pod."""
    return Vantage(VantageKind.POD, name[0], name)


def host(node: str) -> Vantage:
    """Process in a node's own network namespace."""
    return Vantage(VantageKind.HOST, node, node)


def client(via: str) -> Vantage:
    """On-link client outside; its packets to service addresses go through node ``via``."""
    return Vantage(VantageKind.ON_LINK, via, "client")


def remote(via: str) -> Vantage:
    """Routed client outside; its packets to service addresses go through node ``via``."""
    return Vantage(VantageKind.ROUTED, via, "remote")


def spoofed(name: str, via: str) -> Vantage:
    """On-link client with the source address of a pod, of a node, of `LOOPBACK` or of a `UNUSED_HOSTS`; to node ``via``."""
    return Vantage(VantageKind.SPOOFED, via, name)


class TargetKind(enum.Enum):
    """Kind of destination."""

    CLUSTER_IP = enum.auto()
    NODE_PORT = enum.auto()
    NODE_PORT_SECOND = enum.auto()
    NODE_PORT_ADDED_ADDRESS = enum.auto()
    """Node port at the address that `AddNodeAddress` adds to the node."""
    NODE_PORT_LOCALHOST = enum.auto()
    EXTERNAL_IP = enum.auto()
    VIP = enum.auto()
    ENDPOINT = enum.auto()
    """Pod's own address and target port, not through any Service."""
    LOOPBACK_DAEMON = enum.auto()
    """Daemon of a node that listens on its loopback address only; from outside: a martian packet."""
    HEALTH_CHECK = enum.auto()
    HEALTH_CHECK_SECOND = enum.auto()
    HEALTH_CHECK_CLUSTER_IP = enum.auto()
    UNALLOCATED = enum.auto()
    """Cluster IP of the ServiceCIDR that no Service has."""


@dataclass(frozen=True, slots=True)
class Target:
    """Destination of a probe, in names.

    ``port`` names the service port ("" is the Service's first). ``undefined``: a port number that the Service does
    not have; ``protocol`` overrides the port's own; ``node_port_number``: the node port's number at a cluster IP,
    external IP or VIP; ``other_family``: the same in the family that is not the case's own.
    """

    kind: TargetKind
    service: str = ""
    generation: int = 0
    node: str = ""
    index: int = 0
    port: str = ""
    undefined: bool = False
    node_port_number: bool = False
    other_family: bool = False
    protocol: Protocol | None = None

    def at(self, port: str) -> Target:
        """Same address, another named port."""
        return replace(self, port=port)

    def at_undefined_port(self) -> Target:
        """Same address, a port no Service has there."""
        return replace(self, undefined=True)

    def at_node_port_number(self) -> Target:
        """Same address, the port's node port number."""
        return replace(self, node_port_number=True)

    def in_other_family(self) -> Target:
        """Same kind of address in the other family."""
        return replace(self, other_family=True)

    def over(self, protocol: Protocol) -> Target:
        """Same address and port number, another protocol."""
        return replace(self, protocol=protocol)


def loopback_daemon(node: str, protocol: Protocol = Protocol.TCP) -> Target:
    """Daemon of that node that listens on its loopback address only."""
    return Target(TargetKind.LOOPBACK_DAEMON, node=node, protocol=protocol)


def unallocated(protocol: Protocol = Protocol.TCP, *, second_range: bool = False) -> Target:
    """Cluster IP that no Service has, of the first ServiceCIDR or of the one that `AddServiceCidr` adds."""
    return Target(TargetKind.UNALLOCATED, protocol=protocol, index=int(second_range))
