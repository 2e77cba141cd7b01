"""``nft -j list ruleset`` as tables.  Pure.

Rules and elements are read when a packet comes to them.  Tables of families that no routed packet of a Service meets
(``arp``, ``bridge``, ``netdev``) are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction
from functools import partial
from typing import Any

import msgspec

from kproxy.net import Family
from kproxy.trace.readers import nft_text
from kproxy.trace.readers.nft_values import elements, key, pattern, rejection, selectors, verdict
from kproxy.trace.readers.problem import CannotRead
from kproxy.trace.rules import (
    Chain,
    Chance,
    Collection,
    End,
    Field,
    Hook,
    InSet,
    Is,
    Look,
    Masquerade,
    Match,
    NoTrack,
    Point,
    Random,
    Redirect,
    Reject,
    Remember,
    Rule,
    SetMark,
    Skipped,
    Span,
    Step,
    Table,
    Translate,
    Unknown,
)

Json = Any
ALL_BITS = 0xFFFFFFFF

FAMILIES = {
    "ip": frozenset({Family.IPV4}),
    "ip6": frozenset({Family.IPV6}),
    "inet": frozenset(Family),
}

OF_IPTABLES = frozenset({"nat", "filter", "mangle", "raw", "security"})
"""Tables that iptables-nft keeps in families ip and ip6, if its save is read these are left out."""


def read(text: bytes, *, without_iptables: bool = False) -> list[Table]:
    """All tables.  Raises `CannotRead`."""
    try:
        document = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise CannotRead(f"not JSON: {error}; `nft -j list ruleset` prints it") from error
    if not isinstance(document, dict) or not isinstance(document.get("nftables"), list):
        raise CannotRead("there is no `nftables` list in it; `nft -j list ruleset` prints one")
    return list(_tables(document["nftables"], without_iptables=without_iptables))


def _tables(objects: Iterable[Json], *, without_iptables: bool) -> Iterator[Table]:
    """Of each table its own objects, in one pass."""
    sorted_out: dict[tuple[str, str], dict[str, list[Json]]] = {}
    for one in objects:
        kind, held = next(iter(one.items()))
        if kind == "table":
            sorted_out.setdefault((held["family"], held["name"]), {})
        elif kind in {"chain", "rule", "set", "map"}:
            sorted_out.setdefault((held["family"], held["table"]), {}).setdefault(kind, []).append(held)
    for (family, name), held in sorted_out.items():
        iptables = without_iptables and family != "inet" and name in OF_IPTABLES
        if family in FAMILIES and not iptables:
            yield _table(family, name, held)


def _table(family: str, name: str, held: Mapping[str, list[Json]]) -> Table:
    rules: dict[str, list[Json]] = {}
    for rule in held.get("rule", ()):
        rules.setdefault(rule["chain"], []).append(rule)
    chains = {
        chain["name"]: Chain(chain["name"], _hook(chain), partial(_rules, rules.get(chain["name"], ())))
        for chain in held.get("chain", ())
    }
    collections = {
        one["name"]: Collection(one["name"], partial(elements, one.get("elem")))
        for one in (*held.get("set", ()), *held.get("map", ()))
    }
    return Table(f"{family} {name}", FAMILIES[family], chains, collections)


def _hook(chain: Json) -> Hook | None:
    point = chain.get("hook")
    if point not in {one.value for one in Point}:
        return None
    policy = End.DROP if chain.get("policy") == "drop" else End.ACCEPT
    return Hook(Point(point), int(chain.get("prio", 0)), nat=chain.get("type") == "nat", policy=policy)


def _rules(held: Iterable[Json]) -> Iterator[Rule]:
    for number, rule in enumerate(held, 1):
        expressions = rule.get("expr") or []
        steps = tuple(step for one in expressions for step in _steps(one))
        yield Rule(f"rule {number}", nft_text.rule(expressions), steps, rule.get("comment", ""))


def _steps(one: Json) -> Iterator[Step]:
    if (found := verdict(one)) is not None:
        yield found
        return
    kind, held = next(iter(one.items()))
    reader = _READERS.get(kind)
    if reader is not None:
        yield from reader(held)
    elif kind not in _NO_MATTER:
        yield Skipped(nft_text.rule([one])) if kind in _STATEMENTS else Unknown(nft_text.rule([one]))


_NO_MATTER = frozenset({"counter", "log", "comment", "ct helper", "ct timeout", "last", "flow", "meter"})
_STATEMENTS = frozenset({"queue", "tproxy", "dup", "fwd", "synproxy", "secmark", "ct expectation"})


# ---------------------------------------------------------------------- matches


def _match(held: Json) -> Iterator[Step]:
    yield _matched(held["op"], held["left"], held["right"]) or Unknown(nft_text.rule([{"match": held}]))


def _matched(op: str, left: Json, right: Json) -> Match | None:
    asked, negated = selectors(left), op == "!="
    if isinstance(right, str) and right.startswith("@"):
        return InSet(asked, right[1:], negated)
    if len(asked) == 1 and isinstance(asked[0], Random):
        return _drawn(asked[0], op, right)
    if isinstance(right, dict) and "set" in right and len(asked) > 1:
        return InSet(asked, "", negated, Collection("", partial(elements, right["set"])))
    wanted = key(right) if len(asked) > 1 else _one(pattern(right))
    if wanted is None or len(wanted) != len(asked):
        return None
    return _compared(op, asked, wanted)


def _one(wanted: object) -> tuple[Any, ...] | None:
    """A list of states or flags asks for any of them."""
    return None if wanted is None else (wanted,)


def _compared(op: str, asked: tuple[Any, ...], wanted: tuple[Any, ...]) -> Match | None:
    bounds = {"<": (0, -1), "<=": (0, 0), ">": (1, ALL_BITS), ">=": (0, ALL_BITS)}
    if op in bounds and isinstance(wanted[0], int):
        least = op in {">", ">="}
        first = wanted[0] + bounds[op][0] if least else 0
        last = ALL_BITS if least else wanted[0] + bounds[op][1]
        return Is(asked, (Span(first, last),))
    return Is(asked, wanted, op == "!=") if op in {"==", "!=", "in"} else None


def _drawn(number: Random, op: str, right: Json) -> Match | None:
    """``numgen random mod 3 0`` holds for one packet in three."""
    wanted = pattern(right)
    if op == "==" and isinstance(wanted, int):
        return Chance(Fraction(1, number.modulus))
    if op == "<" and isinstance(wanted, int):
        return Chance(Fraction(min(wanted, number.modulus), number.modulus))
    return None


# ---------------------------------------------------------------------- statements


def _look(held: Json) -> Iterator[Step]:
    yield _lookup(held, translate=False, port=None)


def _lookup(held: Json, *, translate: bool, port: int | None) -> Look:
    asked, data = selectors(held["key"]), held["data"]
    if isinstance(data, str) and data.startswith("@"):
        return Look(asked, data[1:], translate, None, port)
    members = data["set"] if isinstance(data, dict) else data
    return Look(asked, "", translate, Collection("", partial(elements, members)), port)


def _dnat(held: Json) -> Iterator[Step]:
    address, port = held.get("addr"), held.get("port")
    if isinstance(address, dict) and "map" in address:
        number = port if isinstance(port, int) else None
        yield _lookup(address["map"], translate=True, port=number)
        return
    wanted = pattern(address) if address is not None else None
    to_port = pattern(port) if port is not None else None
    if isinstance(wanted, str | int) or isinstance(to_port, str) or (address is not None and wanted is None):
        yield Skipped(nft_text.rule([{"dnat": held}]))
        return
    yield Translate(wanted, to_port)  # type: ignore[arg-type]


def _snat(held: Json) -> Iterator[Step]:
    yield Masquerade(nft_text.rule([{"snat": held}]).removeprefix("snat to "))


def _redirect(held: Json) -> Iterator[Step]:
    port = held.get("port") if isinstance(held, dict) else None
    yield Redirect(port if isinstance(port, int) else None)


def _mangle(held: Json) -> Iterator[Step]:
    """Marks, set or changed under a mask; other things that are set do not matter here."""
    (where,) = selectors(held["key"])
    if where not in {Field.MARK, Field.CONNECTION_MARK}:
        return
    made = _mark(held["value"], where)
    yield made or Skipped(nft_text.rule([{"mangle": held}]))


def _mark(value: Json, where: object) -> SetMark | None:
    connection = where is Field.CONNECTION_MARK
    match value:
        case int():
            return SetMark(0, value, connection)
        case {"|": [inner, int(bits)]} if selectors(inner) == (where,):
            return SetMark(~bits & ALL_BITS, bits, connection)
        case {"^": [inner, int(bits)]} if selectors(inner) == (where,):
            return SetMark(ALL_BITS, bits, connection)
        case {"&": [inner, int(bits)]} if selectors(inner) == (where,):
            return SetMark(bits, 0, connection)
        case {"|": [{"&": [inner, int(kept)]}, int(bits)]} if selectors(inner) == (where,):
            return SetMark(kept & ~bits & ALL_BITS, bits, connection)
        case {"^": [{"&": [inner, int(kept)]}, int(bits)]} if selectors(inner) == (where,):
            return SetMark(kept, bits, connection)
        case _:
            return None


def _remember(held: Json) -> Iterator[Step]:
    yield Remember(str(held.get("set", "")).removeprefix("@"))


def _reject(held: Json) -> Iterator[Step]:
    yield Reject(rejection(held))


_READERS: Mapping[str, Callable[[Json], Iterator[Step]]] = {
    "match": _match,
    "vmap": _look,
    "dnat": _dnat,
    "snat": _snat,
    "masquerade": lambda _: iter((Masquerade(),)),
    "redirect": _redirect,
    "mangle": _mangle,
    "set": _remember,
    "reject": _reject,
    "notrack": lambda _: iter((NoTrack(),)),
}
