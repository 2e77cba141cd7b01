"""Expected failures: a file with a case on each line, strictly applied.

    # comment
    affinity.clients-stick            # forgets clients after a restart (https://example.com/issues/1)
    conntrack.* nftables              # in that mode only

A case that is listed and fails is a deviation; one that is listed and passes has failed, so that the list never
excuses more than it must.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kproxy.conformance.case import Case
from kproxy.conformance.cases import CATALOGUE
from kproxy.conformance.reports.results import CaseResult, Report, Result

_LINE = re.compile(r"(?P<glob>\S+)(?:\s+(?P<mode>[^\s#]+))?\s+#\s*(?P<reason>\S.*)")
LINE_FORMAT = "GLOB [MODE]  # REASON"


class InvalidXfails(Exception):
    """Unusable file; the message has the line and the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Xfail:
    """Line: a glob of cases, the mode (empty: all), the reason, and its place (``FILE:LINE``)."""

    glob: str
    mode: str = ""
    reason: str
    where: str

    def covers(self, case: Case, mode: str) -> bool:
        """True if the case is expected to fail in that mode."""
        return self.mode in {"", mode} and fnmatch.fnmatchcase(case.id, self.glob)


def read_xfails(path: str, case_files: Sequence[Case] = ()) -> tuple[Xfail, ...]:
    """Lines of a file; none without a path.

    ``case_files``: cases that are in no catalogue. Raises `InvalidXfails`.
    """
    if not path:
        return ()
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidXfails(f"--xfails {path}: {getattr(error, 'strerror', '') or error}") from error
    return parse_xfails(text, path, case_files)


def parse_xfails(text: str, name: str, case_files: Sequence[Case] = ()) -> tuple[Xfail, ...]:
    """Lines of a text; ``name`` is for messages. Raises `InvalidXfails`."""
    known = {case.id for case in (*CATALOGUE, *case_files)}
    lines = enumerate(map(str.strip, text.splitlines()), 1)
    return tuple(_xfail(line, f"{name}:{number}", known) for number, line in lines if line and line[0] != "#")


def _xfail(line: str, where: str, known: Collection[str]) -> Xfail:
    match = _LINE.fullmatch(line)
    if not match:
        raise InvalidXfails(f"{where}: {line!r} is not of the form {LINE_FORMAT}")
    found = Xfail(glob=match["glob"], mode=match["mode"] or "", reason=match["reason"], where=where)
    if not any(fnmatch.fnmatchcase(id, found.glob) for id in known):
        raise InvalidXfails(
            f"{where}: no case matches {found.glob}; `kproxy conformance list` shows them all"
        )
    return found


def apply_xfails(report: Report, xfails: Sequence[Xfail]) -> Report:
    """The report with expected failures excused, and unexpected passes failed."""
    return replace(report, results=tuple(_expected(entry, report.mode, xfails) for entry in report.results))


def _expected(entry: CaseResult, mode: str, xfails: Sequence[Xfail]) -> CaseResult:
    xfail = next((one for one in xfails if one.covers(entry.case, mode)), None)
    if xfail is None:
        return entry
    match entry.result:
        case Result.FAILED if entry.findings:  # a failure of the whole lab is not an expected one
            return replace(entry, result=Result.DEVIATION, reason=f"{xfail.reason} ({xfail.where})")
        case Result.PASSED:
            reason = f"passes, and {xfail.where} expects it to fail ({xfail.reason}): take it out"
            return replace(entry, result=Result.FAILED, reason=reason)
        case _:
            return entry
