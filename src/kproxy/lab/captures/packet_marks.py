"""fwmarks of packets as they leave a node: not on the wire, but seen by a packet socket in the sender's namespace."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from kproxy.lab.captures import bpf
from kproxy.lab.captures.packet_socket import SOCKET, attach, make_room
from kproxy.lab.namespaces import Namespace
from kproxy.lab.probes import packets
from kproxy.lab.probes.observation import ProbeRequest, Socket
from kproxy.linux import socket_constants

if TYPE_CHECKING:
    from kproxy.lab.lab import Lab, Traced

_Ends = tuple[Socket, Socket]
_MARK = struct.Struct("I")
_BUFFER = 8 << 20


Mark = int | None
"""fwmark; None: another than was set, on a kernel that does not report which."""


async def probe_marked(lab: Lab, request: ProbeRequest, mark: int) -> tuple[Traced, tuple[Mark, ...]]:
    """Send a probe whose packets its own kernel marks; returns also the marks that its first packets left with."""
    with _open_capture(lab.network[request.sender], bpf.PROBES) as capture:
        reported = _reports_marks(capture)
        if not reported:
            attach(capture, bpf.marked(mark))
        traced = await lab.trace(replace(request, mark=mark))
        seen = dict(_leaving(capture, mark))
    left = [(packet.source, packet.destination) for packet in traced.evidence.left(request.sender)]
    return traced, tuple(seen.get(ends) for ends in left if ends in seen or not reported)


def _open_capture(namespace: Namespace, program: bytes) -> socket.socket:
    """Non-blocking packet socket with this filter, and room for what arrives meanwhile."""
    capture = namespace.socket(*SOCKET)
    attach(capture, program)
    make_room(capture, _BUFFER)
    return capture


def _reports_marks(capture: socket.socket) -> bool:
    """Enable reports of marks (SO_RCVMARK); True if the kernel has them."""
    try:
        capture.setsockopt(socket.SOL_SOCKET, socket_constants.SO_RCVMARK, 1)
    except OSError:
        return False
    return True


def _leaving(capture: socket.socket, otherwise: int) -> Iterator[tuple[_Ends, int]]:
    """First packets of probes with their marks; later packets of a connection traverse no nat table.

    ``otherwise``: the mark of those that are reported without one.
    """
    with suppress(BlockingIOError):
        while True:
            data, extra, _, address = capture.recvmsg(bpf.SNAP, socket.CMSG_SPACE(_MARK.size))
            known = packets.identify(data)
            if address[2] == socket.PACKET_OUTGOING and known and known[0] is packets.PacketKind.FIRST:
                marks = [_MARK.unpack(value)[0] for _, kind, value in extra if kind == socket.SO_MARK]
                yield packets.packet_sockets(data), marks[0] if marks else otherwise
