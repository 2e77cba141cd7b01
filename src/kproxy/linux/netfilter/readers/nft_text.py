"""A rule of nftables' JSON in nft's own syntax, to be shown; as its JSON where no text is known.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

Json = Any


STRANGE = (AttributeError, IndexError, KeyError, RuntimeError, StopIteration, TypeError, ValueError)
"""Exceptions that reading JSON of another form than the expected one ends with."""


def format_nft_rule(statements: list[Json]) -> str:
    """A whole rule."""
    return " ".join(map(_format, statements))


def _format(one: Json) -> str:
    try:
        return _statement(one)
    except STRANGE:
        return _json(one)


def _statement(one: Json) -> str:
    if not isinstance(one, dict):
        return " ".join(str(one).split())
    kind, held = next(iter(one.items()))
    format_one = _STATEMENTS.get(kind)
    return _json(one) if format_one is None else format_one(held)


def _expression(one: Json) -> str:
    if isinstance(one, bool):
        return "exists" if one else "missing"
    if isinstance(one, str | int):
        return str(one)
    if isinstance(one, list):
        return ",".join(map(_expression, one))
    if not isinstance(one, dict):
        return _json(one)
    kind, held = next(iter(one.items()))
    format_one = _EXPRESSIONS.get(kind)
    return _json(one) if format_one is None else format_one(held)


def _json(one: Json) -> str:
    return msgspec.json.encode(one).decode()


def _match(held: Json) -> str:
    sign = "" if held["op"] in {"==", "in"} else f"{held['op']} "
    return f"{_expression(held['left'])} {sign}{_expression(held['right'])}"


def _to(held: Json) -> str:
    address = _expression(held["addr"]) if "addr" in held else ""
    return f"to {address}:{_expression(held['port'])}" if "port" in held else f"to {address}"


def _flagged(word: str) -> Callable[[Json], str]:
    def format_one(held: Json) -> str:
        flags = held.get("flags") if isinstance(held, dict) else None
        return f"{word} {_expression(flags)}" if flags else word

    return format_one


def _redirect(held: Json) -> str:
    return (
        f"redirect to :{_expression(held['port'])}"
        if isinstance(held, dict) and "port" in held
        else "redirect"
    )


def _reject(held: Json) -> str:
    if not isinstance(held, dict) or "type" not in held:
        return "reject"
    return f"reject with {held['type']} {held.get('expr', '')}".rstrip()


def _plain(word: str) -> Callable[[Json], str]:
    return lambda _: word


_STATEMENTS: Mapping[str, Callable[[Json], str]] = {
    "match": _match,
    "jump": lambda held: f"jump {held['target']}",
    "goto": lambda held: f"goto {held['target']}",
    "vmap": lambda held: f"{_expression(held['key'])} vmap {_expression(held['data'])}",
    "mangle": lambda held: f"{_expression(held['key'])} set {_expression(held['value'])}",
    "dnat": lambda held: f"dnat {_to(held)}",
    "snat": lambda held: f"snat {_to(held)}",
    "redirect": _redirect,
    "masquerade": _flagged("masquerade"),
    "reject": _reject,
    "set": lambda held: f"{held['op']} {held['set']} {{ {_expression(held['elem'])} }}",
    **{word: _plain(word) for word in ("drop", "accept", "return", "continue", "notrack", "counter", "log")},
}


def _meta(held: Json) -> str:
    key = str(held["key"])
    return key if key in {"iifname", "oifname", "iif", "oif"} else f"meta {key}"


def _fib(held: Json) -> str:
    flags = held["flags"]
    return f"fib {' . '.join(flags) if isinstance(flags, list) else flags} {held['result']}"


def _operation(sign: str) -> Callable[[Json], str]:
    def format_one(held: Json) -> str:
        return f" {sign} ".join(f"{one:#x}" if isinstance(one, int) else _expression(one) for one in held)

    return format_one


def _member(member: Json) -> str:
    if not isinstance(member, list) or len(member) != 2:
        return _expression(member)
    data = member[1]
    verdict = isinstance(data, dict) and next(iter(data)) in _STATEMENTS
    return f"{_expression(member[0])} : {_statement(data) if verdict else _expression(data)}"


_EXPRESSIONS: Mapping[str, Callable[[Json], str]] = {
    "payload": lambda held: f"{held.get('protocol', '')} {held.get('field', '')}".strip(),
    "meta": _meta,
    "ct": lambda held: " ".join(filter(None, ("ct", held.get("dir"), held["key"]))),
    "fib": _fib,
    "numgen": lambda held: f"numgen {held['mode']} mod {held['mod']}",
    "concat": lambda held: " . ".join(map(_expression, held)),
    "map": lambda held: f"{_expression(held['key'])} map {_expression(held['data'])}",
    "prefix": lambda held: f"{held['addr']}/{held['len']}",
    "range": lambda held: f"{_expression(held[0])}-{_expression(held[1])}",
    "set": lambda held: f"{{ {', '.join(map(_member, held if isinstance(held, list) else [held]))} }}",
    "elem": lambda held: _expression(held["val"]),
    "|": _operation("|"),
    "&": _operation("&"),
    "^": _operation("^"),
}
