"""``ipset save``: the sets that iptables rules ask.  Pure.

A set's type says what its members are made of (man 8 ipset); ``dst,src`` in a rule says which end of the packet each part
is taken from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from kproxy.trace.readers.numbers import network, number, ports, protocol
from kproxy.trace.rules import Collection, Element, Field, Pattern, Selector, SetMark, Unread

ALL_BITS = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Ipset:
    """A set, and the parts of its members (``ip``, ``port``, ``net``, ...)."""

    parts: tuple[str, ...]
    port_alone: bool
    collection: Collection


def read(text: str) -> dict[str, Ipset]:
    """All sets by name."""
    kinds: dict[str, str] = {}
    members: dict[str, list[str]] = {}
    for line in text.splitlines():
        words = line.split(maxsplit=2)
        if len(words) == 3 and words[0] == "create":
            kinds[words[1]] = words[2].split()[0]
        elif len(words) == 3 and words[0] == "add":
            members.setdefault(words[1], []).append(words[2])
    return {name: _set(name, kind, members) for name, kind in kinds.items()}


def _set(name: str, kind: str, members: Mapping[str, list[str]]) -> Ipset:
    parts = tuple(kind.partition(":")[2].split(","))
    return Ipset(
        parts, kind == "bitmap:port", Collection(name, lambda: _elements(kind, members.get(name, ())))
    )


def _elements(kind: str, lines: Iterable[str]) -> Iterator[Element]:
    for line in lines:
        text, *options = line.split()
        if "nomatch" in options:
            continue
        key = tuple(_parts(text, alone=kind == "bitmap:port"))
        yield Element(key, _mark(options), "")


def _parts(text: str, *, alone: bool) -> Iterator[Pattern]:
    for part in text.split(","):
        name, colon, port = part.partition(":")
        if (address := network(part)) is not None:
            yield address
        elif alone and (found := ports(part)) is not None:
            yield found
        elif colon and (found := ports(port)) is not None:
            yield protocol(name)
            yield found
        else:
            yield part


def _mark(options: list[str]) -> SetMark | None:
    if "skbmark" not in options:
        return None
    value, _, mask = options[options.index("skbmark") + 1].partition("/")
    return SetMark(~(number(mask) if mask else ALL_BITS) & ALL_BITS, number(value))


def selectors(which: Ipset, directions: str) -> tuple[Selector, ...]:
    """What ``--match-set NAME dst,src`` reads of a packet."""
    found: list[Selector] = []
    for part, direction in zip(which.parts, directions.split(","), strict=False):
        source = direction == "src"
        match part:
            case "ip" | "net":
                found.append(Field.SOURCE if source else Field.DESTINATION)
            case "port":
                found += [] if which.port_alone else [Field.PROTOCOL]
                found.append(Field.SOURCE_PORT if source else Field.PORT)
            case "iface":
                found.append(Field.IN if source else Field.OUT)
            case "mark":
                found.append(Field.MARK)
            case _:
                found.append(Unread(f"ipset part {part}"))
    return tuple(found)


def collections(sets: Mapping[str, Ipset]) -> dict[str, Collection]:
    """The sets as tables hold them."""
    return {name: which.collection for name, which in sets.items()}
