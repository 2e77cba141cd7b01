"""Destination of a command's output: ``--output FILE``, of every command that prints data, and a pipe that is closed.

Standard output itself becomes the file, so that another process or kernel in the place of this one writes there too.
A reader that has read enough (``| head``) is no failure: `run_until_closed` is the one place that decides so.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

CLOSED_PIPE = 128 + signal.SIGPIPE
"""Exit status of a command that judges after the reader of its output has closed it: nobody knows the verdict."""

_DESCRIPTORS = (1, 2)
"""Standard output and standard error."""

STANDARD_OUTPUT = "-"
OWN_FILES = frozenset({"json", "yaml", "junit", "markdown", "html"})
"""Forms that a command writes to a file itself."""


class OutputFileError(Exception):
    """A file for output that cannot be opened; the message names it."""


def run_until_closed(command: Callable[[], int], status_if_closed: int) -> int:
    """Run a command and write out what it printed; returns its exit status, or the other one if its output is closed.

    Raises what the command raises: also `BrokenPipeError`, if the pipe was another than standard output or error.
    """
    try:
        try:
            return command()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        closed = _closed_by_reader()
        if not closed:
            raise
        _discard(closed)
        return status_if_closed


def _closed_by_reader() -> list[int]:
    """Those of standard output and standard error that nobody reads any more."""
    poll = select.poll()
    for descriptor in _DESCRIPTORS:
        poll.register(descriptor, 0)
    return [descriptor for descriptor, events in poll.poll(0) if events & select.POLLERR]


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
        _discard([sys.stdout.fileno()])
        raise OutputFileError(f"{destination}: {error.strerror}") from error


def _discard(descriptors: Sequence[int]) -> None:
    """Drop what could not be written: it would be tried again, elsewhere or at the interpreter's end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in descriptors:
        os.dup2(nowhere, descriptor)
    os.close(nowhere)
    sys.stdout.flush()
