"""What begins and ends parts of the daemon: threads, and the reasons why it ends by itself.

Below `kproxy.server.run`, which acts upon the reasons, and all that have one.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable


class CannotRun(Exception):
    """The daemon cannot run with what it was given; ``str()`` says why."""


class MustRestart(Exception):
    """What the daemon was set up by has changed; ``str()`` says what."""


Ending = queue.SimpleQueue[Exception]
"""Takes what ends the daemon, from any thread."""


def begin(body: Callable[[], None], name: str) -> None:
    """Run ``body`` in a thread that does not keep the process alive."""
    threading.Thread(target=body, name=name, daemon=True).start()
