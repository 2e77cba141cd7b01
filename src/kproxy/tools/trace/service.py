"""Service ports that rules belong to, by the names in comments and chains.  Pure.

kube-proxy and kproxy write ``NAMESPACE/NAME:PORT`` at the start of comments of iptables rules and of nftables elements;
in nftables mode both have it in the names of chains, as ``service-HASH-NAMESPACE/NAME/PROTOCOL/PORT``.  Their chains of
iptables begin with ``KUBE-``, their table of nftables is ``kube-proxy``; comments of other chains and tables are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from kproxy.linux.netfilter.packet_state import PacketState, TracedPacket, TraceStep
from kproxy.model import api
from kproxy.model.network import parse_address

_COMMENT = re.compile(r"(?P<name>[a-z0-9-]+/[a-z0-9.-]+(:[a-z0-9-]*)?)(?= |$)")
_OWN = re.compile(r"(^| )(KUBE-|kube-proxy )")
_CHAIN = re.compile(
    r"(affinity-[A-Z2-7]{8}-(cluster|local)|(service|external|firewall|endpoint)-[A-Z2-7]{8})-"
    r"(?P<namespace>[a-z0-9-]+)/(?P<service>[a-z0-9.-]+)/(tcp|udp|sctp)/(?P<port>[a-z0-9-]*)"
)


def service_names(states: Iterable[PacketState]) -> tuple[str, ...]:
    """The Service ports that the steps of these paths name, in the order of the paths."""
    found = (name for state in states for note in state.steps for name in _of(note))
    return tuple(dict.fromkeys(found))


def _of(note: TraceStep) -> Iterable[str]:
    own = _OWN.search(note.chain) is not None
    if own and (comment := _COMMENT.match(note.comment)) is not None:
        yield comment["name"].removesuffix(":")
    for chain in _CHAIN.finditer(f"{note.chain} {note.description}"):
        port = f":{chain['port']}" if chain["port"] else ""
        yield f"{chain['namespace']}/{chain['service']}{port}"


def services_at(cluster: api.Cluster, packet: TracedPacket, *, local: bool) -> tuple[str, ...]:
    """The Service ports whose objects have the packet's destination; ``local``: it is an address of the node."""
    found = []
    for service in cluster.services.values():
        own = packet.destination in {parse_address(text) for text in _addresses(service)}
        for port in service.spec.ports or []:
            matches = (own and port.port == packet.port) or (local and port.node_port == packet.port)
            if matches and port.protocol.lower() == packet.protocol:
                name = f"{service.metadata.namespace}/{service.metadata.name}"
                found.append(f"{name}:{port.name}" if port.name else name)
    return tuple(found)


def _addresses(service: api.Service) -> Iterable[str]:
    spec = service.spec
    yield from (spec.cluster_ip, *(spec.cluster_ips or ()), *(spec.external_ips or ()))
    yield from (entry.ip for entry in service.status.load_balancer.ingress or ())
