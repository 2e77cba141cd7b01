"""Source ports of probes: a sender uses each once before it uses one again.

The kernel's own choice may give two connections to different addresses of a Service the same port. IPVS distinguishes
the replies of such a pair only where their endpoints differ (docs/backends/ipvs.md): a verdict must not depend on
that chance.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TypeVar

FIRST, LAST = 32768, 49999
"""Bounds: from the kernel's own range (net.ipv4.ip_local_port_range), below the ports of cases' health check node ports."""

_TRIES = 64

T = TypeVar("T")


class SourcePorts:
    """Next port of each sender."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def bound(self, sender: str, bind: Callable[[int], T]) -> T:
        """Result of ``bind`` with the sender's next port that is free.

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
