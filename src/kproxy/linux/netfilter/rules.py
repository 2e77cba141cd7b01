"""Rules of any packet filter of Linux as values: chains at hooks, matches, statements, sets.

iptables and nftables differ in syntax, not in effect, so both are read into these; one walk serves a node that has
both.  What a reader does not know becomes `Unknown` and is reported, never guessed.  Pure.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

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

# Matches.


@dataclass(frozen=True, slots=True)
class Is:
    """What the selectors read fits, one for one; ``negated``: some of it does not."""

    key: tuple[Selector, ...]
    pattern: KeyPattern
    negated: bool = False


@dataclass(frozen=True, slots=True)
class InSet:
    """What the selectors read is in the set of that name, or in one that the rule itself has."""

    key: tuple[Selector, ...]
    name: str
    negated: bool = False
    inline: Collection | None = None


@dataclass(frozen=True, slots=True)
class Chance:
    """Holds at random, for this share of packets."""

    share: Fraction


@dataclass(frozen=True, slots=True)
class Recent:
    """The source (or destination) is in a list of iptables' ``recent`` match, and not for longer than ``seconds``."""

    name: str
    seconds: int | None = None
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Unknown:
    """A match that is not modelled: `walk` follows both ways and says so."""

    text: str


Match = Is | InSet | Chance | Recent | Unknown


# Statements.


@dataclass(frozen=True, slots=True)
class Jump:
    """Through that chain, and back when it ends."""

    chain: str


@dataclass(frozen=True, slots=True)
class Goto:
    """On in that chain; where it ends, so does this one."""

    chain: str


class End(enum.Enum):
    """A verdict."""

    RETURN = "leaves the chain"
    ACCEPT = "accepted: on to the next table"
    DROP = "dropped"
    CONTINUE = "on to the next rule"


@dataclass(frozen=True, slots=True)
class Reject:
    """Discarded, and the sender is notified as ``how``."""

    how: str


@dataclass(frozen=True, slots=True)
class Translate:
    """DNAT.  None: as it is.  Several addresses or ports: any of them."""

    address: Address | Span | None
    port: int | Span | None = None


@dataclass(frozen=True, slots=True)
class Redirect:
    """DNAT to the node itself."""

    port: int | Span | None


@dataclass(frozen=True, slots=True)
class Masquerade:
    """SNAT to an address of the node (``address``: to that one)."""

    address: str = ""


@dataclass(frozen=True, slots=True)
class SetMark:
    """``mark = (mark & keep) ^ flip``; ``connection``: of the connection."""

    keep: int
    flip: int
    connection: bool = False


@dataclass(frozen=True, slots=True)
class CopyMark:
    """``mark = (mark & keep) ^ (the connection's & taken)``; ``to_connection``: the other way round."""

    keep: int
    taken: int
    to_connection: bool = False


@dataclass(frozen=True, slots=True)
class LoseMark:
    """The mark becomes what is not modelled."""

    text: str
    connection: bool = False


@dataclass(frozen=True, slots=True)
class MapMark:
    """The mark that the packet's member of an ipset holds."""

    key: tuple[Selector, ...]
    name: str


@dataclass(frozen=True, slots=True)
class Remember:
    """What the selectors read is put in a list, or set, of clients."""

    name: str
    key: tuple[Selector, ...] = (FieldName.SOURCE,)


@dataclass(frozen=True, slots=True)
class Look:
    """Do what a map has for the key: a verdict, or (``translate``) DNAT to what is there.  Nothing there: go on."""

    key: tuple[Selector, ...]
    name: str
    translate: bool = False
    inline: Collection | None = None
    port: int | None = None


@dataclass(frozen=True, slots=True)
class NoTrack:
    """Connection tracking leaves the packet alone, and so does NAT."""


@dataclass(frozen=True, slots=True)
class Unmodelled:
    """A statement that is not modelled and may do anything to the packet: its fate is not known."""

    text: str


Verdict = Jump | Goto | End
Change = SetMark | CopyMark | MapMark | LoseMark | Remember | NoTrack
"""Statements after which the rule goes on."""
Statement = Verdict | Reject | Translate | Redirect | Masquerade | Change | Look | Unmodelled
Step = Match | Statement


# Sets and maps.


@dataclass(frozen=True, slots=True)
class Element:
    """What a set or map has under a key; an empty key is any key that has no element of its own.

    ``data``: a verdict, or where to translate to, or a mark and its mask; `Unmodelled`: it has something that is not
    modelled.  ``excluded``: what fits is not in the set (ipset's ``nomatch``).
    """

    key: KeyPattern
    data: Verdict | Translate | SetMark | Unmodelled | None = None
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
        """Whether all its elements were understood; else one of the others may have what is not found."""
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


@dataclass(frozen=True, slots=True)
class Hook:
    """Makes a chain a base chain; smaller priorities come first.  ``nat``: it sees a connection's first packet only."""

    point: Point
    priority: int
    nat: bool = False
    policy: End = End.ACCEPT


@dataclass(frozen=True, slots=True)
class Rule:
    """``steps`` from left to right; the first match that fails ends it.  ``text``: as its tool writes it."""

    label: str
    text: str
    steps: tuple[Step, ...]
    comment: str = ""


class Chain:
    """A chain, whose rules are read when a packet comes."""

    def __init__(self, name: str, hook: Hook | None, read: Callable[[], Iterable[Rule]]) -> None:
        self.name = name
        self.hook = hook
        self._read = read

    @cached_property
    def rules(self) -> tuple[Rule, ...]:
        """Its rules in order."""
        return tuple(self._read())


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
