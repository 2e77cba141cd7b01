"""``nft -j list ruleset`` as tables.  Pure.

Rules and elements are read when a packet comes to them.  What stands at hooks that are not modelled (``ingress``, and those
of ``arp``, ``bridge`` and ``netdev``) is a table of no family; `kproxy.tools.trace.answer` reports it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction
from functools import partial
from ipaddress import IPv4Address, IPv6Address
from typing import Any

import msgspec

from kproxy.linux.netfilter.patterns import AnyOf, FieldName, RandomNumber, Span
from kproxy.linux.netfilter.readers import nft_text
from kproxy.linux.netfilter.readers.errors import CannotRead
from kproxy.linux.netfilter.readers.nft_values import (
    by_protocol_name,
    element_key,
    expression_selectors,
    read_elements,
    read_pattern,
    read_verdict,
)
from kproxy.linux.netfilter.rules import (
    ALL_BITS,
    Chain,
    Chance,
    Collection,
    CopyMark,
    Dnat,
    End,
    Hook,
    InSet,
    Is,
    LoseMark,
    MapLookup,
    Masquerade,
    Match,
    NoTrack,
    Point,
    Redirect,
    Reject,
    Remember,
    Rule,
    RulesToRead,
    SetMark,
    Step,
    Table,
    Unknown,
    Unmodelled,
)
from kproxy.model.network import Family

Json = Any

FAMILIES = {
    "ip": frozenset({Family.IPV4}),
    "ip6": frozenset({Family.IPV6}),
    "inet": frozenset(Family),
}


NAMES = {Family.IPV4: "ip", Family.IPV6: "ip6"}
"""Of the families in whose tables iptables-nft keeps its own; where its save is read, those are left out."""


def read_nft_ruleset(text: bytes, without: frozenset[tuple[str, str]] = frozenset()) -> list[Table]:
    """All tables, but those ``without``, which iptables-save shows more exactly.  Raises `CannotRead`."""
    try:
        document = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise CannotRead(f"not JSON: {error}; `nft -j list ruleset` prints it") from error
    if not isinstance(document, dict) or not isinstance(document.get("nftables"), list):
        raise CannotRead("there is no `nftables` list in it; `nft -j list ruleset` prints one")
    return list(_tables(document["nftables"], without))


def _tables(objects: Iterable[Json], without: frozenset[tuple[str, str]]) -> Iterator[Table]:
    """Of each table its own objects, in one pass."""
    sorted_out: dict[tuple[str, str], dict[str, list[Json]]] = {}
    dormant: set[tuple[str, str]] = set()
    for one in objects:
        kind, held = next(iter(one.items()))
        if kind == "table":
            sorted_out.setdefault((held["family"], held["name"]), {})
            if "dorm" in str(held.get("flags", "")):  # nft 1.0.6 cuts the word
                dormant.add((held["family"], held["name"]))
        elif kind in {"chain", "rule", "set", "map"}:
            sorted_out.setdefault((held["family"], held["table"]), {}).setdefault(kind, []).append(held)
    for (family, name), held in sorted_out.items():
        if (family, name) in without | dormant:
            continue
        hooks = {chain["hook"] for chain in held.get("chain", ()) if "hook" in chain}
        if hooks - (_POINTS if family in FAMILIES else frozenset()):
            yield Table(f"{family} {name}", frozenset(), {})
        if family in FAMILIES:
            yield _table(family, name, held)


def _table(family: str, name: str, held: Mapping[str, list[Json]]) -> Table:
    rules: dict[str, list[Json]] = {}
    for rule in held.get("rule", ()):
        rules.setdefault(rule["chain"], []).append(rule)
    chains = {
        chain["name"]: Chain(
            chain["name"], RulesToRead(partial(_rules, rules.get(chain["name"], ()))), _hook(chain)
        )
        for chain in held.get("chain", ())
    }
    collections = {
        one["name"]: Collection(one["name"], partial(read_elements, one.get("elem"), _protocols(one)))
        for one in (*held.get("set", ()), *held.get("map", ()))
    }
    return Table(f"{family} {name}", FAMILIES[family], chains, collections)


def _protocols(held: Json) -> frozenset[int]:
    """Which parts of a set's keys are protocols."""
    kinds = held.get("type", ())
    parts = [kinds] if isinstance(kinds, str) else kinds
    return frozenset(at for at, kind in enumerate(parts) if kind == "inet_proto")


_POINTS = frozenset(point.value for point in Point)


def _hook(chain: Json) -> Hook | None:
    point = chain.get("hook")
    if point not in _POINTS:
        return None
    policy = End.DROP if chain.get("policy") == "drop" else End.ACCEPT
    return Hook(Point(point), int(chain.get("prio", 0)), nat=chain.get("type") == "nat", policy=policy)


def _rules(held: Iterable[Json]) -> Iterator[Rule]:
    for number, rule in enumerate(held, 1):
        expressions = rule.get("expr") or []
        steps = tuple(step for one in expressions for step in _read(one))
        yield Rule(steps, rule.get("comment", ""), f"rule {number}", nft_text.format_nft_rule(expressions))


def _read(one: Json) -> tuple[Step, ...]:
    """One expression; of a form that is not known here, as another version of nft may have, it is not modelled."""
    try:
        return tuple(_steps(one))
    except nft_text.STRANGE:
        text = nft_text.format_nft_rule([one])
        return (Unknown(text) if "match" in one else Unmodelled(text),)


def _steps(one: Json) -> Iterator[Step]:
    if not isinstance(one, dict):  # a statement that this nft writes as text
        yield Unmodelled(str(one))
        return
    if (found := read_verdict(one)) is not None:
        yield found
        return
    kind, held = next(iter(one.items()))
    reader = _READERS.get(kind)
    if reader is not None:
        yield from reader(held)
    elif kind in _MATCHES or (kind == "xt" and (held or {}).get("type") == "match"):
        yield Unknown(nft_text.format_nft_rule([one]))
    elif kind not in _NO_MATTER:
        yield Unmodelled(nft_text.format_nft_rule([one]))


_NO_MATTER = frozenset(
    {
        "counter",
        "log",
        "comment",
        "ct helper",
        "ct timeout",
        "ct expectation",
        "last",
        "flow",
        "dup",
        "secmark",
        "reset",
    }
)
_MATCHES = frozenset({"limit", "quota", "ct count", "meter"})
"""Statements that end a rule for some packets."""


# ---------------------------------------------------------------------- matches


def _match(held: Json) -> Iterator[Step]:
    yield _matched(held["op"], held["left"], held["right"]) or Unknown(
        nft_text.format_nft_rule([{"match": held}])
    )


def _matched(op: str, left: Json, right: Json) -> Match | None:
    compared, negated = expression_selectors(left), op == "!="
    if isinstance(right, str) and right.startswith("@"):
        return InSet(compared, right[1:], negated)
    if len(compared) == 1 and isinstance(compared[0], RandomNumber):
        return _drawn(compared[0], op, right)
    if isinstance(right, dict) and "set" in right and len(compared) > 1:
        return InSet(compared, "", negated, Collection("", partial(read_elements, right["set"])))
    if negated and compared == (FieldName.STATUS,):
        return None  # all of its bits are compared, and there are more than are modelled
    wanted = element_key(right) if len(compared) > 1 else _one(read_pattern(right))
    if wanted is None or len(wanted) != len(compared):
        return None
    if (flags := _flags(op, left, wanted[0])) is not None:
        return flags
    return _compared(op, compared, tuple(map(by_protocol_name, compared, wanted)))


_FIRST = frozenset({"syn"})
"""The flags of a TCP connection's first segment."""


def _flags(op: str, left: Json, wanted: object) -> Match | None:
    """``tcp flags & (fin | syn | rst | ack) == syn``, ``tcp flags ! fin,rst``; None: it does not ask for that."""
    if not isinstance(wanted, str | AnyOf):
        return None
    flags = frozenset(wanted.patterns if isinstance(wanted, AnyOf) else [wanted])
    match left:
        case {"&": [{"payload": {"protocol": "tcp", "field": "flags"}}, bits]} if op in {"==", "!="}:
            mask = frozenset(bits if isinstance(bits, list) else [bits])
            holds = (_FIRST & mask == flags) is (op == "==")
        case {"payload": {"protocol": "tcp", "field": "flags"}} if op == "!":
            holds = not _FIRST & flags
        case _:
            return None
    return Is((FieldName.PROTOCOL,), ("tcp" if holds else "none",))


def _one(wanted: object) -> tuple[Any, ...] | None:
    """Match of a list of states or flags: any of them."""
    return None if wanted is None else (wanted,)


def _compared(op: str, compared: tuple[Any, ...], wanted: tuple[Any, ...]) -> Match | None:
    bounds = {"<": (0, -1), "<=": (0, 0), ">": (1, ALL_BITS), ">=": (0, ALL_BITS)}
    if op in bounds and isinstance(wanted[0], int):
        least = op in {">", ">="}
        first = wanted[0] + bounds[op][0] if least else 0
        last = ALL_BITS if least else wanted[0] + bounds[op][1]
        return Is(compared, (Span(first, last),))
    return Is(compared, wanted, op == "!=") if op in {"==", "!=", "in"} else None


def _drawn(number: RandomNumber, op: str, right: Json) -> Match | None:
    """``numgen random mod 3 0`` holds for one packet in three."""
    wanted = read_pattern(right)
    if not isinstance(wanted, int):
        return None
    bound = wanted - number.offset
    below = min(max(bound, 0), number.modulus)
    if op == "==":
        return Chance(Fraction(int(0 <= bound < number.modulus), number.modulus))
    return Chance(Fraction(below, number.modulus)) if op == "<" else None


# ---------------------------------------------------------------------- statements


def _look(held: Json) -> Iterator[Step]:
    yield _lookup(held, translate=False, port=None)


def _lookup(held: Json, *, translate: bool, port: int | None) -> MapLookup:
    compared, data = expression_selectors(held["key"]), held["data"]
    if isinstance(data, str) and data.startswith("@"):
        return MapLookup(compared, data[1:], translate, None, port)
    members = data["set"] if isinstance(data, dict) else data
    return MapLookup(compared, "", translate, Collection("", partial(read_elements, members)), port)


def _dnat(held: Json) -> Iterator[Step]:
    address, port = held.get("addr"), held.get("port")
    yield from _of_family(held)
    to_port = read_pattern(port) if port is not None else None
    if isinstance(address, dict) and "map" in address and (port is None or isinstance(to_port, int)):
        yield _lookup(address["map"], translate=True, port=to_port if isinstance(to_port, int) else None)
        return
    wanted = read_pattern(address) if address is not None else None
    known = address is None or isinstance(wanted, IPv4Address | IPv6Address | Span)
    if not known or not (port is None or isinstance(to_port, int | Span)):
        yield Unmodelled(nft_text.format_nft_rule([{"dnat": held}]))
        return
    yield Dnat(wanted, to_port)  # type: ignore[arg-type]


def _of_family(held: Json) -> Iterator[Step]:
    """To addresses of a family only packets of it are translated."""
    if held.get("family") in _FAMILY_NAMES:
        yield Is((FieldName.FAMILY,), (_FAMILY_NAMES[held["family"]],))


_FAMILY_NAMES = {"ip": "ipv4", "ip6": "ipv6"}


def _snat(held: Json) -> Iterator[Step]:
    yield from _of_family(held)
    if isinstance(held.get("addr"), dict) and "map" in held["addr"]:
        yield Unmodelled(nft_text.format_nft_rule([{"snat": held}]))
        return
    yield Masquerade(nft_text.format_nft_rule([{"snat": held}]).removeprefix("snat to "))


def _redirect(held: Json) -> Iterator[Step]:
    port = held.get("port") if isinstance(held, dict) else None
    wanted = None if port is None else read_pattern(port)
    if port is None or isinstance(wanted, int | Span):
        yield Redirect(wanted)  # type: ignore[arg-type]
    else:
        yield Unmodelled(nft_text.format_nft_rule([{"redirect": held}]))


def _mangle(held: Json) -> Iterator[Step]:
    """Marks, set or changed under a mask.  Of other things addresses and ports matter here."""
    (where,) = expression_selectors(held["key"])
    if where in {FieldName.MARK, FieldName.CONNECTION_MARK}:
        lost = LoseMark(nft_text.format_nft_rule([{"mangle": held}]), where is FieldName.CONNECTION_MARK)
        yield _mark(held["value"], where) or _copied(held["value"], where) or lost
    elif "payload" in held["key"] and held["key"]["payload"].get("field") not in _NO_MATTER_IN_PACKETS:
        yield Unmodelled(nft_text.format_nft_rule([{"mangle": held}]))


_NO_MATTER_IN_PACKETS = frozenset({"dscp", "ecn", "ttl", "hoplimit", "flowlabel", "checksum", "id", "window"})


def _copied(value: Json, where: object) -> CopyMark | None:
    """One mark from the other."""
    connection = where is FieldName.CONNECTION_MARK
    masked = isinstance(value, dict) and isinstance(value.get("&"), list)
    inner, bits = value["&"] if masked else (value, ALL_BITS)
    other = FieldName.MARK if connection else FieldName.CONNECTION_MARK
    known = expression_selectors(inner) == (other,) and isinstance(bits, int)
    return CopyMark(0, bits, connection) if known else None


def _mark(value: Json, where: object) -> SetMark | None:
    connection = where is FieldName.CONNECTION_MARK
    match value:
        case int():
            return SetMark(0, value, connection)
        case {"|": [inner, int(bits)]} if expression_selectors(inner) == (where,):
            return SetMark(~bits & ALL_BITS, bits, connection)
        case {"^": [inner, int(bits)]} if expression_selectors(inner) == (where,):
            return SetMark(ALL_BITS, bits, connection)
        case {"&": [inner, int(bits)]} if expression_selectors(inner) == (where,):
            return SetMark(bits, 0, connection)
        case {"|": [{"&": [inner, int(kept)]}, int(bits)]} if expression_selectors(inner) == (where,):
            return SetMark(kept & ~bits & ALL_BITS, bits, connection)
        case {"^": [{"&": [inner, int(kept)]}, int(bits)]} if expression_selectors(inner) == (where,):
            return SetMark(kept, bits, connection)
        case _:
            return None


def _remember(held: Json) -> Iterator[Step]:
    """A limit that each element has ends the rule for some packets."""
    for one in held.get("stmt", ()):
        if not isinstance(one, dict) or next(iter(one)) != "counter":
            yield Unknown(nft_text.format_nft_rule([{"set": held}]))
            return
    element = held.get("elem")
    value = element["elem"]["val"] if isinstance(element, dict) and "elem" in element else element
    yield Remember(str(held.get("set", "")).removeprefix("@"), expression_selectors(value))


def _reject(held: Json) -> Iterator[Step]:
    """A verdict of one family or protocol implies a match on it, which nft does not print."""
    match held:
        case {"type": "tcp reset"}:
            yield Is((FieldName.PROTOCOL,), ("tcp",))
            yield Reject("tcp reset")
        case {"type": str(kind), "expr": str(code)}:
            family = {"icmp": "ip", "icmpv6": "ip6"}.get(kind, "")
            yield from _of_family({"family": family})
            yield Reject(f"{kind} {code}")
        case _:
            yield Reject("icmp port-unreachable")


_READERS: Mapping[str, Callable[[Json], Iterator[Step]]] = {
    "match": _match,
    "vmap": _look,
    "dnat": _dnat,
    "snat": _snat,
    "masquerade": lambda held: iter((Masquerade(random_fully="fully-random" in str(held)),)),
    "redirect": _redirect,
    "mangle": _mangle,
    "set": _remember,
    "reject": _reject,
    "notrack": lambda _: iter((NoTrack(),)),
}
