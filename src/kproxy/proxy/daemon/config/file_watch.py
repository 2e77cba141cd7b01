"""Watch of the configuration file; when its content changes, the daemon ends, to be started again.

A thread of `kproxy.proxy.daemon.main`. Polling once a second detects every way a file changes, also a ConfigMap
volume's exchange of a symbolic link, on every file system (``cfg.file-watch``).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

POLL_SECONDS = 1.0

Stamp = tuple[int, int, int]


@dataclass(slots=True)
class WatchedFile:
    """File with the ``content`` that the daemon read."""

    path: Path
    content: bytes
    _stamp: Stamp | None = field(default=None, init=False)

    def changed(self) -> bool:
        """True if the content differs now; an unreadable file counts as unchanged, since it may be in the middle of a replacement."""
        try:
            found = self.path.stat()
            stamp = (found.st_ino, found.st_mtime_ns, found.st_size)
            if stamp == self._stamp:
                return False
            changed = self.path.read_bytes() != self.content
        except OSError:
            return False
        self._stamp = None if changed else stamp
        return changed

    def wait(self, on_change: Callable[[], None]) -> None:
        """Wait for a change, then call ``on_change``."""
        while not self.changed():
            time.sleep(POLL_SECONDS)
        on_change()
