"""Types of options that name what is written: refused before the work, not after it.  Looks at the file system, writes nothing."""

from __future__ import annotations

import os
from argparse import ArgumentTypeError
from pathlib import Path


def output_folder(text: str) -> Path:
    """A folder that is there, or can be made.  Raises `ArgumentTypeError`."""
    path = Path(text)
    _check_writable(text, path.absolute())
    return path


def output_file(text: str) -> Path:
    """A file in a folder that is there.  Raises `ArgumentTypeError`."""
    path = Path(text)
    folder = path.absolute().parent
    if os.path.isdir(text):  # noqa: PTH112 (`Path.is_dir` raises where the way is forbidden)
        raise ArgumentTypeError(f"{text}: this is a folder; give the path of a file")
    if not os.path.isdir(folder):  # noqa: PTH112
        raise ArgumentTypeError(f"{text}: there is no folder {folder}; create it, or give another file")
    _check_writable(text, folder)
    return path


def _check_writable(text: str, folder: Path) -> None:
    """Check the folder, or the nearest above it that is there."""
    nearest = next(path for path in (folder, *folder.parents) if os.path.exists(path))  # noqa: PTH110
    if not os.path.isdir(nearest):  # noqa: PTH112
        raise ArgumentTypeError(f"{text}: {nearest} is a file; give a folder")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise ArgumentTypeError(f"{text}: no right to write in {nearest}; give another place")
