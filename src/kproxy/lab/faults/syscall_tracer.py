"""Makes netlink and bpf writes of running programs fail with an errno, or late, or holds threads, for as long as this program runs.

`trace_syscalls` is its main function, with the arguments ``ERRNO FAMILY MICROSECONDS SEED READS PID...``: it traces these processes
(ptrace(2)), with their descendants and all processes they will start. FAMILY is the number of an address family, 0 for all. Each
write (`kproxy.lab.faults.write_calls`) begins MICROSECONDS late, while all other threads run: one of them may be a proxy's relay of
payload; with ERRNO 0 it succeeds. READS 0: what only queries is no write. With a SEED, -1 for none, chance decides: with ERRNO 0,
threads are held instead, each up to MICROSECONDS (`ThreadHolder`), otherwise some writes fail and others do not (`SomeRefuser`). It
writes ``ready`` when every thread is traced, and is ended by SIGKILL: the kernel then detaches all tracees. Why ptrace:
docs/adr/0018-writes-fail-by-ptrace.md. Below `kproxy.lab.faults.write_faults`, which starts it.

Theory of operation. `Tracer.seize` attaches to every thread of the process tree (PTRACE_SEIZE, then PTRACE_INTERRUPT), and
repeats until it finds no new one, since a thread may be cloned meanwhile; PTRACE_O_TRACECLONE and its like attach to later
ones. Each thread then stops at the entry and the exit of every system call. To refuse a call, the tracer sets its number to -1 at
the entry, so that the kernel runs nothing, and its result to -ERRNO.

Everything else (reads, dumps, files, TCP) runs as before, at the price of two stops per call. Group stops are kept
(PTRACE_LISTEN), so SIGSTOP of a subject works while it is traced. Standard library only: it runs with ``-I -S``.
"""

from __future__ import annotations

import ctypes
import heapq
import os
import random
import re
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from kproxy.lab.faults.write_calls import Registers, SyscallFilter, at_entry, duplicate

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

_EXECUTE = 59
"""The call by which a thread becomes another program: execve."""
_WAKING = {202, 281}
"""Calls by which threads wake each other and are woken: futex, epoll_pwait."""
_ONE_IN = 8
"""Of so many such calls one holds its thread."""

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.restype = ctypes.c_long
_libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)


def _ptrace(request: int, thread: int, address: int = 0, data: int = 0) -> None:
    if _libc.ptrace(request, thread, address, data) == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"ptrace of {thread}: {os.strerror(number)}")


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
        self._concerned: Callable[[int, Registers], bool] = SyscallFilter(
            family, spoil=number != 0, reads=reads
        )
        self._traced: set[int] = set()
        self._held: list[tuple[float, int]] = []

    def seize(self, roots: Iterable[int]) -> None:
        """Attach to every thread of these process trees, including threads started meanwhile.

        Returns when all are traced and running.
        """
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})  # `step` waits for it
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


class SomeRefuser(Tracer):
    """Tracer that refuses one of two writes, and of two programs the start of one, by a seed, as a kernel does that is short of memory."""

    def __init__(self, number: int, pause: float, seed: int) -> None:
        super().__init__(number, 0, pause, reads=False)
        concerned, choose = self._concerned, random.Random(seed).randrange  # noqa: S311
        self._concerned = lambda thread, registers: (
            choose(2) == 0
            and ((registers.orig_rax == _EXECUTE and at_entry(registers)) or concerned(thread, registers))
        )


class ThreadHolder(Tracer):
    """Tracer that holds a thread now and then as it has woken others or was woken, while all others run: up to ``pause`` seconds.

    So steps of two threads happen in an order in which they seldom do. Which, follows from the seed, as far as the threads do.
    """

    def __init__(self, pause: float, seed: int) -> None:
        super().__init__(0, 0, pause)
        self._choose = random.Random(seed)  # noqa: S311

    def _keeps(self, thread: int) -> bool:
        registers = _registers(thread)
        if registers.orig_rax not in _WAKING or at_entry(registers):
            return False
        if self._choose.randrange(_ONE_IN):
            return False
        return self._hold(thread, self._pause * self._choose.random())


def _registers(thread: int) -> Registers:
    registers = Registers()
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
    if seed < 0:
        tracer = Tracer(number, family, pause, reads=bool(reads))
    else:
        tracer = SomeRefuser(number, pause, seed) if number else ThreadHolder(pause, seed)
    try:
        os.close(duplicate(os.getpid(), 2))  # where it is denied, no write would be known for one
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
