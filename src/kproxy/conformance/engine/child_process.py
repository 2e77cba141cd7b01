"""Reports of child processes: a child pickles its `Report` to standard output and logs to standard error.

The parent reads both. Works alike for a plain process, a user namespace and a guest, and leaves no file behind when
killed.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections import deque
from collections.abc import Callable, Mapping

from kproxy.conformance.reports.results import Report

CHILD_VARIABLE = "KPROXY_REPORT_PART"
"""Environment variable that is set in a process whose report the parent reads."""


ERROR_PREFIX = "kproxy conformance: "
"""Prefix of the error message with the reason why a run is impossible."""

_LAST_LINES = 20

LogLine = Callable[[str], None]


class NoReport(Exception):
    """Child process that ended without a report."""


class LogTail:
    """Standard error of a child process: passes complete lines to a callback as they arrive, keeps the last 20 for errors."""

    def __init__(self, log: LogLine) -> None:
        self._log = log
        self._rest = b""
        self._last: deque[str] = deque(maxlen=_LAST_LINES)

    def feed(self, data: bytes) -> None:
        """Add bytes of standard error."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._last.append(line.decode(errors="replace"))
            self._log(self._last[-1])

    def failure_reason(self) -> str:
        """Reason for a missing report: the last error message (from `ERROR_PREFIX` on), else the last lines logged."""
        lines = [*self._last, self._rest.decode(errors="replace")]
        refusals = [number for number, line in enumerate(lines) if line.startswith(ERROR_PREFIX)]
        first = refusals[-1] if refusals else 0
        return "\n".join(lines[first:]).removeprefix(ERROR_PREFIX).strip()


def child_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Environment of a child process: without FORCE_COLOR and TTY_COMPATIBLE, so that its output has no terminal codes."""
    plain = {
        name: value for name, value in variables.items() if name not in {"FORCE_COLOR", "TTY_COMPATIBLE"}
    }
    return {**plain, CHILD_VARIABLE: "1"}


def is_child_process() -> bool:
    """True if this process is a child whose report the parent reads."""
    return CHILD_VARIABLE in os.environ


def send_report(report: Report) -> None:
    """Write the report to standard output for the parent."""
    sys.stdout.buffer.write(pickle.dumps(report))
    sys.stdout.buffer.flush()


def receive_report(data: bytes | bytearray) -> Report:
    """Report from the output of a child process that this one has started. Raises `NoReport`."""
    try:
        report = pickle.loads(data)  # noqa: S301 (our own)
    except (EOFError, pickle.UnpicklingError) as error:
        raise NoReport from error
    assert isinstance(report, Report)
    return report
