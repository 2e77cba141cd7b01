"""What is left on the machine of commands that a test started: processes, files, mounts, names of namespaces."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

MARK = "KPROXY_TEST_STARTED_BY"
"""Inherited by whatever a test starts, and looked for in every process of the machine."""

PATIENCE = 60.0
_SHARED = (Path("/dev/shm"), Path("/var/tmp"), Path("/run/netns"), Path.home() / ".uml")  # noqa: S108 (looked at only)
_OURS = ("vm_file", "kproxy", "uml")
"""What files begin with that guests and labs could leave in places that others use too."""


def eventually(true: Callable[[], bool], patience: float = PATIENCE) -> bool:
    deadline = time.monotonic() + patience
    while not true() and time.monotonic() < deadline:
        time.sleep(0.05)
    return true()


class Leftovers:
    """Compares the machine with what it was when this was made; all that is started from then on is marked."""

    def __init__(self, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        scratch.mkdir()
        self._scratch = scratch
        self._mark = f"{MARK}={scratch}".encode()
        monkeypatch.setenv(MARK, str(scratch))
        monkeypatch.setenv("TMPDIR", str(scratch))
        monkeypatch.setattr("tempfile.tempdir", None)
        self._before = self._shared()

    def now(self) -> list[str]:
        """Everything that is there and was not."""
        shared = sorted(self._shared() - self._before)
        return [*self._processes(), *map(str, self._scratch.iterdir()), *shared]

    def gone(self) -> bool:
        """Whether all of it goes within `PATIENCE`."""
        return eventually(lambda: not self.now())

    def _processes(self) -> list[str]:
        return [folder.name for folder in Path("/proc").glob("[0-9]*") if self._mark in _environment(folder)]

    def _shared(self) -> set[str]:
        mounts = Path("/proc/self/mounts").read_text().splitlines()
        files = [path for place in _SHARED if place.is_dir() for path in place.iterdir()]
        found = {str(path) for path in files if path.name.startswith(_OURS)}
        return found | {line for line in mounts if str(self._scratch) in line}


def _environment(process: Path) -> list[bytes]:
    try:
        return (process / "environ").read_bytes().split(b"\0")
    except OSError:  # gone, or somebody else's
        return []
