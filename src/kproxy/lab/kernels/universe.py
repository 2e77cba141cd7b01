"""Launcher of a User-Mode Linux kernel that repeats itself: all it does follows from its command line and the files it reads.

Theory of operation. With ``time-travel=inf-cpu`` computing takes no time: no time slice ends, no timer fires in the
middle of a computation, and the clock jumps when all of the guest sleeps. What would still differ between two runs is
kept from the kernel here:

- its entropy: it queries its host for random bytes (getrandom(2)), which a seccomp filter denies. It then mixes what it
  has: its constant clock and its command line, and what `kproxy.lab.kernels.guest` derives from ``seed=N`` there.
- the name of the job's folder: it is in the command line, so it must be the same always. The folder is mounted at
  `PLACE`, in a mount namespace of the kernel's own, so many run side by side.

Addresses are not randomised in the guest (``norandmaps``), and the first clock reading is `BEGINNING`.

Standard library only: it is run as a file, ``universe.py FOLDER PROGRAM ARGUMENT...``.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys

PLACE = "/mnt"
"""Name of the job's folder in every universe: a folder that every distribution has (FHS), and that is empty as a rule."""

BEGINNING = 1_795_353_394_000_000_000
"""Clock at the boot of every universe, in nanoseconds since 1970."""

_LOAD_32_BITS, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_NUMBER, _GETRANDOM = 0, 318
_ALLOW, _FAIL = 0x7FFF0000, 0x00050000 | errno.ENOSYS
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 38, 22, 2
_NEW_MOUNTS, _NEW_USERS = 0x00020000, 0x10000000
_BIND, _RECURSIVE, _PRIVATE = 0x1000, 0x4000, 0x40000
_libc = ctypes.CDLL(None, use_errno=True)


def arguments(seed: int) -> tuple[str, ...]:
    """Arguments of the kernel that make it repeat itself."""
    return ("time-travel=inf-cpu", f"time-travel-start={BEGINNING}", "norandmaps", f"seed={seed}")


def enter(folder: str) -> None:
    """Mount the folder at `PLACE` for this process alone, and deny it entropy. Raises OSError."""
    user, group = os.geteuid(), os.getegid()
    _check(_libc.unshare(_NEW_MOUNTS | (_NEW_USERS if user else 0)), "no mount namespace")
    if user:
        for name, text in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
            with open(f"/proc/self/{name}", "w") as file:  # noqa: PTH123 (pathlib costs as much as all the rest)
                file.write(text)
    _check(_libc.mount(b"none", b"/", None, _RECURSIVE | _PRIVATE, None), "mounts cannot be made private")
    _check(_libc.mount(folder.encode(), PLACE.encode(), None, _BIND, None), f"{PLACE} cannot be mounted over")
    deny_entropy()


def deny_entropy() -> None:
    """Make getrandom(2) fail with ENOSYS for this process and its children (x86-64). Raises OSError."""
    steps = (
        (_LOAD_32_BITS, 0, 0, _NUMBER),
        (_JUMP_IF_EQUAL, 0, 1, _GETRANDOM),
        (_RETURN, 0, 0, _FAIL),
        (_RETURN, 0, 0, _ALLOW),
    )
    text = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(steps), ctypes.addressof(text)))
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "privileges cannot be given up")
    _check(
        _libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0),
        "entropy cannot be denied",
    )


def _check(result: int, what: str) -> None:
    if result:
        raise OSError(ctypes.get_errno(), f"{what}, and a universe needs it")


if __name__ == "__main__":
    enter(sys.argv[1])
    os.execv(sys.argv[2], sys.argv[2:])  # noqa: S606
