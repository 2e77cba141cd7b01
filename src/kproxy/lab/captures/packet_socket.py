"""Packet sockets: the parts that captures, recorders and readings of marks have in common."""

from __future__ import annotations

import ctypes
import socket
import struct

from kproxy.linux import socket_constants

SOCKET = (socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(socket_constants.ETH_P_ALL))
"""A packet socket for all packets, from the network layer up."""


def attach(capture: socket.socket, program: bytes) -> None:
    """Attach a filter to a packet socket, in place of any other."""
    buffer = ctypes.create_string_buffer(program, len(program))
    attached = struct.pack("HP", len(program) // 8, ctypes.addressof(buffer))
    capture.setsockopt(socket.SOL_SOCKET, socket_constants.SO_ATTACH_FILTER, attached)


def make_room(capture: socket.socket, size: int) -> None:
    """Let the kernel keep ``size`` bytes of packets that were not read yet; in a user namespace up to ``rmem_max``."""
    try:
        capture.setsockopt(socket.SOL_SOCKET, socket_constants.SO_RCVBUFFORCE, size)
    except PermissionError:
        capture.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)
