"""Model of nftables mode's table: commands applied to a value, and refused where the kernel would refuse them.

Tests of the backend's diff use it on commands; the simulator covers the bytes of the same commands.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from kproxy.linux.netfilter.rules import Chain, Goto, InSet, Jump, MapLookup, Remember, Rule
from kproxy.model.network import Family
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
)
from kproxy.proxy.backends.nftables.rules import (
    ChainName,
    CollectionDefinition,
    CollectionName,
    ElementKey,
    Value,
)


class TransactionRefused(Exception):
    """The kernel would refuse the transaction."""


@dataclass(slots=True)
class SimulatedTable:
    """Contents of the table; ``exists`` is False before the first transaction."""

    family: Family
    exists: bool = False
    chains: dict[ChainName, Chain] = field(default_factory=dict)
    collections: dict[CollectionName, CollectionDefinition] = field(default_factory=dict)
    elements: dict[CollectionName, dict[ElementKey, Value]] = field(default_factory=dict)

    def apply(self, commands: Iterable[Command]) -> None:
        """Apply a transaction.  Raises `TransactionRefused`; the table must not be used afterwards."""
        for command in commands:
            if not self.exists and not isinstance(command, AddTable):
                raise TransactionRefused(f"there is no table: {command}")
            self._do(command)

    def _do(self, command: Command) -> None:
        match command:
            case AddTable():
                self.exists = True
            case DeleteTable():
                self.exists = False
                for part in (self.chains, self.collections, self.elements):
                    part.clear()
            case AddCollection(collection):
                _refuse_if(collection.name in self.collections, command)
                self.collections[collection.name] = collection
                self.elements[collection.name] = {}
            case AddChain() | AddRules() | FlushChain() | DeleteChain():
                self._do_chain(command)
            case AddElements(collection, elements) | DeleteElements(collection, elements):
                self._do_elements(command, collection, elements)

    def _do_chain(self, command: AddChain | AddRules | FlushChain | DeleteChain) -> None:
        match command:
            case AddChain(chain):
                _refuse_if(chain.name in self.chains, command)
                self.chains[chain.name] = Chain(chain.name, (), chain.hook, chain.comment)
            case AddRules(chain):
                _refuse_if(any(self._has_dangling_reference(rule) for rule in chain.rules), command)
                old = self.chains[chain.name]
                self.chains[chain.name] = Chain(old.name, (*old.rules, *chain.rules), old.hook, old.comment)
            case FlushChain(name):
                _refuse_if(name not in self.chains, command)
                self.chains[name] = Chain(name, (), self.chains[name].hook, self.chains[name].comment)
            case DeleteChain(name):
                _refuse_if(name not in self.chains or name in self._referenced_chains(), command)
                del self.chains[name]

    def _do_elements(
        self,
        command: AddElements | DeleteElements,
        collection: CollectionDefinition,
        elements: tuple[tuple[ElementKey, Value], ...],
    ) -> None:
        _refuse_if(self.collections.get(collection.name) != collection, command)
        found = self.elements[collection.name]
        for key, value in elements:
            if isinstance(command, DeleteElements):
                _refuse_if(key not in found, (collection.name, key))
                del found[key]
            else:
                _refuse_if(found.get(key, value) != value, (collection.name, key))
                _refuse_if(isinstance(value, Goto | Jump) and value.chain not in self.chains, (key, value))
                found[key] = value

    def _has_dangling_reference(self, rule: Rule) -> bool:
        """True if a rule refers to a chain, set or map that does not exist."""
        for step in rule.steps:
            match step:
                case Jump(chain) | Goto(chain) if chain not in self.chains:
                    return True
                case InSet(_, name) | MapLookup(_, name) | Remember(name):
                    if name not in self.collections:
                        return True
                case _:
                    pass
        return False

    def _referenced_chains(self) -> set[ChainName]:
        steps = (s for chain in self.chains.values() for rule in chain.rules for s in rule.steps)
        values = (value for found in self.elements.values() for value in found.values())
        return {value.chain for value in (*steps, *values) if isinstance(value, Jump | Goto)}


def _refuse_if(wrong: bool, what: object) -> None:  # noqa: FBT001 - reads as a sentence
    if wrong:
        raise TransactionRefused(str(what))
