"""Live status line of a run, one for each of several runs; plain lines where there is no terminal."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import RenderableType
from rich.status import Status
from rich.text import Text

from kproxy.conformance.engine import child_process
from kproxy.console import Console

WAITING = "waiting"
EVERY_STEP = "KPROXY_PROGRESS"
"""Environment variable: ``all`` prints each step as a line where there is no terminal, for programs that wait for one."""
PAUSE = 30.0
"""Seconds between two lines of progress where there is no terminal."""
_WIDE = 140


def make_console(*, stderr: bool) -> Console:
    """Console; wide where its output goes to a file or a log."""
    made = Console(stderr=stderr)
    return made if made.is_terminal else Console(stderr=stderr, width=_WIDE)


class StatusBoard:
    """Current activity, by names of runs."""

    def __init__(self, out: Console, status: Status | None, names: Sequence[str]) -> None:
        self._console, self._status = out, status
        self._texts = dict.fromkeys(names, WAITING)
        self._next_line = time.monotonic() + PAUSE
        self._width = max(map(len, names), default=0)

    def update(self, name: str, text: str) -> None:
        """Set the current activity of a run."""
        self._texts[name] = text
        if self._status is None:
            self._print_line(name, text)
        else:
            self._status.update(Text("\n".join(self._lines()), no_wrap=True, overflow="ellipsis"))

    def _print_line(self, name: str, text: str) -> None:
        """Print a line where there is no terminal: seldom, but for a process that reads it for its own board."""
        now = time.monotonic()
        each = child_process.is_child_process() or os.environ.get(EVERY_STEP) == "all"
        if not each and now < self._next_line:
            return
        self._next_line = now + PAUSE
        self._console.print(f"{name}: {text}" if name else text, style="dim", highlight=False, markup=False)

    @property
    def width(self) -> int:
        """Width of what is shown, in columns."""
        return self._console.width

    def show(self, table: RenderableType) -> None:
        """Show a table of runs that have ended; only on a terminal, since the whole one follows."""
        if self._status is not None:
            self._console.print(table)

    def finish(self, name: str, lines: Iterable[str]) -> None:
        """That run is over: print what came of it, which stays, and drop its live line."""
        self._texts.pop(name, None)
        for line in lines:
            self._console.print(line, highlight=False, soft_wrap=True)
        if self._status is not None:
            self._status.update(Text("\n".join(self._lines()), no_wrap=True, overflow="ellipsis"))

    def _lines(self) -> Iterator[str]:
        for name, text in self._texts.items():
            yield f"{name:{self._width}}  {text}" if name else text


@contextmanager
def live_status(out: Console, names: Sequence[str] = ("",)) -> Iterator[StatusBoard]:
    """Status board that is shown for the length of the context; a single run needs no name."""
    if not out.is_interactive:
        yield StatusBoard(out, None, names)
        return
    with out.status("starting") as status:
        yield StatusBoard(out, status, names)
