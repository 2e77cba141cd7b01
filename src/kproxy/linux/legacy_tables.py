"""The tables of iptables-legacy as the kernel holds them, read without a tool: to see whether they changed.

The kernel neither reports changes of these tables nor numbers their states, but returns a table's size and entries
(``linux/netfilter_ipv4/ip_tables.h``, ``linux/netfilter_ipv6/ip6_tables.h``).  What the entries mean is not decoded here:
only the packet counters are left out of a digest, since they change without a change of the rules.
Needs CAP_NET_ADMIN and CAP_NET_RAW.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct
import zlib
from dataclasses import dataclass
from typing import NamedTuple

from kproxy.linux.host import HostError, Reason, read_file
from kproxy.model.network import Family

_GET_INFO, _GET_ENTRIES = 64, 65
"""IPT_SO_GET_INFO and IPT_SO_GET_ENTRIES; IPv6 has the same numbers."""

_INFO = struct.Struct("@32s I 5I 5I I I")
"""``struct ipt_getinfo``: name, valid hooks, their first and last entries, number of entries, size in bytes."""

_ENTRIES_HEADER = struct.Struct("@32s I 4x")
"""``struct ipt_get_entries`` before the entries: name, size."""

_COUNTERS_SIZE = 16
_ATTEMPTS = 5
"""Reads of a table that others replace between its size and its entries, before it is given up."""

_libc = ctypes.CDLL(None, use_errno=True)


class _Layout(NamedTuple):
    """Where a family's entries begin to differ: socket, level of the options, offsets within an entry."""

    names: str
    domain: socket.AddressFamily
    level: int
    next_offset: int
    counters: int


_LAYOUTS = {
    Family.IPV4: _Layout("ip_tables_names", socket.AF_INET, socket.IPPROTO_IP, 90, 96),
    Family.IPV6: _Layout("ip6_tables_names", socket.AF_INET6, socket.IPPROTO_IPV6, 142, 152),
}


@dataclass(frozen=True, slots=True)
class LegacyTables:
    """The tables of a family in the network namespace of the calling thread; every failure is `HostError`."""

    family: Family

    def names(self) -> list[str]:
        """Tables that exist; reading another one would create it."""
        return read_file(f"/proc/thread-self/net/{_LAYOUTS[self.family].names}").split()

    def sizes(self) -> bytes:
        """Number and size of all entries of each table: differs after nearly every change, and costs microseconds."""
        return b"".join(self._info(name) for name in sorted(self.names()))

    def digest(self) -> bytes:
        """Checksum of each table without its counters; some 3 us for an entry."""
        return b"".join(self._table_digest(name) for name in sorted(self.names()))

    def _info(self, table: str) -> bytes:
        buffer = bytearray(_INFO.size)
        _INFO.pack_into(buffer, 0, table.encode(), *(0,) * 13)
        self._get(_GET_INFO, buffer)
        return bytes(buffer)

    def _table_digest(self, table: str) -> bytes:
        for _ in range(_ATTEMPTS):
            size = _INFO.unpack(self._info(table))[-1]
            buffer = bytearray(_ENTRIES_HEADER.size + size)
            _ENTRIES_HEADER.pack_into(buffer, 0, table.encode(), size)
            try:
                self._get(_GET_ENTRIES, buffer)
            except HostError as error:
                if error.reason is not Reason.BUSY:
                    raise
            else:
                return self._checksum(buffer).to_bytes(4)
        raise HostError(f"read table {table}", "others replaced it all the while", Reason.BUSY)

    def _checksum(self, buffer: bytearray) -> int:
        _, _, _, next_offset, counters = _LAYOUTS[self.family]
        offset_at, zeros = struct.Struct("H").unpack_from, bytes(_COUNTERS_SIZE)
        at, end = _ENTRIES_HEADER.size, len(buffer)
        while at < end:
            buffer[at + counters : at + counters + _COUNTERS_SIZE] = zeros
            at += offset_at(buffer, at + next_offset)[0]
        return zlib.crc32(buffer)

    def _get(self, option: int, buffer: bytearray) -> None:
        """getsockopt(2) with an argument, which `socket.socket.getsockopt` cannot pass."""
        layout, length = _LAYOUTS[self.family], ctypes.c_uint32(len(buffer))
        argument = (ctypes.c_char * len(buffer)).from_buffer(buffer)
        with socket.socket(layout.domain, socket.SOCK_RAW, socket.IPPROTO_RAW) as control:
            refused = _libc.getsockopt(control.fileno(), layout.level, option, argument, ctypes.byref(length))
        if refused:
            number = ctypes.get_errno()
            reason = Reason.BUSY if number == errno.EAGAIN else Reason.OTHER
            raise HostError("read iptables-legacy's tables", os.strerror(number), reason)
