"""One side of a comparison: a process with a lab of its own, which runs probes by their numbers.

Two labs in one process would share its processor. The process is forked, so that it has the dump and the probes; it
ends with its parent, and its lab with it.
"""

from __future__ import annotations

import asyncio
import ctypes
import multiprocessing
import os
import signal
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection

from kproxy.conformance.testbed import HarnessError, Observation, SubjectFailed
from kproxy.lab.namespaces import LabError
from kproxy.lab.topology import Topology
from kproxy.tools.explain.dump import Dump
from kproxy.tools.lab_session.frontend_probes import FrontendProbe
from kproxy.tools.lab_session.lab import ProxySetup, Replica, open_replica

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_BATCH = 100
"""Number of results in one message."""

_FORK = multiprocessing.get_context("fork")


@dataclass(frozen=True, slots=True)
class WorkerJob:
    """Input that both sides have in common: the cluster, its lab and the probes."""

    dump: Dump
    topology: Topology
    questions: Sequence[FrontendProbe]


@dataclass(frozen=True, slots=True)
class ProbeBatch:
    """One probe, sent ``count`` times; ``patience``: seconds without a reply that count as silence."""

    number: int
    patience: float
    count: int = 1


@dataclass(frozen=True, slots=True)
class WorkerReady:
    """Message: the proxies have applied everything; ``unserved``: endpoints that no server could listen for."""

    unserved: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WorkerResults:
    """Message: observations of some probes; a text is the reason why there is none."""

    answers: tuple[tuple[int, Observation | str], ...]


@dataclass(frozen=True, slots=True)
class WorkerFailed:
    """Message: the lab could not be built, or the proxy did not run."""

    reason: str


WorkerMessage = WorkerReady | WorkerResults | WorkerFailed

BatchQueue = asyncio.Queue[tuple[ProbeBatch, ...]]


class ReplicaWorker:
    """Worker process and the pipe to it."""

    def __init__(self, job: WorkerJob, order: ProxySetup) -> None:
        self.name = f"{order.subject.name}:{order.mode}"
        self.pipe, theirs = _FORK.Pipe()
        self._process = _FORK.Process(target=_main, args=(os.getpid(), self.pipe, theirs, job, order))
        self._process.start()
        theirs.close()

    def send(self, batches: Sequence[ProbeBatch]) -> None:
        """Send probes to run; `WorkerResults` are received by the pipe."""
        self.pipe.send(tuple(batches))

    def receive(self) -> WorkerMessage:
        """Next message from the worker; blocks until there is one."""
        try:
            received: WorkerMessage = self.pipe.recv()
        except (EOFError, ConnectionResetError):
            self._process.join(timeout=5)
            return WorkerFailed(f"{self.name}: its process has ended (exit status {self._process.exitcode})")
        return received

    def close(self) -> None:
        """End the process, and its lab."""
        self.pipe.close()
        self._process.join(timeout=5)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def _main(parent: int, ours: Connection, pipe: Connection, job: WorkerJob, order: ProxySetup) -> None:
    """Body of the process: it ends when the pipe is closed, or when the parent dies."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    ours.close()
    if os.getppid() != parent:
        os._exit(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent closes the pipe
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        asyncio.run(_serve(pipe, job, order))
    except (LabError, HarnessError, SubjectFailed) as reason:
        _send_message(pipe, WorkerFailed(str(reason)))
    except BaseException:  # noqa: BLE001 (the parent must not wait for a word that never comes)
        _send_message(pipe, WorkerFailed(traceback.format_exc()))
    finally:
        os._exit(0)


def _send_message(pipe: Connection, message: WorkerMessage) -> None:
    try:
        pipe.send(message)
    except OSError:  # the parent has closed the pipe
        return


async def _serve(pipe: Connection, job: WorkerJob, order: ProxySetup) -> None:
    """Build the lab, then run probes until the pipe is closed, which may be at any time."""
    orders: BatchQueue = asyncio.Queue()
    work = asyncio.create_task(_work(pipe, orders, job, order))

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


async def _work(pipe: Connection, orders: BatchQueue, job: WorkerJob, order: ProxySetup) -> None:
    async with open_replica(job.dump, job.topology, order) as replica:
        pipe.send(WorkerReady(tuple(replica.unserved)))
        while True:
            await _probe_all(replica, pipe, await orders.get(), job.questions)


async def _probe_all(
    replica: Replica, pipe: Connection, batches: Sequence[ProbeBatch], questions: Sequence[FrontendProbe]
) -> None:
    found: list[tuple[int, Observation | str]] = []

    async def one(batch: ProbeBatch) -> None:
        try:
            seen: Observation | str = await replica.probe(questions[batch.number], patience=batch.patience)
        except HarnessError as reason:
            seen = str(reason)
        found.append((batch.number, seen))
        if len(found) >= _BATCH:
            pipe.send(WorkerResults(tuple(found)))
            found.clear()

    await asyncio.gather(*(one(batch) for batch in batches for _ in range(batch.count)))
    pipe.send(WorkerResults(tuple(found)))
