"""Run a command in a guest as if it ran here: its output as it comes, its exit status, signals forwarded.

Theory of operation. A guest is a process (User-Mode Linux) or a virtual machine (qemu) whose root file system is the
host's own, so job and results go through files in one folder per job:

- ``job.json``: command, environment, working directory; ``init``: the script that the kernel starts as process 1,
  which becomes `kproxy.lab.kernels.guest`.
- ``out`` and ``error``: the guest appends; `Guest.forward` copies what is new to this process's sinks.
- ``status``: the exit status, written whole at the end.  A guest that ends without it has died (`GuestDied`), and the last
  lines of ``console`` give the reason.
- control: names of signals, one per line, through a pipe that is a User-Mode Linux kernel's standard input, and for a
  virtual machine through the file ``orders``.

Between the two stands `kproxy.lab.kernels.guard`, a small process with a pipe from here as its lifeline. When the
pipe closes, because `kill` closed it or because this process died in whatever way, the guard kills the kernel with
its processes and removes the folder. The guard writes the kernel's exit code to its standard output, so that
descriptor is readable exactly when the guest has ended: `run_all` polls it, and so runs many guests side by side in
one thread.

Virtual time.  A User-Mode Linux kernel can be booted with ``time-travel`` (`uml.Time.VIRTUAL`): when all of the guest is idle,
its clock jumps to the next timer, so waiting costs nothing, and computing takes no virtual time.  The host's clock is not
the guest's meanwhile, so nothing in the guest may wait a while for the host: control comes through a pipe.  Reports name the
clock (`kproxy.lab.kernels.current`); docs/adr/0008-virtual-time.md has what follows for verdicts.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from math import inf
from operator import itemgetter
from pathlib import Path
from types import FrameType
from typing import BinaryIO, ClassVar, Protocol, TextIO

from kproxy.lab.kernels import abilities, guard, uml
from kproxy.lab.kernels.abilities import Ability
from kproxy.lab.kernels.uml import (
    SCRATCH,
    UmlKernel,
    init_script,
    memory_folder,
    visible_scratch,
)
from kproxy.lab.namespaces import LabError

Sink = Callable[[bytes], object]

_POLL = 0.05
_PASSED_ON = (signal.SIGINT, signal.SIGTERM)
_PATIENCE_WITH_INTERRUPTS = 2
_CONSOLE_TAIL_LINES = 20


@dataclass(frozen=True, slots=True)
class Sinks:
    """Receivers of a guest's output."""

    out: Sink
    error: Sink


def _write(stream: TextIO) -> Sink:
    def write(data: bytes) -> None:
        stream.buffer.write(data)
        stream.buffer.flush()

    return write


THROUGH = Sinks(_write(sys.stdout), _write(sys.stderr))
"""Sinks that write to this process's own output."""


class GuestDied(LabError):
    """Death of a kernel before its command ended: how, and the last lines of its console."""


class GuestJob(Protocol):
    """Command to run in a guest: `kproxy.lab.kernels.uml.UmlJob`, `kproxy.lab.kernels.vm.VmJob`."""

    @property
    def memory(self) -> int:
        """Memory of the guest in MiB."""

    threads: ClassVar[str]
    """`guard.ONE` or `guard.MANY`: threads of the kernel that compute at once."""

    @property
    def files(self) -> Mapping[str, str]:
        """Texts to write in the job's folder, by name."""

    def place(self, folder: Path) -> Path:
        """Name of the job's folder in the guest."""

    def document(self) -> dict[str, object]:
        """Content of ``job.json`` (`kproxy.lab.kernels.guest`)."""

    def command(self, folder: Path) -> list[str]:
        """Command line that starts the guest; ``folder``: the job's."""


class Guest:
    """Guest that runs a job; made with the job's folder, which its guard removes."""

    def __init__(self, job: GuestJob, sinks: Sinks, memory: Path) -> None:
        """Boot it, with its memory in a file in the folder ``memory``."""
        self._folder = _prepared(job)
        streams = ((self._folder / name).open("rb", buffering=0) for name in ("out", "error"))
        self._streams: list[tuple[BinaryIO, Sink]] = list(zip(streams, (sinks.out, sinks.error), strict=True))
        inside, self._control = os.pipe()
        self._guard = _guarded(job, self._folder, inside, memory)
        os.close(inside)

    def fileno(self) -> int:
        """Descriptor that is readable when the guest has ended."""
        assert self._guard.stdout
        return self._guard.stdout.fileno()

    def forward(self) -> None:
        """Copy to the sinks what the guest has written since the last call."""
        for stream, sink in self._streams:
            while data := stream.read(1 << 16):
                sink(data)

    def send_signal(self, number: int) -> None:
        """Send a signal to the command in the guest."""
        signal_name = f"{signal.Signals(number).name}\n"
        with suppress(OSError):
            os.write(self._control, signal_name.encode())
            with (self._folder / "orders").open("a") as orders:
                orders.write(signal_name)

    def kill(self) -> None:
        """Kill the guest and its processes and remove its folder, by closing the guard's lifeline."""
        assert self._guard.stdin
        assert self._guard.stdout
        self._guard.stdin.close()
        self._guard.wait()
        self._guard.stdout.close()

    def finish(self) -> int:
        """Forward the rest of the output and return the exit status. Raises `GuestDied`."""
        self.forward()
        try:
            return int((self._folder / "status").read_text())
        except FileNotFoundError:
            raise GuestDied(self._death_report()) from None

    def _death_report(self) -> str:
        assert self._guard.stdout
        how = _how_it_ended(self._guard.stdout.readline().decode().strip())
        console = (self._folder / "console").read_text(errors="replace").splitlines()
        tail = console[-_CONSOLE_TAIL_LINES:] or ["(its console is empty)"]
        return "\n".join([f"the guest's kernel ended before its command did ({how}):", *tail])

    def close(self) -> None:
        """Release all resources; kills the guest if it still runs."""
        self.kill()
        guard.after_death(str(self._folder))
        os.close(self._control)
        for stream, _ in self._streams:
            stream.close()


def _prepared(job: GuestJob) -> Path:
    """Job's folder with the files that the guest reads."""
    folder = Path(tempfile.mkdtemp(prefix="kproxy-uml-", dir=visible_scratch()))
    (folder / "job.json").write_text(json.dumps(job.document()))
    (folder / "init").write_text(init_script(job.place(folder)))
    (folder / "init").chmod(0o700)
    for name, text in job.files.items():
        (folder / name).write_text(text)
    for name in ("out", "error", "orders"):
        (folder / name).touch()
    return folder


def _how_it_ended(code: str) -> str:
    """Text of a guard's report, which is empty when the guard was killed, and the kernel with it."""
    match code:
        case "":
            return "its guard was killed"
        case _ if code.startswith("-"):
            return f"killed by {signal.Signals(-int(code)).name}"
        case _:
            return f"exit status {code}"


def _guarded(job: GuestJob, folder: Path, control: int, memory: Path) -> subprocess.Popen[bytes]:
    """Start the guard, which starts the kernel with ``control`` as its standard input.

    Raises `LabError` if this user may not execute the Python that runs.
    """
    environment = {**os.environ, "TMPDIR": str(memory), "HOME": str(folder)}
    program = (sys.executable, "-I", "-S", guard.__file__)
    try:
        return subprocess.Popen(
            [*program, str(folder), str(control), job.threads, *job.command(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            pass_fds=(control,),
            start_new_session=True,
        )
    except OSError as error:
        raise LabError(f"{error.filename}: {error.strerror}") from error


def run_job(job: GuestJob, sinks: Sinks) -> int:
    """Run a job to its end and return its exit status. As `run_all`, but raises `GuestDied`."""
    (outcome,) = run_all([(job, sinks)])
    if isinstance(outcome, GuestDied):
        raise outcome
    return outcome


def run_all(jobs: Sequence[tuple[GuestJob, Sinks]]) -> list[int | GuestDied]:
    """Run these jobs side by side to their ends; returns their exit statuses, or how their kernels died.

    SIGINT and SIGTERM go to the commands; one more than `_PATIENCE_WITH_INTERRUPTS` of them kills the guests.
    Raises `LabError` when a kernel cannot be started, KeyboardInterrupt when a signal killed the guests.
    """
    memory = memory_folder(sum(job.memory for job, _ in jobs))
    return [outcome for _, outcome in sorted(run_each(jobs, len(jobs), memory), key=itemgetter(0))]


def run_each(
    jobs: Iterable[tuple[GuestJob, Sinks]],
    parallel: int,
    memory: Path,
    seconds: float = inf,
    patience: int = _PATIENCE_WITH_INTERRUPTS,
) -> Iterator[tuple[int, int | GuestDied]]:
    """Run jobs, ``parallel`` at once; yields each one's number and outcome as it ends. As `run_all`.

    ``memory``: folder for the guests' memory (`uml.memory_folder`). A guest that runs for more than so many seconds is killed.
    ``patience``: number of signals that go to the commands; 0 where they have nothing to clean up, and the first kills them.
    """
    waiting = enumerate(jobs)
    running: dict[Guest, tuple[int, float]] = {}
    try:
        with _signals_passed_on(running, patience):
            while True:
                for number, (job, sinks) in islice(waiting, parallel - len(running)):
                    running[Guest(job, sinks, memory)] = number, time.monotonic() + seconds
                if not running:
                    return
                ended = _attend(running)
                for machine in [
                    one for one, (_, until) in running.items() if time.monotonic() > until or one in ended
                ]:
                    late = GuestDied(f"it was killed: it ran for more than {seconds:g} s")
                    outcome = _outcome(machine) if machine in ended else late
                    machine.close()
                    number, _ = running.pop(machine)
                    yield number, outcome
    finally:
        for machine in running:
            machine.close()


def _outcome(machine: Guest) -> int | GuestDied:
    try:
        return machine.finish()
    except GuestDied as death:
        return death


def _attend(machines: Collection[Guest]) -> list[Guest]:
    """Forward the output of guests, and wait a moment for some to end; returns those."""
    ended, _, _ = select.select(list(machines), (), (), _POLL)
    for machine in machines:
        machine.forward()
    return ended


@contextmanager
def _signals_passed_on(machines: Collection[Guest], patience: int) -> Iterator[None]:
    interrupts = 0

    def pass_on(number: int, _: FrameType | None) -> None:
        nonlocal interrupts
        interrupts += 1
        if interrupts > patience:
            raise KeyboardInterrupt
        for machine in machines:
            machine.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in _PASSED_ON}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def probe_kernel(kernel: UmlKernel) -> Mapping[Ability, str]:
    """Boot a kernel and probe each ability in it; time travel is taken from its configuration.

    Raises `LabError` when it does not boot.
    """
    out, error = bytearray(), bytearray()
    job = uml.UmlJob(
        kernel=kernel,
        argv=(sys.executable, "-m", abilities.__name__),
        environment={**os.environ, "TMPDIR": SCRATCH},
        cwd=Path("/"),
        memory=256,
    )
    status = run_job(job, Sinks(out.extend, error.extend))
    if status:
        raise LabError(f"probing {kernel.path} ended with {status}: {error.decode(errors='replace').strip()}")
    return {
        **abilities.decode_obstacles(out.decode()),
        Ability.TIME_TRAVEL: kernel.obstacles[Ability.TIME_TRAVEL],
    }
