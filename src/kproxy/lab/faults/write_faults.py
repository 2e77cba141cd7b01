"""Fault injection: netlink and bpf writes of given programs fail with an errno, or are slow, for a while.

Of the lab: knows processes by their IDs, nothing else of them. Theory of operation: a kernel cannot be made to run
out of memory for one program only, so its system calls are intercepted. `inject_write_errors` starts
`kproxy.lab.faults.syscall_tracer` as a process beside the subject, and returns once every thread is traced; from then
on writes to netfilter, IPVS, addresses, routes and BPF maps fail, also those of tools that the subject starts, and
nothing already in the kernel changes. `WriteFault.end` kills the tracer; the kernel detaches its tracees, which go on
as if nothing had been. If the harness dies, the tracer dies with its thread (setpriv --pdeathsig), so no subject
stays traced. Which errno, when, and for which node is the case's (`kproxy.conformance.case.steps`).
"""

from __future__ import annotations

import asyncio
import errno
import platform
import socket
import subprocess
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import kproxy
from kproxy.lab.faults import syscall_tracer
from kproxy.lab.namespaces import LabError
from kproxy.lab.processes import DIE_WITH_PARENT, wait_finished
from kproxy.model.network import Family

_PROGRAM = """
import sys
sys.path.append(sys.argv.pop(1))
from kproxy.lab.faults.syscall_tracer import trace_syscalls
sys.exit(trace_syscalls(sys.argv[1:]))
"""
"""Program of the tracer; its first argument is the folder with this package, which an isolated interpreter does not know."""
_NUMBERS = {None: socket.AF_UNSPEC, Family.IPV4: socket.AF_INET, Family.IPV6: socket.AF_INET6}


class WriteFault:
    """Fault in force on some programs; made by `inject_write_errors`."""

    def __init__(self, tracer: subprocess.Popen[bytes]) -> None:
        self._tracer = tracer

    async def end(self) -> None:
        """End the fault: writes succeed again."""
        self._tracer.kill()
        await wait_finished(self._tracer)
        for stream in (self._tracer.stdout, self._tracer.stderr):
            assert stream
            stream.close()


async def inject_write_errors(
    processes: Iterable[int], number: int, family: Family | None = None, seconds: float = 0.0
) -> WriteFault:
    """Make writes of these processes, and of all that they start, fail with errno ``number``, so many seconds late.

    ``family``: only writes that name it; None for all.

    Call it from a thread that lives as long as the fault. Raises `LabError`.
    """
    return await _trace(processes, number, _NUMBERS[family], round(seconds * 1e6))


async def delay_writes(processes: Iterable[int], seconds: float, *, reads: bool = False) -> WriteFault:
    """Make each write of these processes, and of all that they start, begin so many seconds late. As `inject_write_errors`.

    ``reads``: queries of netfilter too; the tools of iptables-nft make dozens of them for a change.
    """
    return await _trace(processes, 0, socket.AF_UNSPEC, round(seconds * 1e6), reads=reads)


async def hold_threads(processes: Iterable[int], seconds: float, seed: int) -> WriteFault:
    """Hold threads of these processes now and then, up to so many seconds, by a seed. As `inject_write_errors`."""
    return await _trace(processes, 0, socket.AF_UNSPEC, round(seconds * 1e6), seed)


async def refuse_some(processes: Iterable[int], number: int, seconds: float, seed: int) -> WriteFault:
    """Make one of two writes of these processes fail, and of two programs the start of one, by a seed. As `inject_write_errors`."""
    return await _trace(processes, number, socket.AF_UNSPEC, round(seconds * 1e6), seed)


def tracer_command(arguments: Iterable[int]) -> list[str]:
    """Command line that runs `syscall_tracer.trace_syscalls` with arguments."""
    package = Path(kproxy.__file__).parent
    return [sys.executable, "-I", "-S", "-c", _PROGRAM, str(package.parent), *map(str, arguments)]


async def _trace(
    processes: Iterable[int],
    number: int,
    family: int,
    microseconds: int,
    seed: int = -1,
    *,
    reads: bool = True,
) -> WriteFault:
    arguments = (number, int(family), microseconds, seed, int(reads), *processes)
    tracer = _start([*DIE_WITH_PARENT, *tracer_command(arguments)])
    assert tracer.stdout
    if await asyncio.to_thread(tracer.stdout.readline) == syscall_tracer.READY:
        return WriteFault(tracer)
    _, error = await asyncio.to_thread(tracer.communicate)
    reason = error.decode(errors="replace").strip() or "its tracer has ended"
    raise LabError(f"the kernel cannot be made to refuse or delay what a program writes: {reason}")


@cache
def write_faults_unavailable() -> str:
    """Reason why writes cannot be made to fail on this machine; empty when they can."""
    if platform.machine() != syscall_tracer.MACHINE:
        return f"writes are made to fail on {syscall_tracer.MACHINE} only, this is {platform.machine()}"
    with ThreadPoolExecutor(1) as thread:
        try:
            thread.submit(lambda: asyncio.run(_try())).result()
        except LabError as reason:
            return f"{reason} (ptrace(2) of programs of the same user must be allowed)"
    return ""


async def _try() -> None:
    idle = _start([*DIE_WITH_PARENT, "sleep", "60"])
    try:
        await (await inject_write_errors([idle.pid], errno.EPERM)).end()
    finally:
        idle.kill()
        idle.communicate()


def _start(argv: Sequence[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
