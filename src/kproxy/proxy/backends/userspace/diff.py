"""Transactions of userspace mode: blocks for ``iptables-restore --noflush`` from one state to another.

A packet may come between any two blocks, and no address may be neither served nor refused meanwhile.  So filter first gets
the new rules behind the old ones, then nat is written, then filter's old rules go; any of the blocks may fail, and those before it
stay.  A refusal of some senders stands only where nat
serves others: where nat begins to serve the address it comes last, and where nat ceases to it goes first, else all would meet it.
Chains are written whole.  Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kproxy.proxy.backends.userspace import names
from kproxy.proxy.backends.xtables.blocks import Block, declared
from kproxy.proxy.backends.xtables.rules import TableName

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

    from kproxy.proxy.backends.userspace.desired_state import DesiredState
    from kproxy.proxy.backends.xtables.rules import ChainName, Destination


def diff(
    last_applied: DesiredState | None, desired: DesiredState, refusals: Iterable[str] = ()
) -> tuple[Block, ...]:
    """Blocks from the state applied last to the desired one; of an unknown one (None) only its ``refusals`` are known.

    These are the rules of `names.PORTALS_FILTER` that the kernel has, without ``-A CHAIN``.
    """
    nat, filter_ = desired.tables[TableName.NAT], desired.tables[TableName.FILTER]
    mangle = desired.tables[TableName.MANGLE]
    if last_applied is not None and last_applied == desired:
        return ()
    before = None if last_applied is None else last_applied.tables
    blocks = []
    if before is None or before[TableName.MANGLE] != mangle:
        blocks.append(_whole(TableName.MANGLE, mangle))
    if before is None or before[TableName.FILTER] != filter_:
        blocks.append(_whole(TableName.FILTER, _filter_during_nat_change(last_applied, desired, refusals)))
    if before is None or before[TableName.NAT] != nat:
        blocks.append(_whole(TableName.NAT, nat))
    if before is None or before[TableName.FILTER] != filter_:
        blocks.append(_whole(TableName.FILTER, filter_))
    return tuple(blocks)


def _filter_during_nat_change(
    last_applied: DesiredState | None, desired: DesiredState, refusals: Iterable[str]
) -> Mapping[ChainName, tuple[str, ...]]:
    """Filter's chains while nat changes: the new rules behind the old ones.

    Left out are refusals of a state in which alone nat serves their destination: without nat they would refuse all senders.
    """
    chains = desired.tables[TableName.FILTER]
    if last_applied is None:
        both = (*refusals, *chains[names.PORTALS_FILTER])
        return {**chains, names.PORTALS_FILTER: tuple(dict.fromkeys(both))}
    before, after = _served(last_applied), _served(desired)
    waiting, gone = _refusals(desired, after - before), _refusals(last_applied, before - after)
    found = {}
    for name, lines in chains.items():
        kept = [line for line in last_applied.tables[TableName.FILTER].get(name, ()) if line not in gone]
        known = waiting.union(kept)
        found[name] = (*kept, *(line for line in lines if line not in known))
    return found


def _served(state: DesiredState) -> set[Destination | None]:
    """Destinations that nat has rules for."""
    return {
        line.destination
        for rules in state.service_rules.values()
        for line in rules.lines
        if line.chain in state.tables[TableName.NAT]
    }


def _refusals(state: DesiredState, of: Container[Destination | None]) -> set[str]:
    """Lines of filter that are for these destinations."""
    return {
        line.text
        for rules in state.service_rules.values()
        for line in rules.lines
        if line.destination in of and line.chain in state.tables[TableName.FILTER]
    }


def _whole(table: TableName, chains: Mapping[ChainName, tuple[str, ...]]) -> Block:
    lines = {name: tuple(f"-A {name} {line}" for line in found) for name, found in chains.items()}
    return Block(table, declared(lines), None)
