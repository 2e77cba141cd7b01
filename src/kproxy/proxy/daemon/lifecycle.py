"""Shared state of the daemon's parts, threads, and the exceptions that end the daemon.

Below `kproxy.proxy.daemon.main`, which acts upon the exceptions, and all that raise them.
"""

from __future__ import annotations

import queue
import signal
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from kproxy.proxy.daemon.cluster.request_log import RequestStats
from kproxy.proxy.daemon.cluster.store import ClusterStore
from kproxy.proxy.daemon.config.configuration import Configuration
from kproxy.proxy.daemon.config.flags import ParsedFlags


@dataclass(frozen=True, slots=True)
class DaemonContext:
    """State that all parts share: configuration, this node's name, the store, the flags, the counts of requests."""

    config: Configuration
    name: str
    store: ClusterStore
    given: ParsedFlags
    requests: RequestStats


class StartupError(Exception):
    """The daemon cannot run with its configuration or environment; ``str()`` is the reason."""


class RestartRequired(Exception):
    """An input that the daemon was set up with has changed, so it must be restarted; ``str()`` names it."""


class ExitQueue:
    """Exceptions that end the daemon, from any thread; the main thread makes the queue and waits in it.

    The wait is for a socket, to which the interpreter writes each signal too. A lock would lose a signal that arrives
    after the interpreter has last looked for one and before the lock sleeps: its handler waits for the lock's end.
    """

    def __init__(self) -> None:
        self._exceptions = queue.SimpleQueue[Exception]()
        self._woken, self._wake = socket.socketpair()
        self._wake.setblocking(False)
        signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)

    def put(self, exception: Exception) -> None:
        """End the daemon for this reason."""
        self._exceptions.put(exception)
        with suppress(BlockingIOError):  # full, so there is enough to wake up for
            self._wake.send(b"\0")

    def get(self) -> Exception:
        """Wait for the first exception; handlers of signals run meanwhile, and may raise."""
        while self._exceptions.empty():
            self._woken.recv(64)
        return self._exceptions.get()


def start_thread(target: Callable[[], None], name: str) -> None:
    """Run ``target`` in a thread that does not keep the process alive."""
    threading.Thread(target=target, name=name, daemon=True).start()
