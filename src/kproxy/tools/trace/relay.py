"""Reader of a live node's relay: the sockets that a trace's decisions lead to, and the endpoints behind them.

Rules of userspace mode end at a socket of the relay, and node ports at 127.0.0.1 in nftables and ipvs mode begin there; which endpoint
follows only the relay's processes know.  They are queried; nothing changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kproxy.linux.netfilter.packet_state import TracedPacket
from kproxy.linux.netfilter.walk import PathFate
from kproxy.model.network import Address, Protocol
from kproxy.proxy.relay.queries import query_relays
from kproxy.proxy.relay.wire import FindSocket, FoundSocket
from kproxy.tools.trace.answer import RelaySocket, TraceResult


def find_relay_sockets(found: TraceResult) -> tuple[TraceResult, tuple[str, ...]]:
    """The result with the relay's sockets, and a line for each process of a relay that does not answer."""
    ends = sorted(
        {
            (one.destination, one.port)
            for one in found.decisions
            if one.delivered and one.fate is PathFate.THROUGH
        },
        key=lambda end: (end[0].packed, end[1]),
    )
    answers = [answer for end in ends for answer in _sockets(found.packet, *end)]
    sockets = tuple(one for one in answers if isinstance(one, RelaySocket))
    return replace(found, relays=sockets), tuple(sorted({one for one in answers if isinstance(one, str)}))


def _sockets(packet: TracedPacket, destination: Address, port: int) -> Iterator[RelaySocket | str]:
    protocol = Protocol(packet.protocol.upper())
    query = FindSocket(str(destination), port, protocol, str(packet.source))
    for process, answer in query_relays(query):
        if isinstance(answer, OSError):
            yield f"relay: {process} does not answer: {answer.strerror or answer}"
        elif answer.port is not None and answer.endpoint is not None:
            yield RelaySocket(
                destination=destination,
                port=port,
                process=process,
                service=answer.port.service,
                pool=_pool(answer),
                endpoint=answer.endpoint,
                bound=answer.bound,
                source_kept=answer.keeps_source,
                open=tuple(answer.open),
            )


def _pool(answer: FoundSocket) -> str:
    """The pool's traffic policy, as Services spell it; empty at 127.0.0.1, where one socket has all."""
    scope = answer.port.scope if answer.port is not None else None
    return scope.name.capitalize() if scope is not None else ""
