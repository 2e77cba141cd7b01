"""Commands to nf_tables about our table, as values; a sequence of them is one transaction.  Pure.

The kernel applies all of a transaction or nothing, and no packet sees half of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from kproxy.linux.netfilter.rules import Chain
from kproxy.proxy.backends.nftables.render import Renderer, chain_definition, render_element
from kproxy.proxy.backends.nftables.rules import (
    TABLE,
    ChainName,
    CollectionDefinition,
    ElementKey,
    Holds,
    Value,
)

TABLE_COMMENT = "Kubernetes Services"

_ELEMENTS_PER_LINE = 256


@dataclass(frozen=True, slots=True)
class AddTable:
    """Create the table unless it exists."""


@dataclass(frozen=True, slots=True)
class DeleteTable:
    """Remove the table with its contents; it must exist."""


@dataclass(frozen=True, slots=True)
class AddCollection:
    """Define a set or map."""

    collection: CollectionDefinition


@dataclass(frozen=True, slots=True)
class AddChain:
    """Define a chain, without its rules."""

    chain: Chain


@dataclass(frozen=True, slots=True)
class AddRules:
    """Append a chain's rules."""

    chain: Chain


@dataclass(frozen=True, slots=True)
class FlushChain:
    """Remove a chain's rules."""

    name: ChainName


@dataclass(frozen=True, slots=True)
class DeleteChain:
    """Remove an empty chain to which nothing refers."""

    name: ChainName


@dataclass(frozen=True, slots=True)
class AddElements:
    """Add elements to a set or map.  ``timeouts``: of each in milliseconds, in a set that rules fill."""

    collection: CollectionDefinition
    elements: tuple[tuple[ElementKey, Value], ...]
    timeouts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteElements:
    """Remove elements from a set or map; they must exist."""

    collection: CollectionDefinition
    elements: tuple[tuple[ElementKey, Value], ...]


Command = (
    AddTable
    | DeleteTable
    | AddCollection
    | AddChain
    | AddRules
    | FlushChain
    | DeleteChain
    | AddElements
    | DeleteElements
)


def format_command(command: Command, renderer: Renderer) -> Iterator[str]:
    """The command as text for ``nft -f``."""
    table = f"{renderer.family_keyword} {TABLE}"
    match command:
        case AddTable():
            yield f'add table {table} {{ comment "{TABLE_COMMENT}"; }}'
        case DeleteTable():
            yield f"delete table {table}"
        case AddCollection(collection):
            kind = _kind(collection)
            yield f"add {kind} {table} {collection.name} {renderer.collection(collection)}"
        case AddElements(collection, elements, lives):
            texts = [render_element(key, value) for key, value in elements]
            if lives:
                texts = [f"{text} timeout {left}ms" for text, left in zip(texts, lives, strict=True)]
            yield from _element_lines(f"add element {table} {collection.name}", texts)
        case DeleteElements(collection, elements):
            yield from _element_lines(
                f"delete element {table} {collection.name}",
                [render_element(key, value) for key, value in elements],
            )
        case _:
            yield from _chain_lines(command, table, renderer)


def _chain_lines(
    command: AddChain | AddRules | FlushChain | DeleteChain, where: str, renderer: Renderer
) -> Iterator[str]:
    match command:
        case AddChain(chain):
            yield f"add chain {where} {chain.name}{chain_definition(chain)}"
        case AddRules(chain):
            for rule in chain.rules:
                yield f"add rule {where} {chain.name} {renderer.rule(rule)}"
        case FlushChain(name) | DeleteChain(name):
            yield f"{'flush' if isinstance(command, FlushChain) else 'delete'} chain {where} {name}"


def _element_lines(start: str, texts: list[str]) -> Iterator[str]:
    iterator = iter(texts)
    while some := list(islice(iterator, _ELEMENTS_PER_LINE)):
        yield f"{start} {{ {', '.join(some)} }}"


def _kind(collection: CollectionDefinition) -> str:
    return "set" if collection.holds is Holds.NOTHING else "map"
