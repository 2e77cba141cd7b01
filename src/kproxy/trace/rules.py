"""Rules of any packet filter of Linux as values: chains at hooks, matches, statements, sets.

iptables and nftables differ in words, not in what they do, so both are read into these; one walk serves a node that has
both.  What a reader does not know becomes `Unknown` and is told, never guessed.  Pure.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

from kproxy.net import Address, Family, Network

# What can be read of a packet.


class Field(enum.Enum):
    """Something of a packet, or of what the node knows about it; the value is its name in nftables."""

    SOURCE = "saddr"
    DESTINATION = "daddr"
    PROTOCOL = "l4proto"
    SOURCE_PORT = "sport"
    PORT = "dport"
    MARK = "mark"
    IN = "iifname"
    OUT = "oifname"
    FAMILY = "nfproto"
    STATE = "ct state"
    STATUS = "ct status"
    DIRECTION = "ct direction"
    CONNECTION_MARK = "ct mark"
    ORIGINAL_SOURCE = "ct original saddr"
    ORIGINAL_DESTINATION = "ct original daddr"
    ORIGINAL_PORT = "ct original proto-dst"
    SOURCE_TYPE = "fib saddr type"
    DESTINATION_TYPE = "fib daddr type"
    TCP_FLAGS = "tcp flags"


@dataclass(frozen=True, slots=True)
class Masked:
    """A number's bits under a mask."""

    field: Field
    mask: int


@dataclass(frozen=True, slots=True)
class Of:
    """A field that only packets of this protocol or family have; of others a rule that asks for it does not hold."""

    field: Field
    protocol: str = ""
    family: Family | None = None


@dataclass(frozen=True, slots=True)
class Random:
    """A number from ``offset``, one of ``modulus``; ``random`` or one after the other."""

    modulus: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Unread:
    """Something of a packet that is not modelled."""

    text: str


Selector = Field | Masked | Of | Random | Unread

Value = Address | int | str | frozenset[str]


# What it is compared with.


@dataclass(frozen=True, slots=True)
class Span:
    """From one value to another, both within."""

    first: Address | int
    last: Address | int


@dataclass(frozen=True, slots=True)
class Begins:
    """A name that begins so."""

    text: str


@dataclass(frozen=True, slots=True)
class Flags:
    """One of these flags is there."""

    any_of: frozenset[str]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """One of these fits."""

    patterns: tuple[Pattern, ...]


Pattern = Address | Network | int | str | Span | Begins | Flags | AnyOf
KeyPattern = tuple[Pattern, ...]


_WIDE = (IPv4Network, IPv6Network, Span, Begins, Flags, AnyOf)
"""Patterns that fit more than one value."""


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
    """Discarded, and the sender is told ``how``."""

    how: str


@dataclass(frozen=True, slots=True)
class Translate:
    """DNAT.  None: as it is.  Several addresses or ports: any of them."""

    address: Address | Span | None
    port: int | Span | None = None


@dataclass(frozen=True, slots=True)
class Redirect:
    """DNAT to the node itself."""

    port: int | None


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
class MapMark:
    """The mark that the packet's member of an ipset holds."""

    key: tuple[Selector, ...]
    name: str


@dataclass(frozen=True, slots=True)
class Remember:
    """The packet's source is put in a list, or set, of clients."""

    name: str


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
class Skipped:
    """A statement that is not modelled: it is told, and the walk goes on."""

    text: str


Verdict = Jump | Goto | End | Reject
Statement = (
    Verdict | Translate | Redirect | Masquerade | SetMark | MapMark | Remember | NoTrack | Look | Skipped
)
Step = Match | Statement


# Sets and maps.


@dataclass(frozen=True, slots=True)
class Element:
    """What a set or map has under a key; ``data``: a verdict, or where to translate to, or a mark and its mask."""

    key: KeyPattern
    data: Verdict | Translate | SetMark | None = None
    comment: str = ""


class Collection:
    """A set or map, read when it is asked for the first time."""

    def __init__(self, name: str, read: Callable[[], Iterable[Element]]) -> None:
        self.name = name
        self._read = read

    @cached_property
    def _sorted(self) -> tuple[dict[KeyPattern, Element], list[Element]]:
        exact: dict[KeyPattern, Element] = {}
        others: list[Element] = []
        for element in self._read():
            if any(isinstance(part, _WIDE) for part in element.key):
                others.append(element)
            else:
                exact.setdefault(element.key, element)
        return exact, others

    def find(self, key: tuple[Value, ...]) -> Element | None:
        """The element that has the key, the narrowest of several; of flags any may be in it."""
        for at, part in enumerate(key):
            if isinstance(part, frozenset):
                each = (self.find((*key[:at], flag, *key[at + 1 :])) for flag in sorted(part))
                return next((found for found in each if found is not None), None)
        exact, others = self._sorted
        if (found := exact.get(key)) is not None:  # type: ignore[arg-type]
            return found
        fitting = [one for one in others if len(one.key) == len(key) and all(map(fits, one.key, key))]
        return max(fitting, key=lambda one: sum(map(_narrowness, one.key)), default=None)


def fits(pattern: Pattern, value: Value) -> bool:
    """Whether a value is what a pattern asks for."""
    match pattern:
        case AnyOf(patterns):
            return any(fits(one, value) for one in patterns)
        case Span(first, last):
            return type(value) is type(first) and first <= value <= last  # type: ignore[operator]
        case Begins(text):
            return isinstance(value, str) and value.startswith(text)
        case Flags(any_of):
            return isinstance(value, frozenset) and bool(value & any_of)
        case str() | int():
            return value == pattern or (isinstance(value, frozenset) and pattern in value)
        case IPv4Network() | IPv6Network():
            return isinstance(value, IPv4Address | IPv6Address) and value in pattern
        case _:
            return value == pattern


def _narrowness(pattern: Pattern) -> int:
    return int(getattr(pattern, "prefixlen", 0 if isinstance(pattern, _WIDE) else 999))


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


@dataclass(frozen=True, slots=True)
class Table:
    """A table of one tool.  ``label``: how answers name it, such as ``nat`` or ``ip kube-proxy``."""

    label: str
    families: frozenset[Family]
    chains: Mapping[str, Chain]
    collections: Mapping[str, Collection] = field(default_factory=dict)
