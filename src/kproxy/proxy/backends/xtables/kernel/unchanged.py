"""Looks at chains by the tools, spared while nothing can have changed.

A look starts a process for each chain, some fifteen in iptables mode.  It is spared where the tables are in the state in
which the last look found nothing missing:

* iptables-nft: nf_tables numbers its states.
* iptables-legacy: the sizes of the tables, and a checksum of their entries, which is read for at most a thousandth of the
  time.  So a change that leaves all sizes as they are can be seen later, with 10,000 Services by some minutes.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from kproxy.linux.legacy_tables import LegacyTables
from kproxy.linux.nft_monitor import nft_generation
from kproxy.proxy.backends.xtables.kernel.tools import Variant

if TYPE_CHECKING:
    from collections.abc import Callable

    from kproxy.proxy.backends.xtables.kernel.tools import Tools

_SHARE = 1000
"""Reciprocal of the largest share of time that checksums of iptables-legacy's tables may take."""


def state_reader(tools: Tools) -> Callable[[], bytes]:
    """Reader of the state of the tables that the tools write: another value after a change of any process.

    It raises `HostError`.
    """
    return nft_generation if tools.variant is Variant.NFT else _LegacyState(LegacyTables(tools.family)).read


class UnchangedTables:
    """The state of the tables in which a look last found nothing missing."""

    def __init__(self, read_state: Callable[[], bytes]) -> None:
        """``read_state``: from `state_reader`."""
        self._read_state = read_state
        self._state: bytes | None = None

    def missing(self, look: Callable[[], tuple[str, ...]]) -> tuple[str, ...]:
        """Result of ``look``, which is not called where it would find nothing again.

        The state is read first: a change during the look gives another one.
        """
        now = self._read_state()
        if now == self._state:
            return ()
        found = look()
        self._state = None if found else now
        return found


class _LegacyState:
    """Sizes of the tables, with the last checksum while these sizes last and a new one is not due."""

    def __init__(self, tables: LegacyTables) -> None:
        """Nothing is read yet."""
        self._tables = tables
        self._sizes: bytes | None = None
        self._digest = b""
        self._not_before = 0.0

    def read(self) -> bytes:
        """Sizes and checksum."""
        sizes, started = self._tables.sizes(), time.monotonic()
        if sizes != self._sizes or started >= self._not_before:
            self._digest = self._tables.digest()
            ended = time.monotonic()
            self._sizes, self._not_before = sizes, ended + _SHARE * (ended - started)
        return sizes + self._digest
