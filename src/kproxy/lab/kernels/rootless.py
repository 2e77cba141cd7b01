"""The machine's own kernel without root: a user namespace.

``python -m kproxy.lab.kernels.rootless COMMAND ARGUMENT...`` makes user, mount and network namespaces, becomes their
root, covers ``/run`` (tools lock files there, and temporary files are kept there) and executes the command: same
process, so signals, output and exit status are the command's own, and nothing is left to clean up.
"""

from __future__ import annotations

import ctypes
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NoReturn

from kproxy.lab.kernels import abilities as probing
from kproxy.lab.kernels.abilities import Ability, KernelName, KernelSurvey, decode_obstacles
from kproxy.lab.kernels.host import CONTAINER_FIX
from kproxy.lab.namespaces import CLONE_NEWNET, LabError

# linux/sched.h, linux/mount.h
_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000
_MS_REC, _MS_PRIVATE = 0x4000, 0x40000

SCRATCH = "/run"
"""Folder of temporary files: removed with the mount, however the command ends."""

FIX = (
    "sysctl -w user.max_user_namespaces=10000; where they exist: "
    "kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0"
)

_libc = ctypes.CDLL(None, use_errno=True)


def rootless_command(argv: Sequence[str]) -> list[str]:
    """Command line that runs another inside the namespaces."""
    return [
        sys.executable,
        "-m",
        __name__ if __name__ != "__main__" else "kproxy.lab.kernels.rootless",
        *argv,
    ]


def exec_rootless(argv: Sequence[str]) -> NoReturn:
    """Replace this process by a command that runs inside the namespaces."""
    arguments = rootless_command(argv)
    sys.stdout.flush()
    os.execv(arguments[0], arguments)  # noqa: S606 (no shell is wanted)


def survey_rootless(abilities: Iterable[Ability] = Ability) -> KernelSurvey:
    """Survey of this kernel in a user namespace: usable by this user or not, and its abilities, probed."""
    what = f"{platform.system()} {platform.release()}, user namespace"
    arguments = [sys.executable, "-m", probing.__name__, *(ability.value for ability in abilities)]
    try:
        done = subprocess.run(rootless_command(arguments), capture_output=True, text=True, check=False)
    except OSError as error:
        reason = f"{error.filename}: {error.strerror}"
        fix = "install kproxy with a Python that this user may execute"
        return KernelSurvey(name=KernelName.ROOTLESS, what=what, unusable=reason, fix=fix)
    if done.returncode:
        lines = done.stderr.strip().splitlines()[-1:] or [f"exit {done.returncode}"]
        return KernelSurvey(name=KernelName.ROOTLESS, what=what, unusable=lines[0], fix=FIX)
    obstacles = decode_obstacles(done.stdout)
    if unwritable := obstacles.get(Ability.NAMESPACES):
        return KernelSurvey(name=KernelName.ROOTLESS, what=what, unusable=unwritable, fix=CONTAINER_FIX)
    return KernelSurvey(name=KernelName.ROOTLESS, what=what, obstacles=obstacles)


def enter_user_namespace() -> None:
    """Move this process into new namespaces, as their root. Raises `LabError`."""
    user, group = os.geteuid(), os.getegid()
    _call(_libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNS | CLONE_NEWNET), "make a user namespace")
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"0 {user} 1")
    Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    _call(_libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None), "make mounts private")
    _call(_libc.mount(b"tmpfs", b"/run", b"tmpfs", 0, None), "cover /run")


def _call(result: int, what: str) -> None:
    if result:
        raise LabError(f"cannot {what}: {os.strerror(ctypes.get_errno())}")


def rootless_main(argv: Sequence[str]) -> None:
    """Enter the namespaces, then execute the command."""
    try:
        enter_user_namespace()
        os.environ["TMPDIR"] = SCRATCH
        os.execvp(argv[0], list(argv))  # noqa: S606 (no shell is wanted)
    except (LabError, OSError) as reason:
        sys.exit(f"{reason}")


if __name__ == "__main__":
    rootless_main(sys.argv[1:])
