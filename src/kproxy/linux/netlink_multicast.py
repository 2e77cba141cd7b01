"""Netlink notifications: a socket that is a member of multicast groups.

Beside `kproxy.linux.host`, in the network namespace of the calling thread; nothing here blocks. Used for
changes of nf_tables (`kproxy.linux.nft_monitor`) and of addresses (`kproxy.linux.node_addresses`). All
failures are `kproxy.linux.host.HostError`.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import struct
from array import array

from kproxy.linux.host import os_error
from kproxy.linux.netlink_socket import RECEIVE_BUFFER, netlink_socket

ALL_BITS = 0xFFFFFFFF
_SOL_NETLINK = 270
_ADD_MEMBERSHIP = 1
_DROP_MEMBERSHIP = 2
_SO_ATTACH_FILTER, _SO_DETACH_FILTER = 26, 27
_LOAD_WORD, _AND, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x54, 0x15, 0x06
_PORT_OFFSET = 12


class MulticastListener:
    """Non-blocking receiver of the notifications of netlink multicast groups."""

    def __init__(self, protocol: int, *groups: int) -> None:
        """Join the groups in the network namespace of this thread."""
        self._groups = groups
        self._socket = netlink_socket(protocol)
        self._socket.setblocking(False)
        self.resume()

    def __del__(self) -> None:
        """Close the socket with its last reference."""
        self._socket.close()

    def fileno(self) -> int:
        """Descriptor that is readable when there is something to receive."""
        return self._socket.fileno()

    def resume(self) -> None:
        """Join the multicast groups again."""
        for group in self._groups:
            self._socket.setsockopt(_SOL_NETLINK, _ADD_MEMBERSHIP, group)

    def pause(self) -> None:
        """Leave the multicast groups; messages already in the socket's buffer stay readable."""
        for group in self._groups:
            self._socket.setsockopt(_SOL_NETLINK, _DROP_MEMBERSHIP, group)

    def ignore_port(self, port: int, mask: int = ALL_BITS) -> None:
        """Attach a BPF filter that drops notifications caused by the netlink socket with this port (compared under ``mask``).

        Port 0 detaches the filter. The kernel drops them before they are queued, so that a large change of
        our own fills no buffer.
        """
        if not port:
            with contextlib.suppress(FileNotFoundError):  # no filter was attached
                self._socket.setsockopt(socket.SOL_SOCKET, _SO_DETACH_FILTER, 0)
            return
        program = (
            (_LOAD_WORD, 0, 0, _PORT_OFFSET),
            (_AND, 0, 0, socket.htonl(mask)),
            (_JUMP_IF_EQUAL, 0, 1, socket.htonl(port & mask)),
            (_RETURN, 0, 0, 0),
            (_RETURN, 0, 0, ALL_BITS),
        )
        code = array("B", b"".join(struct.pack("=HBBI", *line) for line in program))
        described = struct.pack("@HP", len(program), code.buffer_info()[0])
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, described)

    def receive(self) -> list[bytes] | None:
        """Datagrams received since the last call; None when the kernel dropped some (ENOBUFS)."""
        found: list[bytes] = []
        lost = False
        while True:
            try:
                found.append(self._socket.recv(RECEIVE_BUFFER))
            except BlockingIOError:
                return None if lost else found
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise os_error("netlink receive", error) from error
                lost = True
