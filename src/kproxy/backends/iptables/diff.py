"""From what the kernel holds to what it should: the text ``iptables-restore --noflush`` is given.

Two facts about iptables-nft decide the shape (measured in docs/adr): the time of one ``*nat ... COMMIT``
block grows with the square of its chains, so there are many small blocks; and rewriting a long
dispatch chain costs far more than adding or deleting single rules of it.

Every block is atomic, and their order leaves no moment in which a packet that is refused before and
served after (or the other way) meets a third answer: filter refuses only what nat left alone, hence
first additions to filter, then nat, then deletions from filter.  Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from kproxy.backends.iptables import base, names
from kproxy.backends.iptables.names import Shared
from kproxy.backends.iptables.program import Program
from kproxy.backends.iptables.rules import Table, render

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from kproxy.backends.iptables.program import Fragment
    from kproxy.backends.iptables.rules import Chain, ChainName

_Item = TypeVar("_Item")

SERVICES_PER_BLOCK = 64
CHAINS_PER_BLOCK = 256
REWRITE_SHARE = 64
"""A shared chain is rewritten when more than one in so many of its lines goes: deleting a rule costs
iptables-nft about as much as writing this many (5,000 rules: 3 ms each, 240 ms for all)."""

_FILTER_SHARED = tuple(shared for shared in Shared if shared.table is Table.FILTER)
_NAT_SHARED = tuple(shared for shared in Shared if shared.table is Table.NAT)


@dataclass(frozen=True, slots=True)
class Block:
    """One ``*table ... COMMIT``: the kernel does all of it or nothing.

    ``growth`` is how many more rules the table has afterwards (a `Rewrite` counts from zero).
    """

    table: Table
    lines: Sequence[str]
    growth: int = 0

    def __str__(self) -> str:
        return "\n".join((f"*{self.table.value}", *self.lines, "COMMIT\n"))


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Writes everything, whatever was there; of ``existing`` it deletes what nobody wants any more.

    ``existing`` are the names of all chains by table.  Iterate for the blocks; ``str()`` is their text.
    """

    existing: Mapping[Table, frozenset[ChainName]]
    desired: Program

    def __iter__(self) -> Iterator[Block]:
        desired = self.desired
        constant = base.constant_chains(desired.options)
        early = self._early()
        if early:
            yield Block(Table.FILTER, early)
        yield _whole(Table.MANGLE, {names.CANARY: ()})
        yield _whole(Table.NAT, {names.CANARY: (), **_texts(constant[Table.NAT])})
        wanted: set[ChainName] = set()
        for some in _batches(desired.fragments.values(), SERVICES_PER_BLOCK):
            texts = {name: lines for fragment in some for name, lines in fragment.text().items()}
            wanted.update(texts)
            if texts:
                yield _whole(Table.NAT, texts)
        yield _whole(Table.NAT, {s.chain: _appended(desired, s) for s in _NAT_SHARED})
        stale = filter(names.is_derived, self.existing.get(Table.NAT, frozenset()) - wanted)
        yield from deletions(Table.NAT, sorted(stale))
        shared = {s.chain: _appended(desired, s) for s in _FILTER_SHARED}
        yield _whole(Table.FILTER, {names.CANARY: (), **_texts(constant[Table.FILTER]), **shared})

    def __str__(self) -> str:
        return "".join(map(str, self))

    def _early(self) -> list[str]:
        """What filter will refuse, beside what it refuses now."""
        present = self.existing.get(Table.FILTER, frozenset())
        return [line for s in _FILTER_SHARED if s.chain in present for line in _appended(self.desired, s)]


@dataclass(frozen=True, slots=True)
class Change:
    """Writes the chains that differ and, of shared chains, the single rules that do.

    Iterate for the blocks (none when nothing differs); ``str()`` is their text.
    """

    believed: Program
    desired: Program

    def __iter__(self) -> Iterator[Block]:
        pairs = _changed(self.believed, self.desired)
        edits = {shared: self._edit(shared, pairs) for shared in Shared}
        filters = [edits[shared] for shared in _FILTER_SHARED]
        constant, constant_growth = self._constant(Table.FILTER)
        added = [line for edit in filters for line in edit.added]
        if added or constant:
            yield Block(Table.FILTER, [*_declared(constant), *added], constant_growth + len(added))
        yield from self._nat(pairs, [edits[shared] for shared in _NAT_SHARED])
        rest = [line for edit in filters for line in edit.replaced]
        if rest:
            yield Block(Table.FILTER, rest, sum(edit.growth for edit in filters) - len(added))

    def __str__(self) -> str:
        return "".join(map(str, self))

    def _nat(self, pairs: Sequence[_Pair], edits: Sequence[_Edit]) -> Iterator[Block]:
        """All in one block where it is small; else new chains, then dispatch, then the end of the unused."""
        constant, growth = self._constant(Table.NAT)
        growth += sum(edit.growth for edit in edits)
        switch = [line for edit in edits for line in (*edit.replaced, *edit.added)]
        deltas = [_delta(some) for some in _batches(pairs, SERVICES_PER_BLOCK)]
        growth -= sum(delta.lost for delta in deltas)
        if len(deltas) == 1:
            (delta,) = deltas
            constant |= {**delta.written, **dict.fromkeys(delta.unused, ())}
            switch += [f"-X {name}" for name in delta.unused]
            growth += delta.gained
            deltas = []
        yield from (_whole(Table.NAT, delta.written, delta.gained) for delta in deltas if delta.written)
        lines = [*_declared(constant), *switch]
        if lines:
            # a chain must be declared, and thereby flushed, before its lines
            yield Block(Table.NAT, sorted(lines, key=lambda line: line[0] != ":"), growth)
        yield from deletions(Table.NAT, [name for delta in deltas for name in delta.unused])

    def _edit(self, shared: Shared, pairs: Sequence[_Pair]) -> _Edit:
        old: list[str] = []
        new: list[str] = []
        for before, after in pairs:
            gone, come = _lines(before, shared), _lines(after, shared)
            if gone != come:
                old += gone
                new += come
        # the rules that end KUBE-SERVICES must stay its last
        order = "-I" if shared is Shared.NAT_SERVICES else "-A"
        added = tuple(f"{order} {shared.chain} {line}" for line in new)
        if self._better_rewritten(shared, len(old)):
            return self._rewritten(shared, added)
        return _Edit(added, tuple(f"-D {shared.chain} {line}" for line in old), len(new) - len(old))

    def _better_rewritten(self, shared: Shared, deletions: int) -> bool:
        if shared is Shared.NAT_SERVICES and self.believed.ends != self.desired.ends:
            return True
        return deletions > 1 and deletions * REWRITE_SHARE > len(self.believed.shared_lines(shared))

    def _rewritten(self, shared: Shared, added: tuple[str, ...]) -> _Edit:
        lines = _appended(self.desired, shared)
        growth = len(lines) - len(self.believed.shared_lines(shared))
        early = added if shared.table is Table.FILTER else ()
        return _Edit(early, tuple(_declared({shared.chain: lines})), growth)

    def _constant(self, table: Table) -> tuple[dict[ChainName, tuple[str, ...]], int]:
        """The constant chains that differ, and how many more rules they have."""
        old = _texts(base.constant_chains(self.believed.options)[table])
        new = _texts(base.constant_chains(self.desired.options)[table])
        differing = {name: lines for name, lines in new.items() if lines != old[name]}
        return differing, sum(len(lines) - len(old[name]) for name, lines in differing.items())


Transaction = Rewrite | Change


def diff(believed: Program | Mapping[Table, frozenset[ChainName]], desired: Program) -> Transaction:
    """How to get to ``desired`` from what was applied last, or, where that is unknown, from chain names."""
    if isinstance(believed, Program):
        return Change(believed, desired)
    return Rewrite(believed, desired)


def deletions(table: Table, chains: Sequence[ChainName]) -> Iterator[Block]:
    """Delete chains that nothing but chains among them refers to: flush all, then remove all."""
    for some in _batches(chains, CHAINS_PER_BLOCK):
        yield _whole(table, dict.fromkeys(some, ()))
    for some in _batches(chains, CHAINS_PER_BLOCK):
        yield Block(table, [f"-X {name}" for name in some])


_Pair = tuple["Fragment | None", "Fragment | None"]


class _Edit(NamedTuple):
    """Lines that change a shared chain: ``added`` may go first; ``replaced`` ends what is no longer wanted."""

    added: tuple[str, ...]
    replaced: tuple[str, ...]
    growth: int


class _Delta(NamedTuple):
    """Between some service ports' chains before and after: lines by chain, and chains to delete."""

    written: dict[ChainName, tuple[str, ...]]
    unused: list[ChainName]
    gained: int
    lost: int


def _changed(believed: Program, desired: Program) -> list[_Pair]:
    old, new = believed.fragments, desired.fragments
    pairs: list[_Pair] = [(old.get(k), f) for k, f in new.items() if old.get(k) is not f]
    return pairs + [(fragment, None) for name, fragment in old.items() if name not in new]


def _delta(pairs: Sequence[_Pair]) -> _Delta:
    old: dict[ChainName, tuple[str, ...]] = {}
    new: dict[ChainName, tuple[str, ...]] = {}
    for before, after in pairs:
        old |= before.text() if before else {}
        new |= after.text() if after else {}
    written = {name: lines for name, lines in new.items() if old.get(name) != lines}
    gained = sum(len(lines) - len(old.get(name, ())) for name, lines in written.items())
    unused = [name for name in old if name not in new]
    return _Delta(written, unused, gained, sum(len(old[name]) for name in unused))


def _lines(fragment: Fragment | None, shared: Shared) -> list[str]:
    return [line for where, line in fragment.dispatch if where is shared] if fragment else []


def _appended(desired: Program, shared: Shared) -> tuple[str, ...]:
    return tuple(f"-A {shared.chain} {line}" for line in desired.shared_lines(shared))


def _texts(chains: Iterable[Chain]) -> dict[ChainName, tuple[str, ...]]:
    return {chain.name: tuple(render(chain)) for chain in chains}


def _declared(texts: Mapping[ChainName, Sequence[str]]) -> list[str]:
    """Chains as restore wants them: all declared, in order of name, then all lines."""
    return [f":{name} - [0:0]" for name in sorted(texts)] + [
        line for lines in texts.values() for line in lines
    ]


def _whole(table: Table, texts: Mapping[ChainName, Sequence[str]], growth: int | None = None) -> Block:
    return Block(table, _declared(texts), sum(map(len, texts.values())) if growth is None else growth)


def _batches(items: Iterable[_Item], size: int) -> Iterator[list[_Item]]:
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch
