"""Transactions of iptables mode: input of ``iptables-restore --noflush`` that changes one state to another.

Theory of operation
-------------------
The kernel replaces one table at a time: all lines of a ``*table ... COMMIT`` block take effect at once, blocks one after the
other.  A change is therefore several atomic steps, and a packet may come between any two.  Each new connection meets, in this
order, the nat table (which service port, which endpoint) and the filter table (refusals).  Filter refuses only what nat left
alone, because rules in filter match the address of a Service, and nat has rewritten that address where anything serves it.
Three states of an address follow:

* served: nat has a rule.  Whatever filter says about the address does not matter.
* refused: nat has none, filter has a REJECT or DROP.
* unknown: neither.  The packet would be routed on, to nowhere: the one state that no order of steps may pass through.

From that the order of an `Update`:

1. Additions to filter.  A refusal that is new takes effect only once nat lets go.
2. nat: chains of service ports first, then the rules that lead to them, then flush and deletion of chains that nothing leads to any more.  A jump
   to a chain is never written before the chain, and a chain is never deleted before the last jump to it, so that a block
   is never refused for a missing or a busy chain.
3. Deletions from filter.  A refusal goes when nat already serves.

Of an address that nat serves for some senders only (those in the cluster, by the shortcut; source ranges), filter refuses the others.  Such a
refusal must not stand where nat has nothing, or it is met by all.  So it is added in 3 where nat begins to serve the address, and deleted in 1
where nat ceases to.

Rules of shared chains stand in trees (``dispatch_tree``).  A chain that differs is written as a whole, and there is no other way to
change one: they are short.  Step 1 writes the tree of the refusals that stand while nat changes, step 3 that of the new state's alone.  A tree that takes more than one block is written from its leaves to its root, and then chains that are no longer in
it go.  In between, some chains are of the old tree and some of the new one.  A packet for an address in both finds its rule all the
same: a chain named after a group leads to all addresses of the group, in either tree, and the chains that it leads to do so too, for they were
there before it.

A `Rewrite` knows only the names of the chains that exist: nat has nothing for a service port without any.  It appends the new refusals to
the old chains of filter, writes nat as above, and then rewrites the chains of filter as a whole.  Declaring a chain (``:NAME - [0:0]``) flushes it, hence a declaration
stands before the lines of its chain.  Hooks in builtin chains come after everything they lead to (see ``kernel.applier``).

What it costs decides the size of the blocks, measured with 5,000 Services of 5 endpoints.  With iptables-nft the time of
a block grows with the square of its chains, and each block costs the kernel one pass over the table: blocks of some 1,000
chains.  With iptables-legacy each block copies the whole table: one block.

Pure.  `tests/unit/proxy/backends/iptables/test_diff.py` applies random transactions block by block and looks for unknown addresses.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain as chained
from typing import TYPE_CHECKING

from kproxy.proxy.backends.iptables import names, static_rules
from kproxy.proxy.backends.iptables.desired_state import (
    DesiredState,
    changed,
    dispatch_difference,
    edited_trees,
)
from kproxy.proxy.backends.iptables.names import SharedChain
from kproxy.proxy.backends.xtables.blocks import (
    LEGACY_BLOCK_CHAINS,
    Block,
    batches,
    declared,
    delete_chains_blocks,
    removed,
)
from kproxy.proxy.backends.xtables.rules import TableName, render

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from kproxy.linux.netfilter.rules import Chain
    from kproxy.proxy.backends.iptables.desired_state import Chains, Pair, ServiceRules
    from kproxy.proxy.backends.iptables.dispatch import Placed, SharedTrees
    from kproxy.proxy.backends.xtables.rules import ChainName

_FILTER_SHARED = tuple(shared for shared in SharedChain if shared.table is TableName.FILTER)
_NAT_SHARED = (SharedChain.NAT_NODE_PORTS, SharedChain.NAT_SERVICES)
"""In this order, for the second leads to the first."""


_Destination = tuple[bool, int]
"""Which of a shared chain's trees, and the key in it."""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Writes everything, with unknown kernel contents, and deletes derived chains that are no longer wanted.

    ``existing_chains`` are the names of all chains by table.  Iterate for the blocks; ``str()`` is their text.
    """

    existing_chains: Mapping[TableName, frozenset[ChainName]]
    desired: DesiredState
    block_chains: int

    def __iter__(self) -> Iterator[Block]:
        early = self._early_rejects()
        if early:
            yield Block(TableName.FILTER, early)
        yield _block(TableName.MANGLE, {names.CANARY: ()})
        yield from self._nat()
        yield from self._filter()

    def __str__(self) -> str:
        return "".join(map(str, self))

    def _nat(self) -> Iterator[Block]:
        """Chains of service ports first, then dispatch and the deletion of stale chains."""
        if self.block_chains == LEGACY_BLOCK_CHAINS:
            yield Block(TableName.NAT, self._nat_lines(), None)
            return
        written: set[ChainName] = set()
        pending = self._static_chains(TableName.NAT)
        for rules in self.desired.service_rules.values():
            pending.update(rules.own_lines())
            if len(pending) > self.block_chains:
                yield _block(TableName.NAT, pending)
                written.update(pending)
                pending = {}
        pending.update(_dispatch_lines(self.desired, _NAT_SHARED))
        stale = self._stale(TableName.NAT, written.union(pending))
        yield from _blocks(TableName.NAT, _Change(pending, stale, None), self.block_chains)

    def _filter(self) -> Iterator[Block]:
        chains = {**self._static_chains(TableName.FILTER), **_dispatch_lines(self.desired, _FILTER_SHARED)}
        stale = self._stale(TableName.FILTER, chains.keys())
        yield from _blocks(TableName.FILTER, _Change(chains, stale, None), self.block_chains)

    def _nat_lines(self) -> Iterator[str]:
        """Lines of one block, rendered while the tool reads: each chain is declared, and so flushed, before its lines."""
        static, shared = self._static_chains(TableName.NAT), _dispatch_lines(self.desired, _NAT_SHARED)
        written = {*static, *shared}
        yield from declared({**static, **dict.fromkeys(shared, ())})
        for rules in self.desired.service_rules.values():
            texts = rules.own_lines()
            written.update(texts)
            yield from declared(texts)
        yield from chained(*shared.values())
        stale = self._stale(TableName.NAT, written)
        yield from declared(dict.fromkeys(stale, ()))
        yield from removed(stale)

    def _static_chains(self, table: TableName) -> dict[ChainName, tuple[str, ...]]:
        """The canary and the chains that no Service changes; chains of service ports jump to some of them."""
        return {names.CANARY: (), **_render_chains(static_rules.static_chains(self.desired.options)[table])}

    def _stale(self, table: TableName, written: AbstractSet[ChainName]) -> list[ChainName]:
        """Chains of service ports, endpoints and trees of an earlier run that were not written again, and one of a trial."""
        others = self.existing_chains.get(table, frozenset()) - written
        return sorted(name for name in others if names.is_derived(name) or name == names.TRIAL)

    def _early_rejects(self) -> list[str]:
        """Lines that append the new REJECT and DROP rules to filter before nat is written; the old ones stay until the end.

        They stand in the shared chains themselves: of trees that may be there, nothing is known.
        """
        present = self.existing_chains.get(TableName.FILTER, frozenset())
        return [
            f"-A {one.shared.chain} {one.entry.item}"
            for rules in self.desired.service_rules.values()
            for one in _refusals(rules.dispatch)
            if one.shared.chain in present
            and (_destination(one) not in _served((rules,)) or self._has_chains_of(rules))
        ]

    def _has_chains_of(self, rules: ServiceRules) -> bool:
        """True if nat has chains of a service port."""
        present = self.existing_chains.get(TableName.NAT, frozenset())
        return any(chain.name in present for chain in rules.chains())


@dataclass(frozen=True, slots=True)
class Update:
    """Writes each chain that differs as a whole, and deletes chains that are no longer used.

    Iterate for the blocks (none when nothing differs); ``str()`` is their text.
    """

    last_applied: DesiredState
    desired: DesiredState
    block_chains: int

    def __iter__(self) -> Iterator[Block]:
        pairs = changed(self.last_applied, self.desired)
        before, after = (_dispatch(state, _FILTER_SHARED) for state in (self.last_applied, self.desired))
        meanwhile = self._filter_during_nat_change(pairs)
        early = self._static_difference(TableName.FILTER)
        early.add(_dispatch_difference(before, meanwhile))
        yield from _blocks(TableName.FILTER, early, self.block_chains)
        yield from self._nat(pairs)
        yield from _blocks(TableName.FILTER, _dispatch_difference(meanwhile, after), self.block_chains)

    def __str__(self) -> str:
        return "".join(map(str, self))

    def _filter_during_nat_change(self, pairs: Sequence[Pair]) -> dict[ChainName, tuple[str, ...]]:
        """Filter's shared chains while nat changes: the refusals of both states.

        Left out are refusals of a state in which alone nat serves their destination: without nat they would refuse all senders.
        """
        removed, added = map(_refusals, dispatch_difference(pairs))
        before, after = (_served(pair[number] for pair in pairs) for number in (0, 1))
        waiting = [one for one in added if _destination(one) in after - before]
        staying = [one for one in removed if _destination(one) not in before - after]
        trees = edited_trees(self.desired.trees, waiting, staying)
        return {
            name: lines
            for shared in _FILTER_SHARED
            for name, lines in self._written(shared, trees[shared]).items()
        }

    def _written(self, shared: SharedChain, trees: SharedTrees[str]) -> Chains:
        """A shared chain's chains, without work where the trees are those of one of the states."""
        for state in (self.desired, self.last_applied):
            if trees is state.trees[shared]:
                return state.chains(shared)
        return self.desired.write(shared, trees)

    def _nat(self, pairs: Sequence[Pair]) -> Iterator[Block]:
        """New chains, then dispatch, then deletion of unused chains; all in one block if they are few."""
        pending = self._static_difference(TableName.NAT)
        for pair in pairs:
            pending.add(_own_difference(*pair))
            if len(pending.written) > self.block_chains:
                yield _block(TableName.NAT, pending.written, pending.added_rules)
                pending = _Change({}, pending.unused)
        before, after = (_dispatch(state, _NAT_SHARED) for state in (self.last_applied, self.desired))
        pending.add(_dispatch_difference(before, after))
        yield from _blocks(TableName.NAT, pending, self.block_chains)

    def _static_difference(self, table: TableName) -> _Change:
        """The static chains that differ."""
        old = _render_chains(static_rules.static_chains(self.last_applied.options)[table])
        new = _render_chains(static_rules.static_chains(self.desired.options)[table])
        return _difference(old, new)


Transaction = Rewrite | Update


def diff(
    last_applied: DesiredState | Mapping[TableName, frozenset[ChainName]],
    desired: DesiredState,
    block_chains: int,
) -> Transaction:
    """Transaction from the state applied last, or, where that is unknown, from the names of existing chains, to ``desired``.

    ``block_chains`` is `NFT_BLOCK_CHAINS` or `LEGACY_BLOCK_CHAINS`.
    """
    if isinstance(last_applied, DesiredState):
        return Update(last_applied, desired, block_chains)
    return Rewrite(last_applied, desired, block_chains)


@dataclass(slots=True)
class _Change:
    """Change of a table: ``-A`` lines by chain, in the order in which chains may be written; chains to delete after all of them.

    ``added_rules``: how many more rules there are then; None: the lines are all that there are.
    """

    written: dict[ChainName, tuple[str, ...]]
    unused: list[ChainName]
    added_rules: int | None = 0

    def add(self, later: _Change) -> None:
        """Join a change of other chains."""
        self.written |= later.written
        self.unused += later.unused
        self.added_rules = (self.added_rules or 0) + (later.added_rules or 0)


def _refusals(rules: Iterable[Placed[str]]) -> list[Placed[str]]:
    """Those of rules in shared chains that are filter's."""
    return [one for one in rules if one.shared in _FILTER_SHARED]


def _served(services: Iterable[ServiceRules | None]) -> frozenset[_Destination]:
    """Destinations that nat has a rule for."""
    return frozenset(
        _destination(one)
        for rules in services
        if rules
        for one in rules.dispatch
        if one.shared in _NAT_SHARED
    )


def _destination(rule: Placed[str]) -> _Destination:
    return rule.addressed, rule.entry.key


def _own_difference(before: ServiceRules | None, after: ServiceRules | None) -> _Change:
    return _difference(before.own_lines() if before else {}, after.own_lines() if after else {})


def _dispatch_difference(before: Chains, after: Chains) -> _Change:
    change = _difference(before, after)
    change.written = {name: _appended(name, lines) for name, lines in change.written.items()}
    return change


def _difference(before: Chains, after: Chains) -> _Change:
    """The chains that differ, in the order of ``after``."""
    written = {name: lines for name, lines in after.items() if before.get(name) != lines}
    unused = [name for name in before if name not in after]
    growth = sum(len(lines) - len(before.get(name, ())) for name, lines in written.items())
    return _Change(written, unused, growth - sum(len(before[name]) for name in unused))


def _dispatch(state: DesiredState, shared: Iterable[SharedChain]) -> dict[ChainName, tuple[str, ...]]:
    """Lines of shared chains and of those of their trees, each chain after those that it leads to."""
    return {name: lines for one in shared for name, lines in state.chains(one).items()}


def _dispatch_lines(state: DesiredState, shared: Iterable[SharedChain]) -> dict[ChainName, tuple[str, ...]]:
    """Likewise with ``-A CHAIN``."""
    return {name: _appended(name, lines) for name, lines in _dispatch(state, shared).items()}


def _appended(name: ChainName, lines: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"-A {name} {line}" for line in lines)


def _blocks(table: TableName, change: _Change, block_chains: int) -> Iterator[Block]:
    """A change in blocks of so many chains; the deletions are in the last one if they are few."""
    parts = [dict(batch) for batch in batches(change.written.items(), block_chains)]
    for batch in parts[:-1]:
        yield _block(table, batch, None if change.added_rules is None else 0)
    last = parts[-1] if parts else {}
    together = len(change.unused) <= block_chains
    unused = change.unused if together else []
    lines = [*declared({**last, **dict.fromkeys(unused, ())}), *removed(unused)]
    if lines:
        yield Block(table, lines, change.added_rules)
    if not together:
        yield from delete_chains_blocks(table, change.unused, block_chains)


def _render_chains(chains: Iterable[Chain]) -> dict[ChainName, tuple[str, ...]]:
    return {chain.name: tuple(render(chain)) for chain in chains}


def _block(table: TableName, texts: Mapping[ChainName, Sequence[str]], growth: int | None = None) -> Block:
    return Block(table, declared(texts), growth)
