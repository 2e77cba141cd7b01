"""Transactions of nftables mode: batches of commands that change one state to another, each applied whole or not at all.

`Rewrite` replaces the table with unknown contents, `Update` writes the difference.  ``str()`` of either is text for
``nft -f``.

A packet sees the rules as they were when it entered a hook, but elements as they are when it looks them up.  So a chain
must exist before the first element refers to it: new chains are a batch of their own.  Chains that fall out of use stay,
and are deleted with the next change: kernels before 6.2 refuse to delete a chain together with the element that referred
to it (``nft.deferred-delete``).  Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain as chain_of

from kproxy.linux.netfilter.rules import Chain
from kproxy.proxy.backends.nftables import names, static_rules
from kproxy.proxy.backends.nftables.commands import (
    AddChain,
    AddCollection,
    AddElements,
    AddRules,
    AddTable,
    Command,
    DeleteChain,
    DeleteElements,
    DeleteTable,
    FlushChain,
    format_command,
)
from kproxy.proxy.backends.nftables.compile import CountChain, SetElement, Shared
from kproxy.proxy.backends.nftables.desired_state import DesiredState, Pair, ServiceRules, changed_services
from kproxy.proxy.backends.nftables.render import Renderer
from kproxy.proxy.backends.nftables.rules import (
    ChainName,
    CollectionDefinition,
    CollectionName,
    ElementKey,
    Value,
)

ELEMENTS_PER_COMMAND = 500
"""A netlink attribute holds 64 KB, some 600 elements of IPv6."""

Clients = Mapping[ElementKey, int]
"""Clients under affinity, as elements of `names.AFFINITY_CLIENTS`, with their remaining milliseconds."""

Leftovers = Mapping[ChainName, Chain]
"""Chains that are still in the kernel, and to which only chains among them refer."""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Replaces the table in one transaction.  ``clients`` keep their endpoints."""

    desired: DesiredState
    clients: Clients = field(default_factory=dict)

    @property
    def leftovers(self) -> Leftovers:
        """Unused chains that remain in the kernel after this transaction."""
        return {}

    def batches(self) -> Iterator[Iterable[Command]]:
        """One batch with everything."""
        yield self

    def __iter__(self) -> Iterator[Command]:
        desired = self.desired
        collections = {collection.name: collection for collection in desired.collections()}
        chains = list(desired.chains())
        yield from (AddTable(), DeleteTable(), AddTable())
        yield from map(AddCollection, collections.values())
        yield from map(AddChain, chains)
        yield from (AddRules(chain) for chain in chains if chain.rules)
        batches = _ElementCommands(collections)
        for rules in desired.service_rules.values():
            yield from batches.take(rules.elements())
        yield from batches.take(
            element for element in desired.reference_counts if isinstance(element, SetElement)
        )
        yield from batches.take(desired.node_elements)
        yield from batches.flush()
        yield from self._affinity_elements(collections[names.AFFINITY_CLIENTS])

    def __str__(self) -> str:
        return _text(self, self.desired)

    def _affinity_elements(self, collection: CollectionDefinition) -> Iterator[Command]:
        latest_last = sorted(self.clients.items(), key=lambda item: item[1])
        items = latest_last[-(collection.filled_up_to or 0) :]
        for start in range(0, len(items), ELEMENTS_PER_COMMAND):
            some = items[start : start + ELEMENTS_PER_COMMAND]
            keys = tuple((key, None) for key, _ in some)
            yield AddElements(collection, keys, tuple(left for _, left in some))


@dataclass(frozen=True)
class Update:
    """Writes the difference between two desired states of one context; no command if there is none."""

    last_applied: DesiredState
    desired: DesiredState
    leftovers_before: Leftovers = field(default_factory=dict)

    def batches(self) -> Iterator[Iterable[Command]]:
        """Two batches: new chains, then all else.  Either may be empty."""
        yield list(self._new_chains())
        yield list(self._switch())

    def __iter__(self) -> Iterator[Command]:
        return chain_of(*self.batches())

    def __str__(self) -> str:
        return _text(self, self.desired)

    @property
    def leftovers(self) -> Leftovers:
        """Unused chains that remain in the kernel after this transaction."""
        return {name: chain for name, chain in self._old.items() if name not in self._new}

    def _new_chains(self) -> Iterator[Command]:
        """Commands for new chains, to which nothing refers yet."""
        new = {name: chain for name, chain in self._new.items() if name not in self._old}
        yield from (AddChain(chain) for name, chain in new.items() if name not in self.leftovers_before)
        for name, chain in new.items():
            if self.leftovers_before.get(name) == chain:
                continue
            if name in self.leftovers_before:
                yield FlushChain(name)
            yield AddRules(chain)

    def _switch(self) -> Iterator[Command]:
        """Commands for the rest: unneeded leftovers and changed chains, then removed and added elements."""
        unwanted = sorted(self.leftovers_before.keys() - self._new.keys())
        yield from map(FlushChain, unwanted)
        yield from map(DeleteChain, unwanted)
        for name, chain in self._new.items():
            if self._old.get(name, chain) != chain:
                yield from (FlushChain(name), AddRules(chain))
        yield from self._elements()

    def _elements(self) -> Iterator[Command]:
        gone, come = self._element_changes
        known = {collection.name: collection for collection in self.desired.collections()}
        deletions = _ElementCommands(known, DeleteElements)
        yield from deletions.take(gone)
        yield from deletions.flush()
        additions = _ElementCommands(known)
        yield from additions.take(come)
        yield from additions.flush()

    @cached_property
    def _pairs(self) -> list[Pair]:
        return changed_services(self.last_applied, self.desired)

    @cached_property
    def _old(self) -> dict[ChainName, Chain]:
        return _chains((old for old, _ in self._pairs), self._shared[0])

    @cached_property
    def _new(self) -> dict[ChainName, Chain]:
        return _chains((new for _, new in self._pairs), self._shared[1])

    @cached_property
    def _element_changes(self) -> tuple[list[SetElement], list[SetElement]]:
        """Elements to remove, and elements to add; one whose value changes is in both."""
        gone: set[SetElement] = set()
        come: set[SetElement] = set()
        for old, new in self._pairs:
            gone.update(old.elements() if old else ())
            come.update(new.elements() if new else ())
        unused, needed = self._shared
        gone |= self.last_applied.node_elements | {thing for thing in unused if isinstance(thing, SetElement)}
        come |= self.desired.node_elements | {thing for thing in needed if isinstance(thing, SetElement)}
        return list(gone - come), list(come - gone)

    @cached_property
    def _shared(self) -> tuple[set[Shared], set[Shared]]:
        """Shared objects that are not needed any more, and those that were not needed before."""
        old = {thing for rules, _ in self._pairs if rules for thing in rules.shared()}
        new = {thing for _, rules in self._pairs if rules for thing in rules.shared()}
        unused = {thing for thing in old - new if thing not in self.desired.reference_counts}
        return unused, {thing for thing in new - old if thing not in self.last_applied.reference_counts}


Transaction = Rewrite | Update


def diff(
    last_applied: DesiredState | None, desired: DesiredState, leftovers: Leftovers | None = None
) -> Transaction:
    """Transaction from the state applied last, or from unknown contents, to ``desired``."""
    if last_applied is None or last_applied.context != desired.context:
        return Rewrite(desired)
    return Update(last_applied, desired, leftovers or {})


def _chains(service_rules: Iterable[ServiceRules | None], moved: Iterable[Shared]) -> dict[ChainName, Chain]:
    """Chains that are added or removed, by name."""
    counts = [static_rules.endpoint_choice_chain(*thing) for thing in moved if isinstance(thing, CountChain)]
    own = [chain for rules in service_rules if rules is not None for chain in rules.chains()]
    return {chain.name: chain for chain in (*counts, *own)}


class _ElementCommands:
    """Groups elements by collection into commands of `ELEMENTS_PER_COMMAND`."""

    def __init__(
        self,
        collections: Mapping[CollectionName, CollectionDefinition],
        command: type[AddElements | DeleteElements] = AddElements,
    ) -> None:
        self._collections, self._command = collections, command
        self._pending: dict[CollectionName, list[tuple[ElementKey, Value]]] = {}

    def take(self, elements: Iterable[SetElement]) -> Iterator[Command]:
        for name, key, value in elements:
            pending = self._pending.setdefault(name, [])
            pending.append((key, value))
            if len(pending) >= ELEMENTS_PER_COMMAND:
                yield self._command(self._collections[name], tuple(self._pending.pop(name)))

    def flush(self) -> Iterator[Command]:
        for name, pending in self._pending.items():
            yield self._command(self._collections[name], tuple(pending))
        self._pending = {}


def _text(commands: Iterable[Command], program: DesiredState) -> str:
    renderer = Renderer(program.context.family)
    return "".join(f"{line}\n" for command in commands for line in format_command(command, renderer))
