"""A distribution's kernel in a virtual machine by virtme-ng (``vng``), where that is installed.

Slow without ``/dev/kvm`` (26 to 75 times native): an occasional cross-check of User-Mode Linux.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path

from kproxy.lab.kernels.abilities import KernelName, Survey
from kproxy.lab.kernels.uml import findings

PROGRAM, EMULATOR = "vng", "qemu-system-x86_64"
FIX = "pipx install virtme-ng; apt-get install qemu-system-x86 linux-image-amd64"
SLOW = ("--disable-kvm", "--force-9p", "--disable-microvm")
"""What a machine without ``/dev/kvm`` needs."""


def images(folder: Path = Path("/boot")) -> list[Path]:
    """Kernels of this machine, newest first."""
    return sorted(folder.glob("vmlinuz-*"), key=lambda path: list(map(int, re.findall(r"\d+", path.name))))[
        ::-1
    ]


def survey() -> Survey:
    """Whether there is all that a virtual machine needs; what its kernel can do is read from its configuration."""
    missing = [name for name in (PROGRAM, EMULATOR) if shutil.which(name) is None]
    kernels = images()
    if missing or not kernels:
        lacking = ", ".join([*missing, *([] if kernels else ["a kernel in /boot"])])
        return Survey(name=KernelName.VM, unusable=f"not here: {lacking}", fix=FIX)
    config = Path(str(kernels[0]).replace("vmlinuz", "config"))
    what = f"{kernels[0]}{'' if _fast() else ', slow: no /dev/kvm'}"
    text = config.read_text() if config.is_file() else ""
    return Survey(name=KernelName.VM, what=what, findings=findings(text))


def _fast() -> bool:
    return os.access("/dev/kvm", os.R_OK | os.W_OK)


def command(argv: Sequence[str], kernel: Path, cwd: Path, memory: int, *, fast: bool) -> list[str]:
    """The command that runs another inside as root, with the working directory writable; ``memory`` in MiB."""
    return [
        *(PROGRAM, "--run", str(kernel), *(() if fast else SLOW)),
        *("--user", "root", "--rwdir", str(cwd), "--cwd", str(cwd), "--memory", f"{memory}M", "--quiet"),
        *("--exec", shlex.join(argv)),
    ]


def command_here(argv: Sequence[str], memory: int) -> list[str]:
    """`command` for this machine's newest kernel and this working directory."""
    return command(argv, images()[0], Path.cwd(), memory, fast=_fast())
