"""Matches and changes of marks by name: what proxies compare, in the values of `kproxy.linux.netfilter.rules`.  Pure."""

from __future__ import annotations

from fractions import Fraction
from functools import cache

from kproxy.linux.netfilter.patterns import AnyFlag, FieldName, Masked, Prefix
from kproxy.linux.netfilter.rules import ALL_BITS, Chance, Is, SetMark
from kproxy.model.network import Address, Network, Protocol

SOURCE_IS_LOCAL = Is((FieldName.SOURCE_TYPE,), ("local",))
"""The source is an address of this node (or loopback): the node itself sent the packet."""

DESTINATION_IS_LOCAL = Is((FieldName.DESTINATION_TYPE,), ("local",))
"""The destination is an address of this node, loopback included."""

NOT_FIN_OR_RST = Is((FieldName.TCP_FLAGS,), (AnyFlag(frozenset({"fin", "rst"})),), negated=True)
"""The segment neither ends nor resets its connection.

One that does may be the first that is tracked of a connection older than the tracking, and INVALID for that.
"""


def source_in(network: Address | Network, *, negated: bool = False) -> Is:
    """The packet's source is this address or in this network."""
    return Is((FieldName.SOURCE,), (network,), negated)


def destination_in(network: Address | Network, *, negated: bool = False) -> Is:
    """The packet's destination is this address or in this network."""
    return Is((FieldName.DESTINATION,), (network,), negated)


def in_interface(name: str | Prefix, *, negated: bool = False) -> Is:
    """The interface that the packet came in by.

    A packet the node itself sends has none: the match fails, and holds where negated.
    """
    return Is((FieldName.IN,), (name,), negated)


@cache
def of_protocol(protocol: Protocol) -> Is:
    """The packet's transport protocol."""
    return Is((FieldName.PROTOCOL,), (protocol.value.lower(),))


def in_state(*states: str, negated: bool = False) -> Is:
    """The packet has one of these conntrack states (negated: none of these)."""
    return Is((FieldName.STATE,), (AnyFlag(frozenset(states)),), negated)


def mark_is(value: int, mask: int, *, negated: bool = False) -> Is:
    """``packet mark & mask == value``."""
    return Is((Masked(FieldName.MARK, mask),), (value,), negated)


@cache
def one_in(count: int) -> Chance:
    """Holds for one packet in ``count``, at random."""
    return Chance(Fraction(1, count))


def share_of(some: int, count: int) -> Chance:
    """Holds for ``some`` packets in ``count``, at random."""
    return one_in(count) if some == 1 else Chance(Fraction(some, count))


def or_mark(bits: int) -> SetMark:
    """Set these bits of the packet's mark; others stay."""
    return SetMark(ALL_BITS ^ bits, bits)


def xor_mark(bits: int) -> SetMark:
    """Flip these bits of the packet's mark."""
    return SetMark(ALL_BITS, bits)
