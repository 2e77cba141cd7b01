"""Program of the Sonobuoy plugin: ``python -m kproxy.conformance.testbeds.cluster.sonobuoy OPTIONS``.

Runs ``kproxy conformance cluster OPTIONS`` in a child process and hands its results to Sonobuoy. The contract: a container
writes its results into ``$SONOBUOY_RESULTS_DIR``, at last a file ``done`` with the path of the one file to send; the
worker beside it waits for ``done``, sends that file and unpacks an archive, whose XML files are read as JUnit
(https://sonobuoy.io/docs/main/plugins/). The archive is written whatever becomes of the run, since without ``done`` the
worker waits until Sonobuoy's own timeout: a run that judged nothing is one test with an error.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

from kproxy.conformance.reports.junit import xml_text

DEFAULT_RESULTS = "/tmp/sonobuoy/results"  # noqa: S108 (the contract's)
"""Folder of results where ``$SONOBUOY_RESULTS_DIR`` is not set."""
ARCHIVE = "kproxy.tar.gz"
DONE = "done"
_JUNIT, _JSON, _LOG, _EVIDENCE = "junit.xml", "results.json", "kproxy.log", "evidence"
_ERROR_LINES = 20
JUDGE = (sys.executable, "-m", "kproxy", "conformance", "cluster")
"""Command of the run, to which options are added."""


def judge_for_sonobuoy(
    arguments: Sequence[str], environment: Mapping[str, str] = os.environ, judge: Sequence[str] = JUDGE
) -> int:
    """Run, and hand over; the exit status of the run: 0 all lawful, 1 a case failed, 2 it judged nothing."""
    results = Path(environment.get("SONOBUOY_RESULTS_DIR") or DEFAULT_RESULTS)
    results.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="kproxy-sonobuoy-") as name:
        folder = Path(name)
        status = _judge([*judge, *arguments, *_outputs(folder)], folder / _LOG)
        if not (folder / _JUNIT).exists():
            log = (folder / _LOG).read_text(encoding="utf-8", errors="replace")
            (folder / _JUNIT).write_bytes(_error_as_junit(log, status))
        _hand_over(folder, results)
    return status


def _outputs(folder: Path) -> list[str]:
    named = (("--junit", _JUNIT), ("--json", _JSON), ("--evidence", _EVIDENCE))
    return [word for option, file in named for word in (option, str(folder / file))]


def _judge(command: Sequence[str], log: Path) -> int:
    """Exit status of the run; its output goes to ``log`` and to this container's log. SIGTERM is passed on."""
    with (
        log.open("w", encoding="utf-8") as copy,
        subprocess.Popen(  # noqa: S603 (our own command)
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        ) as child,
    ):
        before = signal.signal(signal.SIGTERM, lambda *_: child.terminate())
        try:
            for line in child.stdout or ():
                sys.stdout.write(line)
                sys.stdout.flush()
                copy.write(line)
        finally:
            signal.signal(signal.SIGTERM, before)
    return child.returncode


def _error_as_junit(log: str, status: int) -> bytes:
    """One test with an error: what the run printed last."""
    text = "\n".join(log.strip().splitlines()[-_ERROR_LINES:]) or "it printed nothing"
    suite = ET.Element("testsuite", name="kproxy", tests="1", failures="0", errors="1", skipped="0")
    test = ET.SubElement(suite, "testcase", name="kproxy conformance cluster", classname="kproxy")
    message = f"no case was judged: exit status {status}"
    ET.SubElement(test, "error", message=message).text = xml_text(text)
    return bytes(ET.tostring(suite, encoding="utf-8", xml_declaration=True))


def _hand_over(folder: Path, results: Path) -> None:
    """Archive of the folder, then the file ``done``, which appears with its content."""
    with tarfile.open(results / ARCHIVE, "w:gz") as archive:
        for path in sorted(folder.iterdir()):
            archive.add(path, arcname=path.name)
    unseen = results / f".{DONE}"
    unseen.write_text(str(results / ARCHIVE), encoding="utf-8")
    unseen.rename(results / DONE)


if __name__ == "__main__":
    sys.exit(judge_for_sonobuoy(sys.argv[1:]))
