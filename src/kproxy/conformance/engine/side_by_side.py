"""Side by side: the same probes on two subjects, each in a process with a testbed of its own.

Two labs in one process would share its processor. The processes are forked, and open their testbeds while the parent
prepares the probes; each ends with its parent, and its lab with it. Probes are sent by number, all at once; those whose
results differ are repeated on both sides, to exclude chance.
"""

from __future__ import annotations

import asyncio
import ctypes
import multiprocessing
import os
import signal
import traceback
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any
from typing import Protocol as Interface

from kproxy.conformance.binding.bind import Instance
from kproxy.conformance.case import Probe
from kproxy.conformance.engine.differences import ProbeDifference, looks_different, probe_difference
from kproxy.conformance.testbed import HarnessError, Observation, SubjectFailed
from kproxy.lab.namespaces import LabError

SHORT, LONG = 1.5, 4.0
"""Seconds without a reply that count as unlawful silence, the first time and the second time."""

REPROBES = 12
"""Number of repetitions on each side of a probe with different results."""

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_BATCH = 100
"""Number of results in one message."""

_FORK = multiprocessing.get_context("fork")


class CannotCompare(Exception):
    """A side cannot be probed; the message has the reason."""


class ProbedTestbed(Interface):
    """Testbed whose objects are written and applied; ``patience``: seconds without a reply that count as silence."""

    patience: float

    @property
    def unserved(self) -> Sequence[str]:
        """Endpoints that no server could listen for, with the reason."""

    async def probe(self, instance: Instance, probe: Probe, count: int) -> Sequence[Observation]:
        """Send new connections; one observation each."""


OpenSide = Callable[[], AbstractAsyncContextManager[ProbedTestbed]]
ProbeStep = tuple[Instance, Probe]
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ProbeBatch:
    """Probes to send, by number, each ``count`` times; ``patience``: seconds without a reply that count as silence."""

    numbers: Sequence[int]
    patience: float
    count: int = 1


@dataclass(frozen=True, slots=True)
class SideReady:
    """Message: the subject has applied everything."""

    unserved: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SideResults:
    """Message: observations of some probes; a text is the reason why there is none."""

    answers: tuple[tuple[int, Observation | str], ...]


@dataclass(frozen=True, slots=True)
class SideFailed:
    """Message: the lab could not be built, or the subject did not run."""

    reason: str


SideMessage = SideReady | SideResults | SideFailed


@dataclass(frozen=True, slots=True)
class SideBySideResult:
    """All differences; ``broken``: probes that a side could not observe; ``unserved``: endpoints without a server."""

    probed: int
    differences: tuple[ProbeDifference, ...]
    broken: Mapping[int, str]
    unserved: tuple[str, ...]


def run_side_by_side(
    sides: Sequence[tuple[str, OpenSide]],
    prepare: Callable[[], Sequence[ProbeStep]],
    settled: Callable[[ProbeDifference], bool],
    progress: Progress,
) -> SideBySideResult:
    """Compare two subjects, each with its name, by the probes that ``prepare`` returns.

    Those whose difference is not ``settled`` are repeated. Raises `CannotCompare`.
    """
    with ExitStack() as stack:
        processes = []
        for name, opener in sides:
            processes.append(SideProcess(name, opener))
            stack.callback(processes[-1].close)
        progress("both proxies apply the objects")
        steps = tuple(prepare())
        unserved = [process.ready() for process in processes][-1]
        for process in processes:
            process.pipe.send(steps)
        return _compared(processes, steps, settled, progress, unserved)


def _compared(
    sides: Sequence[SideProcess],
    steps: Sequence[ProbeStep],
    settled: Callable[[ProbeDifference], bool],
    progress: Progress,
    unserved: tuple[str, ...],
) -> SideBySideResult:
    one, other = sides
    _probe_all(sides, ProbeBatch(range(len(steps)), SHORT), progress)

    def complete(number: int) -> bool:
        return all(side.answers[number] and number not in side.broken for side in sides)

    def found(number: int) -> ProbeDifference | None:
        return probe_difference(*steps[number], one.answers[number], other.answers[number])

    def doubtful(number: int) -> bool:
        instance, probe = steps[number]
        lawful = instance.outcomes(probe.expect, probe.to)
        difference = found(number)
        differs = looks_different(one.answers[number], other.answers[number], lawful)
        return differs and not (difference and settled(difference))

    numbers = list(filter(complete, range(len(steps))))
    doubts = list(filter(doubtful, numbers))
    for side in sides:
        for number in doubts:
            side.answers[number].clear()  # on a busy machine a reply may have come too late
    _probe_all(sides, ProbeBatch(doubts, LONG, REPROBES), progress)
    differences = (found(number) for number in numbers if complete(number))
    return SideBySideResult(
        len(steps), tuple(filter(None, differences)), {**one.broken, **other.broken}, unserved
    )


def _probe_all(sides: Sequence[SideProcess], batch: ProbeBatch, progress: Progress) -> None:
    """Send all probes at once on both sides; outstanding results are counted here."""
    each = len(batch.numbers) * batch.count
    left = {side.pipe: each for side in sides} if each else {}
    by_pipe = {side.pipe: side for side in sides}
    for pipe in left:
        pipe.send(batch)
    while waiting := [pipe for pipe, number in left.items() if number]:
        for readable in wait(waiting):
            assert isinstance(readable, Connection)
            left[readable] -= by_pipe[readable].take()
        progress(f"{2 * each - sum(left.values())} of {2 * each} packets")


class SideProcess:
    """Process of one side, and the pipe to it.

    ``answers``: observations by the probe's number; ``broken``: probes that could not be observed, and why.
    """

    def __init__(self, name: str, opener: OpenSide) -> None:
        self.name = name
        self.answers: dict[int, list[Observation]] = defaultdict(list)
        self.broken: dict[int, str] = {}
        self.pipe, theirs = _FORK.Pipe()
        self._process = _FORK.Process(target=_main, args=(os.getpid(), self.pipe, theirs, opener))
        self._process.start()
        theirs.close()

    def ready(self) -> tuple[str, ...]:
        """Wait until its subject has applied everything; returns endpoints that no server could listen for."""
        message = self._receive()
        assert isinstance(message, SideReady)
        return message.unserved

    def take(self) -> int:
        """Record the next results; returns their number."""
        message = self._receive()
        assert isinstance(message, SideResults)
        for number, seen in message.answers:
            if isinstance(seen, str):
                self.broken[number] = seen
            else:
                self.answers[number].append(seen)
        return len(message.answers)

    def _receive(self) -> SideMessage:
        """Next message; blocks until there is one. Raises `CannotCompare`."""
        try:
            received: SideMessage = self.pipe.recv()
        except (EOFError, ConnectionResetError):
            self._process.join(timeout=5)
            received = SideFailed(f"its process has ended (exit status {self._process.exitcode})")
        if isinstance(received, SideFailed):
            raise CannotCompare(f"{self.name}: {received.reason}")
        return received

    def close(self) -> None:
        """End the process, and its lab."""
        self.pipe.close()
        self._process.join(timeout=5)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


# ------------------------------------------------------------------------------ in the process


def _main(parent: int, ours: Connection, pipe: Connection, opener: OpenSide) -> None:
    """Body of the process: it ends when the pipe is closed, or when the parent dies."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    ours.close()
    if os.getppid() != parent:
        os._exit(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent closes the pipe
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        asyncio.run(_serve(pipe, opener))
    except (LabError, HarnessError, SubjectFailed) as reason:
        _send_message(pipe, SideFailed(str(reason)))
    except BaseException:  # noqa: BLE001 (the parent must not wait for a word that never comes)
        _send_message(pipe, SideFailed(traceback.format_exc()))
    finally:
        os._exit(0)


def _send_message(pipe: Connection, message: SideMessage) -> None:
    try:
        pipe.send(message)
    except OSError:  # the parent has closed the pipe
        return


async def _serve(pipe: Connection, opener: OpenSide) -> None:
    """Open the testbed, then run probes until the pipe is closed, which may be at any time."""
    orders: asyncio.Queue[Any] = asyncio.Queue()
    work = asyncio.create_task(_work(pipe, orders, opener))

    def read() -> None:
        try:
            orders.put_nowait(pipe.recv())
        except (EOFError, OSError):
            asyncio.get_running_loop().remove_reader(pipe.fileno())
            work.cancel()

    asyncio.get_running_loop().add_reader(pipe.fileno(), read)
    try:
        await work
    except asyncio.CancelledError:
        return


async def _work(pipe: Connection, orders: asyncio.Queue[Any], opener: OpenSide) -> None:
    """Open the testbed; the first order has the steps, each further one is a `ProbeBatch`."""
    async with opener() as testbed:
        pipe.send(SideReady(tuple(testbed.unserved)))
        steps: Sequence[ProbeStep] = await orders.get()
        while True:
            await _run_batch(testbed, pipe, await orders.get(), steps)


async def _run_batch(
    testbed: ProbedTestbed, pipe: Connection, batch: ProbeBatch, steps: Sequence[ProbeStep]
) -> None:
    testbed.patience = batch.patience
    found: list[tuple[int, Observation | str]] = []

    async def one(number: int) -> None:
        try:
            (seen,) = await testbed.probe(*steps[number], 1)
            found.append((number, seen))
        except HarnessError as reason:
            found.append((number, str(reason)))
        if len(found) >= _BATCH:
            pipe.send(SideResults(tuple(found)))
            found.clear()

    await asyncio.gather(*(one(number) for number in batch.numbers for _ in range(batch.count)))
    pipe.send(SideResults(tuple(found)))
