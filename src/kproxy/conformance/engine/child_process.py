"""A report on its way out of a process that another run has started: pickled, on standard output.

What such a process says to people goes to standard error.  So nothing has to be kept in a file that a kill
could leave behind, and the way is the same out of a guest, a user namespace or a plain process.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections import deque
from collections.abc import Callable, Mapping

from kproxy.conformance.reports.results import Report

CHILD_VARIABLE = "KPROXY_REPORT_PART"
"""Set for a process whose report another process waits for."""


ERROR_PREFIX = "kproxy conformance: "
"""How a run begins to say why it cannot be done."""

_LAST_LINES = 20

LogLine = Callable[[str], None]


class NoReport(Exception):
    """A process ended and gave none."""


class LogTail:
    """What such a process says: whole lines go to ``tell`` as they come, the last of them are remembered."""

    def __init__(self, log: LogLine) -> None:
        self._tell = log
        self._rest = b""
        self._last: deque[str] = deque(maxlen=_LAST_LINES)

    def feed(self, data: bytes) -> None:
        """Some more bytes of what it says."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._last.append(line.decode(errors="replace"))
            self._tell(self._last[-1])

    def failure_reason(self) -> str:
        """Why it gave no report: what it said of that, or else its last lines."""
        lines = [*self._last, self._rest.decode(errors="replace")]
        refusals = [number for number, line in enumerate(lines) if line.startswith(ERROR_PREFIX)]
        first = refusals[-1] if refusals else 0
        return "\n".join(lines[first:]).removeprefix(ERROR_PREFIX).strip()


def child_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """These variables for such a process; nothing in them makes it write as if to a terminal."""
    plain = {
        name: value for name, value in variables.items() if name not in {"FORCE_COLOR", "TTY_COMPATIBLE"}
    }
    return {**plain, CHILD_VARIABLE: "1"}


def is_child_process() -> bool:
    """Whether this is such a process."""
    return CHILD_VARIABLE in os.environ


def send_report(report: Report) -> None:
    """Write the report for the process that waits for it."""
    sys.stdout.buffer.write(pickle.dumps(report))
    sys.stdout.buffer.flush()


def receive_report(data: bytes | bytearray) -> Report:
    """The report that was given, from a process that this one has started.  Raises `NoReport`."""
    try:
        report = pickle.loads(data)  # noqa: S301 (our own)
    except (EOFError, pickle.UnpicklingError) as error:
        raise NoReport from error
    assert isinstance(report, Report)
    return report
