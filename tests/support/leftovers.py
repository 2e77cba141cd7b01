"""Leftovers of commands that a test started: processes, files, mounts, names of namespaces."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.waiting import eventually

MARK = "KPROXY_TEST_STARTED_BY"
"""Environment variable that processes of a test inherit, searched in every process of the machine."""

BOASTER = """
name = "boaster"
modes = ["nftables", "ipvs"]
command = ["{python}", "-m", "kproxy", "run", "--config", "{config}"]
"""
"""Subject file of kproxy that declares no deviation; these modes refuse nothing at loopback where a Service has no endpoint."""
BOASTERS_CASE = "node-port.localhost-over-udp-and-without-endpoints"

PATIENCE = 60.0
_SHARED = (Path("/dev/shm"), Path("/var/tmp"), Path("/run/netns"), Path.home() / ".uml")  # noqa: S108 (looked at only)
_OURS = ("vm_file", "kproxy", "uml")
"""Prefixes of files that guests and labs could leave in shared folders."""


class Leftovers:
    """Compares the machine with its state when this object was created; processes started since then are marked."""

    def __init__(self, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        scratch.mkdir()
        self._scratch = scratch
        self._mark = f"{MARK}={scratch}".encode()
        monkeypatch.setenv(MARK, str(scratch))
        monkeypatch.setenv("TMPDIR", str(scratch))
        monkeypatch.setattr("tempfile.tempdir", None)
        self._before = self._shared()
        self._rooms: frozenset[str] = frozenset()

    def now(self) -> list[str]:
        """All present processes, files, mounts and names that were not there before."""
        shared = sorted(self._shared() - self._before)
        return [*self._processes(), *map(str, self._scratch.iterdir()), *shared]

    def gone(self) -> bool:
        """True if nothing is left within `PATIENCE`."""
        return eventually(lambda: not self.now(), PATIENCE, every=0.05)

    def _processes(self) -> list[str]:
        """Marked processes, and those in the session or a namespace of one: a guest's programs have no environment."""
        everybody = list(Path("/proc").glob("[0-9]*"))
        marked = {process for process in everybody if self._mark in _environment(process)}
        ours = _rooms(Path("/proc/self")) | _rooms(Path("/proc/1"))
        self._rooms = self._rooms.union(*map(_rooms, marked)) - ours
        return [p.name for p in everybody if p in marked or not self._rooms.isdisjoint(_rooms(p))]

    def _shared(self) -> set[str]:
        mounts = Path("/proc/self/mounts").read_text().splitlines()
        files = [path for place in _SHARED if place.is_dir() for path in place.iterdir()]
        found = {str(path) for path in files if path.name.startswith(_OURS)}
        return found | {line for line in mounts if str(self._scratch) in line}


def _rooms(process: Path) -> frozenset[str]:
    """The session and the namespaces of a process; none when it has gone."""
    try:
        session = os.getsid(0 if process.name == "self" else int(process.name))
        namespaces = (str((process / "ns" / kind).readlink()) for kind in ("net", "mnt", "user"))
        return frozenset((f"session {session}", *namespaces))
    except OSError:
        return frozenset()


def _environment(process: Path) -> list[bytes]:
    try:
        return (process / "environ").read_bytes().split(b"\0")
    except OSError:  # gone, or somebody else's
        return []
