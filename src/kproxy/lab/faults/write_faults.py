"""A kernel that takes nothing from some programs for a while: starts `kproxy.lab.faults.syscall_tracer` beside them, and ends it.

Of the lab: knows processes by their IDs, and nothing of what they are.
"""

from __future__ import annotations

import asyncio
import errno
import platform
import subprocess
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache

from kproxy.lab.faults import syscall_tracer
from kproxy.lab.namespaces import LabError
from kproxy.lab.processes import DIE_WITH_PARENT, wait_finished


class WriteFault:
    """The kernel refuses what these programs write; made by `inject_write_errors`."""

    def __init__(self, tracer: subprocess.Popen[bytes]) -> None:
        self._tracer = tracer

    async def end(self) -> None:
        """From now on it takes what they write."""
        self._tracer.kill()
        await wait_finished(self._tracer)
        for stream in (self._tracer.stdout, self._tracer.stderr):
            assert stream
            stream.close()


async def inject_write_errors(processes: Iterable[int], number: int) -> WriteFault:
    """Let the kernel refuse with this errno what they, and all that they start, write to it.

    Call it from a thread that lives as long.  Raises `LabError`.
    """
    argv = [
        *DIE_WITH_PARENT,
        sys.executable,
        "-I",
        "-S",
        syscall_tracer.__file__,
        str(number),
        *map(str, processes),
    ]
    tracer = _start(argv)
    assert tracer.stdout
    if await asyncio.to_thread(tracer.stdout.readline) == syscall_tracer.READY:
        return WriteFault(tracer)
    _, error = await asyncio.to_thread(tracer.communicate)
    reason = error.decode(errors="replace").strip() or "its tracer has ended"
    raise LabError(f"the kernel cannot be made to refuse what a program writes: {reason}")


@cache
def write_faults_unavailable() -> str:
    """Why no kernel can be made to refuse here; empty when it can."""
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
