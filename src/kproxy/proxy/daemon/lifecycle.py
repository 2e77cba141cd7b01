"""What begins and ends parts of the daemon: what they share, threads, and the reasons why it ends by itself.

Below `kproxy.proxy.daemon.main`, which acts upon the reasons, and all that have one.
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
    """What all parts share: the configuration, this node's name, what is known of the cluster, the flags, what was asked."""

    config: Configuration
    name: str
    store: ClusterStore
    given: ParsedFlags
    requests: RequestStats


class StartupError(Exception):
    """The daemon cannot run with what it was given; ``str()`` says why."""


class RestartRequired(Exception):
    """What the daemon was set up by has changed; ``str()`` says what."""


ExitQueue = queue.SimpleQueue[Exception]
"""Takes what ends the daemon, from any thread."""


def start_thread(target: Callable[[], None], name: str) -> None:
    """Run ``target`` in a thread that does not keep the process alive."""
    threading.Thread(target=target, name=name, daemon=True).start()
