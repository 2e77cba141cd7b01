"""Whole packets of a namespace as a pcapng file, for Wireshark and tcpdump.

Unlike `kproxy.lab.captures.capture`, which judges, this keeps every packet, for readers of evidence. Interfaces have
their names, packets their direction and the kernel's time. Format: draft-ietf-opsawg-pcapng.
"""

from __future__ import annotations

import socket
import struct
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from kproxy.lab.captures.packet_socket import make_room
from kproxy.lab.namespaces import Namespace
from kproxy.linux import socket_constants

_ETHERNET, _SNAP, _BUFFER = 1, 1 << 18, 16 << 20
_SECTION, _INTERFACE, _PACKET = 0x0A0D0D0A, 1, 6
_NAME, _RESOLUTION, _FLAGS = 2, 9, 2
_INBOUND, _OUTBOUND = 1, 2
_NANOSECONDS = 9


@dataclass(frozen=True, slots=True)
class PacketBlock:
    """Packet from its link-layer header on; ``at``: nanoseconds since the epoch."""

    interface: str
    outgoing: bool
    at: int
    data: bytes


class PacketRecorder:
    """Recorder of all packets of a namespace from its creation on; the kernel buffers them until `packets` reads."""

    def __init__(self, namespace: Namespace) -> None:
        self.name = namespace.name
        self._socket = namespace.socket(
            socket.AF_PACKET, socket.SOCK_RAW, socket.htons(socket_constants.ETH_P_ALL)
        )
        self._socket.setsockopt(socket.SOL_SOCKET, socket_constants.SO_TIMESTAMPNS, 1)
        make_room(self._socket, _BUFFER)

    def packets(self) -> list[PacketBlock]:
        """All packets since the start, or since this was called before."""
        found: list[PacketBlock] = []
        while True:
            try:
                data, ancillary, _, address = self._socket.recvmsg(_SNAP, socket.CMSG_SPACE(16))
            except BlockingIOError:
                return found
            except OSError:  # an interface went down
                continue
            outgoing = address[2] == socket.PACKET_OUTGOING
            found.append(PacketBlock(address[0], outgoing, _time(ancillary), data))

    def close(self) -> None:
        """Close the packet socket."""
        self._socket.close()


def close_recorders(recorders: list[PacketRecorder]) -> None:
    """Close all recorders at once: each close waits for an RCU grace period."""
    with ThreadPoolExecutor(len(recorders) or 1) as pool:
        list(pool.map(PacketRecorder.close, recorders))


def encode_pcapng(packets: list[PacketBlock], comment: str = "") -> bytes:
    """Content of a pcapng file with these packets."""
    names = list(dict.fromkeys(packet.interface for packet in packets))
    section = struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1) + _options((1, comment.encode()))
    blocks = [_block(_SECTION, section), *map(_interface, names)]
    return b"".join([*blocks, *(_packet(packet, names.index(packet.interface)) for packet in packets)])


def _interface(name: str) -> bytes:
    options = _options((_NAME, name.encode()), (_RESOLUTION, bytes([_NANOSECONDS])))
    return _block(_INTERFACE, struct.pack("<HHI", _ETHERNET, 0, 0) + options)


def _packet(packet: PacketBlock, interface: int) -> bytes:
    size = len(packet.data)
    head = struct.pack("<IIIII", interface, packet.at >> 32, packet.at & 0xFFFFFFFF, size, size)
    direction = struct.pack("<I", _OUTBOUND if packet.outgoing else _INBOUND)
    return _block(_PACKET, head + _padded(packet.data) + _options((_FLAGS, direction)))


def _options(*options: tuple[int, bytes]) -> bytes:
    encoded = b"".join(
        struct.pack("<HH", code, len(value)) + _padded(value) for code, value in options if value
    )
    return encoded + struct.pack("<HH", 0, 0)


def _block(kind: int, body: bytes) -> bytes:
    length = len(body) + 12
    return struct.pack("<II", kind, length) + body + struct.pack("<I", length)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


def _time(ancillary: list[tuple[int, int, bytes]]) -> int:
    for _, kind, value in ancillary:
        if kind == socket_constants.SO_TIMESTAMPNS:
            seconds, nanoseconds = struct.unpack("ll", value[:16])
            return int(seconds) * 10**9 + int(nanoseconds)
    return 0
