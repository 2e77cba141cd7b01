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

A `Rewrite` knows only the names of the chains that exist.  It appends the new refusals to the old chains of filter, writes nat as
above, and then rewrites the chains of filter as a whole.  Declaring a chain (``:NAME - [0:0]``) flushes it, hence a declaration
stands before the lines of its chain.  Hooks in builtin chains come after everything they lead to (see ``kernel.applier``).

What it costs decides the size of the blocks, measured with 5,000 Services of 5 endpoints.  With iptables-nft the time of
a block grows with the square of its chains, and each block costs the kernel one pass over the table: blocks of some 1,000
chains.  With iptables-legacy each block copies the whole table: one block.  Rewriting a long shared chain costs more than
adding or deleting single rules, until one line in `REWRITE_SHARE` goes.

Pure.  `tests/unit/proxy/backends/iptables/test_diff.py` applies random transactions block by block and looks for unknown addresses.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain as chained
from typing import TYPE_CHECKING, NamedTuple

from kproxy.proxy.backends.iptables import names, static_rules
from kproxy.proxy.backends.iptables.desired_state import DesiredState
from kproxy.proxy.backends.iptables.names import SharedChain
from kproxy.proxy.backends.xtables.blocks import (
    LEGACY_BLOCK_CHAINS,
    Block,
    declared,
    delete_chains_blocks,
    removed,
)
from kproxy.proxy.backends.xtables.rules import TableName, render

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from kproxy.linux.netfilter.rules import Chain
    from kproxy.proxy.backends.iptables.desired_state import ServiceRules
    from kproxy.proxy.backends.xtables.rules import ChainName

REWRITE_SHARE = 64
"""A shared chain is rewritten if more than one in this many of its lines is deleted: deleting a rule costs iptables-nft
about as much as writing this many (5,000 rules: 3 ms each, 240 ms for all)."""

_FILTER_SHARED = tuple(shared for shared in SharedChain if shared.table is TableName.FILTER)
_NAT_SHARED = tuple(shared for shared in SharedChain if shared.table is TableName.NAT)


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
        yield _block(TableName.FILTER, {**self._common(TableName.FILTER), **self._shared(_FILTER_SHARED)})

    def __str__(self) -> str:
        return "".join(map(str, self))

    def _nat(self) -> Iterator[Block]:
        """Chains of service ports first, then dispatch and the deletion of stale chains."""
        if self.block_chains == LEGACY_BLOCK_CHAINS:
            yield Block(TableName.NAT, self._nat_lines(), None)
            return
        written: set[ChainName] = set()
        pending = self._common(TableName.NAT)
        for rules in self.desired.service_rules.values():
            pending.update(rules.own_lines())
            if len(pending) > self.block_chains:
                yield _block(TableName.NAT, pending)
                written.update(pending)
                pending = {}
        pending.update(self._shared(_NAT_SHARED))
        yield from _last_nat_blocks(pending, [], self._stale(written.union(pending)), None, self.block_chains)

    def _nat_lines(self) -> Iterator[str]:
        """Lines of one block, rendered while the tool reads: each chain is declared, and so flushed, before its lines."""
        common, shared = self._common(TableName.NAT), self._shared(_NAT_SHARED)
        written = {*common, *shared}
        yield from declared({**common, **dict.fromkeys(shared, ())})
        for rules in self.desired.service_rules.values():
            texts = rules.own_lines()
            written.update(texts)
            yield from declared(texts)
        yield from chained(*shared.values())
        stale = self._stale(written)
        yield from declared(dict.fromkeys(stale, ()))
        yield from removed(stale)

    def _common(self, table: TableName) -> dict[ChainName, tuple[str, ...]]:
        """The canary and the chains that no Service changes; chains of service ports jump to some of them."""
        return {names.CANARY: (), **_render_chains(static_rules.static_chains(self.desired.options)[table])}

    def _shared(self, shared: Iterable[SharedChain]) -> dict[ChainName, tuple[str, ...]]:
        return {each.chain: _appended(self.desired, each) for each in shared}

    def _stale(self, written: AbstractSet[ChainName]) -> list[ChainName]:
        """Chains of service ports and endpoints of an earlier run that were not written again."""
        return sorted(
            filter(names.is_derived, self.existing_chains.get(TableName.NAT, frozenset()) - written)
        )

    def _early_rejects(self) -> list[str]:
        """Lines that append the new REJECT and DROP rules to filter before nat is written; the old ones stay until the end."""
        present = self.existing_chains.get(TableName.FILTER, frozenset())
        before = [shared for shared in _FILTER_SHARED if shared.chain in present]
        return [line for shared in before for line in _appended(self.desired, shared)]


@dataclass(frozen=True, slots=True)
class Update:
    """Writes the chains that differ and, of shared chains, the single rules that do.

    Iterate for the blocks (none when nothing differs); ``str()`` is their text.
    """

    last_applied: DesiredState
    desired: DesiredState
    block_chains: int

    def __iter__(self) -> Iterator[Block]:
        pairs = _changed(self.last_applied, self.desired)
        edits = {shared: self._edit(shared, pairs) for shared in SharedChain}
        filters = [edits[shared] for shared in _FILTER_SHARED]
        constant, constant_growth = self._constant(TableName.FILTER)
        added = [line for edit in filters for line in edit.added]
        if added or constant:
            yield Block(TableName.FILTER, [*declared(constant), *added], constant_growth + len(added))
        yield from self._nat(pairs, [edits[shared] for shared in _NAT_SHARED])
        rest = [line for edit in filters for line in edit.replaced]
        if rest:
            yield Block(TableName.FILTER, rest, sum(edit.added_rules for edit in filters) - len(added))

    def __str__(self) -> str:
        return "".join(map(str, self))

    def _nat(self, pairs: Sequence[_Pair], edits: Sequence[_Edit]) -> Iterator[Block]:
        """New chains, then dispatch, then deletion of unused chains; all in one block if they are few."""
        pending, growth = self._constant(TableName.NAT)
        unused: list[ChainName] = []
        for pair in pairs:
            delta = _delta(*pair)
            pending |= delta.written
            unused += delta.unused
            growth += delta.added_rules
            if len(pending) > self.block_chains:
                yield _block(TableName.NAT, pending, growth)
                pending, growth = {}, 0
        switch = [line for edit in edits for line in (*edit.replaced, *edit.added)]
        growth += sum(edit.added_rules for edit in edits)
        yield from _last_nat_blocks(pending, switch, unused, growth, self.block_chains)

    def _edit(self, shared: SharedChain, pairs: Sequence[_Pair]) -> _Edit:
        old: list[str] = []
        new: list[str] = []
        for before, after in pairs:
            gone, come = _lines(before, shared), _lines(after, shared)
            if gone != come:
                old += gone
                new += come
        # the rules that end KUBE-SERVICES must stay its last
        order = "-I" if shared is SharedChain.NAT_SERVICES else "-A"
        added = tuple(f"{order} {shared.chain} {line}" for line in new)
        if self._better_rewritten(shared, len(old)):
            return self._rewritten(shared, added)
        return _Edit(added, tuple(f"-D {shared.chain} {line}" for line in old), len(new) - len(old))

    def _better_rewritten(self, shared: SharedChain, deletions: int) -> bool:
        if (
            shared is SharedChain.NAT_SERVICES
            and self.last_applied.node_port_lines != self.desired.node_port_lines
        ):
            return True
        return deletions > 1 and deletions * REWRITE_SHARE > len(self.last_applied.shared_lines(shared))

    def _rewritten(self, shared: SharedChain, added: tuple[str, ...]) -> _Edit:
        lines = _appended(self.desired, shared)
        growth = len(lines) - len(self.last_applied.shared_lines(shared))
        early = added if shared.table is TableName.FILTER else ()
        return _Edit(early, tuple(declared({shared.chain: lines})), growth)

    def _constant(self, table: TableName) -> tuple[dict[ChainName, tuple[str, ...]], int]:
        """The constant chains that differ, and how many more rules they have."""
        old = _render_chains(static_rules.static_chains(self.last_applied.options)[table])
        new = _render_chains(static_rules.static_chains(self.desired.options)[table])
        differing = {name: lines for name, lines in new.items() if lines != old[name]}
        return differing, sum(len(lines) - len(old[name]) for name, lines in differing.items())


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


_Pair = tuple["ServiceRules | None", "ServiceRules | None"]


class _Edit(NamedTuple):
    """Change of a shared chain: ``added`` lines, which may be written early; ``replaced`` deletes unwanted ones."""

    added: tuple[str, ...]
    replaced: tuple[str, ...]
    added_rules: int


class _Delta(NamedTuple):
    """Difference of a service port's chains: lines by chain, and chains to delete."""

    written: dict[ChainName, tuple[str, ...]]
    unused: list[ChainName]
    added_rules: int


def _changed(last_applied: DesiredState, desired: DesiredState) -> list[_Pair]:
    old, new = last_applied.service_rules, desired.service_rules
    pairs: list[_Pair] = [(old.get(k), f) for k, f in new.items() if old.get(k) is not f]
    return pairs + [(fragment, None) for name, fragment in old.items() if name not in new]


def _delta(before: ServiceRules | None, after: ServiceRules | None) -> _Delta:
    old = before.own_lines() if before else {}
    new = after.own_lines() if after else {}
    written = {name: lines for name, lines in new.items() if old.get(name) != lines}
    growth = sum(map(len, new.values())) - sum(map(len, old.values()))
    return _Delta(written, [name for name in old if name not in new], growth)


def _last_nat_blocks(
    pending: dict[ChainName, tuple[str, ...]],
    switch: list[str],
    unused: list[ChainName],
    growth: int | None,
    block_chains: int,
) -> Iterator[Block]:
    together = len(unused) <= block_chains
    if together:
        pending = {**pending, **dict.fromkeys(unused, ())}
        switch = [*switch, *removed(unused)]
    lines = [*declared(pending), *switch]
    if lines:
        # a chain must be declared, and thereby flushed, before its lines
        yield Block(TableName.NAT, sorted(lines, key=lambda line: line[0] != ":"), growth)
    if not together:
        yield from delete_chains_blocks(TableName.NAT, unused, block_chains)


def _lines(fragment: ServiceRules | None, shared: SharedChain) -> list[str]:
    return [line for where, line in fragment.dispatch if where is shared] if fragment else []


def _appended(desired: DesiredState, shared: SharedChain) -> tuple[str, ...]:
    return tuple(f"-A {shared.chain} {line}" for line in desired.shared_lines(shared))


def _render_chains(chains: Iterable[Chain]) -> dict[ChainName, tuple[str, ...]]:
    return {chain.name: tuple(render(chain)) for chain in chains}


def _block(table: TableName, texts: Mapping[ChainName, Sequence[str]], growth: int | None = None) -> Block:
    return Block(table, declared(texts), growth)
