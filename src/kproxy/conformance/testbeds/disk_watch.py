"""Limits on a subject's log and files, and on free disk space. Reads the disk, changes nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

LARGEST_LOG = 64 << 20
LARGEST_FOLDER = 256 << 20
LEAST_FREE = 128 << 20
"""Limits in bytes: a subject's log, its folder, and the free space that must remain."""

_MEBI = 1 << 20


class DiskWatch:
    """Check of the limits for a lab's folder."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._roomy = _free(directory) > 2 * LEAST_FREE

    def limit_exceeded(self, log: Path, folder: Path) -> str:
        """Message naming the size limit that a subject's log or folder exceeds, or empty."""
        if (size := _size(log)) > LARGEST_LOG:
            return f"floods its log: {size // _MEBI} MiB, {LARGEST_LOG // _MEBI} are allowed"
        if (size := sum(map(_size, _below(folder)))) > LARGEST_FOLDER:
            return (
                f"fills the disk: {size // _MEBI} MiB in {{directory}}, {LARGEST_FOLDER // _MEBI} are allowed"
            )
        return ""

    def disk_full(self) -> str:
        """Message that the lab's file system, which had ample space at the start, is down to less than `LEAST_FREE` bytes.

        Whatever wrote them; empty otherwise.
        """
        if self._roomy and (left := _free(self._directory)) < LEAST_FREE:
            return f"the disk is full: {left // _MEBI} MiB are free at {self._directory}"
        return ""


def read_tail(path: Path, size: int) -> str:
    """Last bytes of a file, as text."""
    with path.open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - size))
        return file.read(size).decode(errors="replace")


def _below(folder: Path) -> Iterator[Path]:
    """Paths below a folder; one that is removed meanwhile may be left out (`Path.rglob` raises)."""
    for place, folders, files in os.walk(folder):
        yield from (Path(place, name) for name in (*folders, *files))


def _size(path: Path) -> int:
    """Bytes that a file takes on the disk; holes in it take none."""
    try:
        return path.lstat().st_blocks * 512
    except OSError:  # removed meanwhile
        return 0


def _free(directory: Path) -> int:
    state = os.statvfs(directory)
    return state.f_bavail * state.f_frsize
