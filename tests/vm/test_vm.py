"""A distribution's kernel in a virtual machine: output, status, files, signals; nothing left.

A minute for each boot without ``/dev/kvm``.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kproxy.lab.kernels import boot, vm
from kproxy.lab.kernels.abilities import find_system_programs

PATIENCE = 600


@pytest.fixture(autouse=True, scope="module")
def prerequisites() -> None:
    find_system_programs()
    if reason := vm.survey_vm().unusable:
        pytest.fail(f"tests/vm: {reason}: {vm.survey_vm().fix}")


def test_a_command_is_root_there_and_its_output_status_and_files_come_back(tmp_path: Path) -> None:
    out, error = bytearray(), bytearray()
    job = vm.VmJob(
        kernel=vm.images_here()[0],
        argv=("/bin/sh", "-c", "id -u; uname -r; modprobe ip_vs; echo no >&2; echo kept > file; exit 7"),
        environment=dict(os.environ),
        cwd=tmp_path,
        fast=vm.accelerated(),
    )
    status = boot.run_job(job, boot.Sinks(out.extend, error.extend))
    assert status == 7, error.decode()
    user, release = out.decode().split()
    assert user == "0"
    assert release == vm.images_here()[0].name.removeprefix("vmlinuz-")
    assert error.decode() == "no\n"
    assert (tmp_path / "file").read_text() == "kept\n"


def judging(where: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        (sys.executable, "-m", "kproxy", "conformance", "run", "--kernel", "vm", *arguments),
        cwd=where,
        env={**os.environ, "TMPDIR": str(where)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_a_mode_that_this_machine_may_lack_is_judged(tmp_path: Path) -> None:
    with judging(tmp_path, "--mode", "ipvs", "--case", "cluster-ip.reached-from-everywhere") as process:
        out, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, out
    assert out.startswith("kernel: vm (")
    assert "1 passed" in out


def test_ctrl_c_ends_the_machine_and_leaves_nothing(tmp_path: Path) -> None:
    with judging(tmp_path, "--mode", "nftables", "--case", "cluster-ip.*") as process:
        assert process.stdout
        while "changing objects" not in (line := process.stdout.readline()):
            assert line, "the run ended before it began"
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    running = subprocess.run(("ps", "-eo", "args"), capture_output=True, text=True, check=True).stdout
    assert str(tmp_path) not in running
    assert list(tmp_path.iterdir()) == []
