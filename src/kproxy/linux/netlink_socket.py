"""Netlink sockets: queries of the kernel's objects, and requests in batches.

Beside `kproxy.linux.host`, in the network namespace of the calling thread, and as blocking; `kproxy.linux.netlink` has the
messages. All failures are `kproxy.linux.host.HostError`, those of requests `NetlinkError`.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import struct
from typing import TYPE_CHECKING, Self

from kproxy.linux.descriptors import Purpose
from kproxy.linux.host import DEFAULT_TIMEOUT, HostError, Reason, os_error, reason_of
from kproxy.linux.netlink import (
    NLMSG_DONE,
    NLMSG_ERROR,
    NLMSG_NOOP,
    Message,
    NetlinkFlag,
    error_number,
    messages,
    netlink_message,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

RECEIVE_BUFFER = 1 << 20
"""Receive buffer of a netlink socket, in bytes; no datagram of the kernel is longer."""

NETLINK_NETFILTER = 12

_SOCKET_BUFFER = 1 << 25
_REQUESTS_PER_BATCH = 200
_SIOCGIFINDEX = 0x8933
_IFREQ = struct.Struct("=16si20x")
_SO_SNDBUFFORCE = 32
_SO_RCVBUFFORCE = 33
_NEEDS_NET_ADMIN = "the process needs CAP_NET_ADMIN in the user namespace of its network"


class NetlinkError(HostError):
    """Request that the kernel refused, with the errno of its reply."""

    def __init__(self, operation: str, number: int) -> None:
        """``operation``: what was requested."""
        text = os.strerror(number)
        detail = f"{text} ({_NEEDS_NET_ADMIN})" if number == errno.EPERM else text
        super().__init__(operation, detail, reason_of(OSError(number, text)))
        self.number = number


class Netlink:
    """Netlink socket: `dump` and `get` send a request and return the replies, `send_all` sends many requests and returns their errnos.

    ``protocol`` is ``socket.NETLINK_ROUTE`` or `NETLINK_NETFILTER`. Use as a context manager.
    """

    def __init__(self, protocol: int, port: int = 0) -> None:
        """Open the socket in the network namespace of this thread; port 0: the kernel chooses one."""
        self._socket = netlink_socket(protocol, port)
        self._socket.settimeout(DEFAULT_TIMEOUT)
        self._sequence = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def dump(self, kind: int, body: bytes) -> Iterator[memoryview]:
        """Payloads of all messages that reply to a dump request.

        A dump that the kernel flags as interrupted (the table changed meanwhile) is still used: what is
        missing is found by the next dump (behaviour ``ct.eintr``).
        """
        return self._query(kind, NetlinkFlag.DUMP, body)

    def get(self, kind: int, body: bytes) -> memoryview:
        """Payload of the reply to a request for one object. Raises `NetlinkError`."""
        (payload,) = self._query(kind, NetlinkFlag.ACK, body)
        return payload

    def _query(self, kind: int, how: NetlinkFlag, body: bytes) -> Iterator[memoryview]:
        self._sequence += 1
        self._send(netlink_message(kind, NetlinkFlag.REQUEST | how, self._sequence, body))
        while True:
            for answer in messages(self._receive()):
                if answer.sequence != self._sequence:
                    continue
                if answer.type == NLMSG_DONE:
                    return
                if answer.type == NLMSG_ERROR:
                    number = error_number(answer.payload)
                    if number:
                        raise NetlinkError("netlink query", number)
                    return
                yield answer.payload

    def send_all(self, requests: Iterable[tuple[int, NetlinkFlag, bytes]]) -> list[int]:
        """Send requests ``(type, extra flags, body)`` in batches; the errno of each in order, 0 for success.

        `HostError` when a whole batch is refused with one reply, as without CAP_NET_ADMIN.
        """
        results: list[int] = []
        batch: list[bytes] = []
        for kind, flags, body in requests:
            self._sequence += 1
            batch.append(
                netlink_message(kind, NetlinkFlag.REQUEST | NetlinkFlag.ACK | flags, self._sequence, body)
            )
            if len(batch) == _REQUESTS_PER_BATCH:
                results += self._exchange(batch)
                batch = []
        return results + self._exchange(batch) if batch else results

    def interface_index(self, name: str) -> int | None:
        """Index of an interface in the socket's network namespace; None when there is none of that name."""
        try:
            answer = fcntl.ioctl(self._socket, _SIOCGIFINDEX, _IFREQ.pack(name.encode(), 0))
        except OSError as error:
            if error.errno == errno.ENODEV:
                return None
            raise os_error(f"find interface {name}", error) from error
        index: int = _IFREQ.unpack(answer)[1]
        return index

    def _exchange(self, batch: list[bytes]) -> list[int]:
        self._send(b"".join(batch))
        numbers = range(self._sequence - len(batch) + 1, self._sequence + 1)
        results = {answer.sequence: error_number(answer.payload) for answer in self._receive_acks()}
        if not results.keys() >= set(numbers):
            refused = next(filter(None, results.values()), errno.EIO)
            raise NetlinkError(f"netlink batch of {len(batch)} messages", refused)
        return [results[number] for number in numbers]

    def _receive_acks(self) -> Iterator[Message]:
        """Acknowledgements received so far: the kernel has queued all of them by the time that sending returns."""
        timeout = self._socket.gettimeout()
        self._socket.settimeout(0)
        try:
            while True:
                received = messages(self._socket.recv(RECEIVE_BUFFER))
                yield from (answer for answer in received if answer.type == NLMSG_ERROR)
        except BlockingIOError:
            return
        except OSError as error:
            raise os_error("netlink receive", error) from error
        finally:
            self._socket.settimeout(timeout)

    def _send(self, data: bytes) -> None:
        try:
            self._socket.send(data)
        except OSError as error:
            raise os_error("netlink send", error) from error

    def _receive(self) -> bytes:
        try:
            return self._socket.recv(RECEIVE_BUFFER)
        except OSError as error:
            raise os_error("netlink receive", error) from error


def netlink_socket(protocol: int, port: int = 0) -> socket.socket:
    """Open netlink socket with buffers as large as the kernel grants.  Raises `HostError` when it cannot be opened."""
    try:
        made = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol)
        made.bind((port, 0))
    except OSError as error:
        raise os_error("open netlink socket", error, Purpose.NETLINK) from error
    for option in (_SO_RCVBUFFORCE, _SO_SNDBUFFORCE):
        with contextlib.suppress(PermissionError):
            made.setsockopt(socket.SOL_SOCKET, option, _SOCKET_BUFFER)
    return made


def require_net_admin() -> None:
    """Raise `HostError` DENIED when the kernel does not let this process change the network configuration.

    Sends an empty message to nfnetlink: the kernel checks the capability before anything else.
    """
    try:
        netlink = Netlink(NETLINK_NETFILTER)
    except HostError as error:
        if error.reason is Reason.UNSUPPORTED:  # a kernel without nfnetlink has nothing to refuse
            return
        raise
    with netlink:
        (number,) = netlink.send_all([(NLMSG_NOOP, NetlinkFlag(0), b"")])
    if number:
        raise NetlinkError("change the network", number)
