"""Netlink socket for nf_tables: whole transactions to the kernel, and the items of lists.

Theory of operation
-------------------
nf_tables takes a transaction as one datagram: a BATCH_BEGIN message, any number of messages that create, change or delete
objects, and a BATCH_END.  The kernel prepares all of them for the next generation of its state; only if none fails does it
switch to that generation, at one moment.  So there is no order of writes to get right for packets, only one for references: an
object must be created earlier in the batch than what refers to it, and deleted later.

Messages are numbered by their place.  The kernel answers with an error for each message it refuses, identified by its sequence
number; the first is returned and the caller translates it back to a command.  An accepted batch is acknowledged once.  A batch
of many megabytes is still one datagram, so the send buffer of the socket is made large enough before it is sent.

The port of the socket identifies our own changes to `kproxy.linux.nft_monitor`, which reports only those of others.

All failures are `kproxy.linux.host.HostError`.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kproxy.linux.host import HostError, Reason
from kproxy.linux.netlink import (
    NetlinkFlag,
    error_number,
    netlink_message,
)
from kproxy.linux.netlink_socket import NETLINK_NETFILTER, Netlink
from kproxy.linux.nft_monitor import NftMonitor
from kproxy.proxy.backends.nftables.kernel.messages import SUBSYSTEM, BatchMessage

_BATCH_BEGIN, _BATCH_END = 0x10, 0x11
_SOL_NETLINK, _SHORT_ERRORS = 270, 10
_SO_SNDBUFFORCE = 32


class BatchError(NamedTuple):
    """An errno from the kernel, and the number of its message: 1 for the first of the batch, 0 for the batch itself."""

    number: int
    errno: int


class Nftables(Netlink):
    """The nf_tables of this network namespace."""

    def __init__(self, port: int = 0) -> None:
        """Open the socket; its netlink port identifies this process's changes in notifications."""
        super().__init__(NETLINK_NETFILTER, port)
        self._socket.setsockopt(_SOL_NETLINK, _SHORT_ERRORS, 1)

    def commit(self, batch: Iterable[BatchMessage]) -> BatchError | None:
        """Commit a batch, whole or not at all; returns None on success, else the first error."""
        parts = [_boundary(_BATCH_BEGIN)]
        parts += [
            netlink_message(SUBSYSTEM << 8 | kind, NetlinkFlag.REQUEST | flags, index, body)
            for index, (kind, flags, body) in enumerate(batch, start=1)
        ]
        last = len(parts) - 1
        parts[-1] = _acknowledged(parts[-1])
        parts.append(_boundary(_BATCH_END))
        data = b"".join(parts)
        del parts
        self._grow_send_buffer(len(data))
        self._send(data)
        refused = self._read_errors(last)
        if refused is None:
            NftMonitor.count_own_transaction()
        return refused

    def _read_errors(self, last: int) -> BatchError | None:
        """First error among the replies, which are in the socket's buffer when sending returns."""
        acknowledged, complaint = False, None
        for message_ in self._receive_acks():
            answer = BatchError(message_.sequence, error_number(message_.payload))
            if answer.errno and complaint is None:
                complaint = answer
            acknowledged |= answer.number == last and not answer.errno
        if complaint is None and not acknowledged:
            raise HostError("nftables transaction", "the kernel did not acknowledge it", Reason.OTHER)
        return complaint

    def _grow_send_buffer(self, size: int) -> None:
        """Enlarge the send buffer for a datagram of that size (the kernel doubles the number)."""
        if self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) < size + 4096:
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, size + 4096)


def list_items(payload: memoryview) -> Iterator[memoryview]:
    """The attributes of a list, which all have the same type."""
    offset = 0
    while offset + 4 <= len(payload):
        (length,) = struct.unpack_from("=H", payload, offset)
        if length < 4:
            return
        yield payload[offset + 4 : offset + length]
        offset += (length + 3) & ~3


def _boundary(kind: int) -> bytes:
    return netlink_message(kind, NetlinkFlag.REQUEST, 0, struct.pack(">BBH", 0, 0, SUBSYSTEM))


def _acknowledged(raw: bytes) -> bytes:
    (flags,) = struct.unpack_from("=H", raw, 6)
    return raw[:6] + struct.pack("=H", flags | NetlinkFlag.ACK) + raw[8:]
