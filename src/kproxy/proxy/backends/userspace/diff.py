"""Transactions of userspace mode: blocks for ``iptables-restore --noflush`` from one state to another.

A packet may come between any two blocks, and no address may be neither served nor refused meanwhile.  So filter first gets
the new rules behind the old ones, then nat is written, then filter's old rules go.  Chains are written whole.  Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kproxy.proxy.backends.xtables.blocks import Block, declared
from kproxy.proxy.backends.xtables.rules import TableName

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kproxy.proxy.backends.userspace.desired_state import DesiredState
    from kproxy.proxy.backends.xtables.rules import ChainName

_Chains = "Mapping[ChainName, tuple[str, ...]]"


def diff(last_applied: DesiredState | None, desired: DesiredState) -> tuple[Block, ...]:
    """Blocks from the state applied last to the desired one; from an unknown one (None) the new filter rules are appended first."""
    nat, filter_ = desired.tables[TableName.NAT], desired.tables[TableName.FILTER]
    mangle = desired.tables[TableName.MANGLE]
    if last_applied is not None and last_applied == desired:
        return ()
    before = None if last_applied is None else last_applied.tables
    blocks = []
    if before is None or before[TableName.MANGLE] != mangle:
        blocks.append(_whole(TableName.MANGLE, mangle))
    if before is None or before[TableName.FILTER] != filter_:
        blocks.append(_early(None if before is None else before[TableName.FILTER], filter_))
    if before is None or before[TableName.NAT] != nat:
        blocks.append(_whole(TableName.NAT, nat))
    if before is None or before[TableName.FILTER] != filter_:
        blocks.append(_whole(TableName.FILTER, filter_))
    return tuple(blocks)


def _early(
    before: Mapping[ChainName, tuple[str, ...]] | None, chains: Mapping[ChainName, tuple[str, ...]]
) -> Block:
    """Filter with the new rules behind the old ones."""
    if before is None:
        return _whole(TableName.FILTER, chains)
    both = {
        name: (*before.get(name, ()), *(x for x in lines if x not in before.get(name, ())))
        for name, lines in chains.items()
    }
    return _whole(TableName.FILTER, both)


def _whole(table: TableName, chains: Mapping[ChainName, tuple[str, ...]]) -> Block:
    lines = {name: tuple(f"-A {name} {line}" for line in found) for name, found in chains.items()}
    return Block(table, declared(lines), None)
