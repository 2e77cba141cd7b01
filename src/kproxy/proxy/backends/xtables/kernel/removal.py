"""Removal of chains from one table, and of the jumps to them.

Used at clean-up, and for chains of another mode or another proxy.  No effect where there are none.
All failures are `kproxy.linux.host.HostError`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kproxy.linux.host import HostError, Reason
from kproxy.linux.netfilter.rules import Point
from kproxy.proxy.backends.xtables import names
from kproxy.proxy.backends.xtables.blocks import Block, delete_chains_blocks
from kproxy.proxy.backends.xtables.kernel.jumps import list_chain_rules
from kproxy.proxy.backends.xtables.kernel.tools import list_chains_by_netlink

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Set as AbstractSet

    from kproxy.proxy.backends.xtables.kernel.tools import Tools
    from kproxy.proxy.backends.xtables.rules import ChainName, TableName

_BUILTIN = frozenset(Point.__members__)
_TARGET = re.compile(r" -[jg] (\S+)$")


def remove_chains(tools: Tools, table: TableName, is_ours: Callable[[TableName, ChainName], bool]) -> int:
    """Remove our chains from a table, and all jumps to them from builtin chains; returns the number of chains removed.

    A chain that a rule in another program's chain refers to stays, and `HostError` BUSY names both.  It is flushed,
    except KUBE-MARK-MASQ: that only sets the mark that other programs rely on
    (the CNI plugin portmap with ``externalSetMarkChain``), and nftables mode reads the same one.
    """
    ours = frozenset(name for name in _chains(tools, table) if is_ours(table, name))
    if not ours:
        return 0
    try:
        tools.restore(_removal(tools, table, ours, frozenset()))
    except HostError:
        references = _references(tools, table, ours)
        if not references:
            raise
        kept = frozenset(references)
        left = ours & _chains(tools, table)
        tools.restore(_removal(tools, table, left - kept, kept))
        raise _referred_to(tools, table, references) from None
    return len(ours)


def _chains(tools: Tools, table: TableName) -> AbstractSet[ChainName]:
    """Names of existing chains; none where the kernel does not support the variant.

    iptables-legacy fails in the same way without CAP_NET_RAW; then the kernel lists its tables.
    """
    try:
        return tools.chains()[table]
    except HostError as error:
        if error.reason not in {Reason.MISSING, Reason.UNSUPPORTED}:
            raise
        if _are_hidden(tools):
            detail = f"{error.detail}; rules may be there: run kproxy with the capability NET_RAW too"
            raise HostError(error.operation, detail, Reason.DENIED) from error
        return frozenset()


def _are_hidden(tools: Tools) -> bool:
    """True if the kernel has tables of the variant, whose chains only the tools could list."""
    try:
        return list_chains_by_netlink(tools.family, tools.variant) is None
    except HostError:
        return False


def _removal(
    tools: Tools, table: TableName, removed: AbstractSet[ChainName], kept: AbstractSet[ChainName]
) -> list[Block]:
    """Blocks that delete jumps, flush chains that stay and delete the others; the one most referred to comes last."""
    existing = _chains(tools, table)
    jumps = [
        f"-D {chain} {line}"
        for chain in sorted(_BUILTIN & existing)
        for line in list_chain_rules(tools, table, chain)
        if _target(line) in removed | kept
    ]
    flushed = [f":{name} - [0:0]" for name in sorted(kept - {names.MARK_MASQUERADE})]
    return [
        *([Block(table, [*flushed, *jumps])] if flushed or jumps else []),
        *delete_chains_blocks(table, sorted(removed - {names.MARK_MASQUERADE}), tools.block_chains),
        *delete_chains_blocks(table, sorted(removed & {names.MARK_MASQUERADE}), tools.block_chains),
    ]


def _references(
    tools: Tools, table: TableName, ours: AbstractSet[ChainName]
) -> dict[ChainName, tuple[str, ...]]:
    """Rules in other programs' chains that refer to ours, by our chain."""
    found: dict[ChainName, tuple[str, ...]] = {}
    for line in tools.saved(table):
        rule = line.decode(errors="replace").rstrip("\n")
        source, target = rule.removeprefix("-A ").partition(" ")[0], _target(rule)
        if rule.startswith("-A ") and target in ours and source not in ours | _BUILTIN:
            found[target] = (*found.get(target, ()), rule)
    return found


def _target(rule: str) -> ChainName:
    found = _TARGET.search(f" {rule}")
    return found[1] if found else ""


def _referred_to(tools: Tools, table: TableName, references: dict[ChainName, tuple[str, ...]]) -> HostError:
    stays = "; ".join(
        f"chain {name}, to which {len(rules)} of another program's rules lead, the first: {rules[0]}"
        for name, rules in sorted(references.items())
    )
    advice = "all else of the table is removed; end that program or remove its rules, and clean up again"
    return HostError(f"{tools.command} -t {table.value}", f"there stays {stays}; {advice}", Reason.BUSY)
