"""Marks of packets as they leave a node: on the wire nobody sees them, in the sender's namespace a packet socket does."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from kproxy.lab import bpf, packets
from kproxy.lab.capture import open_capture
from kproxy.lab.observation import ProbeRequest, Socket

if TYPE_CHECKING:
    from kproxy.lab.lab import Lab, Traced

_Ends = tuple[Socket, Socket]


async def probe(lab: Lab, request: ProbeRequest, mark: int) -> tuple[Traced, bool]:
    """A probe whose packets its own kernel marks; whether its first one left with exactly that mark."""
    with open_capture(lab.network[request.sender], bpf.marked(mark)) as capture:
        traced = await lab.trace(replace(request, mark=mark))
        seen = set(_leaving(capture))
    left = {(packet.source, packet.destination) for packet in traced.evidence.left(request.sender)}
    return traced, bool(left) and left <= seen


def _leaving(capture: socket.socket) -> Iterator[_Ends]:
    """Probes' first packets: those that follow in a connection meet no rule of a nat table, and keep any mark."""
    with suppress(BlockingIOError):
        while True:
            data, address = capture.recvfrom(bpf.SNAP)
            known = packets.identify(data)
            if address[2] == socket.PACKET_OUTGOING and known and known[0] is packets.Kind.FIRST:
                yield packets.ends(data)
