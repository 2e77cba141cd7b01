"""nftables rules, sets and maps as typed values: the part of the language that this proxy uses.

`kproxy.proxy.backends.nftables.render` turns a value into text, which is what people read and what ``nft list table`` prints
back; `kproxy.proxy.backends.nftables.kernel.messages` turns the same value into the bytes the kernel is given, and a test holds
the two to each other.  The simulator walks what those bytes say.  Pure.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from kproxy.model.network import Address, Network, Protocol

TABLE = "kube-proxy"
"""The table's name in both families (``nft.table``)."""

ChainName = str
CollectionName = str


# What a rule can read of a packet.


class Field(enum.Enum):
    """A selector; the value is its text, in which ``ip`` stands for the family's keyword."""

    SOURCE = "ip saddr"
    DESTINATION = "ip daddr"
    PROTOCOL = "meta l4proto"
    PORT = "th dport"


@dataclass(frozen=True, slots=True)
class Random:
    """A number from 0 to ``modulus`` - 1, drawn for each packet."""

    modulus: int


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant number of 32 bits as part of a key."""

    number: int


Selector = Field | Random | Constant
Key = tuple[Selector, ...]

FRONTEND: Key = (Field.DESTINATION, Field.PROTOCOL, Field.PORT)
"""Key of a frontend by address."""
NODE_PORT: Key = (Field.PROTOCOL, Field.PORT)
"""Key of a frontend by node port, at any address of the node."""


# Verdicts.


@dataclass(frozen=True, slots=True)
class Jump:
    """Continue in that chain; come back when it ends."""

    chain: ChainName


@dataclass(frozen=True, slots=True)
class Goto:
    """Continue in that chain; do not come back."""

    chain: ChainName


@dataclass(frozen=True, slots=True)
class Drop:
    """Discard the packet without a reply."""


Verdict = Jump | Goto | Drop


# Sets and maps.


class Holds(enum.Enum):
    """Value of an element beside its key."""

    NOTHING = enum.auto()
    VERDICT = enum.auto()
    ENDPOINT = enum.auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Collection:
    """A set, or a map where it ``holds`` something.

    ``interval``: the last part of a key may be a network.  ``filled_up_to`` makes it a set that rules fill, with at most
    so many elements, each for a time.
    """

    name: CollectionName
    key: Key
    holds: Holds = Holds.NOTHING
    interval: bool = False
    filled_up_to: int | None = None
    comment: str = ""


Part = Address | Network | Protocol | int
ElementKey = tuple[Part, ...]
EndpointSocket = tuple[Address, int]
Value = Verdict | EndpointSocket | None


# Matches.


@dataclass(frozen=True, slots=True)
class InSet:
    """The packet's ``key`` is in that set."""

    key: Key
    collection: CollectionName
    negated: bool = False


@dataclass(frozen=True, slots=True)
class AddressWithin:
    """The packet's source or destination is in this network."""

    field: Field
    network: Network
    negated: bool = False


@dataclass(frozen=True, slots=True)
class AddressIsLocal:
    """The packet's source or destination is an address of this node (or loopback)."""

    field: Field


@dataclass(frozen=True, slots=True)
class InInterface:
    """The name of the interface it came in by, or a prefix and ``*``.  A packet of the node's own has none."""

    name: str
    negated: bool = False


@dataclass(frozen=True, slots=True)
class OfProtocol:
    """The packet's transport protocol."""

    protocol: Protocol


@dataclass(frozen=True, slots=True)
class GoesOn:
    """The segment neither ends nor resets its connection.

    One that does may be the first that is tracked of a connection older than the tracking, and INVALID for that.
    """


@dataclass(frozen=True, slots=True)
class IsNew:
    """The first packet of its connection."""


@dataclass(frozen=True, slots=True)
class IsInvalid:
    """The packet has conntrack state INVALID; it is not translated back either."""


@dataclass(frozen=True, slots=True)
class IsTranslated:
    """The connection's destination was rewritten."""


@dataclass(frozen=True, slots=True)
class Marked:
    """The packet's mark has this bit."""

    bit: int


@dataclass(frozen=True, slots=True)
class OneIn:
    """Holds for one packet in ``count``, at random."""

    count: int


Match = (
    OneIn
    | InSet
    | AddressWithin
    | AddressIsLocal
    | InInterface
    | OfProtocol
    | GoesOn
    | IsNew
    | IsInvalid
    | IsTranslated
    | Marked
)


# Statements.


@dataclass(frozen=True, slots=True)
class SetMark:
    """Set this bit of the packet's mark; other bits stay."""

    bit: int


@dataclass(frozen=True, slots=True)
class ToggleMark:
    """Flip this bit of the packet's mark."""

    bit: int


@dataclass(frozen=True, slots=True)
class Remember:
    """Add ``key`` to that set, or renew its timeout.  If the set is full, the rule ends."""

    key: Key
    collection: CollectionName
    seconds: int


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Apply the map's verdict for the packet's ``key``; without one go on."""

    key: Key
    collection: CollectionName


@dataclass(frozen=True, slots=True)
class TranslateBy:
    """Rewrite the connection's destination to what the map has for ``key``, and end; none: go on."""

    key: Key
    collection: CollectionName


@dataclass(frozen=True, slots=True)
class Translate:
    """Rewrite the connection's destination, and end."""

    address: Address
    port: int


@dataclass(frozen=True, slots=True)
class Masquerade:
    """Rewrite the connection's source to the address of the interface it leaves by, at a random port; end."""


@dataclass(frozen=True, slots=True)
class Reject:
    """Discard and answer ICMP port unreachable."""


Statement = (
    SetMark
    | ToggleMark
    | Remember
    | Dispatch
    | TranslateBy
    | Translate
    | Masquerade
    | Reject
    | Jump
    | Goto
    | Drop
)
Step = Match | Statement

Ending = Dispatch | TranslateBy | Translate | Masquerade | Reject | Jump | Goto | Drop
"""Statements a rule ends with."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Steps from left to right; the first match that fails ends it."""

    steps: tuple[Step, ...]
    comment: str = ""


# Chains.


class Kind(enum.Enum):
    """The type of a base chain."""

    FILTER = "filter"
    NAT = "nat"


class HookPoint(enum.Enum):
    """Hook of netfilter at which a base chain is."""

    PREROUTING = "prerouting"
    INPUT = "input"
    FORWARD = "forward"
    OUTPUT = "output"
    POSTROUTING = "postrouting"


DSTNAT, SRCNAT, FILTER = -100, 100, 0
"""Priorities by netfilter's names."""


@dataclass(frozen=True, slots=True)
class Hook:
    """Makes a chain a base chain; smaller priorities come first."""

    kind: Kind
    point: HookPoint
    priority: int


@dataclass(frozen=True, slots=True)
class Chain:
    """A chain and all its rules."""

    name: ChainName
    rules: tuple[Rule, ...]
    hook: Hook | None = None
    comment: str = ""
