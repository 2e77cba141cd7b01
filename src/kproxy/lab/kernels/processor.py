"""Workaround for processors with more register state than a User-Mode Linux before 6.13 can restore.

Such a kernel keeps 2,696 bytes of a process's registers (AVX-512 and protection keys). Where the processor has AMX
tiles as well there are 11 kilobytes, and the host's kernel refuses to set a part of them (EFAULT in
``PTRACE_SETREGSET``), so nothing can run. As a program, ``processor.py KERNEL ARGUMENT...``, this hides that request
from the kernel, which then keeps x87 and SSE registers, as it did in the days before AVX; and `guest_environment`
makes libraries in the guest avoid AVX, whose registers no page fault would survive.

Standard library only: it is run as a file.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import struct
import sys
from collections.abc import Mapping
from pathlib import Path

KEEPS_ALL_SINCE = (6, 13)
"""First version of User-Mode Linux that queries the size of the state from the host."""

_CPUINFO = Path("/proc/cpuinfo")
_MORE_STATE = "amx_tile"

_WITHOUT_AVX = {
    "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX_Fast_Unaligned_Load,-AVX,-AVX2,-AVX512F,-AVX512VL,-AVX512BW,-AVX512CD,-AVX512DQ",
    "OPENSSL_ia32cap": "~0x1000000000000000:0",
}

_LOAD_32_BITS, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_NUMBER, _FIRST_ARGUMENT, _THIRD_ARGUMENT = 0, 16, 32
_PTRACE, _GETREGSET, _SETREGSET, _NT_X86_XSTATE = 101, 0x4204, 0x4205, 0x202
_ALLOW, _FAIL = 0x7FFF0000, 0x00050000 | errno.EIO
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 38, 22, 2


def exceeds_uml_state(release: str, cpuinfo: str | None = None) -> bool:
    """True if a User-Mode Linux of this release cannot work on this processor without the workaround."""
    known = _CPUINFO.read_text() if cpuinfo is None else cpuinfo
    version = tuple(int(number) for number in re.findall(r"\d+", release)[:2])
    return version < KEEPS_ALL_SINCE and _MORE_STATE in known.split()


def launch_prefix(release: str) -> tuple[str, ...]:
    """Command prefix that starts the kernel with extended register state hidden; empty where it is not needed."""
    return (sys.executable, "-I", "-S", __file__) if exceeds_uml_state(release) else ()


def guest_environment(release: str) -> Mapping[str, str]:
    """Environment that makes libraries in the guest avoid AVX; empty where it is not needed.

    Given on the kernel's command line, which becomes the environment of init.
    """
    return _WITHOUT_AVX if exceeds_uml_state(release) else {}


def hide_extended_state() -> None:
    """Make ``PTRACE_GETREGSET`` and ``PTRACE_SETREGSET`` of ``NT_X86_XSTATE`` fail (EIO), for this process and its children.

    A seccomp filter of seven steps: a jump gives how many steps to leave out if equal, and if not. Raises OSError.
    """
    steps = (
        (_LOAD_32_BITS, 0, 0, _NUMBER),
        (_JUMP_IF_EQUAL, 0, 6, _PTRACE),
        (_LOAD_32_BITS, 0, 0, _FIRST_ARGUMENT),
        (_JUMP_IF_EQUAL, 1, 0, _GETREGSET),
        (_JUMP_IF_EQUAL, 0, 3, _SETREGSET),
        (_LOAD_32_BITS, 0, 0, _THIRD_ARGUMENT),
        (_JUMP_IF_EQUAL, 0, 1, _NT_X86_XSTATE),
        (_RETURN, 0, 0, _FAIL),
        (_RETURN, 0, 0, _ALLOW),
    )
    text = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(steps), ctypes.addressof(text)))
    libc = ctypes.CDLL(None, use_errno=True)
    for instruction in (
        (_PR_SET_NO_NEW_PRIVS, 1, 0),
        (_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program)),
    ):
        if libc.prctl(*instruction, 0, 0):
            raise OSError(
                ctypes.get_errno(), "the processor's state cannot be hidden from the kernel to be started"
            )


if __name__ == "__main__":
    hide_extended_state()
    os.execv(sys.argv[1], sys.argv[1:])  # noqa: S606
