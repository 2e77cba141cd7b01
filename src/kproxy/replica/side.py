"""One side of a comparison: a process of its own with a lab of its own, which answers questions by their numbers.

Two labs in one process would share its processor.  The process is forked, so that it knows the dump and the questions; it
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

from kproxy.conformance.testbed import Broken, Observation, SubjectFailed
from kproxy.explain.dump import Dump
from kproxy.lab.namespaces import LabError
from kproxy.replica.lab import Order, Replica, open_replica
from kproxy.replica.layout import Layout
from kproxy.replica.questions import Question

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_BATCH = 100
"""Answers are told so many at a time."""

_FORK = multiprocessing.get_context("fork")


@dataclass(frozen=True, slots=True)
class Job:
    """What both sides have in common: the cluster, its lab and the questions."""

    dump: Dump
    layout: Layout
    questions: Sequence[Question]


@dataclass(frozen=True, slots=True)
class Asking:
    """One question, as often as ``count`` says; ``patience``: seconds without any answer that are silence."""

    number: int
    patience: float
    count: int = 1


@dataclass(frozen=True, slots=True)
class Ready:
    """The proxies have applied everything; ``unserved``: endpoints that nothing could listen for."""

    unserved: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Seen:
    """What came of some questions; a text: why it could not be observed."""

    answers: tuple[tuple[int, Observation | str], ...]


@dataclass(frozen=True, slots=True)
class Failed:
    """The lab could not be built, or the proxy did not run."""

    reason: str


Told = Ready | Seen | Failed

Orders = asyncio.Queue[tuple[Asking, ...]]


class Side:
    """The process and the pipe to it."""

    def __init__(self, job: Job, order: Order) -> None:
        self.name = f"{order.subject.name}:{order.mode}"
        self.pipe, theirs = _FORK.Pipe()
        self._process = _FORK.Process(target=_main, args=(os.getpid(), self.pipe, theirs, job, order))
        self._process.start()
        theirs.close()

    def ask(self, asking: Sequence[Asking]) -> None:
        """Have questions asked; `Seen` comes by the pipe."""
        self.pipe.send(tuple(asking))

    def told(self) -> Told:
        """What it has to say next; waits."""
        try:
            told: Told = self.pipe.recv()
        except (EOFError, ConnectionResetError):
            self._process.join(timeout=5)
            return Failed(f"{self.name}: its process has ended (exit status {self._process.exitcode})")
        return told

    def close(self) -> None:
        """End it, and its lab."""
        self.pipe.close()
        self._process.join(timeout=5)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def _main(parent: int, ours: Connection, pipe: Connection, job: Job, order: Order) -> None:
    """The process: its end comes when the pipe is closed, or when the parent dies."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    ours.close()
    if os.getppid() != parent:
        os._exit(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent closes the pipe
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        asyncio.run(_serve(pipe, job, order))
    except (LabError, Broken, SubjectFailed) as reason:
        _tell(pipe, Failed(str(reason)))
    except BaseException:  # noqa: BLE001 (the parent must not wait for a word that never comes)
        _tell(pipe, Failed(traceback.format_exc()))
    finally:
        os._exit(0)


def _tell(pipe: Connection, told: Told) -> None:
    try:
        pipe.send(told)
    except OSError:  # nobody listens any more
        return


async def _serve(pipe: Connection, job: Job, order: Order) -> None:
    """Build the lab, then answer until the pipe is closed, which may be at any time."""
    orders: Orders = asyncio.Queue()
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


async def _work(pipe: Connection, orders: Orders, job: Job, order: Order) -> None:
    async with open_replica(job.dump, job.layout, order) as replica:
        pipe.send(Ready(tuple(replica.unserved)))
        while True:
            await _ask_all(replica, pipe, await orders.get(), job.questions)


async def _ask_all(
    replica: Replica, pipe: Connection, asking: Sequence[Asking], questions: Sequence[Question]
) -> None:
    found: list[tuple[int, Observation | str]] = []

    async def one(ask: Asking) -> None:
        try:
            seen: Observation | str = await replica.ask(questions[ask.number], patience=ask.patience)
        except Broken as reason:
            seen = str(reason)
        found.append((ask.number, seen))
        if len(found) >= _BATCH:
            pipe.send(Seen(tuple(found)))
            found.clear()

    await asyncio.gather(*(one(ask) for ask in asking for _ in range(ask.count)))
    pipe.send(Seen(tuple(found)))
