"""Input of ``iptables-restore``: blocks of lines, each one transaction.  Pure."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from kproxy.proxy.backends.xtables.rules import ChainName, TableName

_Item = TypeVar("_Item")

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


def delete_chains_blocks(table: TableName, chains: Sequence[ChainName], block_chains: int) -> Iterator[Block]:
    """Blocks that delete chains to which only chains among them refer: flush all, then delete all."""
    if len(chains) <= block_chains:
        lines = [*declared(dict.fromkeys(chains, ())), *removed(chains)]
        yield from [Block(table, lines)] if lines else []
        return
    for some in batches(chains, block_chains):
        yield Block(table, declared(dict.fromkeys(some, ())), None)
    for some in batches(chains, block_chains):
        yield Block(table, removed(some))


def declared(texts: Mapping[ChainName, Sequence[str]]) -> list[str]:
    """Chains as input of a restore: all declarations in order of name, then all lines."""
    return [f":{name} - [0:0]" for name in sorted(texts)] + [
        line for lines in texts.values() for line in lines
    ]


def removed(chains: Iterable[ChainName]) -> list[str]:
    """Lines that delete chains."""
    return [f"-X {name}" for name in chains]


def batches(items: Iterable[_Item], size: int) -> Iterator[list[_Item]]:
    """Lists of at most ``size`` items."""
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch
