"""Definitions of sets and maps, and their elements; the rules themselves are values of `kproxy.linux.netfilter.rules`.

`kproxy.proxy.backends.nftables.render` turns either into text, which is what people read and what ``nft list table`` prints
back; `kproxy.proxy.backends.nftables.kernel.messages` turns the same values into the bytes the kernel is given, and a test holds
the two to each other.  The simulator walks what those bytes say.  Pure.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from kproxy.linux.netfilter.patterns import FieldName, RandomNumber, Selector
from kproxy.linux.netfilter.rules import Verdict
from kproxy.model.network import Address, Network, Protocol

TABLE = "kube-proxy"
"""The table's name in both families (``nft.table``)."""

DSTNAT, SRCNAT, FILTER = -100, 100, 0
"""Priorities by netfilter's names."""

ChainName = str
CollectionName = str

Key = tuple[Selector, ...]

FRONTEND: Key = (FieldName.DESTINATION, FieldName.PROTOCOL, FieldName.PORT)
"""Key of a frontend by address."""
NODE_PORT: Key = (FieldName.PROTOCOL, FieldName.PORT)
"""Key of a frontend by node port, at any address of the node."""


def constant(number: int) -> RandomNumber:
    """A constant number of 32 bits as part of a key."""
    return RandomNumber(1, number, incremental=True)


class Holds(enum.Enum):
    """Value of an element beside its key."""

    NOTHING = enum.auto()
    VERDICT = enum.auto()
    ENDPOINT = enum.auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionDefinition:
    """A set, or a map where it ``holds`` something, without its elements.

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
