"""Looks at chains by the tools, spared while nothing can have changed.

A look starts a process for each chain, some fifteen in iptables mode.  nf_tables numbers its states, so by iptables-nft a
look is spared where the state is the one in which the last look found nothing missing.  iptables-legacy has no such number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kproxy.linux.nft_monitor import nft_generation
from kproxy.proxy.backends.xtables.kernel.tools import Variant

if TYPE_CHECKING:
    from collections.abc import Callable


class UnchangedTables:
    """The state of the tables in which a look last found nothing missing."""

    def __init__(self, variant: Variant) -> None:
        """``variant``: of the tools that look."""
        self._numbered = variant is Variant.NFT
        self._generation: bytes | None = None

    def missing(self, look: Callable[[], tuple[str, ...]]) -> tuple[str, ...]:
        """Result of ``look``, which is not called where it would find nothing again.

        The number is read first: a change during the look gives another one.
        """
        now = nft_generation() if self._numbered else None
        if now is not None and now == self._generation:
            return ()
        found = look()
        self._generation = None if found else now
        return found
