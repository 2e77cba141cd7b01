"""User-Mode Linux: finds a kernel, reads its abilities from its configuration, makes the command line to boot it.

Such a kernel is an ordinary program: it needs no root and no ``/dev/kvm``, and its root file system is the host's own
(hostfs), read and written with the rights of the user who started it. `kproxy.lab.kernels.boot` runs one.
"""

from __future__ import annotations

import enum
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from kproxy.lab.kernels import guard, processor, universe
from kproxy.lab.kernels.abilities import Ability, KernelName, KernelSurvey
from kproxy.lab.namespaces import LabError

VARIABLE = "KPROXY_UML_KERNEL"
STOCK_PROGRAM, STOCK_PACKAGE = "linux.uml", "user-mode-linux"
STOCK_MODULES = Path("/usr/lib/uml/modules")
MODPROBE = "/sbin/modprobe"
BUILD = "kproxy lab kernel build"

SYMBOLS: Mapping[Ability, tuple[str, ...]] = {
    Ability.NAMESPACES: ("CONFIG_NET_NS",),
    Ability.VETH: ("CONFIG_VETH",),
    Ability.BRIDGE: ("CONFIG_BRIDGE",),
    Ability.IPTABLES_NFT: ("CONFIG_NF_TABLES_IPV4", "CONFIG_NF_TABLES_IPV6", "CONFIG_NFT_COMPAT"),
    Ability.IPTABLES_LEGACY: ("CONFIG_IP_NF_NAT", "CONFIG_IP6_NF_NAT"),
    Ability.NFTABLES: (
        "CONFIG_NF_TABLES_INET",
        "CONFIG_NF_TABLES_IPV4",
        "CONFIG_NF_TABLES_IPV6",
        "CONFIG_NFT_NAT",
    ),
    Ability.IPSET: ("CONFIG_IP_SET_HASH_IPPORT", "CONFIG_NETFILTER_XT_SET"),
    Ability.CONNTRACK: ("CONFIG_NF_CT_NETLINK",),
    Ability.IP_VS: ("CONFIG_IP_VS", "CONFIG_IP_VS_RR", "CONFIG_IP_VS_NFCT"),
    Ability.DUMMY: ("CONFIG_DUMMY",),
    Ability.SCTP: ("CONFIG_IP_SCTP",),
    Ability.TIME_TRAVEL: ("CONFIG_UML_TIME_TRAVEL_SUPPORT",),
}
"""Configuration symbols that must be built in, or be modules, for each ability."""

STOCK_OBSTACLES: Mapping[Ability, str] = dict.fromkeys(Ability, "") | dict.fromkeys(
    (Ability.NFTABLES, Ability.IPTABLES_NFT, Ability.TIME_TRAVEL), "not in the packaged kernel"
)
"""Findings of `STOCK_PACKAGE`, known without having it (Debian 12; 13 lacks more)."""

SCRATCH = "/dev/shm"  # noqa: S108 (a guest's own)
"""Folder for a guest's temporary files: in its memory."""

HIDDEN = ("/run", "/dev", "/proc", "/sys")
"""Folders of the host that a guest covers with its own."""


class Time(enum.Enum):
    """Clock of a guest."""

    REAL = "real"
    VIRTUAL = "virtual"
    """Idle time is skipped (the kernel's ``time-travel`` mode)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UmlKernel:
    """Kernel that was found, and where it comes from."""

    path: Path
    origin: str
    release: str
    obstacles: Mapping[Ability, str]
    modules: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UmlJob:
    """Command to run in a guest; ``memory`` in MiB.

    ``universe``: seed of a guest that repeats itself (`kproxy.lab.kernels.universe`). ``files``: texts by the names that
    they have in the job's folder, which such a guest sees as `universe.PLACE`.
    """

    threads: ClassVar[str] = guard.ONE

    kernel: UmlKernel
    argv: Sequence[str]
    environment: Mapping[str, str]
    cwd: Path
    memory: int = 1024
    time: Time = Time.REAL
    universe: int | None = None
    files: Mapping[str, str] = field(default_factory=dict)

    def place(self, folder: Path) -> Path:
        """Name of the job's folder in the guest."""
        return folder if self.universe is None else Path(universe.PLACE)

    def document(self) -> dict[str, object]:
        """Content of ``job.json`` (`kproxy.lab.kernels.guest`)."""
        return {
            "argv": list(self.argv),
            "environment": {**self.environment, **processor.guest_environment(self.kernel.release)},
            "cwd": str(self.cwd),
            "modules": self.kernel.modules,
        }

    def command(self, folder: Path) -> list[str]:
        """Command line that starts the kernel; ``folder``: the job's."""
        launcher = (sys.executable, "-I", "-S", universe.__file__, str(folder))
        return [*(() if self.universe is None else launcher), *uml_command_line(self, self.place(folder))]


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Folder of built kernels (XDG base directories)."""
    home = environment.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home) / "kproxy" / "kernels"


def uml_candidates(
    explicit: str = "", environment: Mapping[str, str] = os.environ
) -> Iterator[tuple[Path, str]]:
    """Kernels in order of preference, each with its origin; only the one that is given explicitly, if any."""
    named = ((explicit, "--uml-kernel"), (environment.get(VARIABLE, ""), VARIABLE))
    for path, origin in named:
        if path:
            yield Path(path).absolute(), origin
            return
    built = sorted(cache_folder(environment).glob("linux-*"), key=_version, reverse=True)
    yield from ((path, "built by `kproxy lab kernel build`") for path in built)
    stock = shutil.which(STOCK_PROGRAM, path=environment.get("PATH", os.defpath) + ":/usr/bin")
    if stock:
        yield Path(stock), f"package {STOCK_PACKAGE}"


def _version(path: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", path.name)]


def find_uml_kernel(explicit: str = "", environment: Mapping[str, str] = os.environ) -> UmlKernel:
    """The first kernel found. Raises `LabError` when there is none, or the given file is no kernel."""
    for path, origin in uml_candidates(explicit, environment):
        return inspect_uml_kernel(path, origin)
    raise LabError(
        f"there is no User-Mode Linux kernel: {BUILD}; or, without nftables, apt-get install {STOCK_PACKAGE}"
    )


def find_universe_kernel(explicit: str = "", environment: Mapping[str, str] = os.environ) -> UmlKernel:
    """The first kernel found whose clock can be held, on a machine that can start it so. Raises `LabError`: one line, with the fix."""
    against = []
    for path, origin in uml_candidates(explicit, environment):
        try:
            kernel = inspect_uml_kernel(path, origin)
        except LabError as reason:
            against.append(str(reason))
            continue
        if not (lack := kernel.obstacles[Ability.TIME_TRAVEL]):
            if obstacle := universe_obstacle():
                raise LabError(f"this machine can start no universe: {obstacle}")
            return kernel
        against.append(f"{path} ({origin}) has no virtual time ({lack})")
    found = "; ".join(against) or "there is no User-Mode Linux kernel"
    raise LabError(f"{found}: {BUILD}, or give --uml-kernel PATH of one that has it")


def universe_obstacle() -> str:
    """Why this machine cannot start a kernel as `universe` does; empty if it can."""
    with tempfile.TemporaryDirectory() as folder:
        command = (sys.executable, "-I", "-S", universe.__file__, folder, shutil.which("true") or "/bin/true")
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    return (
        ""
        if done.returncode == 0
        else (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
    )


def missing_packages(explicit: str = "", environment: Mapping[str, str] = os.environ) -> frozenset[str]:
    """Debian packages to install for the stock kernel; none where another kernel is preferred, or it is complete."""
    if any(path.name != STOCK_PROGRAM for path, _ in uml_candidates(explicit, environment)):
        return frozenset()
    programs = {STOCK_PROGRAM: STOCK_PACKAGE, Path(MODPROBE).name: "kmod"}
    path = f"{environment.get('PATH', os.defpath)}:/usr/bin:/usr/sbin:/sbin"
    return frozenset(package for name, package in programs.items() if not shutil.which(name, path=path))


def survey_uml(explicit: str = "") -> KernelSurvey:
    """Survey of the kernel that would be booted, by its configuration."""
    try:
        kernel = find_uml_kernel(explicit)
    except LabError as reason:
        return KernelSurvey(name=KernelName.UML, unusable=str(reason))
    return KernelSurvey(
        name=KernelName.UML, what=f"{kernel.release}, {kernel.origin}", obstacles=kernel.obstacles
    )


def inspect_uml_kernel(path: Path, origin: str) -> UmlKernel:
    """Kernel with version and configuration, which the binary prints without booting."""
    modules = STOCK_MODULES if path.name == STOCK_PROGRAM and STOCK_MODULES.is_dir() else None
    if modules and not Path(MODPROBE).exists():
        raise LabError(f"{path} keeps its drivers in modules: apt-get install kmod")
    return UmlKernel(
        path=path,
        origin=origin,
        release=_query_kernel(path, "--version", origin).split()[0],
        obstacles=obstacles(_query_kernel(path, "--showconfig", origin)),
        modules=str(modules or ""),
    )


def _query_kernel(path: Path, question: str, origin: str) -> str:
    try:
        done = subprocess.run([path, question], capture_output=True, text=True, check=True, timeout=10)
    except OSError as error:
        raise LabError(f"{path} ({origin}) is not a User-Mode Linux kernel: {error.strerror}") from error
    except subprocess.SubprocessError as error:
        raise LabError(f"{path} ({origin}) is not a User-Mode Linux kernel: {error}") from error
    return done.stdout


def obstacles(config: str) -> dict[Ability, str]:
    """Missing symbols for each ability, as text; empty for none."""
    present = set(re.findall(r"^(CONFIG_\w+)=[ym]$", config, re.MULTILINE))
    return {ability: _lack(present, symbols) for ability, symbols in SYMBOLS.items()}


def _lack(present: set[str], symbols: Sequence[str]) -> str:
    missing = [symbol for symbol in symbols if symbol not in present]
    return f"built without {', '.join(missing)}" if missing else ""


def uml_command_line(job: UmlJob, folder: Path) -> list[str]:
    """Command line of the kernel; control comes in by its standard input, its console goes to standard output."""
    return [
        *processor.launch_prefix(job.kernel.release),
        str(job.kernel.path),
        f"mem={job.memory}M",
        "umid=kproxy",
        f"uml_dir={folder}",
        *("root=/dev/root", "rootfstype=hostfs", "rootflags=/", "rw"),
        f"init={folder}/init",
        *("con=null", "con0=null,fd:1", "ssl=null", "ssl0=fd:0,null"),
        "quiet",
        *_clock(job),
        "seccomp=auto",
        *(f"{name}={value}" for name, value in processor.guest_environment(job.kernel.release).items()),
    ]


def _clock(job: UmlJob) -> tuple[str, ...]:
    if job.universe is not None:
        return universe.arguments(job.universe)
    return ("time-travel",) if job.time is Time.VIRTUAL else ()


def init_script(folder: Path) -> str:
    """Script that the kernel starts as process 1: it becomes `kproxy.lab.kernels.guest`.

    Python has a fixed hash seed, so that it reads no random bytes: a universe's kernel has none yet, and would compute for them.
    """
    program = (sys.executable, "-P", "-s", "-S", str(Path(__file__).with_name("guest.py")), str(folder))
    return f"#!/bin/sh\nexport PYTHONHASHSEED=0\nexec {shlex.join(program)}\n"


def visible(path: Path) -> bool:
    """True if a guest sees this file of the host."""
    return not any(path.absolute().is_relative_to(place) for place in HIDDEN)


def visible_scratch() -> Path:
    """Folder for temporary files that this process and its guests both see."""
    place = Path(tempfile.gettempdir())
    return place if visible(place) else Path("/var/tmp")  # noqa: S108


def memory_folder(size: int) -> Path:
    """Folder whose file system can hold a guest's memory (``size`` in MiB) and run code from it.

    Raises `LabError` when there is none.
    """
    places = dict.fromkeys((Path("/dev/shm"), Path(tempfile.gettempdir()), Path("/var/tmp")))  # noqa: S108
    for place in places:
        if place.is_dir() and os.access(place, os.W_OK):
            facts = os.statvfs(place)
            if facts.f_bavail * facts.f_frsize >= size << 20 and not facts.f_flag & os.ST_NOEXEC:
                return place
    names = ", ".join(map(str, places))
    raise LabError(
        f"none of {names} has {size} MiB free and lets programs run from it: try --memory {size // 2}"
    )
