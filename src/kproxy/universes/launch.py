"""Launch of universes: boots a guest for each schedule, and returns its recording with a digest; runs the case of a schedule."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import msgspec

import kproxy
from kproxy.lab.kernels import boot, uml, universe
from kproxy.universes.recording import Recording, parse_recording
from kproxy.universes.schedule import Schedule
from kproxy.universes.schedule_files import schedule_source
from kproxy.universes.stop import Stop, stop_files

MEMORY = 1024
"""Memory of a universe in MiB; it takes from the host what it uses."""

GO = {"GOMAXPROCS": "8", "GOGC": "off", "GOMEMLIMIT": "400MiB"}
"""Settings of programs in Go: with one processor only, they would run one thread after the other; a garbage collection waits for
a thread that is held by computing, for which no time passes."""
MOST_SECONDS = 300.0
"""Seconds of the machine's own clock that a universe may take: one in which some program computes for ever never ends."""
_SCHEDULE = "schedule.py"
_IN_GUESTS = ("kproxy.universes", "kproxy.lab", "kproxy.proxy", "kproxy.cli")
"""Packages that guests import modules of."""
_IMPORT_ALL = """
import importlib, pkgutil, sys
for name in sys.argv[1:]:
    package = importlib.import_module(name)
    for found in pkgutil.walk_packages(package.__path__, f"{name}."):
        importlib.import_module(found.name)
"""
"""Program that imports all modules of packages, by which Python compiles them, and all that they import."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UniverseRun:
    """A universe that has ended. ``digest``: of everything that it printed; ``error``: why there is no recording."""

    number: int
    schedule: Schedule
    digest: str = ""
    recording: Recording | None = None
    error: str = ""


def find_kernel(explicit: str = "") -> uml.UmlKernel:
    """Kernel that can be made to repeat itself, here. Raises `LabError` with the remedy."""
    return uml.find_universe_kernel(explicit)


def run_universes(
    kernel: uml.UmlKernel,
    schedules: Iterable[Schedule],
    arguments: Sequence[str],
    parallel: int,
    stop: Stop | None = None,
) -> Iterator[UniverseRun]:
    """Play schedules, ``parallel`` at once; yields each universe, with its number, as it ends.

    Raises `LabError`, and KeyboardInterrupt at the first SIGINT or SIGTERM, which kills the universes that are being played.
    ``arguments``: of `kproxy.universes.__main__`, after the schedule. ``stop``: where each ends, and is read.
    """
    begun: dict[int, tuple[Schedule, bytearray, bytearray]] = {}

    def jobs() -> Iterator[tuple[uml.UmlJob, boot.Sinks]]:
        for number, schedule in enumerate(schedules):
            begun[number] = schedule, bytearray(), bytearray()
            _, out, error = begun[number]
            yield universe_job(kernel, schedule, arguments, stop), boot.Sinks(out.extend, error.extend)

    memory = uml.memory_folder(MEMORY * parallel)
    for number, end in boot.run_each(jobs(), parallel, memory, MOST_SECONDS, patience=0):
        schedule, out, error = begun.pop(number)
        yield _run(number, schedule, end, bytes(out), bytes(error))


def _run(number: int, schedule: Schedule, end: int | boot.GuestDied, out: bytes, error: bytes) -> UniverseRun:
    if end == 0:
        return run_of_output(number, schedule, out)
    why = str(end) if isinstance(end, boot.GuestDied) else f"exit status {end}"
    text = f"{why}\n{error.decode(errors='replace')}".strip()
    return UniverseRun(number=number, schedule=schedule, error=text)


def run_of_output(number: int, schedule: Schedule, out: bytes) -> UniverseRun:
    """Universe of which a guest that ended well has printed this; one with an error where that is not a whole one."""
    try:
        recording = parse_recording(out)
    except msgspec.DecodeError as reason:
        error = f"its output is no recording: {reason}"
    else:
        error = _reason_not_whole(schedule, recording)
        if not error:
            digest = hashlib.sha256(out).hexdigest()[:16]
            return UniverseRun(number=number, schedule=schedule, digest=digest, recording=recording)
    return UniverseRun(number=number, schedule=schedule, error=error)


def _reason_not_whole(schedule: Schedule, recording: Recording) -> str:
    """Why a recording is not that of a whole universe; empty for one that was stopped, or reports why it ended."""
    if recording.failure or any(recording.states()):
        return ""
    planned = len(schedule.probes) + len(schedule.checks)
    seen = len({one.number for one in recording.probes()}) + len({one.number for one in recording.checks()})
    return "" if seen == planned else f"{planned - seen} of {planned} probes and health checks have no result"


def universe_job(
    kernel: uml.UmlKernel, schedule: Schedule, arguments: Sequence[str], stop: Stop | None = None
) -> uml.UmlJob:
    """Guest of a universe. Nothing in it may vary but the schedule: not the environment, and no name of a file."""
    return uml.UmlJob(
        kernel=kernel,
        argv=(sys.executable, "-m", "kproxy.universes", f"{universe.PLACE}/{_SCHEDULE}", *arguments),
        environment=constant_environment(),
        cwd=Path("/"),
        memory=MEMORY,
        time=uml.Time.VIRTUAL,
        universe=schedule.seed,
        files={
            _SCHEDULE: schedule_source(schedule, "The schedule of this universe."),
            **stop_files(stop),
        },
    )


def reason_against_case(kernel: uml.UmlKernel, path: Path, arguments: Sequence[str]) -> str:
    """Why a case file does not show what its schedule did, run in a guest; empty where it fails too.

    ``arguments``: of `kproxy.universes.__main__`, after the schedule.
    """
    proxy, binary, mode, variant, *_ = arguments
    with tempfile.TemporaryDirectory(dir=uml.visible_scratch()) as evidence:
        command = (
            *(sys.executable, "-m", "kproxy", "conformance", "run", "--case-file", str(path.absolute())),
            *("--proxy", proxy, *(("--binary", binary) if binary else ()), "--mode", mode),
            *("--iptables", variant, "--evidence", evidence),
            *("--kernel", "uml", "--uml-kernel", str(kernel.path), "--time", "virtual"),
        )
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 (our own command line)
    if done.returncode > 1:
        return f"it could not be run: {' '.join(done.stderr.split())}"
    return "" if done.returncode else "without the schedule's times, and by chance, it passes"


def constant_environment() -> dict[str, str]:
    """Environment of every process in a universe: of this one's the paths alone, as absolute ones of folders that are there."""
    return {
        **{name: _present(os.environ[name]) for name in ("PATH", "PYTHONPATH") if name in os.environ},
        **({"PYTHONPYCACHEPREFIX": folder} if (folder := bytecode_folder()) else {}),
        "PYTHONHASHSEED": "0",
        **GO,
        "PYTHONDONTWRITEBYTECODE": "1",
        "HOME": "/",
        "LANG": "C.UTF-8",
        "TMPDIR": uml.SCRATCH,
    }


@cache
def bytecode_folder() -> str:
    """Folder of compiled modules for all guests, filled where sources are newer; empty where there can be none.

    Guests write no bytecode, as that would make the first universe another than the second.
    """
    package = Path(kproxy.__file__).parent
    folder = uml.cache_folder().with_name("bytecode") / sys.implementation.cache_tag
    stamp = folder / "filled"
    if not uml.visible(folder):
        return ""
    newest = max(path.stat().st_mtime for path in package.rglob("*.py"))
    if stamp.exists() and stamp.stat().st_mtime > newest and stamp.read_text() == str(package):
        return str(folder)
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = (sys.executable, "-c", _IMPORT_ALL, *_IN_GUESTS)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(  # noqa: S603 (our own command line)
            command, env={**environment, "PYTHONPYCACHEPREFIX": str(folder)}, capture_output=True, check=True
        )
        stamp.write_text(str(package))
    except (OSError, subprocess.CalledProcessError):
        return ""
    return str(folder)


def _present(paths: str) -> str:
    """Paths that are there, each once: what a shell has beside them would make its universes others."""
    there = (Path(path).absolute() for path in paths.split(os.pathsep) if Path(path).exists())
    return os.pathsep.join(map(str, dict.fromkeys(there)))


def program_path(program: str) -> str:
    """Absolute path of a subject's program, so that a universe does not depend on PATH."""
    return shutil.which(program) or program
