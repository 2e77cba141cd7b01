"""Source ports of probes: a sender uses each once before it uses one again.

The kernel's own choice may give two connections to different addresses of a Service the same port.  IPVS tells the
answers of such twins apart only where their endpoints differ (docs/backends/ipvs.md): a verdict must not hang on that luck.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TypeVar

FIRST, LAST = 32768, 49999
"""From where the kernel would choose (net.ipv4.ip_local_port_range), below what the lab reserves for health check node ports."""

_TRIES = 64

T = TypeVar("T")


class SourcePorts:
    """The next port of each sender."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def bound(self, sender: str, bind: Callable[[int], T]) -> T:
        """What ``bind`` makes of the sender's next port that is free.

        ``bind`` raises OSError (EADDRINUSE) for one that is not; any other error, or too many of these, is raised.
        """
        for left in reversed(range(_TRIES)):
            try:
                return bind(self._take(sender))
            except OSError as error:
                if error.errno != errno.EADDRINUSE or not left:
                    raise
        raise AssertionError

    def _take(self, sender: str) -> int:
        port = self._next.get(sender, FIRST)
        self._next[sender] = port + 1 if port < LAST else FIRST
        return port
