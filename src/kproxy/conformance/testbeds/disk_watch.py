"""What a subject may write: how much of it is too much, and its end.  Looks at the disk, changes nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

LARGEST_LOG = 64 << 20
LARGEST_FOLDER = 256 << 20
LEAST_FREE = 128 << 20
"""Bytes that a subject's log and folder may have, and that must be free where they are."""

_MEBI = 1 << 20


class DiskWatch:
    """Looks at the disk that a lab's folder is on."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._roomy = _free(directory) > 2 * LEAST_FREE

    def limit_exceeded(self, log: Path, folder: Path) -> str:
        """What is too much of a subject's, in words; empty as long as nothing is."""
        if (size := _size(log)) > LARGEST_LOG:
            return f"floods its log: {size // _MEBI} MiB, {LARGEST_LOG // _MEBI} are allowed"
        if (size := sum(map(_size, _below(folder)))) > LARGEST_FOLDER:
            return (
                f"fills the disk: {size // _MEBI} MiB in {{directory}}, {LARGEST_FOLDER // _MEBI} are allowed"
            )
        return ""

    def disk_full(self) -> str:
        """That the disk is full, in words; whoever filled it."""
        if self._roomy and (left := _free(self._directory)) < LEAST_FREE:
            return f"the disk is full: {left // _MEBI} MiB are free at {self._directory}"
        return ""


def read_tail(path: Path, size: int) -> str:
    """The last bytes of a file, as text."""
    with path.open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - size))
        return file.read(size).decode(errors="replace")


def _below(folder: Path) -> Iterator[Path]:
    """All that is in a folder; what goes meanwhile may be left out (`Path.rglob` raises)."""
    for place, folders, files in os.walk(folder):
        yield from (Path(place, name) for name in (*folders, *files))


def _size(path: Path) -> int:
    """What a file takes on the disk; a hole in it takes nothing."""
    try:
        return path.lstat().st_blocks * 512
    except OSError:  # gone
        return 0


def _free(directory: Path) -> int:
    state = os.statvfs(directory)
    return state.f_bavail * state.f_frsize
