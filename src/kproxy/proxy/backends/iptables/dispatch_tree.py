"""Trees over destinations: a rule among ten thousand is found after a few dozen, and a packet for no Service sees eight.

Theory of operation
-------------------
iptables reads a chain from top to bottom, for each new connection.  So the rules that lead to Services are spread over chains,
one for each group of destinations, and a packet goes from a chain to the one of its group.  A destination is a number, its
*key*: the bits of the address, two for the protocol, 16 of the port (a node port has no address).  A group is all keys with the same first bits.

A tree is a function of the rules in it, whatever the order in which they came:

* Up to `Shape.leaf` rules are a `Leaf`, and so are any number of rules with one key.
* Others are a `Branch`: the groups into which the next `Shape.bits` bits divide them, each a tree of its own.  Bits that all of its rules
  have in common are skipped.  Where a group may begin and end is fixed by the bits alone (`KeySpace.boundaries`), and so a rule
  that comes or goes changes the chains on its own path, of which all but the leaf's change only if a group comes or goes.

`chains_of` writes a tree as chains:

* The root is in a chain that the caller names; a tree of up to `Shape.flat` rules is all in it.
* Every other node has a chain named after its group, unless it is one rule: that stands in the parent's chain.
* A link matches the group.  From the root it is a jump: a packet that no rule in the group took comes back, and what stands behind the
  tree in the root's chain is next.  Below it is a goto, so that it comes back at once.
* Below `Shape.depth` levels all rules of a subtree are one chain: nf_tables refuses rules more than 16 jumps and gotos deep
  (``NFT_JUMP_STACK_SIZE``).  At eight groups a level that takes a million destinations, or some chosen to be on one path.

A chain named after a group leads every
destination in it, in any version of the tree; hence chains written children first may be written one by one: see ``diff``.

Pure.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from functools import cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from itertools import groupby
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from kproxy.linux.netfilter.matches import destination_in, of_protocol
from kproxy.linux.netfilter.patterns import FieldName, Span
from kproxy.linux.netfilter.rules import Goto, Is, Jump, Rule
from kproxy.model.network import Protocol
from kproxy.proxy.backends.iptables import names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from kproxy.model.network import Address
    from kproxy.proxy.backends.xtables.rules import ChainName, Destination

Item = TypeVar("Item")

_PROTOCOLS = tuple(Protocol)
_PROTOCOL_BITS, _PORT_BITS = 2, 16


@dataclass(frozen=True, slots=True)
class Shape:
    """Bounds of a tree: see the module's theory of operation."""

    flat: int
    leaf: int
    bits: int
    depth: int


SHAPE = Shape(flat=32, leaf=8, bits=3, depth=6)
"""A rule that does not match costs a connection 11 to 13 ns (``docs/bench.md``: kube-proxy's 100 and 10,000 rules), so a flat
chain of 32 at most 0.4 us, which is worth its readability; of 100 it would be more than a tree of any size."""


def tree_key(destination: Destination) -> int:
    """The number that stands for a destination."""
    address = 0 if destination.address is None else int(destination.address)
    return (
        address << _PROTOCOL_BITS | _PROTOCOLS.index(destination.protocol)
    ) << _PORT_BITS | destination.port


class TreeRule(NamedTuple, Generic[Item]):
    """A rule in a tree.  In a leaf they stand in this order: those of one ``owner`` as it has numbered them."""

    key: int
    owner: str
    number: int
    item: Item


@dataclass(frozen=True, slots=True)
class KeySpace:
    """The keys of one tree: ``address_bits`` is 32, 128, or 0 in a tree of node ports."""

    address_bits: int
    boundaries: tuple[int, ...]
    """Numbers of leading bits at which groups may divide, from 0 to all."""

    @property
    def width(self) -> int:
        """Bits of a key."""
        return self.boundaries[-1]

    def prefix(self, key: int, level: int) -> int:
        """The leading bits of a key, as many as a boundary has."""
        return key >> (self.width - self.boundaries[level])

    def level(self, first: int, last: int) -> int:
        """The last boundary before which two keys have all bits in common."""
        return bisect_right(self.boundaries, self.width - (first ^ last).bit_length()) - 1

    def matches(self, key: int, level: int, above: int) -> tuple[Is, ...]:
        """Matches that tell the keys of a group from others of the group ``above``: the parts that the bits between the two are of.

        Nothing less, for a packet that is sent to a group by mistake does not come back to the right one.
        """
        length = self.boundaries[level]
        if length <= self.address_bits:
            return (destination_in(self._network(key, length)),)
        apart = self.boundaries[above] < self.address_bits
        address = (destination_in(self._network(key, self.address_bits)),) if apart else ()
        protocol, first, last = self._ports(key, length)
        if (first, last) == (0, (1 << _PORT_BITS) - 1):
            return (*address, of_protocol(protocol))
        span = first if first == last else Span(first, last)
        return (*address, Is((FieldName.PROTOCOL, FieldName.PORT), (protocol.value.lower(), span)))

    def name(self, key: int, level: int) -> str:
        """A group's name: ``10.96.0.0/14``, ``tcp/30720-32767``; where that could be too long, its bits and a hash."""
        length = self.boundaries[level]
        if self.address_bits == IPV4_BITS and length <= IPV4_BITS:
            return str(self._network(key, length))
        if self.address_bits == 0:
            protocol, first, last = self._ports(key, length)
            return f"{protocol.value.lower()}/{first}-{last}"
        return f"/{length}-{names.name_hash(f'{self.address_bits} {self.prefix(key, level)}')[:_HASH_LENGTH]}"

    def _network(self, key: int, length: int) -> Address | IPv4Network | IPv6Network:
        address = key >> (_PROTOCOL_BITS + _PORT_BITS)
        host = self.address_bits - length
        if self.address_bits == IPV4_BITS:
            return IPv4Network((IPv4Address(address >> host << host), length))
        return IPv6Network((IPv6Address(address >> host << host), length))

    def _ports(self, key: int, length: int) -> tuple[Protocol, int, int]:
        protocol = _PROTOCOLS[key >> _PORT_BITS & ((1 << _PROTOCOL_BITS) - 1)]
        free = (1 << (self.width - length)) - 1
        port = key & ((1 << _PORT_BITS) - 1)
        return protocol, port & ~free, port | free


IPV4_BITS, IPV6_BITS, NODE_PORT_BITS = 32, 128, 0
_HASH_LENGTH = 14


@cache
def key_space(address_bits: int, bits: int) -> KeySpace:
    """Keys whose groups divide at every ``bits`` bits, counted from the end of each part; a protocol is not divided."""
    address = range(address_bits % bits, address_bits + 1, bits)
    ports = range(_PORT_BITS % bits, _PORT_BITS + 1, bits)
    start = address_bits + _PROTOCOL_BITS
    return KeySpace(address_bits, tuple(sorted({0, *address, start, *(start + port for port in ports)})))


class _Written(NamedTuple, Generic[Item]):
    """A node's chain as it was written last, and the link to it: most nodes are in the next tree too, at the same place."""

    above: int
    depth: int
    name: ChainName
    rules: tuple[Item, ...]
    link: Item


class Leaf(Generic[Item]):
    """Few rules, or rules with one key."""

    __slots__ = ("entries", "written")

    def __init__(self, entries: tuple[TreeRule[Item], ...]) -> None:
        self.entries = entries
        self.written: _Written[Item] | None = None

    @property
    def first(self) -> int:
        """Its lowest key."""
        return self.entries[0].key

    @property
    def size(self) -> int:
        """How many rules there are."""
        return len(self.entries)


class Branch(Generic[Item]):
    """Groups of rules; ``level``: the boundary up to which all keys are alike."""

    __slots__ = ("children", "first", "level", "size", "written")

    def __init__(self, level: int, children: tuple[Leaf[Item] | Branch[Item], ...]) -> None:
        self.level, self.children = level, children
        self.first: int = children[0].first
        self.size: int = sum(child.size for child in children)
        self.written: _Written[Item] | None = None


Node = Leaf[Item] | Branch[Item]


@dataclass(frozen=True, slots=True)
class Tree(Generic[Item]):
    """The rules of a tree; ``root`` None: there are none."""

    space: KeySpace
    shape: Shape
    root: Node[Item] | None = field(default=None)

    def edited(self, removed: Iterable[TreeRule[Item]], added: Iterable[TreeRule[Item]]) -> Tree[Item]:
        """The tree without some rules and with others; what does not change is shared.  A rule in both stays."""
        come = sorted(added)
        gone = frozenset(removed)
        if not come and not gone:
            return self
        return Tree(self.space, self.shape, self._edit(self.root, gone, come))

    def _edit(
        self, node: Node[Item] | None, removed: AbstractSet[TreeRule[Item]], added: Sequence[TreeRule[Item]]
    ) -> Node[Item] | None:
        if isinstance(node, Branch):
            known = self.space.prefix(node.first, node.level)
            if all(self.space.prefix(entry.key, node.level) == known for entry in added):
                return self._edit_children(node, removed, added)
        kept = [entry for entry in entries_of(node) if entry not in removed]
        return self._build(sorted({*kept, *added}))

    def _edit_children(
        self, node: Branch[Item], removed: AbstractSet[TreeRule[Item]], added: Sequence[TreeRule[Item]]
    ) -> Node[Item] | None:
        below = node.level + 1
        children: dict[int, Node[Item] | None] = {
            self.space.prefix(child.first, below): child for child in node.children
        }
        gone, come = self._by_group(removed, below), self._by_group(added, below)
        for group in gone.keys() | come.keys():
            children[group] = self._edit(
                children.get(group), frozenset(gone.get(group, ())), come.get(group, [])
            )
        left = [child for _, child in sorted(children.items()) if child is not None]
        if sum(child.size for child in left) <= self.shape.leaf:
            return self._build([entry for child in left for entry in entries_of(child)])
        return left[0] if len(left) == 1 else Branch(node.level, tuple(left))

    def _by_group(self, entries: Iterable[TreeRule[Item]], level: int) -> dict[int, list[TreeRule[Item]]]:
        found: dict[int, list[TreeRule[Item]]] = {}
        for entry in entries:
            found.setdefault(self.space.prefix(entry.key, level), []).append(entry)
        return found

    def _build(self, entries: Sequence[TreeRule[Item]]) -> Node[Item] | None:
        """A tree of rules in order."""
        if not entries:
            return None
        first, last = entries[0].key, entries[-1].key
        if len(entries) <= self.shape.leaf or first == last:
            return Leaf(tuple(entries))
        level = self.space.level(first, last)
        groups = groupby(entries, lambda entry: self.space.prefix(entry.key, level + 1))
        children = (self._build(list(group)) for _, group in groups)
        return Branch(level, tuple(child for child in children if child is not None))


def entries_of(node: Node[Item] | None) -> Iterator[TreeRule[Item]]:
    """All rules below a node, in order."""
    if isinstance(node, Leaf):
        yield from node.entries
    elif node is not None:
        for child in node.children:
            yield from entries_of(child)


class _Writer(Generic[Item]):
    """Chains of one tree, as they are written."""

    def __init__(self, tree: Tree[Item], prefix: str, item: Callable[[Rule], Item]) -> None:
        self._space, self._shape, self._prefix, self._item = tree.space, tree.shape, prefix, item
        self.chains: dict[ChainName, tuple[Item, ...]] = {}

    def root(self, node: Node[Item]) -> tuple[Item, ...]:
        """The root's rules; the chains below it are added."""
        if node.size <= self._shape.flat:
            return tuple(entry.item for entry in entries_of(node))
        return self._rules(node, 0)

    def _rules(self, node: Node[Item], depth: int) -> tuple[Item, ...]:
        if isinstance(node, Leaf) or depth == self._shape.depth:
            return tuple(entry.item for entry in entries_of(node))
        return tuple(self._child(child, node.level, depth) for child in node.children)

    def _child(self, child: Node[Item], above: int, depth: int) -> Item:
        """The rule for a group: its own where it has but one, else a link to its chain, which is added."""
        if isinstance(child, Leaf) and child.size == 1:
            return child.entries[0].item
        level = child.level if isinstance(child, Branch) else above + 1
        known = child.written
        if known is None or (known.above, known.depth) != (above, depth):
            name = self._prefix + self._space.name(child.first, level)
            step = Goto(name) if depth else Jump(name)
            link = self._item(Rule((*self._space.matches(child.first, level, above), step)))
            known = child.written = _Written(above, depth, name, self._rules(child, depth + 1), link)
        elif isinstance(child, Branch):
            self._rules(child, depth + 1)  # for the chains below
        self.chains[known.name] = known.rules
        return known.link


def chains_of(
    tree: Tree[Item], prefix: str, item: Callable[[Rule], Item]
) -> tuple[tuple[Item, ...], dict[ChainName, tuple[Item, ...]]]:
    """A tree as the rules of its root and the chains below, each after those that it leads to.

    Names of chains begin with ``prefix``; ``item`` makes an item of a rule to a chain.
    """
    if tree.root is None:
        return (), {}
    writer = _Writer(tree, prefix, item)
    return writer.root(tree.root), writer.chains
