"""The guard between a guest and who started it: no single death leaves a process or a folder behind."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kproxy.lab.kernels import guard
from tests.support.waiting import eventually

PATIENCE = 10.0
KERNEL = (
    "import subprocess, time; subprocess.Popen(['sleep', '1000']); print('up', flush=True); time.sleep(1000)"
)


class Guarded:
    """A guard with a stand-in for the kernel: a program with a process of its own."""

    def __init__(self, folder: Path, program: str, threads: str = guard.ONE) -> None:
        self.folder = folder
        folder.mkdir()
        control = os.open(os.devnull, os.O_RDONLY)
        arguments = (sys.executable, "-I", "-S", guard.__file__, str(folder), str(control), threads)
        self.process = subprocess.Popen(
            [*arguments, sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=(control,),
            start_new_session=True,
        )
        os.close(control)

    def processes(self) -> list[int]:
        """All but the guard itself."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != self.process.pid:
                try:
                    fields = (entry / "stat").read_text().rpartition(")")[2].split()
                except OSError:
                    continue
                if int(fields[3]) == self.process.pid and fields[0] != "Z":
                    found.append(int(entry.name))
        return found

    def cut(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()

    def close(self) -> None:
        """End whatever a test has left."""
        for pid in self.processes():
            os.kill(pid, signal.SIGKILL)
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream
            stream.close()


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Guarded]:
    guarded = Guarded(tmp_path / "job", KERNEL)
    console = guarded.folder / "console"
    assert eventually(lambda: console.exists() and "up" in console.read_text())
    assert len(guarded.processes()) == 2
    yield guarded
    guarded.close()


def test_when_the_lifeline_is_cut_all_goes(running: Guarded) -> None:
    running.cut()
    assert running.process.wait(PATIENCE) == 0
    assert eventually(lambda: not running.processes())
    assert not running.folder.exists()


def test_a_guard_that_is_killed_takes_the_kernel_along_and_leaves_word_of_the_rest(running: Guarded) -> None:
    kernel, program = sorted(running.processes())
    running.process.kill()
    assert eventually(lambda: kernel not in running.processes())
    assert running.processes() == [program]
    guard.after_death(str(running.folder))
    assert eventually(lambda: not running.processes())
    assert not running.folder.exists()


def test_of_a_guard_that_ended_well_nothing_is_left_to_do(running: Guarded) -> None:
    running.cut()
    running.process.wait(PATIENCE)
    guard.after_death(str(running.folder))
    assert not running.folder.exists()


def test_an_interrupt_for_everybody_is_not_for_the_guard(running: Guarded) -> None:
    running.process.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        running.process.wait(0.3)


def test_the_end_of_a_kernel_is_reported_and_the_folder_waits_to_be_read(tmp_path: Path) -> None:
    guarded = Guarded(tmp_path / "job", "print('last line'); raise SystemExit(3)")
    assert guarded.process.stdout
    assert guarded.process.stdout.readline() == b"3\n"
    assert (guarded.folder / "console").read_text() == "last line\n"
    guarded.cut()
    assert guarded.process.wait(PATIENCE) == 0
    assert not guarded.folder.exists()
    guarded.close()


CLAIMS = """
import os
from kproxy.lab.kernels import guard
whole = os.sched_getaffinity(0)
claims = []
for _ in range(2 * len(whole)):
    os.sched_setaffinity(0, whole)
    claims.append(guard.claim_processor())
    print(*os.sched_getaffinity(0))
claims[1].close()
os.sched_setaffinity(0, whole)
kept = guard.claim_processor()
print(*os.sched_getaffinity(0))
"""
"""Where as many guests as there are processors run twice, the second ends and another begins."""


def test_a_guest_of_one_thread_takes_the_processor_with_the_fewest_guests() -> None:
    alone = ("unshare", "--user", "--map-root-user", "--net")
    done = subprocess.run([*alone, sys.executable, "-c", CLAIMS], capture_output=True, text=True, check=True)
    processors = [str(number) for number in sorted(os.sched_getaffinity(0))]
    assert done.stdout.split() == [*processors, *processors, processors[1 % len(processors)]]


def test_a_kernel_of_many_threads_keeps_all_processors(tmp_path: Path) -> None:
    whole = os.sched_getaffinity(0)
    assert _processors_of_a_kernel(tmp_path / "one", guard.ONE) == 1
    assert _processors_of_a_kernel(tmp_path / "many", guard.MANY) == len(whole)


def _processors_of_a_kernel(folder: Path, threads: str) -> int:
    guarded = Guarded(folder, KERNEL, threads)
    try:
        assert eventually(lambda: len(guarded.processes()) == 2)
        return len(os.sched_getaffinity(guarded.processes()[0]))
    finally:
        guarded.close()
