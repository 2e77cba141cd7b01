"""Input of ``iptables-restore``: blocks of lines, each one transaction.  Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kproxy.proxy.backends.xtables.rules import Table

NFT_BLOCK_CHAINS = 1024
"""After so many chains iptables-nft is given the next block."""

LEGACY_BLOCK_CHAINS = 1 << 30
"""For iptables-legacy: never."""

_CHUNK = 1 << 15
"""Characters written at once, or a few more: little enough that the tool reads while more is made."""


@dataclass(frozen=True, slots=True)
class Block:
    """One ``*table ... COMMIT``: the kernel does all of it or nothing.

    ``lines`` may be an iterator that makes them while they are read.  ``added_rules`` is how many more rules the table has
    afterwards (a `Rewrite` counts from zero); None: as many as the lines append.
    """

    table: Table
    lines: Iterable[str]
    added_rules: int | None = 0

    def __str__(self) -> str:
        return "".join(self.chunks())

    def chunks(self) -> Iterator[str]:
        """Its text in pieces, for it may have tens of megabytes."""
        yield f"*{self.table.value}\n"
        pending: list[str] = []
        size = 0
        for text in self.lines:
            pending.append(text)
            size += len(text)
            if size >= _CHUNK:
                yield "\n".join((*pending, ""))
                pending, size = [], 0
        yield "\n".join((*pending, "COMMIT", ""))
