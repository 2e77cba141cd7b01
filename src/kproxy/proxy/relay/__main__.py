"""``python -m kproxy.proxy.relay WORKERS``: the relay's workers, restarted where one fails, until none is of use any more.

The daemon starts it where no worker runs; a container or a service manager may run it beside the daemon, so that it outlives
the daemon's container.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import time
from types import FrameType

from kproxy.proxy.relay.places import claim_directory, worker_path
from kproxy.proxy.relay.worker import run_worker

_PAUSE_SECONDS = 0.1

_running: dict[int, int] = {}


def main(arguments: list[str]) -> int:
    """Fork the workers, and wait for them; returns 0, or 2 for wrong arguments."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.INFO)
    if len(arguments) != 1 or not arguments[0].isdigit() or not int(arguments[0]):
        sys.stderr.write("usage: python -m kproxy.proxy.relay WORKERS\n")
        return 2
    count = int(arguments[0])
    claim_directory()
    for index in range(count):
        _fork(index, count)
    signal.signal(signal.SIGTERM, _pass_on)
    while _running:
        process, status = os.wait()
        index = _running.pop(process)
        if status:
            time.sleep(_PAUSE_SECONDS)
            _fork(index, count)
    return 0


def _fork(index: int, count: int) -> None:
    process = os.fork()
    if process:
        _running[process] = index
        return
    _running.clear()
    status = 1
    try:
        run_worker(worker_path(index, count), index / count)
        status = 0
    finally:
        logging.shutdown()
        os._exit(status)


def _pass_on(number: int, _frame: FrameType | None) -> None:
    for process in _running:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
