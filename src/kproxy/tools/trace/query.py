"""Parser of ``--from`` and ``--to`` to a packet at this node.  Pure; errors name the valid forms.

With objects of the cluster (``-f``, output of kubectl) pods and Services can be named, as in `kproxy.tools.explain`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from kproxy.linux.netfilter.node_state import TracedNode
from kproxy.linux.netfilter.packet_state import TracedPacket
from kproxy.model.network import Address, Family, Protocol, family_of, parse_address
from kproxy.tools.explain import endpoints
from kproxy.tools.explain.dump import KUBECTL, CannotExplain, Dump, of_option

FROM = "an address, host, or pod/NAME"
TO = "ADDRESS:PORT, [ADDRESS]:PORT or svc/NAME:PORT, then /udp or /sctp"


class CannotTrace(Exception):
    """Invalid arguments, or nothing to trace; the message has the remedy."""


@dataclass(frozen=True, slots=True)
class TraceQuery:
    """A packet as text of the command line; ``via``: its input interface."""

    sender: str
    target: str
    via: str = ""


@dataclass(frozen=True, slots=True)
class ResolvedQuery:
    """The packet, the names of its sender and target, and the assumptions made."""

    packet: TracedPacket
    sender: str
    target: str
    assumed: tuple[str, ...]


ResolvedTarget = tuple[str, tuple[Address, ...], int, Protocol]


def resolve_query(question: TraceQuery, node: TracedNode, dump: Dump | None) -> ResolvedQuery:
    """Resolve a query to a packet.  Raises `CannotTrace`."""
    try:
        with of_option("--to", question.target):
            to = _target(question.target, dump)
        with of_option("--from", question.sender):
            return _sent(question, node, dump, to)
    except CannotExplain as problem:
        raise CannotTrace(str(problem)) from problem


def _target(text: str, dump: Dump | None) -> ResolvedTarget:
    if dump is not None:
        found = endpoints.parse_target(text, dump)
        return found.label, found.addresses, found.port, found.protocol
    parsed = _SOCKET.fullmatch(text)
    address = parse_address((parsed["six"] or parsed["four"]) if parsed else "")
    if parsed is None or address is None:
        needs = f"; names need the objects: -f FILE of `{KUBECTL}`" if text.startswith("svc/") else ""
        raise CannotTrace(f"--to {text}: give {TO}{needs}")
    if not 0 < int(parsed["port"]) < 65536:
        raise CannotTrace(f"--to {text}: {parsed['port']} is no port")
    return "", (address,), int(parsed["port"]), Protocol((parsed["protocol"] or "tcp").upper())


_SOCKET = re.compile(
    r"(\[(?P<six>[^\]]+)\]|(?P<four>[^:/]+)):(?P<port>\d+)(/(?P<protocol>tcp|udp|sctp))?", re.IGNORECASE
)


def _sent(question: TraceQuery, node: TracedNode, dump: Dump | None, to: ResolvedTarget) -> ResolvedQuery:
    target, destinations, port, protocol = to
    sender, addresses = _sender(question.sender, dump)
    if addresses:
        source, destination = _pair(addresses, destinations)
    else:
        destination = destinations[0]
        source = node.source_for(destination) or _own(node, family_of(destination))
    own = not addresses or (node.is_local(source) and not question.via)
    interface = "" if own else question.via or _interface(node, source)
    packet = TracedPacket(source, destination, protocol.value.lower(), port, interface)
    return ResolvedQuery(
        packet, sender or ("the node itself" if own else ""), target, tuple(_assumed(packet, question))
    )


def _assumed(packet: TracedPacket, question: TraceQuery) -> list[str]:
    if packet.own or question.via:
        return []
    if packet.interface is None:
        return ["the interface that receives it is not known (--via)"]
    return [f"it comes in by {packet.interface}, to which the node's route to {packet.source} leads (--via)"]


def _sender(text: str, dump: Dump | None) -> tuple[str, tuple[Address, ...]]:
    """Name and addresses of the sender; no addresses for the node itself."""
    if text in {"host", "node"}:
        return "the node itself", ()
    if (address := parse_address(text)) is not None:
        pod = dump.pod_at(address) if dump is not None else None
        return (str(pod) if pod else ""), (address,)
    if dump is None:
        needs = f"; names of pods need the objects: -f FILE of `{KUBECTL}`" if text.startswith("pod/") else ""
        raise CannotTrace(f"--from {text}: give {FROM}{needs}")
    found = endpoints.parse_sender(text, dump)
    return found.label, found.addresses


def _own(node: TracedNode, family: Family) -> Address:
    found = sorted((a for a in node.addresses or () if family_of(a) is family and not a.is_loopback), key=int)
    if not found:
        raise CannotTrace(
            "--from host: which address does the node send from? Give --node-address ADDRESS, or the files of "
            "`ip -j address` and `ip -j route show table all`"
        )
    return found[0]


def _pair(sources: Sequence[Address], destinations: Sequence[Address]) -> tuple[Address, Address]:
    """Source and destination of the target's first family in which the sender has an address."""
    for destination in destinations:
        for source in sources:
            if source.version == destination.version:
                return source, destination
    raise CannotTrace(f"{sources[0]} and {destinations[0]} have no family in common")


def _interface(node: TracedNode, source: Address) -> str | None:
    route = node.route(source)
    return route.interface if route is not None and route.interface else None
