"""Rules of any packet filter of Linux as values: chains at hooks, matches, statements, sets.

iptables and nftables differ in syntax, not in effect.  So the proxy's backends build these values and render them in either
syntax, and what any program's rules say is read into the same values; one walk serves a node that has both.  What a reader
does not know becomes `Unknown` and is reported, never guessed.

A proxy builds them by the ten thousand, hence the structs (``docs/adr/0009-values-by-the-ten-thousand-are-msgspec-structs.md``).
Pure.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import overload

import msgspec

from kproxy.linux.netfilter.patterns import (
    WIDE,
    FieldName,
    KeyPattern,
    Selector,
    Span,
    Value,
    fits,
    narrowness,
)
from kproxy.model.network import Address, Family

ALL_BITS = 0xFFFF_FFFF
"""Of a mark."""


# Matches.


class Is(msgspec.Struct, frozen=True, gc=False):
    """Each value that the selectors read fits its pattern; ``negated``: some value does not."""

    key: tuple[Selector, ...]
    pattern: KeyPattern
    negated: bool = False


class InSet(msgspec.Struct, frozen=True, gc=False):
    """The values that the selectors read are in the set of that name, or in one that the rule itself has."""

    key: tuple[Selector, ...]
    name: str
    negated: bool = False
    inline: Collection | None = None


class Chance(msgspec.Struct, frozen=True, gc=False):
    """Holds at random, for this share of packets."""

    share: Fraction


class Recent(msgspec.Struct, frozen=True, gc=False):
    """The source (or destination) is in a list of iptables' ``recent`` match, and not for longer than ``seconds``."""

    name: str
    seconds: int | None = None
    negated: bool = False


class Unknown(msgspec.Struct, frozen=True, gc=False):
    """A match that is not modelled: `walk` follows both ways and says so."""

    text: str


Match = Is | InSet | Chance | Recent | Unknown


# Statements.


class Jump(msgspec.Struct, frozen=True, gc=False):
    """Through that chain, and back when it ends."""

    chain: str


class Goto(msgspec.Struct, frozen=True, gc=False):
    """On in that chain; where it ends, so does this one."""

    chain: str


class End(enum.Enum):
    """A verdict."""

    RETURN = "leaves the chain"
    ACCEPT = "accepted: on to the next table"
    DROP = "dropped"
    CONTINUE = "on to the next rule"


class Reject(msgspec.Struct, frozen=True, gc=False):
    """Discarded, and the sender is notified as ``how``."""

    how: str = "icmp-port-unreachable"


class Dnat(msgspec.Struct, frozen=True, gc=False):
    """DNAT.  None: as it is.  Several addresses or ports: any of them."""

    address: Address | Span | None
    port: int | Span | None = None


class Redirect(msgspec.Struct, frozen=True, gc=False):
    """DNAT to the node itself."""

    port: int | Span | None


class Masquerade(msgspec.Struct, frozen=True, gc=False):
    """SNAT to an address of the node (``address``: to that one); ``random_fully``: at a port drawn at random."""

    address: str = ""
    random_fully: bool = False


class SetMark(msgspec.Struct, frozen=True, gc=False):
    """``mark = (mark & keep) ^ flip``; ``connection``: of the connection."""

    keep: int
    flip: int
    connection: bool = False


class CopyMark(msgspec.Struct, frozen=True, gc=False):
    """``mark = (mark & keep) ^ (the connection's & taken)``; ``to_connection``: the other way round."""

    keep: int
    taken: int
    to_connection: bool = False


class LoseMark(msgspec.Struct, frozen=True, gc=False):
    """The mark becomes what is not modelled."""

    text: str
    connection: bool = False


class MapMark(msgspec.Struct, frozen=True, gc=False):
    """The mark that the packet's member of an ipset holds."""

    key: tuple[Selector, ...]
    name: str


class Remember(msgspec.Struct, frozen=True, gc=False):
    """The values that the selectors read are put in a list, or set, of clients; ``seconds``: until they are forgotten there."""

    name: str
    key: tuple[Selector, ...] = (FieldName.SOURCE,)
    seconds: int | None = None


class MapLookup(msgspec.Struct, frozen=True, gc=False):
    """Do what a map has for the key: a verdict, or (``translate``) DNAT to what is there.  Nothing there: go on."""

    key: tuple[Selector, ...]
    name: str
    translate: bool = False
    inline: Collection | None = None
    port: int | None = None


class CountPacket(msgspec.Struct, frozen=True, gc=False):
    """A named counter of the kernel counts the packet."""

    name: str


class NoTrack(msgspec.Struct, frozen=True, gc=False):
    """Connection tracking leaves the packet alone, and so does NAT."""


class Unmodelled(msgspec.Struct, frozen=True, gc=False):
    """A statement that is not modelled and may do anything to the packet: its fate is not known."""

    text: str


Verdict = Jump | Goto | End
Change = SetMark | CopyMark | MapMark | LoseMark | Remember | CountPacket | NoTrack
"""Statements after which the rule goes on."""
Statement = Verdict | Reject | Dnat | Redirect | Masquerade | Change | MapLookup | Unmodelled
Step = Match | Statement


# Sets and maps.


class Element(msgspec.Struct, frozen=True, gc=False):
    """An element of a set or map: a key and its data; an empty key is any key that has no element of its own.

    ``data``: a verdict, or where to translate to, or a mark and its mask; `Unmodelled`: it has something that is not
    modelled.  ``excluded``: what fits is not in the set (ipset's ``nomatch``).
    """

    key: KeyPattern
    data: Verdict | Dnat | SetMark | Unmodelled | None = None
    comment: str = ""
    excluded: bool = False


class Collection:
    """A set or map, read at its first lookup.  None: it could not be parsed."""

    def __init__(self, name: str, read: Callable[[], Iterable[Element | None]]) -> None:
        self.name = name
        self._read = read

    @cached_property
    def _sorted(self) -> tuple[dict[KeyPattern, Element], list[Element], bool]:
        exact: dict[KeyPattern, Element] = {}
        others: list[Element] = []
        whole = True
        for element in self._read():
            if element is None:
                whole = False
            elif any(isinstance(part, WIDE) for part in element.key):
                others.append(element)
            else:
                exact.setdefault(element.key, element)
        return exact, others, whole

    @property
    def whole(self) -> bool:
        """True if all its elements were understood; else one of the others may have what is not found."""
        return self._sorted[2]

    def find(self, key: tuple[Value, ...]) -> Element | None:
        """The element that has the key, the narrowest of several; of flags any may be in it."""
        return self._find(key) or self._sorted[0].get(())

    def _find(self, key: tuple[Value, ...]) -> Element | None:
        for at, part in enumerate(key):
            if isinstance(part, frozenset):
                each = (self._find((*key[:at], flag, *key[at + 1 :])) for flag in sorted(part))
                return next((found for found in each if found is not None), None)
        exact, others, _ = self._sorted
        if (found := exact.get(key)) is not None:  # type: ignore[arg-type]
            return found
        fitting = [one for one in others if len(one.key) == len(key) and all(map(fits, one.key, key))]
        return max(fitting, key=lambda one: sum(map(narrowness, one.key)), default=None)


# Chains and tables.


class Point(enum.Enum):
    """Where in a packet's way a base chain stands."""

    PREROUTING = "prerouting"
    INPUT = "input"
    FORWARD = "forward"
    OUTPUT = "output"
    POSTROUTING = "postrouting"


class Hook(msgspec.Struct, frozen=True, gc=False):
    """Makes a chain a base chain; smaller priorities come first.  ``nat``: it sees a connection's first packet only."""

    point: Point
    priority: int
    nat: bool = False
    policy: End = End.ACCEPT


class Rule(msgspec.Struct, frozen=True, gc=False):
    """``steps`` from left to right; the first match that fails ends it.

    Of a rule that was read ``label`` says which of its chain it is, and ``text`` is as its tool writes it.
    """

    steps: tuple[Step, ...]
    comment: str = ""
    label: str = ""
    text: str = ""


class RulesToRead(Sequence[Rule]):
    """Rules that are read when the first packet comes to them."""

    def __init__(self, read: Callable[[], Iterable[Rule]]) -> None:
        self._read = read

    @cached_property
    def _rules(self) -> tuple[Rule, ...]:
        return tuple(self._read())

    def __iter__(self) -> Iterator[Rule]:
        return iter(self._rules)

    def __len__(self) -> int:
        return len(self._rules)

    @overload
    def __getitem__(self, at: int) -> Rule: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Rule]: ...
    def __getitem__(self, at: int | slice) -> Rule | Sequence[Rule]:
        return self._rules[at]


class Chain(msgspec.Struct, frozen=True, gc=False):
    """A chain and its rules in order."""

    name: str
    rules: Sequence[Rule] = ()
    hook: Hook | None = None
    comment: str = ""


@dataclass(frozen=True)
class Table:
    """A table of one tool.  ``label``: how answers name it, such as ``nat`` or ``ip kube-proxy``.

    No family: it stands where no way leads here, such as at ``ingress``.
    """

    label: str
    families: frozenset[Family]
    chains: Mapping[str, Chain]
    collections: Mapping[str, Collection] = field(default_factory=dict)

    @cached_property
    def base_chains(self) -> tuple[tuple[Hook, Chain], ...]:
        """The chains that stand at hooks."""
        return tuple((chain.hook, chain) for chain in self.chains.values() if chain.hook is not None)
