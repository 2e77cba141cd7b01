"""Destination of a command's output: ``--output FILE``, of every command that prints data.

Standard output itself becomes the file, so that another process or kernel in the place of this one writes there too.
"""

from __future__ import annotations

import argparse
import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

STANDARD_OUTPUT = "-"
OWN_FILES = frozenset({"json", "yaml", "junit", "markdown", "html"})
"""Forms that a command writes to a file itself."""


class OutputFileError(Exception):
    """A file for output that cannot be opened; the message names it."""


_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


@contextmanager
def redirected_output(options: argparse.Namespace) -> Iterator[None]:
    """Standard output is the file of ``--output`` while a command runs.

    Raises `OutputFileError` if it cannot be opened, or what is printed cannot be written.
    """
    path = getattr(options, "output", STANDARD_OUTPUT)
    if path == STANDARD_OUTPUT or (hasattr(options, "junit") and options.form in OWN_FILES):
        with _writing("standard output"):
            yield
        return
    sys.stdout.flush()
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    except OSError as error:
        raise OutputFileError(
            f"--output {path}: {error.strerror}; give a file in a folder that exists"
        ) from error
    before = os.dup(sys.stdout.fileno())
    os.dup2(descriptor, sys.stdout.fileno())
    try:
        with _writing(f"--output {path}"):
            yield
    finally:
        os.dup2(before, sys.stdout.fileno())
        os.close(descriptor)
        os.close(before)


@contextmanager
def _writing(destination: str) -> Iterator[None]:
    """Flush at the end, so that a closed pipe or a full disk is reported here, not when the interpreter ends."""
    try:
        yield
        sys.stdout.flush()
    except OSError as error:
        if error.errno not in _FULL:
            raise
        _discard_output()
        raise OutputFileError(f"{destination}: {error.strerror}") from error


def _discard_output() -> None:
    """Drop what could not be written: it would be tried again, elsewhere or at the interpreter's end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
    sys.stdout.flush()
