"""``kproxy lab kernel build``: a User-Mode Linux kernel with every feature the lab needs, built once, kept in the cache.

Source: the newest ``linux-source`` package that apt knows, fetched and unpacked below the cache folder without root.
A kernel is put in its place only when it has booted and used each of `SELF_TEST` once.
"""

from __future__ import annotations

import fcntl
import importlib.resources
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from kproxy.lab.kernels.abilities import PACKAGES, Ability
from kproxy.lab.namespaces import LabError
from kproxy.lab.processes import DIE_WITH_PARENT

ProgressCallback = Callable[[str], None]
"""Function that receives progress messages."""

SELF_TEST = (
    Ability.IP_VS,
    Ability.NFTABLES,
    Ability.IPTABLES_LEGACY,
    Ability.IPTABLES_NFT,
    Ability.IPSET,
    Ability.SCTP,
    Ability.DUMMY,
    Ability.CONNTRACK,
)

TOOLS = {
    "apt-get": "apt",
    "dpkg-deb": "dpkg",
    "xz": "xz-utils",
    "make": "make",
    "gcc": "gcc",
    "flex": "flex",
    "bison": "bison",
    "bc": "bc",
    "strip": "binutils",
}
"""Programs that a build runs, and the Debian package of each."""

_FOLDER = "build-"
_FILES = 1060
"""Number of files that are compiled with our configuration and Linux 6.12."""
_PROGRESS_SECONDS = 0.2
_LOG_TAIL_LINES = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Package to build from, and number of jobs; ``package`` empty: the newest."""

    cache: Path
    package: str = ""
    jobs: int = 1


def config_fragment() -> str:
    """The configuration fragment that comes with the package."""
    return importlib.resources.files("kproxy.lab.kernels").joinpath("uml.config").read_text()


def parse_config(text: str) -> dict[str, str]:
    """Symbols and values of a kernel configuration; comments are left out."""
    return dict(re.findall(r"^(CONFIG_\w+)=(.*)$", text, re.MULTILINE))


def missing_symbols(requested: Mapping[str, str], got: Mapping[str, str]) -> list[str]:
    """Requested symbols that this source does not have."""
    return sorted(symbol for symbol in requested if symbol not in got)


def newest_source_package(search: str) -> str:
    """The ``linux-source-X.Y`` package with the highest version in the output of ``apt-cache search``."""
    found = re.findall(r"^(linux-source-(\d+)\.(\d+))\b", search, re.MULTILINE)
    if not found:
        raise LabError("apt knows no linux-source package: apt-get update")
    return str(max(found, key=lambda row: (int(row[1]), int(row[2])))[0])


def missing_tools() -> list[str]:
    """Debian packages to install before a build, those of the self-test included, which comes after half an hour."""
    programs = {**TOOLS, **PACKAGES}
    return sorted({package for tool, package in programs.items() if shutil.which(tool) is None})


def build_uml_kernel(
    recipe: Recipe, check: Callable[[Path], Mapping[Ability, str]], progress: ProgressCallback
) -> Path:
    """Fetch, configure, compile, check and keep a kernel; returns its path.

    ``check`` boots a kernel and returns its obstacles. Raises `LabError` with the remedy.
    """
    if packages := missing_tools():
        raise LabError(
            f"building and testing a kernel needs more programs: apt-get install {' '.join(packages)}"
        )
    with _alone(recipe.cache), tempfile.TemporaryDirectory(prefix=_FOLDER, dir=recipe.cache) as folder:
        place = Path(folder)
        source = _source(recipe, place, progress)
        absent = _configure(source)
        progress(f"configured; symbols missing from this source: {', '.join(absent) or 'none'}")
        kernel = _compile(source, recipe.jobs, recipe.cache / "build.log", progress)
        progress("booting it: each ability is used once")
        lacking = {a: reason for a, reason in check(kernel).items() if a in SELF_TEST and reason}
        if lacking:
            reasons = "; ".join(f"{ability.value}: {reason}" for ability, reason in lacking.items())
            raise LabError(f"the new kernel fails its self-test and is thrown away: {reasons}")
        target = recipe.cache / f"linux-{_release(kernel)}"
        kernel.replace(target)
    return target


@contextmanager
def _alone(cache: Path) -> Iterator[None]:
    """Lock of the cache for one build at a time; removes the leftovers of a killed one. Raises `LabError`."""
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "build.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LabError(f"another build is under way in {cache}: wait for it") from None
        for left in cache.glob(f"{_FOLDER}*/"):
            shutil.rmtree(left)
        yield


def _source(recipe: Recipe, place: Path, progress: ProgressCallback) -> Path:
    """Download and unpack the source; returns the folder with the kernel's Makefile."""
    search = ("apt-cache", "search", "--names-only", "^linux-source-[0-9]")
    package = recipe.package or newest_source_package(command_output(search, place))
    progress(f"apt fetches {package}")
    command_output(("apt-get", "download", package), place)
    (archive,) = place.glob("*.deb")
    progress(f"unpacking {archive.name}")
    command_output(("dpkg-deb", "-x", archive.name, "package"), place)
    archive.unlink()
    (tarball,) = place.glob("package/usr/src/*.tar.xz")
    command_output(("tar", "-xf", str(tarball)), place)
    tarball.unlink()
    return next(path.parent for path in place.glob("*/Makefile"))


def _configure(source: Path) -> list[str]:
    """Write ``.config``; returns the symbols that this source does not have."""
    wish = source / "kproxy.config"
    wish.write_text(config_fragment())
    command_output(("make", "ARCH=um", f"KCONFIG_ALLCONFIG={wish.name}", "allnoconfig"), source)
    return missing_symbols(parse_config(config_fragment()), parse_config((source / ".config").read_text()))


def _compile(source: Path, jobs: int, kept: Path, progress: ProgressCallback) -> Path:
    """Run make; returns the stripped kernel. On failure all its output goes to ``kept``."""
    command = ("make", "ARCH=um", f"-j{jobs}", "linux")
    begun = time.monotonic()
    log = source / "build.log"
    with log.open("w") as file, _started(command, source) as process:
        for count, line in _compile_progress(process, file):
            progress(f"compiling, {time.monotonic() - begun:.0f} s, {count} of some {_FILES} files: {line}")
    if process.returncode:
        tail = "".join(log.read_text().splitlines(keepends=True)[-_LOG_TAIL_LINES:])
        shutil.move(log, kept)
        raise LabError(f"the build failed; all of it is in {kept}\n{tail}")
    command_output(("strip", "linux"), source)
    return source / "linux"


def _compile_progress(process: subprocess.Popen[str], file: object) -> Iterator[tuple[int, str]]:
    """Files compiled so far and the last of them, a few times a second."""
    last = 0.0
    count = 0
    for line in process.stdout or ():
        print(line, end="", file=file)  # type: ignore[call-overload]
        count += line.startswith("  CC")
        if time.monotonic() - last > _PROGRESS_SECONDS:
            last = time.monotonic()
            yield count, line.strip()


@contextmanager
def _started(command: Sequence[str], where: Path) -> Iterator[subprocess.Popen[str]]:
    """Program whose process group is killed at the end of the context, or with this process."""
    with subprocess.Popen(
        (*DIE_WITH_PARENT, *command),
        cwd=where,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as process:
        try:
            yield process
            process.wait()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def command_output(command: Sequence[str], where: Path) -> str:
    """Output of a program run in a folder. Raises `LabError` with its stderr when it fails."""
    plain = {**os.environ, "LC_ALL": "C"}
    done = subprocess.run(
        command, cwd=where, env=plain, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise LabError(f"{' '.join(command)}: exit {done.returncode}: {done.stderr.strip()[-2000:]}")
    return done.stdout


def _release(kernel: Path) -> str:
    """Version that a User-Mode Linux binary prints."""
    return command_output((str(kernel), "--version"), kernel.parent).split()[0]
