"""Input of ``iptables-restore``: blocks of lines, each one transaction.  Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kproxy.proxy.backends.xtables.rules import TableName

NFT_BLOCK_CHAINS = 1024
"""Chains in a block for iptables-nft."""

LEGACY_BLOCK_CHAINS = 1 << 30
"""Chains in a block for iptables-legacy: no limit."""

_CHUNK = 1 << 15
"""Least characters of a chunk: few enough that the tool parses while more is rendered."""


@dataclass(frozen=True, slots=True)
class Block:
    """One ``*table ... COMMIT`` block: the kernel applies all of it or nothing.

    ``lines`` may be a lazy iterator.  ``added_rules``: change of the table's number of rules (a `Rewrite` counts from
    zero); None: the number of rules that the lines append.
    """

    table: TableName
    lines: Iterable[str]
    added_rules: int | None = 0

    def __str__(self) -> str:
        return "".join(self.chunks())

    def chunks(self) -> Iterator[str]:
        """Its text in pieces, since it may have tens of megabytes."""
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
