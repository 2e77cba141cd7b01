"""A User-Mode Linux kernel, or an error with the remedy."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kproxy.lab.kernels import uml
from kproxy.lab.kernels.abilities import Ability
from kproxy.lab.kernels.boot import Sinks, run_job
from kproxy.lab.kernels.uml import Time, UmlJob, UmlKernel
from kproxy.lab.namespaces import LabError
from tests.support.leftovers import Leftovers

InGuest = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="session")
def kernel() -> UmlKernel:
    try:
        return uml.find_uml_kernel()
    except LabError as reason:
        pytest.fail(f"tests/uml needs a kernel: {reason}")


@pytest.fixture
def travels(kernel: UmlKernel) -> None:
    """For tests in virtual time."""
    if kernel.obstacles[Ability.TIME_TRAVEL]:
        pytest.fail("this kernel has no time-travel mode: kproxy lab kernel build")


@pytest.fixture
def in_guest(kernel: UmlKernel, tmp_path: Path) -> InGuest:
    """Runs a shell line in a guest with so many MB; its exit status, output and errors."""

    def run_it(line: str, time: Time = Time.REAL, memory: int = 256) -> tuple[int, str, str]:
        out, error = bytearray(), bytearray()
        job = UmlJob(
            kernel=kernel,
            argv=("/bin/sh", "-c", line),
            environment={**os.environ, "TMPDIR": uml.SCRATCH},
            cwd=tmp_path,
            memory=memory,
            time=time,
        )
        status = run_job(job, Sinks(out.extend, error.extend))
        return status, out.decode(), error.decode()

    return run_it


@pytest.fixture
def left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Leftovers:
    return Leftovers(tmp_path / "scratch", monkeypatch)


@pytest.fixture
def kproxy() -> tuple[str, ...]:
    return sys.executable, "-m", "kproxy"
