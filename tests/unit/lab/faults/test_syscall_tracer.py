"""A tracer that could not refuse a write reports it, and does not begin."""

from __future__ import annotations

import subprocess

import pytest

from kproxy.lab.faults import syscall_tracer, write_calls

NO_SYSTEM_CALL = 1_000_000


def test_without_duplicates_of_descriptors_it_ends_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """As in a container whose seccomp profile denies pidfd_getfd(2); that it works elsewhere, tests/netns/test_refusal.py shows."""
    monkeypatch.setattr(write_calls, "_PIDFD_GETFD", NO_SYSTEM_CALL)
    with subprocess.Popen(["sleep", "60"]) as idle:
        status = syscall_tracer.trace_syscalls(["1", "0", "0", "-1", "1", str(idle.pid)])
        idle.kill()
    printed = capfd.readouterr()
    assert (status, printed.out) == (1, "")
    assert "pidfd_getfd(2): Function not implemented; in a container give --cap-add SYS_PTRACE" in printed.err
