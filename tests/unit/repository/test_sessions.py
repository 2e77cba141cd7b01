"""Sessions: which run side by side, and what a signal ends.

A tool that goes on without nox may keep a guest running for as long as its work takes.
"""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.waiting import eventually

SESSIONS = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from noxfile import *

@nox.session(python=False)
def patient(session):
    session.run("sh", "-c", "sleep 0.5; echo $$; exec sleep 1000", external=True)
"""


def test_it_takes_its_tools_along(tmp_path: Path) -> None:
    (tmp_path / "noxfile.py").write_text(SESSIONS, encoding="utf-8")
    arguments = [sys.executable, "-m", "nox", "-f", str(tmp_path / "noxfile.py"), "-s", "patient"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, start_new_session=True) as nox:
        assert nox.stdout
        tool = next(int(line) for line in nox.stdout if line.strip().isdigit())
        try:
            nox.send_signal(signal.SIGTERM)
            assert nox.wait(30)
            assert not Path(f"/proc/{tool}").exists()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(nox.pid, signal.SIGKILL)


NOX = r"""#!/bin/sh
case "$*" in
    *"-s ipvs"*)
        echo "ipvs begins"
        echo $$ >beside
        until [ -e unit-runs ]; do sleep 0.01; done
        echo "ipvs goes on" >>unit-runs
        [ "${PATIENT:-}" ] && exec sleep 1000
        echo "ipvs ends"; exit "$IPVS_STATUS" ;;
    *) echo "unit begins" >>unit-runs  # appended: what ipvs writes at once is not written over
        until grep -q "ipvs goes on" unit-runs; do sleep 0.01; done
        echo "unit ends"; exit "$UNIT_STATUS" ;;
esac
"""


def place_with_nox(place: Path, nox: str = NOX) -> Path:
    """`./run` in a folder whose environment is ready and holds a nox of the test's own."""
    programs = place / ".venv/bin"
    programs.mkdir(parents=True)
    for path, content in ((place / "run", (ROOT / "run").read_text()), (programs / "nox", nox)):
        path.write_text(content, encoding="utf-8")
        path.chmod(0o755)
    for name in ("iptables", "nft", "ipset", "conntrack", "ip", "linux.uml"):
        (programs / name).symlink_to("/bin/true")
    (place / "pyproject.toml").touch()
    stamp = hashlib.sha256(f"{place.resolve()}\n".encode()).hexdigest() + "  -\n"
    (place / ".venv/stamp[dev]").write_text(stamp, encoding="utf-8")
    return place / "run"


@pytest.mark.parametrize(("unit", "ipvs", "status"), [(0, 0, 0), (0, 3, 3), (1, 0, 1), (1, 3, 3)], ids=str)
def test_ipvs_runs_beside_unit_and_its_failure_is_named(
    tmp_path: Path, unit: int, ipvs: int, status: int
) -> None:
    """Each of both waits for a sign of the other."""
    command = (str(place_with_nox(tmp_path)), "tests", "unit", "ipvs")
    environment = {**os.environ, "UNIT_STATUS": str(unit), "IPVS_STATUS": str(ipvs)}
    done = subprocess.run(
        command,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == status, done.stderr
    assert done.stdout.splitlines() == ["unit ends", "ipvs begins", "ipvs ends"]
    assert ("run: failed: ipvs" in done.stderr) is (ipvs != 0)


LISTING = f"""#!/bin/sh
exec {sys.executable} -m nox -f {ROOT}/noxfile.py "$@" --list
"""


def test_every_session_that_is_named_is_one_that_nox_selects(tmp_path: Path) -> None:
    """As nox itself parses its arguments: it marks with an asterisk what it would run."""
    named = {"lint", "types", "unit", "ipvs", "uml", "virtual"}
    command = (str(place_with_nox(tmp_path, LISTING)), "tests", *sorted(named))
    listed = subprocess.check_output(command, text=True, timeout=60, stdin=subprocess.DEVNULL)
    lines = [line.split() for line in listed.splitlines()]
    assert {line[1] for line in lines if line[:1] == ["*"]} == named


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_what_runs_beside_ends_with_the_run(tmp_path: Path, number: signal.Signals) -> None:
    command = (str(place_with_nox(tmp_path)), "tests", "unit", "ipvs")
    environment = {**os.environ, "UNIT_STATUS": "0", "PATIENT": "1"}
    as_in_a_terminal = ("env", "--default-signal=INT")
    with subprocess.Popen(
        (*as_in_a_terminal, *command),
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as running:
        try:
            assert running.stdout
            assert next(running.stdout) == "unit ends\n"
            assert next(running.stdout) == "ipvs begins\n"
            beside = int((tmp_path / "beside").read_text())
            if number is signal.SIGINT:
                os.killpg(running.pid, number)
            else:
                running.send_signal(number)
            assert running.wait(30)
            assert eventually(lambda: not Path(f"/proc/{beside}").exists(), 10)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)
