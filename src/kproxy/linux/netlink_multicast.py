"""What the kernel reports of its own accord: a netlink socket that is a member of a multicast group.

Beside `kproxy.linux.host`, in the network namespace of the calling thread; nothing here waits.  Used for changes of nf_tables
(`kproxy.linux.nft_monitor`) and of addresses (`kproxy.linux.node_addresses`).  All failures are `kproxy.linux.host.HostError`.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import struct
from array import array

from kproxy.linux.host import ALL_BITS, RECEIVE_BUFFER, netlink_socket, os_error

_SOL_NETLINK = 270
_ADD_MEMBERSHIP = 1
_DROP_MEMBERSHIP = 2
_SO_ATTACH_FILTER, _SO_DETACH_FILTER = 26, 27
_LOAD_WORD, _AND, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x54, 0x15, 0x06
_PORT_OFFSET = 12


class MulticastListener:
    """Receives what the kernel reports to groups of netlink listeners; nothing waits."""

    def __init__(self, protocol: int, *groups: int) -> None:
        """Begin to listen in the network namespace of this thread."""
        self._groups = groups
        self._socket = netlink_socket(protocol)
        self._socket.setblocking(False)
        self.resume()

    def __del__(self) -> None:
        """It lives as long as somebody wants to hear."""
        self._socket.close()

    def resume(self) -> None:
        """Listen again."""
        for group in self._groups:
            self._socket.setsockopt(_SOL_NETLINK, _ADD_MEMBERSHIP, group)

    def pause(self) -> None:
        """Not to listen for a while; what was told before can still be heard."""
        for group in self._groups:
            self._socket.setsockopt(_SOL_NETLINK, _DROP_MEMBERSHIP, group)

    def ignore_port(self, port: int, mask: int = ALL_BITS) -> None:
        """From now on, not to hear what a socket with that port under the mask causes; port 0: to hear everything.

        The kernel drops it, so that a large change of our own fills no buffer.
        """
        if not port:
            with contextlib.suppress(FileNotFoundError):  # there was no filter
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
        """All that was told since the last call; None when it was more than the socket could hold."""
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
