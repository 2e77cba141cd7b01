"""Guard that keeps a guest's kernel and folder from outliving the process that started it.

A small process between the two, run by path with ``-I -S``: ``guard.py FOLDER CONTROL THREADS PROGRAM ARGUMENT...``. Its
standard input is the lifeline: when it is closed, for whatever reason, the kernel and all of its processes are killed
and the folder is removed. Its standard output gives the kernel's exit status (negative: a signal) when it has ended.

When the guard itself is killed, the kernel dies too (parent death signal); for the kernel's own processes the file
`GROUP` in the folder names the process group that the starter has to kill (`after_death`). So no single death leaves
anything behind. The kernel's own standard input is the descriptor ``CONTROL``, which this process hands on.

``THREADS`` is `ONE` for a kernel that computes in one thread at a time: User-Mode Linux passes control between its own
process and those of the guest's programs at each system call. On two processors each hand-over wakes an idle one, which costs
a virtual machine microseconds; on one processor it is a switch of tasks, and guests run two to three times as fast.
"""

from __future__ import annotations

import ctypes
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress

GROUP = "group"
"""File in the folder that names the kernel's process group."""

ONE, MANY = "one", "many"
"""Threads of a kernel that compute at once."""

_MOST_GUESTS = 64
_SET_PARENT_DEATH_SIGNAL = 1
_libc = ctypes.CDLL(None, use_errno=True)


def guard_main(folder: str, control: int, threads: str, argv: Sequence[str]) -> None:
    """Start the kernel, wait for its end or the lifeline's, and clean up."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    claim = claim_processor() if threads == ONE else None
    kernel = start_kernel(folder, control, argv)
    watched = [sys.stdin.fileno(), os.pidfd_open(kernel.pid)]
    ready, _, _ = select.select(watched, (), ())
    kill_group(kernel.pid)
    kernel.wait()
    if watched[0] not in ready:
        os.write(1, f"{kernel.returncode}\n".encode())
        os.read(watched[0], 1)
    shutil.rmtree(folder, ignore_errors=True)
    if claim:
        claim.close()


def claim_processor() -> socket.socket | None:
    """Move this process, and so the kernel, to the processor that has the fewest guests; none is claimed where all are crowded.

    A claim is a name that one socket can have (unix(7), abstract), so it ends with its process, and guests of all runs see it.
    """
    for guests in range(_MOST_GUESTS):
        for processor in sorted(os.sched_getaffinity(0)):
            claim = socket.socket(socket.AF_UNIX)
            try:
                claim.bind(f"\0kproxy-guest-{processor}-{guests}")
            except OSError:
                claim.close()
            else:
                os.sched_setaffinity(0, {processor})
                return claim
    return None


def start_kernel(folder: str, control: int, argv: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start the kernel in a process group of its own; its console is a file in the folder."""
    mine = os.getpid()

    def die_with_guard() -> None:
        os.setpgid(0, 0)
        with open(f"{folder}/{GROUP}", "w") as group:  # noqa: PTH123 (pathlib costs as much as all the rest)
            group.write(str(os.getpid()))
        _libc.prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != mine:
            os._exit(1)

    with open(f"{folder}/console", "wb") as console:  # noqa: PTH123 (as above)
        return subprocess.Popen(
            argv,
            stdin=control,
            stdout=console,
            stderr=console,
            preexec_fn=die_with_guard,  # noqa: PLW1509
        )


def kill_group(group: int) -> None:
    """Kill a kernel with the processes that run its guest's programs."""
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def after_death(folder: str) -> None:
    """Clean up after a guard that was killed: kill the process group, remove the folder."""
    with suppress(FileNotFoundError), open(f"{folder}/{GROUP}") as group:  # noqa: PTH123 (as above)
        if number := group.read():
            kill_group(int(number))
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    guard_main(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4:])
