"""A run in a user namespace of its own: however it ends, nothing of it is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.leftovers import BOASTER, BOASTERS_CASE, PATIENCE, Leftovers

RUN = (sys.executable, "-m", "kproxy", "conformance", "run", "--kernel", "rootless", "--mode", "iptables")


@pytest.fixture
def left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Leftovers:
    return Leftovers(tmp_path / "scratch", monkeypatch)


def run(place: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        (*RUN, *arguments),
        cwd=place,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "KPROXY_PROGRESS": "all"},
    )


def test_of_a_run_that_succeeds(tmp_path: Path, left_behind: Leftovers) -> None:
    with run(tmp_path, "--case", "cluster-ip.every-endpoint-of-six") as process:
        out, _ = process.communicate()
    assert process.returncode == 0, out
    assert left_behind.now() == []


def test_of_a_run_whose_subject_programs_nothing(tmp_path: Path, left_behind: Leftovers) -> None:
    (tmp_path / "idle.toml").write_text('name = "idle"\nmodes = ["iptables"]\ncommand = ["sleep", "1000"]\n')
    arguments = ("--proxy", "idle.toml", "--case", "cluster-ip.every-endpoint-of-six", "--sync-timeout", "2")
    with run(tmp_path, *arguments) as process:
        out, _ = process.communicate()
    assert process.returncode == 1, out
    assert left_behind.now() == []


def test_of_a_run_in_which_a_case_fails(tmp_path: Path, left_behind: Leftovers) -> None:
    (tmp_path / "boaster.toml").write_text(BOASTER)
    arguments = ("--proxy", "boaster.toml", "--mode", "nftables", "--case", BOASTERS_CASE)
    with run(tmp_path, *arguments) as process:
        out, _ = process.communicate()
    assert process.returncode == 1, out
    assert left_behind.now() == []


@pytest.mark.parametrize(
    ("number", "status"),
    [
        (signal.SIGTERM, 130),
        pytest.param(signal.SIGINT, 130, marks=pytest.mark.long),
        pytest.param(signal.SIGKILL, -9, marks=pytest.mark.long),
    ],
)
def test_of_a_run_that_a_signal_ends(
    number: signal.Signals, status: int, tmp_path: Path, left_behind: Leftovers
) -> None:
    with run(tmp_path) as process:
        assert process.stdout
        while "running" not in (line := process.stdout.readline()):
            assert line, "the run ended before it began"
        assert left_behind.now() != []
        process.send_signal(number)
        process.communicate(timeout=PATIENCE)
    assert process.returncode == status
    assert left_behind.gone(), left_behind.now()
