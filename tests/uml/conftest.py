"""A User-Mode Linux kernel, or an error that says how to have one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kproxy.lab.kernels import uml
from kproxy.lab.kernels.boot import Sinks, run
from kproxy.lab.kernels.uml import Job, Time, UmlKernel
from kproxy.lab.namespaces import LabError

InGuest = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="session")
def kernel() -> UmlKernel:
    try:
        return uml.find()
    except LabError as reason:
        pytest.fail(f"tests/uml needs a kernel: {reason}")


@pytest.fixture
def in_guest(kernel: UmlKernel, tmp_path: Path) -> InGuest:
    """Runs a shell line in a guest; its exit status, output and errors."""

    def run_it(line: str, time: Time = Time.REAL) -> tuple[int, str, str]:
        out, error = bytearray(), bytearray()
        job = Job(
            kernel=kernel,
            argv=("/bin/sh", "-c", line),
            environment=dict(os.environ),
            cwd=tmp_path,
            memory=256,
            time=time,
        )
        (status,) = run([(job, Sinks(out.extend, error.extend))])
        return status, out.decode(), error.decode()

    return run_it


@pytest.fixture
def left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """What is still there of guests that this test started: folders and processes."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)

    def look() -> list[str]:
        processes = subprocess.run(("ps", "-eo", "args"), capture_output=True, text=True, check=True).stdout
        mine = [line for line in processes.splitlines() if str(tmp_path) in line]
        return mine + [path.name for path in tmp_path.glob("kproxy-uml-*")]

    return look


@pytest.fixture
def kproxy() -> tuple[str, ...]:
    return sys.executable, "-m", "kproxy"
