"""A small cluster with short names, for tables of packets and their lawful outcomes.

Pods ``a1 a2 a3`` on node-a, ``b1 b2`` on node-b, ``x`` an endpoint outside; ``a`` and ``b`` are the nodes.
The judged node is node-a.  Outcomes are written ``a1`` (delivered, source preserved), ``~a1``
(delivered, source masqueraded), ``a1:9090`` (on that port instead of 8080) or the name of a failure.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from ipaddress import ip_address, ip_network
from typing import Any

from kproxy.model import api
from kproxy.model.network import Entry, Packet, Protocol
from kproxy.spec.node import NodeFacts
from kproxy.spec.outcome import Delivered, Failure, Outcome, SourceIP

TCP, UDP, SCTP = Protocol.TCP, Protocol.UDP, Protocol.SCTP

ADDRESS = {
    "a1": "10.0.1.11",
    "a2": "10.0.1.12",
    "a3": "10.0.1.13",
    "b1": "10.0.2.11",
    "b2": "10.0.2.12",
    "x": "198.51.100.7",
    "a": "192.168.0.1",
    "b": "192.168.0.2",
    "a-second": "192.168.1.1",
    "client": "203.0.113.9",
    "a1/6": "fd00:1::11",
    "b1/6": "fd00:2::11",
    "a/6": "fd11::1",
    "client/6": "2001:db8::9",
}
CLUSTER_IP, CLUSTER_IP_6 = "10.96.0.1", "fd96::1"
EXTERNAL_IP, VIP, VIP_2, VIP_6 = "100.64.0.1", "100.65.0.1", "100.65.0.2", "fd65::1"
NODE_PORT = 30080

FACTS = NodeFacts(
    name="node-a",
    addresses=frozenset(
        ip_address(text)
        for text in (ADDRESS["a"], ADDRESS["a-second"], ADDRESS["a/6"], "10.0.1.1", "127.0.0.1", "::1")
    ),
    cluster_cidrs=(ip_network("10.0.0.0/16"), ip_network("fd00::/16")),
)
NO_DETECTOR = replace(FACTS, cluster_cidrs=())


def facts(**changes: object) -> NodeFacts:
    """The judged node with some facts changed."""
    return replace(FACTS, **changes)  # type: ignore[arg-type]


def networks(*texts: str) -> tuple[Any, ...]:
    return tuple(ip_network(text) for text in texts)


# --------------------------------------------------------------------------- objects


def node(name: str, *, zone: str, cidrs: tuple[str, ...], addresses: tuple[str, ...]) -> api.Node:
    return api.Node(
        metadata=api.Metadata(name=name, labels={api.ZONE_LABEL: zone} if zone else {}),
        spec=api.NodeSpec(pod_cidrs=list(cidrs)),
        status=api.NodeStatus(addresses=[api.NodeAddress("InternalIP", text) for text in addresses]),
    )


NODE_A = node(
    "node-a",
    zone="zone-a",
    cidrs=("10.0.1.0/24", "fd00:1::/32"),
    addresses=(ADDRESS["a"], ADDRESS["a/6"]),
)
NODE_B = node("node-b", zone="zone-b", cidrs=("10.0.2.0/24",), addresses=(ADDRESS["b"],))


def port(
    number: int = 80, *, name: str = "", protocol: str = "TCP", node_port: int = NODE_PORT
) -> api.ServicePort:
    return api.ServicePort(name=name, protocol=protocol, port=number, node_port=node_port)


def ingress(ip: str = "", *, mode: str | None = None, hostname: str = "") -> api.LoadBalancerIngress:
    return api.LoadBalancerIngress(ip=ip, ip_mode=mode, hostname=hostname)


def service(
    *ports: api.ServicePort,
    name: str = "web",
    labels: dict[str, str] | None = None,
    vips: tuple[api.LoadBalancerIngress, ...] = (),
    **spec: object,
) -> api.Service:
    fields: dict[str, Any] = {"type": "LoadBalancer", "cluster_ip": CLUSTER_IP, **spec}
    return api.Service(
        metadata=api.Metadata(name=name, namespace="test", labels=labels or {}),
        spec=api.ServiceSpec(ports=list(ports) or [port()], **fields),
        status=api.ServiceStatus(api.LoadBalancerStatus(list(vips))),
    )


def endpoint(
    name: str,
    *,
    ready: bool | None = True,
    serving: bool | None = None,
    terminating: bool | None = None,
    zones: tuple[str, ...] = (),
    nodes: tuple[str, ...] = (),
    text: str = "",
    more_addresses: tuple[str, ...] = (),
) -> api.Endpoint:
    return api.Endpoint(
        addresses=[text or ADDRESS[name], *more_addresses],
        conditions=api.EndpointConditions(ready, serving, terminating),
        hints=api.EndpointHints([api.ForZone(z) for z in zones], [api.ForNode(n) for n in nodes]),
        node_name={"a": "node-a", "b": "node-b"}.get(name[0]),
    )


def terminating(name: str, zones: tuple[str, ...] = ()) -> api.Endpoint:
    """An endpoint that serves while it terminates."""
    return endpoint(name, ready=False, serving=True, terminating=True, zones=zones)


def pods(*names: str) -> tuple[api.Endpoint, ...]:
    return tuple(endpoint(name) for name in names)


def target(number: int | None = 8080, *, name: str | None = "", protocol: str = "TCP") -> api.EndpointPort:
    """A port of a slice."""
    return api.EndpointPort(name, protocol, number)


TARGET = target()


def piece(
    *endpoints: api.Endpoint,
    name: str = "web-1",
    of: str | None = "web",
    labels: dict[str, str] | None = None,
    address_type: str = "IPv4",
    ports: tuple[api.EndpointPort, ...] = (TARGET,),
) -> api.EndpointSlice:
    """An EndpointSlice."""
    owner = {} if of is None else {api.SERVICE_NAME_LABEL: of}
    return api.EndpointSlice(
        metadata=api.Metadata(name=name, namespace="test", labels={**owner, **(labels or {})}),
        address_type=address_type,
        endpoints=list(endpoints),
        ports=list(ports),
    )


def on(*names: str) -> api.EndpointSlice:
    """A slice of ready endpoints on these pods."""
    return piece(*pods(*names))


def service_cidr(*cidrs: str) -> api.ServiceCIDR:
    return api.ServiceCIDR(metadata=api.Metadata(name="kubernetes"), spec=api.ServiceCIDRSpec(list(cidrs)))


def cluster(*objects: api.Object) -> api.Cluster:
    """A cluster of these objects; the two nodes are there unless a Node is given."""
    found: dict[type, dict[api.Key, Any]] = {
        kind: {api.key_of(item): item for item in objects if isinstance(item, kind)}
        for kind in (api.Service, api.EndpointSlice, api.Node, api.ServiceCIDR)
    }
    return api.Cluster(
        services=found[api.Service],
        slices=found[api.EndpointSlice],
        nodes=found[api.Node] or {api.key_of(item): item for item in (NODE_A, NODE_B)},
        service_cidrs=found[api.ServiceCIDR],
    )


# --------------------------------------------------------------------------- packets


def packet(interface: str | None, source: str, to: str, number: int = 80, protocol: Protocol = TCP) -> Packet:
    return Packet(Entry(interface), ip_address(ADDRESS.get(source, source)), ip_address(to), protocol, number)


def pod(name: str, to: str, number: int = 80, protocol: Protocol = TCP) -> Packet:
    """A packet from a pod of node-a."""
    return packet(f"veth-{name.removesuffix('/6')}", name, to, number, protocol)


def host(to: str, number: int = 80, protocol: Protocol = TCP, *, source: str = "") -> Packet:
    """A packet from a process of node-a."""
    own = "a/6" if ":" in to else "a"
    return packet(None, source or own, to, number, protocol)


def client(to: str, number: int = 80, protocol: Protocol = TCP, *, source: str = "") -> Packet:
    """A packet that arrives at node-a from outside."""
    own = "client/6" if ":" in to else "client"
    return packet("eth0", source or own, to, number, protocol)


# --------------------------------------------------------------------------- rows


def outcome(text: str) -> Outcome:
    if text.isupper():
        return Failure[text]
    name, _, number = text.removeprefix("~").partition(":")
    source = SourceIP.MASQUERADED if text.startswith("~") else SourceIP.PRESERVED
    return Delivered(ip_address(ADDRESS[name]), int(number or 8080), source)


def outcomes(text: str) -> frozenset[Outcome]:
    return frozenset(outcome(word) for word in text.split())


@dataclass(frozen=True, kw_only=True)
class Row:
    """A packet and all its lawful outcomes, a clause that must be among those named, the behaviour."""

    clause: str
    of: str
    packet: Packet
    expect: str
    objects: tuple[api.Object, ...] = field(default=())
    facts: NodeFacts = FACTS

    def __str__(self) -> str:
        return f"{self.clause}: {self.packet.source} to {self.packet.destination}:{self.packet.port}"


def row(
    clause: str, of: str, sent: Packet, expect: str, *objects: api.Object, facts: NodeFacts = FACTS
) -> Row:
    return Row(clause=clause, of=of, packet=sent, expect=expect, objects=objects, facts=facts)
