"""Selectors, which rules read of a packet, and the patterns they compare it with.  Pure."""

from __future__ import annotations

import enum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

import msgspec

from kproxy.model.network import Address, Family, Network


class FieldName(enum.Enum):
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
    ORIGINAL_PROTOCOL = "ct original protocol"
    SOURCE_TYPE = "fib saddr type"
    DESTINATION_TYPE = "fib daddr type"
    TCP_FLAGS = "tcp flags"

    __hash__ = object.__hash__  # by identity: a field is looked up for every match


class Masked(msgspec.Struct, frozen=True, gc=False):
    """A number's bits under a mask."""

    field: FieldName
    mask: int


class UnmodelledField(msgspec.Struct, frozen=True, gc=False):
    """Something of a packet that is not modelled."""

    text: str


class FieldOf(msgspec.Struct, frozen=True, gc=False):
    """A field that only packets of this protocol or family have; a rule that matches on it does not hold for others."""

    field: FieldName | UnmodelledField
    protocol: str = ""
    family: Family | None = None


class RandomNumber(msgspec.Struct, frozen=True, gc=False):
    """A number from ``offset``, one of ``modulus``; at random, or (``incremental``) one after the other."""

    modulus: int
    offset: int = 0
    incremental: bool = False


Selector = FieldName | Masked | FieldOf | RandomNumber | UnmodelledField

Value = Address | int | str | frozenset[str]


# What they are compared with.


class Span(msgspec.Struct, frozen=True, gc=False):
    """From one value to another, both within."""

    first: Address | int
    last: Address | int


class Prefix(msgspec.Struct, frozen=True, gc=False):
    """A name that begins so."""

    text: str


class AnyFlag(msgspec.Struct, frozen=True, gc=False):
    """One of these flags is there."""

    any_of: frozenset[str]


class AnyOf(msgspec.Struct, frozen=True, gc=False):
    """One of these fits."""

    patterns: tuple[Pattern, ...]


Pattern = Address | Network | int | str | Span | Prefix | AnyFlag | AnyOf
KeyPattern = tuple[Pattern, ...]


WIDE = (IPv4Network, IPv6Network, Span, Prefix, AnyFlag, AnyOf)
"""Patterns that fit more than one value."""


def fits(pattern: Pattern, value: Value) -> bool:
    """True if a value fits a pattern."""
    match pattern:
        case AnyOf(patterns):
            return any(fits(one, value) for one in patterns)
        case Span(first, last):
            return type(value) is type(first) and first <= value <= last  # type: ignore[operator]
        case Prefix(text):
            return isinstance(value, str) and value.startswith(text)
        case AnyFlag(any_of):
            return isinstance(value, frozenset) and bool(value & any_of)
        case str() | int():
            return value == pattern or (isinstance(value, frozenset) and pattern in value)
        case IPv4Network() | IPv6Network():
            return isinstance(value, IPv4Address | IPv6Address) and value in pattern
        case _:
            return value == pattern


def narrowness(pattern: Pattern) -> int:
    """Of patterns that fit, the one with more of it says more."""
    return int(getattr(pattern, "prefixlen", 0 if isinstance(pattern, WIDE) else 999))
