"""Makes netlink and bpf writes of running programs fail with an errno, or late, or holds threads, for as long as this program runs.

``syscall_tracer.py ERRNO FAMILY MICROSECONDS SEED READS PID...`` traces these processes (ptrace(2)), with their descendants and
all processes they will start. FAMILY is the number of an address family, 0 for all. Each write begins MICROSECONDS late, while
all other threads run: one of them may be a proxy's relay of payload; with ERRNO 0 it succeeds. READS 0: what only queries is no
write. With a SEED, -1 for none, no write is touched: threads are held instead, each up to MICROSECONDS (`ThreadHolder`). It
writes ``ready`` when every thread is traced, and is ended by SIGKILL: the kernel then detaches all tracees. Why ptrace:
docs/adr/0018-writes-fail-by-ptrace.md. Below `kproxy.lab.faults.write_faults`, which starts it.

Theory of operation. `Tracer.seize` attaches to every thread of the process tree (PTRACE_SEIZE, then PTRACE_INTERRUPT), and
repeats until it finds no new one, since a thread may be cloned meanwhile; PTRACE_O_TRACECLONE and its like attach to later
ones. Each thread then stops at the entry and the exit of every system call. At the entry rax is -ENOSYS, and `SyscallFilter`
decides by the call's number and arguments:

- write, writev, sendto, sendmsg and sendmmsg to a netlink socket.  The protocol of the descriptor is read from a duplicate
  (pidfd_getfd) with SO_PROTOCOL, since a socket that was never bound is in no table of /proc.  nfnetlink and generic netlink
  writes are refused, rtnetlink only where the message type changes something.
- setsockopt that replaces a table of legacy iptables or controls IPVS.
- bpf that sets or deletes map elements.

With a family, only what names it is refused: messages of nfnetlink and rtnetlink by the first byte of their header (a
batch of nf_tables by its first change), of IPVS by the family of the virtual server, tables of legacy iptables by
their option's level. Sets of ipset and maps name none and are not refused.

To refuse a call, the tracer sets its number to -1, so that the kernel runs nothing, and its result to -ERRNO. ipset
is an exception: libipset ignores send errors and reads on, so its messages are not refused but get an invalid type,
for which the kernel replies with an error.

Everything else (reads, dumps, files, TCP) runs as before, at the price of two stops per call. Group stops are kept
(PTRACE_LISTEN), so SIGSTOP of a subject works while it is traced. Standard library only: it is run as a file, with ``-I -S``.
"""

from __future__ import annotations

import ctypes
import heapq
import os
import random
import re
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

READY = b"ready\n"
MACHINE = "x86_64"
"""The architecture whose registers and call numbers are used here."""

_CONT_TO_SYSCALL, _GETREGS, _SETREGS = 24, 12, 13
_SEIZE, _INTERRUPT, _LISTEN = 0x4206, 0x4207, 0x4208
_SYSGOOD, _FORK, _VFORK, _CLONE, _EXEC = 1, 2, 4, 8, 16
_OPTIONS = _SYSGOOD | _FORK | _VFORK | _CLONE | _EXEC
_EVENT_STOP = 128
_WALL = 0x40000000
_SYSCALL_STOP = signal.SIGTRAP | 0x80
_GROUP_STOPS = {signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU}

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
_WAKING = {202, 281}
"""Calls by which threads wake each other and are woken: futex, epoll_pwait."""
_ONE_IN = 8
"""Of so many such calls one holds its thread."""
_MAP_WRITES = {2, 3, 26, 27}
"""Commands of bpf(2) that set or delete elements of a map."""


_REGISTERS = """
    r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi
    orig_rax rip cs eflags rsp ss fs_base gs_base ds es fs gs
"""


class _Registers(ctypes.Structure):
    """``struct user_regs_struct`` of x86-64."""

    _fields_ = [(name, ctypes.c_ulonglong) for name in _REGISTERS.split()]


_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.restype = ctypes.c_long
_libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)


def _ptrace(request: int, thread: int, address: int = 0, data: int = 0) -> None:
    if _libc.ptrace(request, thread, address, data) == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"ptrace of {thread}: {os.strerror(number)}")


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
    with socket.socket(fileno=_duplicate(int(process[1]), descriptor)) as found:
        return found.proto if found.family == socket.AF_NETLINK else None


def _duplicate(process: int, descriptor: int) -> int:
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
        self._calls: Mapping[int, Callable[[int, _Registers], bool]] = {
            1: self._written,
            20: self._vectors,
            44: self._written,
            46: self._message,
            54: self._option,
            307: self._message,
            321: lambda _, registers: not family and registers.rdi in _MAP_WRITES,
        }

    def __call__(self, thread: int, registers: _Registers) -> bool:
        """True if the call is to be refused; only at its entry, where the result is still -ENOSYS."""
        call = self._calls.get(registers.orig_rax)
        if call is None or ctypes.c_longlong(registers.rax).value != -_ENOSYS:
            return False
        try:
            return call(thread, registers)
        except OSError:
            return False  # the thread has ended, or its pointer is invalid: the kernel reports that itself

    def _written(self, thread: int, registers: _Registers) -> bool:
        """write(2), sendto(2): the second argument is the message."""
        return self._judge(thread, registers, lambda: registers.rsi)

    def _vectors(self, thread: int, registers: _Registers) -> bool:
        return self._judge(thread, registers, partial(_first_vector, thread, registers.rsi))

    def _message(self, thread: int, registers: _Registers) -> bool:
        """sendmsg(2), sendmmsg(2): both begin with a message header."""
        return self._judge(
            thread, registers, lambda: _first_vector(thread, _word(thread, registers.rsi + 16))
        )

    def _judge(self, thread: int, registers: _Registers, find: Callable[[], int]) -> bool:
        protocol = self._sockets.protocol(thread, ctypes.c_int(registers.rdi).value)
        if protocol is None or (not self._reads and _only_queries(protocol, thread, find())):
            return False
        return _changes(protocol, thread, find, self._family, spoil=self._spoil)

    def _option(self, _: int, registers: _Registers) -> bool:
        level, option = registers.rsi, registers.rdx
        if level not in _LEVELS or (self._family and _LEVELS[level] != self._family):
            return False
        return option in _TABLES or (level == _SOL_IP and option in _IPVS)


def _threads(process: int) -> list[int]:
    with suppress(OSError):
        return [int(entry) for entry in os.listdir(f"/proc/{process}/task")]  # noqa: PTH208
    return []


def _process_tree(roots: Iterable[int]) -> set[int]:
    """These processes, their descendants and all of their sessions."""
    parents: dict[int, tuple[int, int]] = {}
    for entry in os.listdir("/proc"):  # noqa: PTH208
        if entry.isdigit():
            with suppress(OSError):
                fields = re.sub(r"^.*\) ", "", Path(f"/proc/{entry}/stat").read_text()).split()
                parents[int(entry)] = int(fields[1]), int(fields[3])
    found = set(roots)
    sessions = set(found)
    while (
        more := {p for p, (parent, session) in parents.items() if (parent in found or session in sessions)}
        - found
    ):
        found |= more
    return found - {os.getpid()}


class Tracer:
    """Tracer of threads, until it is killed; arguments as those of the program, ``pause`` in seconds."""

    def __init__(self, number: int, family: int, pause: float, *, reads: bool = True) -> None:
        self._number, self._pause = number, pause
        self._concerned = SyscallFilter(family, spoil=number != 0, reads=reads)
        self._traced: set[int] = set()
        self._held: list[tuple[float, int]] = []
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})

    def seize(self, roots: Iterable[int]) -> None:
        """Attach to every thread of these process trees, including threads started meanwhile.

        Returns when all are traced and running.
        """
        seen: set[int] = set()
        while new := {t for process in _process_tree(roots) for t in _threads(process)} - seen:
            for thread in new:
                self._seize(thread)
            seen |= new
        waiting = set(self._traced)
        while waiting:
            waiting.discard(self.step())
            waiting &= self._traced

    def _seize(self, thread: int) -> None:
        try:
            _ptrace(_SEIZE, thread, 0, _OPTIONS)
            _ptrace(_INTERRUPT, thread)
        except ProcessLookupError:
            return
        except PermissionError:
            if not _is_traced(thread):
                raise
            return
        self._traced.add(thread)

    def step(self) -> int:
        """Wait for the next stopped thread, and continue or hold it, with those held long enough; returns its ID."""
        while True:
            self._release()
            thread, status = os.waitpid(-1, _WALL | (os.WNOHANG if self._held else 0))
            if thread:
                return self._handle(thread, status)
            signal.sigtimedwait({signal.SIGCHLD}, max(0.0, self._held[0][0] - time.monotonic()))

    def _release(self) -> None:
        while self._held and self._held[0][0] <= time.monotonic():
            _, thread = heapq.heappop(self._held)
            with suppress(ProcessLookupError):
                _ptrace(_CONT_TO_SYSCALL, thread)

    def _hold(self, thread: int, seconds: float) -> bool:
        if seconds:
            heapq.heappush(self._held, (time.monotonic() + seconds, thread))
        return bool(seconds)

    def _handle(self, thread: int, status: int) -> int:
        if not os.WIFSTOPPED(status):
            self._traced.discard(thread)
            return thread
        self._traced.add(thread)
        with suppress(ProcessLookupError):
            self._go_on(thread, os.WSTOPSIG(status), status >> 16)
        return thread

    def _go_on(self, thread: int, number: int, event: int) -> None:
        if event == _EVENT_STOP and number in _GROUP_STOPS:
            _ptrace(_LISTEN, thread)
            return
        if number == _SYSCALL_STOP and self._keeps(thread):
            return
        delivered = 0 if event or number == _SYSCALL_STOP else number
        _ptrace(_CONT_TO_SYSCALL, thread, 0, delivered)

    def _keeps(self, thread: int) -> bool:
        """Handle a system call's entry or exit; True if the thread is to go on later."""
        registers = _registers(thread)
        if not self._concerned(thread, registers):
            return False
        if self._number:
            registers.orig_rax = ctypes.c_ulonglong(-1).value
            registers.rax = ctypes.c_ulonglong(-self._number).value
            _ptrace(_SETREGS, thread, 0, ctypes.addressof(registers))
        return self._hold(thread, self._pause)


class ThreadHolder(Tracer):
    """Tracer that holds a thread now and then as it has woken others or was woken, while all others run: up to ``pause`` seconds.

    So steps of two threads happen in an order in which they seldom do. Which, follows from the seed, as far as the threads do.
    """

    def __init__(self, pause: float, seed: int) -> None:
        super().__init__(0, 0, pause)
        self._choose = random.Random(seed)  # noqa: S311

    def _keeps(self, thread: int) -> bool:
        registers = _registers(thread)
        if registers.orig_rax not in _WAKING or ctypes.c_longlong(registers.rax).value == -_ENOSYS:
            return False
        if self._choose.randrange(_ONE_IN):
            return False
        return self._hold(thread, self._pause * self._choose.random())


def _registers(thread: int) -> _Registers:
    registers = _Registers()
    _ptrace(_GETREGS, thread, 0, ctypes.addressof(registers))
    return registers


def _is_traced(thread: int) -> bool:
    """True if a thread is traced already, by inheritance from its seized parent, or has ended."""
    with suppress(OSError):
        status = Path(f"/proc/{thread}/status").read_text()
        ended = re.search(r"^State:\t[XZ]", status, re.MULTILINE)
        return bool(ended) or f"TracerPid:\t{os.getpid()}\n" in status
    return True


def _steps(tracer: Tracer) -> Iterator[int]:
    while True:
        yield tracer.step()


def trace_syscalls(arguments: list[str]) -> int:
    """Trace until killed, or until no traced thread is left; returns the exit status."""
    number, family, microseconds, seed, reads, *roots = map(int, arguments)
    pause = microseconds / 1e6
    tracer = Tracer(number, family, pause, reads=bool(reads)) if seed < 0 else ThreadHolder(pause, seed)
    try:
        os.close(_duplicate(os.getpid(), 2))  # where it is denied, no write would be known for one
        tracer.seize(roots)
        os.write(1, READY)
        for _ in _steps(tracer):
            pass
    except ChildProcessError:
        return 0
    except OSError as error:
        os.write(2, f"{error}\n".encode())
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(trace_syscalls(sys.argv[1:]))
