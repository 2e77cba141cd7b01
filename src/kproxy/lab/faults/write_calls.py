"""System calls that change the kernel's network configuration, recognised by registers and memory of a traced thread.

At the entry of a call, where rax is -ENOSYS, `SyscallFilter` decides by its number and arguments:

- write, writev, sendto, sendmsg and sendmmsg to a netlink socket.  The protocol of the descriptor is read from a duplicate
  (pidfd_getfd) with SO_PROTOCOL, since a socket that was never bound is in no table of /proc.  nfnetlink and generic netlink
  writes are refused, rtnetlink only where the message type changes something.
- setsockopt that replaces a table of legacy iptables or controls IPVS.
- bpf that sets or deletes map elements.

With a family, only what names it is refused: messages of nfnetlink and rtnetlink by the first byte of their header (a
batch of nf_tables by its first change), of IPVS by the family of the virtual server, tables of legacy iptables by
their option's level. Sets of ipset and maps name none and are not refused.

Libipset ignores send errors and reads on, so its messages are not refused but get an invalid type, for which the kernel replies
with an error. Below `kproxy.lab.faults.syscall_tracer`; standard library only.
"""

from __future__ import annotations

import ctypes
import os
import re
import socket
import struct
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

_ENOSYS = 38
_PIDFD_GETFD = 438
_NETFILTER, _GENERIC, _ROUTE = 12, 16, 0
_ROUTE_READS = 2
"""Remainder modulo 4 of the rtnetlink message types that only read (RTM_GET*, rtnetlink(7))."""
_TYPE = 4
"""Offset of a netlink message's type; its second byte is the netfilter subsystem."""
_IPSET, _INVALID_TYPE = 6, 0xFE
_HEADER, _GENERIC_HEADER = 16, 20
"""Bytes before the family of a message of nfnetlink or rtnetlink, and before the attributes of a generic one."""
_BATCH_BEGIN = 0x10
_WRITES = {1: {0, 2}, _IPSET: {2, 3, 4, 5, 6, 9, 10}}
"""Message types that change something, by subsystem: IPCTNL_MSG_CT_*, IPSET_CMD_*; tables of nf_tables change in batches."""
_CONTROL, _SERVICE_QUERIES = 0x10, {4, 8, 11, 13, 15}
"""Family of generic netlink's own queries, and commands that query IPVS (IPVS_CMD_GET_*)."""
_SERVICE_FAMILY = bytes([6, 0, 1, 0])
"""Begin of IPVS_SVC_ATTR_AF, the first attribute in IPVS_CMD_ATTR_SERVICE, the first one of a message about it."""
_SOL_IP, _SOL_IPV6 = 0, 41
_LEVELS = {_SOL_IP: 2, _SOL_IPV6: 10}
"""Address families by the level of their socket options."""
_TABLES = range(64, 66)
"""Socket options that replace a table of legacy iptables, or its counters (IPT_SO_SET_REPLACE, IPT_SO_SET_ADD_COUNTERS)."""
_IPVS = range(1152, 1216)
"""Socket options of IPVS, from IP_VS_BASE_CTL on."""
_MAP_WRITES = {2, 3, 26, 27}
"""Commands of bpf(2) that set or delete elements of a map."""


_REGISTERS = """
    r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi
    orig_rax rip cs eflags rsp ss fs_base gs_base ds es fs gs
"""


class Registers(ctypes.Structure):
    """``struct user_regs_struct`` of x86-64."""

    _fields_ = [(name, ctypes.c_ulonglong) for name in _REGISTERS.split()]


_libc = ctypes.CDLL(None, use_errno=True)


def at_entry(registers: Registers) -> bool:
    """True at the entry of a system call, false at its exit."""
    return ctypes.c_longlong(registers.rax).value == -_ENOSYS


class NetlinkSockets:
    """Netlink protocols of descriptors, cached by socket."""

    def __init__(self) -> None:
        self._known: dict[str, int | None] = {}

    def protocol(self, thread: int, descriptor: int) -> int | None:
        """Netlink protocol of a thread's descriptor; None if it is not a netlink socket."""
        with suppress(OSError):
            what = str(Path(f"/proc/{thread}/fd/{descriptor}").readlink())
            if what.startswith("socket:"):
                if what not in self._known:
                    self._known[what] = _protocol(thread, descriptor)
                return self._known[what]
        return None


def _protocol(thread: int, descriptor: int) -> int | None:
    """Netlink protocol of a descriptor, read from a duplicate of the socket.

    One that was never bound is in no table of ``/proc``.
    """
    process = re.search(r"^Tgid:\t(\d+)$", Path(f"/proc/{thread}/status").read_text(), re.MULTILINE)
    assert process, "every thread has a process"
    with socket.socket(fileno=duplicate(int(process[1]), descriptor)) as found:
        return found.proto if found.family == socket.AF_NETLINK else None


def duplicate(process: int, descriptor: int) -> int:
    """Descriptor here of what another process has as ``descriptor``."""
    handle = os.pidfd_open(process)
    try:
        copy: int = _libc.syscall(_PIDFD_GETFD, handle, descriptor, 0)
        if copy == -1:
            reason = os.strerror(ctypes.get_errno())
            raise OSError(f"pidfd_getfd(2): {reason}; in a container give --cap-add SYS_PTRACE")
        return copy
    finally:
        os.close(handle)


def _memory(thread: int, address: int, size: int) -> bytes:
    with Path(f"/proc/{thread}/mem").open("rb", buffering=0) as memory:
        memory.seek(address)
        return memory.read(size)


def _word(thread: int, address: int) -> int:
    return int.from_bytes(_memory(thread, address, 8), sys.byteorder)


def _first_vector(thread: int, vectors: int) -> int:
    """Address of the first buffer of an iovec array."""
    return _word(thread, vectors)


def _changes(protocol: int | None, thread: int, find: Callable[[], int], family: int, *, spoil: bool) -> bool:
    """True if a message is one of those to be refused; ``find`` returns its address, the others are as in `SyscallFilter`."""
    if protocol not in {_NETFILTER, _ROUTE, _GENERIC} or (
        family and _family(protocol, thread, find()) != family
    ):
        return False
    if protocol == _NETFILTER:
        return bool(family) or not spoil or not _spoilt(thread, find())
    return protocol == _GENERIC or _kind(thread, find()) % 4 != _ROUTE_READS


def _family(protocol: int, thread: int, message: int) -> int:
    """Address family that a message names; 0 if none."""
    if protocol == _GENERIC:
        service = _memory(thread, message + _GENERIC_HEADER, 10)
        return service[8] if service[4:8] == _SERVICE_FAMILY else 0
    kind = _kind(thread, message)
    if protocol == _NETFILTER and kind >> 8 == _IPSET:
        return 0
    if protocol == _NETFILTER and kind == _BATCH_BEGIN:
        message += int.from_bytes(_memory(thread, message, 4), sys.byteorder)
    return _memory(thread, message + _HEADER, 1)[0]


def _only_queries(protocol: int, thread: int, message: int) -> bool:
    """True for a message of nfnetlink or generic netlink that changes nothing."""
    kind = _kind(thread, message)
    if protocol == _GENERIC:
        return kind == _CONTROL or _memory(thread, message + _HEADER, 1)[0] in _SERVICE_QUERIES
    subsystem, command = divmod(kind, 256)
    return protocol == _NETFILTER and kind != _BATCH_BEGIN and command not in _WRITES.get(subsystem, set())


def _kind(thread: int, message: int) -> int:
    (kind,) = struct.unpack("=H", _memory(thread, message + _TYPE, 2))
    return int(kind)


def _spoilt(thread: int, message: int) -> bool:
    """True for a message of ipset, after invalidating its type so that the kernel refuses it (EINVAL).

    Libipset ignores errors of sending.
    """
    if _kind(thread, message) >> 8 not in {_IPSET, _INVALID_TYPE}:
        return False
    with Path(f"/proc/{thread}/mem").open("r+b", buffering=0) as memory:
        memory.seek(message + _TYPE + 1)
        memory.write(bytes([_INVALID_TYPE]))
    return True


class SyscallFilter:
    """Decides for a system call whether it is to be refused; ``family``: number of an address family, 0 for all.

    ``spoil``: refuse messages of ipset by making them invalid; ``reads``: messages that only query too.
    """

    def __init__(self, family: int, *, spoil: bool = True, reads: bool = True) -> None:
        self._family, self._spoil, self._reads = family, spoil, reads
        self._sockets = NetlinkSockets()
        self._calls: Mapping[int, Callable[[int, Registers], bool]] = {
            1: self._written,
            20: self._vectors,
            44: self._written,
            46: self._message,
            54: self._option,
            307: self._message,
            321: lambda _, registers: not family and registers.rdi in _MAP_WRITES,
        }

    def __call__(self, thread: int, registers: Registers) -> bool:
        """True if the call is to be refused; only at its entry, where the result is still -ENOSYS."""
        call = self._calls.get(registers.orig_rax)
        if call is None or not at_entry(registers):
            return False
        try:
            return call(thread, registers)
        except OSError:
            return False  # the thread has ended, or its pointer is invalid: the kernel reports that itself

    def _written(self, thread: int, registers: Registers) -> bool:
        """write(2), sendto(2): the second argument is the message."""
        return self._judge(thread, registers, lambda: registers.rsi)

    def _vectors(self, thread: int, registers: Registers) -> bool:
        return self._judge(thread, registers, partial(_first_vector, thread, registers.rsi))

    def _message(self, thread: int, registers: Registers) -> bool:
        """sendmsg(2), sendmmsg(2): both begin with a message header."""
        return self._judge(
            thread, registers, lambda: _first_vector(thread, _word(thread, registers.rsi + 16))
        )

    def _judge(self, thread: int, registers: Registers, find: Callable[[], int]) -> bool:
        protocol = self._sockets.protocol(thread, ctypes.c_int(registers.rdi).value)
        if protocol is None or (not self._reads and _only_queries(protocol, thread, find())):
            return False
        return _changes(protocol, thread, find, self._family, spoil=self._spoil)

    def _option(self, _: int, registers: Registers) -> bool:
        level, option = registers.rsi, registers.rdx
        if level not in _LEVELS or (self._family and _LEVELS[level] != self._family):
            return False
        return option in _TABLES or (level == _SOL_IP and option in _IPVS)
