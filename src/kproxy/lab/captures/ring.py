"""A packet socket whose packets are read from memory that it shares with the kernel (packet_mmap, TPACKET_V2).

Theory of operation. The kernel writes each packet that passes the socket's filter to the next frame of a ring, and marks
the frame as this process's; `PacketRing.read` copies the packet and marks the frame as the kernel's again. So no packet
costs a system call, which in User-Mode Linux takes longer than all else that is done with it. The descriptor is readable
as long as a packet waits. A packet that finds no free frame is lost, and counted.
"""

from __future__ import annotations

import fcntl
import mmap
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from kproxy.lab.captures import bpf
from kproxy.lab.captures.packet_socket import SOCKET, attach
from kproxy.lab.namespaces import Namespace
from kproxy.linux import socket_constants

FRAMES = 1 << 14
"""Packets that a ring has room for."""

_BLOCK = 1 << 16
_HEADER = struct.Struct("=I4xI2xH")
"""Begin of ``struct tpacket2_hdr``: status, captured length, offset of the network layer."""
_STATUS = struct.Struct("=I")
_ADDRESS = struct.Struct("=4xi2xB")
"""Begin of ``struct sockaddr_ll``: interface, packet type."""
_ADDRESS_AT = 32
_FRAME = 80 + bpf.SNAP + -bpf.SNAP % 16
"""Bytes of a frame: header and address as the kernel pads them, and a packet."""
_OF_KERNEL, _OF_USER = 0, 1


@dataclass(frozen=True, slots=True)
class CapturedPacket:
    """Packet from the network layer up, cut to `bpf.SNAP` bytes; ``interface``: where it was seen, empty if that is gone."""

    data: bytes
    interface: str
    outgoing: bool


class PacketRing:
    """Packet socket with a filter in a namespace, and the ring that it fills."""

    def __init__(self, namespace: Namespace, program: bytes, frames: int = FRAMES) -> None:
        """Raises OSError."""
        self.lost = 0
        """Packets that found no room."""
        self._next, self._names = 0, dict[int, str]()
        self._socket = namespace.socket(*SOCKET)
        try:
            attach(self._socket, program)
            per_block = _BLOCK // _FRAME
            blocks = -(-frames // per_block)
            places = product(range(blocks), range(per_block))
            self._offsets = [block * _BLOCK + frame * _FRAME for block, frame in places]
            set_up = struct.pack("=4I", _BLOCK, blocks, _FRAME, len(self._offsets))
            version = socket_constants.TPACKET_V2
            self._socket.setsockopt(socket_constants.SOL_PACKET, socket_constants.PACKET_VERSION, version)
            self._socket.setsockopt(socket_constants.SOL_PACKET, socket_constants.PACKET_RX_RING, set_up)
            self._memory = mmap.mmap(self._socket.fileno(), blocks * _BLOCK)
        except BaseException:
            self._socket.close()
            raise

    def fileno(self) -> int:
        """Descriptor that is readable as long as a packet waits."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close the socket; it waits for an RCU grace period."""
        self._memory.close()
        self._socket.close()

    def read(self) -> Iterator[CapturedPacket]:
        """Packets that wait, oldest first; read all of them, or `lost` is not known."""
        count = 0
        while True:
            at = self._offsets[self._next]
            status, length, begin = _HEADER.unpack_from(self._memory, at)
            if not status & _OF_USER:
                break
            interface, kind = _ADDRESS.unpack_from(self._memory, at + _ADDRESS_AT)
            data = self._memory[at + begin : at + begin + length]
            _STATUS.pack_into(self._memory, at, _OF_KERNEL)
            self._next = (self._next + 1) % len(self._offsets)
            count += 1
            yield CapturedPacket(data, self._interface(interface), kind == socket.PACKET_OUTGOING)
        if count >= len(self._offsets):  # only a full ring loses packets
            self.lost += self._losses()

    def _losses(self) -> int:
        """Number of packets that found no room since the last call."""
        statistics = self._socket.getsockopt(
            socket_constants.SOL_PACKET, socket_constants.PACKET_STATISTICS, 8
        )
        lost: int = struct.unpack("II", statistics)[1]
        return lost

    def _interface(self, number: int) -> str:
        if number not in self._names:
            try:
                request = struct.pack("16si20x", b"", number)
                found = fcntl.ioctl(self._socket, socket_constants.SIOCGIFNAME, request)
            except OSError:
                return ""
            self._names[number] = found[:16].rstrip(b"\0").decode()
        return self._names[number]
