"""First cause of a failure in a proxy's log: the first line of its panic, or else of its first error. Pure.

Later lines are consequences: a panic is followed by its stack, a refused transaction by its repetitions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

LONGEST = 400
"""Number of characters of a line that are shown."""

_PANIC = re.compile(r"panic: |fatal error: |Segmentation fault|Traceback \(most recent call last\)")
_TRACEBACK = "Traceback ("
_ERROR = re.compile(
    r"""
      ^[EF]\d{4}\s                     # klog: kube-proxy, kube-router
    | \blevel"?[=:]"?(error|fatal|panic)
    | ^(\S+\s+){0,3}(ERROR|CRITICAL|FATAL)\b
    | ^\s*(\S+:\s)?(error|fatal)\b
    """,
    re.IGNORECASE | re.VERBOSE,
)


def first_error(log: str) -> str:
    """Line of a log that names the failure; empty where no line looks like one."""
    lines = log.splitlines()
    found = _first(lines, _PANIC) if any(map(_PANIC.search, lines)) else _first(lines, _ERROR)
    text = _raised(lines[found:]) if found is not None else ""
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _first(lines: Iterable[str], pattern: re.Pattern[str]) -> int | None:
    return next((number for number, line in enumerate(lines) if pattern.search(line)), None)


def _raised(lines: list[str]) -> str:
    """The first of these lines; of a Python traceback the exception that it ends with."""
    if not lines[0].startswith(_TRACEBACK):
        return lines[0].strip()
    return next((line for line in lines[1:] if not line.startswith((" ", "\t"))), lines[0]).strip()
