"""Guests, here ordinary programs, that run side by side and end, or do not."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import pytest

from kproxy.lab.kernels import guard
from kproxy.lab.kernels.boot import GuestDied, Sinks, run_each

SINKS = Sinks(lambda _: None, lambda _: None)


@dataclass(frozen=True)
class ShellJob:
    """A shell script in place of a guest; it writes its exit status into its folder, as a guest does."""

    threads: ClassVar[str] = guard.MANY

    script: str
    memory: int = 1
    files: Mapping[str, str] = field(default_factory=dict)

    def place(self, folder: Path) -> Path:
        return folder

    def document(self) -> dict[str, object]:
        return {}

    def command(self, folder: Path) -> list[str]:
        return ["sh", "-c", f"cd {folder}; {self.script}"]


QUICK, ENDLESS, DEAD = ShellJob("echo 3 > status"), ShellJob("exec sleep 600"), ShellJob("exit 7")


@pytest.mark.parametrize("parallel", [1, 2, 4])
def test_each_ends_and_one_that_never_does_is_killed(tmp_path: Path, parallel: int) -> None:
    jobs = [QUICK, ENDLESS, DEAD, QUICK]
    ends = dict(run_each(((job, SINKS) for job in jobs), parallel, tmp_path, 1.0))
    assert (ends[0], ends[3]) == (3, 3)
    assert isinstance(ends[1], GuestDied)
    assert "more than 1 s" in str(ends[1])
    assert isinstance(ends[2], GuestDied)
    assert "exit status 7" in str(ends[2])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_where_nothing_is_to_be_cleaned_up_the_first_signal_ends_all(
    tmp_path: Path, number: signal.Signals
) -> None:
    begun: list[ShellJob] = []

    def jobs() -> Iterator[tuple[ShellJob, Sinks]]:
        for job in [QUICK, ENDLESS, ENDLESS, QUICK]:
            begun.append(job)
            yield job, SINKS

    def interrupt_after_the_first() -> None:
        for _ in run_each(jobs(), 2, tmp_path, patience=0):
            threading.Timer(0.2, os.kill, (os.getpid(), number)).start()

    with pytest.raises(KeyboardInterrupt):
        interrupt_after_the_first()
    assert begun == [QUICK, ENDLESS, ENDLESS]


def test_a_signal_goes_to_the_commands_first(tmp_path: Path) -> None:
    def jobs() -> Iterator[tuple[ShellJob, Sinks]]:
        threading.Timer(
            0.2, os.kill, (os.getpid(), signal.SIGTERM)
        ).start()  # while run_each attends to signals
        yield ShellJob("until grep -q SIGTERM orders; do sleep 0.05; done; echo 4 > status"), SINKS

    assert list(run_each(jobs(), 1, tmp_path, 20.0)) == [(0, 4)]


def test_no_more_run_at_once_than_may(tmp_path: Path) -> None:
    running: list[int] = []

    def jobs() -> Iterator[tuple[ShellJob, Sinks]]:
        for number in range(5):
            running.append(number)
            yield QUICK, SINKS

    for ended, _ in enumerate(run_each(jobs(), 2, tmp_path), 1):  # in whatever order they end
        assert len(running) <= ended + 2
