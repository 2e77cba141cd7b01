"""Distribution's kernel in a virtual machine, by virtme-ng (``vng``) and qemu.

Its root file system is the host's own, read only but for the folders that a job writes to; whatever else is written
is lost with the machine. Slow without ``/dev/kvm`` (26 to 75 times native): an occasional cross-check of User-Mode
Linux. `kproxy.lab.kernels.boot` runs one; `fetch_vm_kernel` gets a kernel without installing it.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import ClassVar

from kproxy.lab.kernels import guard
from kproxy.lab.kernels.abilities import Ability, KernelName, KernelSurvey
from kproxy.lab.kernels.build import ProgressCallback, command_output
from kproxy.lab.kernels.uml import cache_folder, obstacles
from kproxy.lab.namespaces import LabError

PROGRAM, EMULATOR = "vng", "qemu-system-x86_64"
PACKAGES = {EMULATOR: "qemu-system-x86", "busybox": "busybox-static", "depmod": "kmod"}
"""Programs that boot a distribution's kernel, and the Debian package of each; virtme-ng comes from PyPI."""
FETCH = "kproxy lab kernel fetch"
PLAIN = ("--force-9p", "--disable-microvm")
"""Options for a distribution's kernel, which lacks the drivers of the faster devices."""
META_PACKAGE = "linux-image-amd64"
"""Package whose kernels have the 9p file system, by which the guest sees the host's files; those of ``-cloud-`` lack it."""
TMP = "/tmp"  # noqa: S108 (a guest's own)

_QUIT = b'{"execute": "qmp_capabilities"} {"execute": "quit"}'


@dataclass(frozen=True, slots=True, kw_only=True)
class VmJob:
    """Command to run in a virtual machine; ``memory`` in MiB, ``writable``: folders of the host beside ``cwd``."""

    threads: ClassVar[str] = guard.MANY

    kernel: Path
    argv: Sequence[str]
    environment: Mapping[str, str]
    cwd: Path
    writable: Sequence[Path] = ()
    memory: int = 1024
    fast: bool = False
    files: Mapping[str, str] = field(default_factory=dict)

    def place(self, folder: Path) -> Path:
        """Name of the job's folder in the guest: the same."""
        return folder

    def document(self) -> dict[str, object]:
        """Content of ``job.json`` (`kproxy.lab.kernels.guest`)."""
        return {
            "argv": list(self.argv),
            "environment": {**self.environment, "TMPDIR": TMP},
            "cwd": str(self.cwd),
        }

    def command(self, folder: Path) -> list[str]:
        """Command line of virtme-ng; ``folder``: the job's."""
        guest = (
            sys.executable,
            "-I",
            "-S",
            str(Path(__file__).with_name("guest.py")),
            str(folder),
            "run_in_vm",
        )
        places = dict.fromkeys((folder, self.cwd, *self.writable))
        return [
            *("env", f"HOME={Path.home()}", PROGRAM, "--run", str(self.kernel), *PLAIN),
            *(() if self.fast else ("--disable-kvm",)),
            *("--user", "root", "--memory", f"{self.memory}M", "--cwd", str(folder)),
            *(argument for place in places for argument in ("--rwdir", str(place))),
            *("--exec", shlex.join(guest)),
        ]


def fetched_folder() -> Path:
    """Folder of fetched kernels."""
    return cache_folder() / "vm"


def kernel_images(*places: Path) -> list[Path]:
    """Kernels in these folders, newest first, except unreadable ones."""
    found = (path for place in places for path in place.glob("vmlinuz-*") if os.access(path, os.R_OK))
    return sorted(found, key=lambda path: list(map(int, re.findall(r"\d+", path.name))), reverse=True)


def images_here() -> list[Path]:
    """Kernels that were fetched, or are this machine's."""
    return kernel_images(*fetched_folder().glob("*/boot"), Path("/boot"))


def survey_vm() -> KernelSurvey:
    """Survey of a virtual machine: missing programs, and the kernel's abilities by its configuration."""
    kernels = images_here()
    missing = {name: package for name, package in PACKAGES.items() if shutil.which(name) is None}
    lacking = [*([] if shutil.which(PROGRAM) else [PROGRAM]), *missing]
    fixes = [
        *([] if shutil.which(PROGRAM) else ["pipx install virtme-ng"]),
        *([f"apt-get install {' '.join(missing.values())}"] if missing else []),
        *([] if kernels else [FETCH]),
    ]
    if fixes:
        lacking += [] if kernels else ["a kernel"]
        return KernelSurvey(
            name=KernelName.VM, unusable=f"not here: {', '.join(lacking)}", fix="; ".join(fixes)
        )
    speed = "" if accelerated() else ", slow: /dev/kvm is not there or does not work"
    what = f"{kernels[0]}, by its configuration, not booted{speed}"
    return KernelSurvey(name=KernelName.VM, what=what, obstacles=_obstacles(kernels[0]))


def _obstacles(kernel: Path) -> dict[Ability, str]:
    config = kernel.with_name(kernel.name.replace("vmlinuz", "config"))
    return obstacles(config.read_text() if config.is_file() else "")


@cache
def accelerated() -> bool:
    """True if qemu can use ``/dev/kvm``: on some machines it can be opened and does not work."""
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return False
    arguments = (
        EMULATOR,
        "-accel",
        "kvm",
        "-cpu",
        "max",
        "-S",
        "-nodefaults",
        "-display",
        "none",
        "-qmp",
        "stdio",
    )
    return subprocess.run(arguments, input=_QUIT, capture_output=True, check=False).returncode == 0


def fetch_vm_kernel(package: str, progress: ProgressCallback) -> Path:
    """Fetch a distribution's kernel with its modules by apt, without root or installing it; returns its path.

    ``package`` empty: the one that `META_PACKAGE` stands for. Raises `LabError`.
    """
    place = fetched_folder()
    place.mkdir(parents=True, exist_ok=True)
    package = package or _newest(command_output(("apt-cache", "depends", META_PACKAGE), place))
    with tempfile.TemporaryDirectory(prefix="fetch-", dir=place) as folder:
        progress(f"apt fetches {package}")
        command_output(("apt-get", "download", package), Path(folder))
        (archive,) = Path(folder).glob("*.deb")
        progress(f"unpacking {archive.name}")
        command_output(("dpkg-deb", "-x", archive.name, "kernel"), Path(folder))
        kernels = kernel_images(Path(folder, "kernel/boot"))
        if not kernels:
            raise LabError(f"{package} has no kernel in /boot")
        target = place / package
        shutil.rmtree(target, ignore_errors=True)
        Path(folder, "kernel").replace(target)
    return target / "boot" / kernels[0].name


def _newest(depends: str) -> str:
    """Package of the kernel that the meta-package depends on."""
    found = re.search(r"^\s*Depends: (linux-image-\d\S*)$", depends, re.MULTILINE)
    if not found:
        raise LabError(f"apt does not know {META_PACKAGE}: apt-get update, or --package NAME")
    return found[1]
