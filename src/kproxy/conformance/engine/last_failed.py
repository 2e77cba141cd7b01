"""Cases that failed in the last run, for ``--last-failed``: a file in the folder of the evidence, as that is about failures.

A run that judges a subject in some modes replaces what is remembered of these modes only.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import msgspec

from kproxy.conformance.engine import modes
from kproxy.conformance.options import RunOptions
from kproxy.conformance.reports.results import Report, Result
from kproxy.conformance.subjects.subject import Subject

FILE = "last-failed.json"
_AGAIN = (Result.FAILED, Result.BROKEN)

Failures = dict[str, dict[str, list[str]]]
"""IDs of cases, by subject and by name of the run."""


class NoLastRun(Exception):
    """There is no last run to repeat failures of; the message has the folder."""


def remember_failures(options: RunOptions, reports: Mapping[str, Report]) -> None:
    """Write which cases failed or broke, by name of the run; a folder that cannot be written to changes no verdict."""
    path = options.evidence / FILE
    with suppress(OSError):
        known = _read(path)
        failed_now = {name: _failed(report) for name, report in reports.items()}
        if not known and not any(failed_now.values()):
            return  # a run without a failure leaves no folder
        for name, report in reports.items():
            known.setdefault(report.subject, {})[name] = failed_now[name]
        options.evidence.mkdir(parents=True, exist_ok=True)
        path.write_bytes(msgspec.json.encode(known) + b"\n")


def with_last_failed(options: RunOptions, subject: Subject) -> RunOptions:
    """Options of a run of the cases that failed last, in any of its modes; no globs if none did.

    Raises `NoLastRun` when these modes have not been run with this folder.
    """
    path = options.evidence / FILE
    known = _read(path).get(subject.name, {})
    names = [name for run in modes.runs_by_mode(options, subject) if (name := modes.run_name(run)) in known]
    if not names:
        raise NoLastRun(
            f"--last-failed: {path} knows no failure of {subject.name} in this mode; run it without --last-failed first"
        )
    failed = dict.fromkeys(id for name in names for id in known[name])
    return replace(options, globs=tuple(failed), last_failed=False)


def _failed(report: Report) -> list[str]:
    return [entry.case.id for entry in report.results if entry.result in _AGAIN]


def _read(path: Path) -> Failures:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Failures)
    except (FileNotFoundError, msgspec.MsgspecError):
        return {}
