"""Expressions and elements of nftables' JSON (man 5 libnftables-json) as selectors and patterns.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from kproxy.net import Family, parse_address, parse_network
from kproxy.trace.readers.numbers import narrowed, protocol
from kproxy.trace.rules import (
    AnyOf,
    Begins,
    Element,
    End,
    Field,
    Goto,
    Jump,
    KeyPattern,
    Masked,
    Of,
    Pattern,
    Random,
    Reject,
    Selector,
    Span,
    Translate,
    Unread,
    Verdict,
)

Json = Any

_PAYLOAD: Mapping[tuple[str, str], Selector] = {
    ("ip", "saddr"): Of(Field.SOURCE, family=Family.IPV4),
    ("ip", "daddr"): Of(Field.DESTINATION, family=Family.IPV4),
    ("ip", "protocol"): Of(Field.PROTOCOL, family=Family.IPV4),
    ("ip6", "saddr"): Of(Field.SOURCE, family=Family.IPV6),
    ("ip6", "daddr"): Of(Field.DESTINATION, family=Family.IPV6),
    ("ip6", "nexthdr"): Of(Field.PROTOCOL, family=Family.IPV6),
    ("th", "sport"): Field.SOURCE_PORT,
    ("th", "dport"): Field.PORT,
    **{(name, "sport"): Of(Field.SOURCE_PORT, name) for name in ("tcp", "udp", "sctp")},
    **{(name, "dport"): Of(Field.PORT, name) for name in ("tcp", "udp", "sctp")},
}

_META: Mapping[str, Field] = {
    "l4proto": Field.PROTOCOL,
    "mark": Field.MARK,
    "iifname": Field.IN,
    "oifname": Field.OUT,
    "iif": Field.IN,
    "oif": Field.OUT,
    "nfproto": Field.FAMILY,
}

_CONNECTION: Mapping[str, Field] = {
    "state": Field.STATE,
    "status": Field.STATUS,
    "direction": Field.DIRECTION,
    "mark": Field.CONNECTION_MARK,
    "saddr": Field.ORIGINAL_SOURCE,
    "ip saddr": Field.ORIGINAL_SOURCE,
    "ip6 saddr": Field.ORIGINAL_SOURCE,
    "daddr": Field.ORIGINAL_DESTINATION,
    "ip daddr": Field.ORIGINAL_DESTINATION,
    "ip6 daddr": Field.ORIGINAL_DESTINATION,
    "proto-dst": Field.ORIGINAL_PORT,
    "protocol": Field.PROTOCOL,
    "l4proto": Field.PROTOCOL,
}


def selectors(expression: Json) -> tuple[Selector, ...]:
    """What an expression reads: one thing, or those that are put together."""
    if isinstance(expression, dict) and "concat" in expression:
        return tuple(one for part in expression["concat"] for one in selectors(part))
    return (_selector(expression),)


def _selector(expression: Json) -> Selector:
    if not isinstance(expression, dict):
        return Unread(str(expression))
    kind, held = next(iter(expression.items()))
    reader = _SELECTORS.get(kind)
    return (reader(held) if reader is not None else None) or Unread(kind)


def _payload(held: Json) -> Selector:
    name = held.get("protocol", ""), held.get("field", "")
    return _PAYLOAD.get(name, Unread(" ".join(name)))


def _meta(held: Json) -> Selector:
    key = str(held["key"])
    return Field.FAMILY if key == "protocol" else _META.get(key, Unread(f"meta {key}"))


def _connection(held: Json) -> Selector:
    key, direction = str(held["key"]), held.get("dir", "original")
    unread = Unread(f"ct {direction} {key}")
    return _CONNECTION.get(key, unread) if direction == "original" else unread


def _fib(held: Json) -> Selector | None:
    """The type of an address alone; ``fib daddr . iif type`` is taken for it."""
    if held.get("result") != "type":
        return None
    return Field.SOURCE_TYPE if "saddr" in held["flags"] else Field.DESTINATION_TYPE


def _masked(held: Json) -> Selector | None:
    inner = selectors(held[0])[0]
    return Masked(inner, held[1]) if isinstance(inner, Field) and isinstance(held[1], int) else None


def _drawn(held: Json) -> Selector:
    """A hash of the packet is as good as a number drawn for those who do not compute it."""
    return Random(int(held["mod"]), int(held.get("offset", 0)))


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


def pattern(value: Json) -> Pattern | None:
    """What is compared with; None: that is not known."""
    match value:
        case bool():
            return int(value)
        case int():
            return value
        case str():
            return _text(value)
        case {"prefix": {"addr": str(address), "len": int(length)}}:
            network = parse_network(f"{address}/{length}")
            return None if network is None else narrowed(network)
        case {"range": [first, last]}:
            ends = pattern(first), pattern(last)
            return Span(*ends) if type(ends[0]) is type(ends[1]) else None  # type: ignore[arg-type]
        case {"set": list(members)} | list(members):
            found = [pattern(member) for member in members]
            return None if None in found else AnyOf(tuple(one for one in found if one is not None))
        case {"elem": {"val": inner}}:
            return pattern(inner)
        case _:
            return None


@lru_cache(maxsize=1 << 16)
def _text(value: str) -> Pattern:
    if (address := parse_address(value)) is not None:
        return address
    if value.endswith("*"):
        return Begins(value[:-1])
    return _NAMES.get(value) or (protocol(value) if value.isdigit() else value)


_NAMES = {"ip": "ipv4", "ip6": "ipv6", "icmpv6": "ipv6-icmp"}
"""Where two selectors that are one here have two names for a thing."""


def key(value: Json) -> KeyPattern | None:
    """An element's key; None: that is not known."""
    parts = value["concat"] if isinstance(value, dict) and "concat" in value else [value]
    found = [pattern(part) for part in parts]
    return None if None in found else tuple(one for one in found if one is not None)


def _commented(value: Json) -> tuple[Json, str]:
    """An element, and its comment where it has one."""
    if isinstance(value, dict) and isinstance(inner := value.get("elem"), dict):
        return inner["val"], str(inner.get("comment", ""))
    return value, ""


def elements(members: Json) -> Iterator[Element]:
    """The elements of a set, or of a map."""
    for member in members or ():
        held, data = member if isinstance(member, list) and len(member) == 2 else (member, None)
        value, comment = _commented(held)
        made = key(value)
        if made is not None:
            yield Element(made, verdict(data) or _endpoint(data), comment)


def verdict(value: Json) -> Verdict | None:
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
        case {"reject": how}:
            return Reject(rejection(how))
        case _:
            return None


def rejection(how: Json) -> str:
    """What the sender is told."""
    match how:
        case {"type": "tcp reset"}:
            return "tcp reset"
        case {"type": str(kind), "expr": str(code)}:
            return f"{kind} {code}"
        case _:
            return "icmp port-unreachable"


def _endpoint(data: Json) -> Translate | None:
    parts = key(data) if data is not None else None
    if parts is None:
        return None
    address = next((part for part in parts if not isinstance(part, int | str)), None)
    port = next((part for part in parts if isinstance(part, int)), None)
    if address is not None and not hasattr(address, "is_loopback"):
        return None
    return Translate(address, port)  # type: ignore[arg-type]
