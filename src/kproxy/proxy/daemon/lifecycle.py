"""Shared state of the daemon's parts, threads, and the exceptions that end the daemon.

Below `kproxy.proxy.daemon.main`, which acts upon the exceptions, and all that raise them.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
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


ExitQueue = queue.SimpleQueue[Exception]
"""Queue of exceptions that end the daemon, from any thread."""


def start_thread(target: Callable[[], None], name: str) -> None:
    """Run ``target`` in a thread that does not keep the process alive."""
    threading.Thread(target=target, name=name, daemon=True).start()
