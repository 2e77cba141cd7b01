"""``python -m kproxy.proxy.relay WORKERS [RELEASE]``: the relay's workers, restarted where one fails later than at its start, until none is of use any more.

The daemon starts it where a worker is missing, and it starts those alone; a container or a service manager may run it beside the daemon, so that it outlives
the daemon's container.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from kproxy import __version__
from kproxy.proxy.relay.places import claim_directory, worker_path
from kproxy.proxy.relay.worker import run_worker

_PAUSE_SECONDS = 0.1

_LEAST_SECONDS = 1.0
"""Seconds after its start within which a worker that fails is left to the daemon: else parents that it starts would grow in number."""


class _Running(NamedTuple):
    worker: int
    began: float


_running: dict[int, _Running] = {}

log = logging.getLogger(__name__)


def run_workers(arguments: list[str]) -> int:
    """Fork the workers, and wait for them; returns 0, 1 if one failed at its start, or 2 for wrong arguments."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.INFO)
    number, release = (*arguments, __version__)[:2] if arguments else ("", "")
    if not number.isdigit() or not int(number):
        sys.stderr.write("usage: python -m kproxy.proxy.relay WORKERS [RELEASE]\n")
        return 2
    count = int(number)
    claim_directory()
    places = [(worker_path(index, count, release), index / count) for index in range(count)]
    for index in range(count):
        _fork(index, places)
    signal.signal(signal.SIGTERM, _pass_on)
    failed = False
    while _running:
        process, status = os.wait()
        worker, began = _running.pop(process)
        if status and time.monotonic() - began < _LEAST_SECONDS:
            failed = True
        elif status:
            time.sleep(_PAUSE_SECONDS)
            _fork(worker, places)
    return int(failed)


def _fork(index: int, places: Sequence[tuple[Path, float]]) -> None:
    process = os.fork()
    if process:
        _running[process] = _Running(index, time.monotonic())
        return
    _running.clear()
    status = 1
    try:
        run_worker(*places[index])
        status = 0
    except Exception:
        log.exception("relay worker %d failed", index)
    finally:
        logging.shutdown()
        os._exit(status)


def _pass_on(number: int, _frame: FrameType | None) -> None:
    for process in _running:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)


if __name__ == "__main__":
    sys.exit(run_workers(sys.argv[1:]))
