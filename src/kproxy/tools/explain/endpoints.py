"""``--from`` and ``--to``: parses a sender and a target. Pure; errors list the possible forms."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TypeVar

from kproxy.model import api
from kproxy.model.network import Address, Family, Protocol, family_of, parse_address, parse_network
from kproxy.tools.explain.dump import CannotExplain, Dump, Pod, listed_addresses

OUTSIDE: tuple[Address, ...] = (ip_address("203.0.113.1"), ip_address("2001:db8::1"))
"""Default addresses of a sender outside: for documentation (RFC 5737, RFC 3849)."""

FROM = "pod/NAME, pod/NAMESPACE/NAME, host, host/NODE, client, or an address"
TO = "svc/NAME:PORT, svc/NAMESPACE/NAME:PORT, node/NAME:PORT, ADDRESS:PORT or [ADDRESS]:PORT, then /udp or /sctp"

Named = TypeVar("Named", Pod, api.Service, api.Node)


@dataclass(frozen=True, slots=True)
class FlowSender:
    """Sender. ``node``: where it runs, empty when it is no part of the cluster.

    ``host``: it sends from the node's own network; then its address is left to the kernel.
    """

    label: str
    node: str
    addresses: tuple[Address, ...]
    host: bool = False


@dataclass(frozen=True, slots=True)
class FlowTarget:
    """Target, with an address in each family it has; ``primary`` is the first of them."""

    label: str
    addresses: tuple[Address, ...]
    port: int
    protocol: Protocol


def parse_sender(text: str, dump: Dump, node: str = "") -> FlowSender:
    """Sender of ``--from``; ``node``: the default for ``host``. Raises `CannotExplain`."""
    kind, _, rest = text.partition("/")
    match kind:
        case "pod" if rest:
            return _pod(_find_one(rest, dump.pods, "pod", _PODS_WITHOUT), dump)
        case "host" | "node":
            found = find_node(rest or node, dump)
            return FlowSender(
                f"node {found.metadata.name}", found.metadata.name, listed_addresses(found), host=True
            )
        case "client" | "outside":
            return FlowSender("a client outside", "", (_address(rest, "--from"),) if rest else OUTSIDE)
        case _:
            return _sender_at(_address(text, "--from"), dump)


def _sender_at(address: Address, dump: Dump) -> FlowSender:
    """Sender with an address: a pod by name, a node, a pod of a node's range, or a client outside."""
    if (pod := dump.pod_at(address)) is not None:
        return _pod(pod, dump, address)
    if (node := dump.node_with(address)) is not None:
        return FlowSender(f"node {node.metadata.name}", node.metadata.name, (address,), host=True)
    for node in dump.cluster.nodes.values():
        ranges = [parse_network(cidr) for cidr in node.spec.pod_cidrs or [node.spec.pod_cidr]]
        if any(address in found for found in ranges if found is not None):
            return FlowSender("a pod", node.metadata.name, (address,))
    return FlowSender("a client outside", "", (address,))


_PODS_WITHOUT = "; pods are known by EndpointSlices (targetRef) and by Pod objects: give its address instead"


def _pod(pod: Pod, dump: Dump, address: Address | None = None) -> FlowSender:
    """Pod as a sender; one on the node's own network sends as the node does."""
    addresses = (address,) if address else pod.addresses
    if not addresses:
        raise CannotExplain(f"{pod} has no address in the dump")
    node = dump.node_with(addresses[0])
    if node is not None:
        return FlowSender(f"{pod} (host network)", node.metadata.name, listed_addresses(node), host=True)
    return FlowSender(str(pod), pod.node, addresses)


_TARGET = re.compile(r"(?P<what>.+?)(:(?P<port>[^:/\]]+)(/(?P<protocol>[^/]+))?)?")


def parse_target(text: str, dump: Dump) -> FlowTarget:
    """Target of ``--to``. Raises `CannotExplain`."""
    found = _TARGET.fullmatch(text)
    what, port, protocol = (found["what"], found["port"], found["protocol"]) if found else (text, None, None)
    kind, _, rest = what.partition("/")
    if kind in {"svc", "service"} and rest:
        return _service_port(_find_one(rest, dump.cluster.services.values(), "Service"), port, protocol)
    if port is None or parse_address(text) is not None:
        raise CannotExplain(f"--to {text}: give {TO}")
    transport = _protocol(protocol) or Protocol.TCP
    if kind == "node" and rest:
        node = find_node(rest, dump)
        return FlowTarget(f"node {node.metadata.name}", listed_addresses(node), _number(port), transport)
    if kind == "pod" and rest:
        pod = _find_one(rest, dump.pods, "pod", _PODS_WITHOUT)
        return FlowTarget(str(pod), pod.addresses, _number(port), transport)
    return FlowTarget(
        "", (_address(what.removeprefix("[").removesuffix("]"), "--to"),), _number(port), transport
    )


def _service_port(service: api.Service, port: str | None, protocol: str | None) -> FlowTarget:
    label = f"cluster IP of {_named(service)}"
    texts = service.spec.cluster_ips or [service.spec.cluster_ip]
    found = tuple(address for text in texts if (address := parse_address(text)) is not None)
    if not found:
        kind = "ExternalName" if service.spec.type == "ExternalName" else "headless or not allocated yet"
        raise CannotExplain(f"{_named(service)} has no cluster IP ({kind}): no packet can be sent to one")
    ports = _matching(service, port, _protocol(protocol))
    if not ports and port is not None and port.isdigit():
        return FlowTarget(label, found, _number(port), _protocol(protocol) or Protocol.TCP)
    if len(ports) != 1:
        listed = ", ".join(
            f"{p.name + ' ' if p.name else ''}{p.port}/{p.protocol.lower()}" for p in _ports(service)
        )
        raise CannotExplain(f"--to: which port of {_named(service)}? It has {listed or 'none'}")
    name = f", port {ports[0].name}" if ports[0].name else ""
    transport = _protocol(protocol) or _protocol(ports[0].protocol) or Protocol.TCP
    return FlowTarget(label + name, found, ports[0].port, transport)


def _ports(service: api.Service) -> list[api.ServicePort]:
    return service.spec.ports or []


def _matching(service: api.Service, port: str | None, protocol: Protocol | None) -> list[api.ServicePort]:
    return [
        p
        for p in _ports(service)
        if port in {None, p.name, str(p.port)} and (protocol is None or p.protocol == protocol.value)
    ]


def _protocol(text: str | None) -> Protocol | None:
    if text is None:
        return None
    try:
        return Protocol(text.upper())
    except ValueError:
        raise CannotExplain(f"/{text}: protocols are tcp, udp and sctp") from None


def _number(text: str) -> int:
    if not text.isdigit() or not 0 < int(text) < 65536:
        raise CannotExplain(f"--to: {text} is no port number (names of ports are known of svc/NAME only)")
    return int(text)


def _address(text: str, option: str) -> Address:
    address = parse_address(text)
    if address is None:
        raise CannotExplain(f"{option} {text}: give {FROM if option == '--from' else TO}")
    return address


def find_node(name: str, dump: Dump) -> api.Node:
    """Node of a name; with no name the only one there is. Raises `CannotExplain`."""
    nodes = list(dump.cluster.nodes.values())
    if not name and len(nodes) == 1:
        return nodes[0]
    found = dump.cluster.node(name)
    if found is None:
        names = ", ".join(sorted(node.metadata.name for node in nodes))
        problem = f"there is no node {name}" if name else "which node? Name it with --node"
        raise CannotExplain(f"{problem}; there are {names}")
    return found


def _find_one(text: str, items: Iterable[Named], what: str, hint: str = "") -> Named:
    """Item that ``NAME`` or ``NAMESPACE/NAME`` refers to."""
    namespace, _, name = text.rpartition("/")
    alike = [item for item in items if _key(item)[1] == name and namespace in {"", _key(item)[0]}]
    if len(alike) > 1:
        names = " or ".join(sorted("/".join(_key(item)) for item in alike))
        raise CannotExplain(f"{what} {text}: ambiguous, name one of {names}")
    if not alike:
        raise CannotExplain(f"there is no {what} {text} in the dump{hint}")
    return alike[0]


def _key(item: Pod | api.Service | api.Node) -> api.Key:
    return (item.namespace, item.name) if isinstance(item, Pod) else api.key_of(item)


def _named(service: api.Service) -> str:
    return f"Service {service.metadata.namespace}/{service.metadata.name}"


def common_family(sender: FlowSender, target: FlowTarget) -> Family:
    """The target's first family that the sender has an address of. Raises `CannotExplain`."""
    own = {family_of(address) for address in sender.addresses}
    for address in target.addresses:
        if family_of(address) in own:
            return family_of(address)
    raise CannotExplain(f"{sender.label} and {target.label or target.addresses[0]} have no family in common")
