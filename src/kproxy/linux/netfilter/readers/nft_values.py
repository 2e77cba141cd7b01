"""Expressions and elements of nftables' JSON (man 5 libnftables-json) as selectors and patterns.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address
from typing import Any

from kproxy.linux.netfilter.patterns import (
    AnyOf,
    FieldName,
    FieldOf,
    KeyPattern,
    Masked,
    Pattern,
    Prefix,
    RandomNumber,
    Selector,
    Span,
    UnmodelledField,
)
from kproxy.linux.netfilter.readers.nft_text import STRANGE
from kproxy.linux.netfilter.readers.numbers import as_host_address, normalize_protocol
from kproxy.linux.netfilter.rules import Dnat, Element, End, Goto, Jump, Unmodelled, Verdict
from kproxy.model.network import Family, parse_address, parse_network

Json = Any

_PAYLOAD: Mapping[tuple[str, str], Selector] = {
    ("ip", "saddr"): FieldOf(FieldName.SOURCE, family=Family.IPV4),
    ("ip", "daddr"): FieldOf(FieldName.DESTINATION, family=Family.IPV4),
    ("ip", "protocol"): FieldOf(FieldName.PROTOCOL, family=Family.IPV4),
    ("ip6", "saddr"): FieldOf(FieldName.SOURCE, family=Family.IPV6),
    ("ip6", "daddr"): FieldOf(FieldName.DESTINATION, family=Family.IPV6),
    ("ip6", "nexthdr"): FieldOf(FieldName.PROTOCOL, family=Family.IPV6),
    ("th", "sport"): FieldName.SOURCE_PORT,
    ("th", "dport"): FieldName.PORT,
    **{(name, "sport"): FieldOf(FieldName.SOURCE_PORT, name) for name in ("tcp", "udp", "sctp")},
    **{(name, "dport"): FieldOf(FieldName.PORT, name) for name in ("tcp", "udp", "sctp")},
    ("tcp", "flags"): FieldOf(FieldName.TCP_FLAGS, "tcp"),
}

_PROTOCOL_OF = {"icmpv6": "ipv6-icmp"} | {
    name: name for name in ("tcp", "udp", "sctp", "icmp", "igmp", "udplite", "dccp", "ah", "esp", "comp")
}
_FAMILY_OF = {"ip": Family.IPV4, "ip6": Family.IPV6}

_META: Mapping[str, FieldName] = {
    "l4proto": FieldName.PROTOCOL,
    "mark": FieldName.MARK,
    "iifname": FieldName.IN,
    "oifname": FieldName.OUT,
    "iif": FieldName.IN,
    "oif": FieldName.OUT,
    "nfproto": FieldName.FAMILY,
}

_CONNECTION: Mapping[str, FieldName] = {
    "state": FieldName.STATE,
    "status": FieldName.STATUS,
    "direction": FieldName.DIRECTION,
    "mark": FieldName.CONNECTION_MARK,
    "saddr": FieldName.ORIGINAL_SOURCE,
    "ip saddr": FieldName.ORIGINAL_SOURCE,
    "ip6 saddr": FieldName.ORIGINAL_SOURCE,
    "daddr": FieldName.ORIGINAL_DESTINATION,
    "ip daddr": FieldName.ORIGINAL_DESTINATION,
    "ip6 daddr": FieldName.ORIGINAL_DESTINATION,
    "proto-dst": FieldName.ORIGINAL_PORT,
    "protocol": FieldName.ORIGINAL_PROTOCOL,
    "l4proto": FieldName.ORIGINAL_PROTOCOL,
}


def expression_selectors(expression: Json) -> tuple[Selector, ...]:
    """The selectors of an expression: one, or those of a concatenation."""
    if isinstance(expression, dict) and "concat" in expression:
        return tuple(one for part in expression["concat"] for one in expression_selectors(part))
    return (_selector(expression),)


def _selector(expression: Json) -> Selector:
    if not isinstance(expression, dict):
        return UnmodelledField(str(expression))
    kind, held = next(iter(expression.items()))
    reader = _SELECTORS.get(kind)
    return (reader(held) if reader is not None else None) or UnmodelledField(kind)


def _payload(held: Json) -> Selector:
    """A field of one protocol or family, which other packets do not have (man 8 nft, payload expressions)."""
    protocol_name, field = held.get("protocol", ""), held.get("field", "")
    if (known := _PAYLOAD.get((protocol_name, field))) is not None:
        return known
    unread = UnmodelledField(f"{protocol_name} {field}".strip() or "raw payload")
    of, family = _PROTOCOL_OF.get(protocol_name, ""), _FAMILY_OF.get(protocol_name)
    return FieldOf(unread, of, family) if of or family is not None else unread


def _meta(held: Json) -> Selector:
    key = str(held["key"])
    return FieldName.FAMILY if key == "protocol" else _META.get(key, UnmodelledField(f"meta {key}"))


def _connection(held: Json) -> Selector:
    key, direction = str(held["key"]), held.get("dir", "original")
    unread = UnmodelledField(f"ct {direction} {key}")
    return _CONNECTION.get(key, unread) if direction == "original" else unread


def _fib(held: Json) -> Selector | None:
    """The type of an address; ``fib daddr . iif type``, its type on that interface, is not modelled."""
    flags = [held["flags"]] if isinstance(held["flags"], str) else held["flags"]
    known = {"saddr": FieldName.SOURCE_TYPE, "daddr": FieldName.DESTINATION_TYPE}
    if held.get("result") != "type" or len(flags) != 1 or flags[0] not in known:
        return UnmodelledField(f"fib {' . '.join(flags)} {held.get('result')}")
    return known[flags[0]]


def _masked(held: Json) -> Selector | None:
    inner = expression_selectors(held[0])[0]
    if isinstance(inner, FieldOf):
        return FieldOf(UnmodelledField("bits of what is not modelled"), inner.protocol, inner.family)
    return Masked(inner, held[1]) if isinstance(inner, FieldName) and isinstance(held[1], int) else None


def _drawn(held: Json) -> Selector:
    """A hash of the packet is as good as a number drawn for those who do not compute it."""
    return RandomNumber(int(held["mod"]), int(held.get("offset", 0)), held.get("mode") == "inc")


_SELECTORS: Mapping[str, Callable[[Json], Selector | None]] = {
    "payload": _payload,
    "meta": _meta,
    "ct": _connection,
    "fib": _fib,
    "numgen": _drawn,
    "jhash": _drawn,
    "symhash": _drawn,
    "&": _masked,
}


def read_pattern(value: Json) -> Pattern | None:
    """The pattern of a comparison; None: that is not known."""
    match value:
        case bool():
            return int(value)
        case int():
            return value
        case str():
            return _text(value)
        case {"prefix": {"addr": str(address), "len": int(length)}}:
            network = parse_network(f"{address}/{length}")
            return None if network is None else as_host_address(network)
        case {"range": [first, last]}:
            ends = read_pattern(first), read_pattern(last)
            return Span(*ends) if type(ends[0]) is type(ends[1]) else None  # type: ignore[arg-type]
        case {"set": list(members)} | list(members):
            found = [read_pattern(member) for member in members]
            return None if None in found else AnyOf(tuple(one for one in found if one is not None))
        case {"elem": {"val": inner}}:
            return read_pattern(inner)
        case _:
            return None


@lru_cache(maxsize=1 << 16)
def _text(value: str) -> Pattern:
    if (address := parse_address(value)) is not None:
        return address
    if value.endswith("*"):
        return Prefix(value[:-1])
    return _NAMES.get(value) or (normalize_protocol(value) if value.isdigit() else value)


_NAMES = {"ip": "ipv4", "ip6": "ipv6", "icmpv6": "ipv6-icmp"}
"""Where two selectors that are one here have two names for a thing."""


def element_key(value: Json) -> KeyPattern | None:
    """An element's key; None: that is not known."""
    parts = value["concat"] if isinstance(value, dict) and "concat" in value else [value]
    found = [read_pattern(part) for part in parts]
    return None if None in found else tuple(one for one in found if one is not None)


def _commented(value: Json) -> tuple[Json, str]:
    """An element, and its comment where it has one."""
    if isinstance(value, dict) and isinstance(inner := value.get("elem"), dict):
        return inner["val"], str(inner.get("comment", ""))
    return value, ""


def read_elements(members: Json, protocols: frozenset[int] = frozenset()) -> Iterator[Element | None]:
    """The elements of a set, or of a map; None where one is not understood.  ``protocols``: parts that are protocols."""
    for member in members if isinstance(members, list) else [members] if members else []:
        try:
            yield _element(member, protocols)
        except STRANGE:
            yield None


def _element(member: Json, protocols: frozenset[int]) -> Element | None:
    held, data = member if isinstance(member, list) and len(member) == 2 else (member, None)
    value, comment = _commented(held)
    made = () if value == "*" else element_key(value)
    if made is None:
        return None
    named = tuple(_protocol(one) if at in protocols else one for at, one in enumerate(made))
    return Element(named, None if data is None else _data(data), comment)


def _protocol(part: Pattern) -> Pattern:
    """The number is printed where the machine has no /etc/protocols."""
    return normalize_protocol(str(part)) if isinstance(part, int) else part


def by_protocol_name(selector: Selector, wanted: Pattern) -> Pattern:
    """The pattern that a selector is compared with; a protocol by its name."""
    field = selector.field if isinstance(selector, FieldOf) else selector
    if field not in {FieldName.PROTOCOL, FieldName.ORIGINAL_PROTOCOL}:
        return wanted
    return AnyOf(tuple(map(_protocol, wanted.patterns))) if isinstance(wanted, AnyOf) else _protocol(wanted)


def _data(data: Json) -> Verdict | Dnat | Unmodelled:
    return read_verdict(data) or _endpoint(data) or Unmodelled(str(data))


def read_verdict(value: Json) -> Verdict | None:
    """A verdict statement."""
    match value:
        case {"jump": {"target": str(chain)}}:
            return Jump(chain)
        case {"goto": {"target": str(chain)}}:
            return Goto(chain)
        case {"drop": _}:
            return End.DROP
        case {"accept": _}:
            return End.ACCEPT
        case {"return": _}:
            return End.RETURN
        case {"continue": _}:
            return End.CONTINUE
        case _:
            return None


def _endpoint(data: Json) -> Dnat | None:
    """An address, or a port, or both; a range or a network is not modelled."""
    match element_key(data):
        case (IPv4Address() | IPv6Address() as address,):
            return Dnat(address)
        case (IPv4Address() | IPv6Address() as address, int(port)):
            return Dnat(address, port)
        case (int(port),):
            return Dnat(None, port)
        case _:
            return None
