"""``ipset save``: the sets that iptables rules ask.  Pure.

A set's type says what its members are made of (man 8 ipset); ``dst,src`` in a rule says which end of the packet each part
is taken from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from kproxy.linux.netfilter.patterns import FieldName, Pattern, Selector, UnmodelledField
from kproxy.linux.netfilter.readers.numbers import normalize_protocol, parse_number, parse_ports, read_network
from kproxy.linux.netfilter.rules import ALL_BITS, Collection, Element, SetMark


@dataclass(frozen=True, slots=True)
class Ipset:
    """A set, and the parts of its members (``ip``, ``port``, ``net``, ...)."""

    parts: tuple[str, ...]
    port_alone: bool
    collection: Collection


def read_ipset(text: str) -> dict[str, Ipset]:
    """All sets by name."""
    kinds: dict[str, list[str]] = {}
    members: dict[str, list[str]] = {}
    for line in text.splitlines():
        fields = line.split(maxsplit=2)
        if len(fields) == 3 and fields[0] == "create":
            kinds[fields[1]] = fields[2].split()
        elif len(fields) == 3 and fields[0] == "add":
            members.setdefault(fields[1], []).append(fields[2])
    return {name: _set(name, kind, members.get(name, ())) for name, kind in kinds.items()}


def _set(name: str, created: list[str], members: Iterable[str]) -> Ipset:
    kind, *options = created
    parts = tuple(kind.partition(":")[2].split(","))
    if "bitmask" in options:
        parts = ("bits",)  # not modelled: no selector reads them
    prefix = options[options.index("netmask") + 1] if "netmask" in options else ""
    elements = partial(_elements, parts, members, port_alone=kind == "bitmap:port", prefix=prefix)
    return Ipset(parts, kind == "bitmap:port", Collection(name, elements))


def _elements(
    parts: tuple[str, ...], lines: Iterable[str], *, port_alone: bool, prefix: str
) -> Iterator[Element | None]:
    for line in lines:
        text, *options = line.split()
        try:
            read = [
                _part(which, part, prefix, alone=port_alone)
                for which, part in zip(parts, text.split(","), strict=True)
            ]
            key = tuple(one for part in read for one in part)
            yield (
                None
                if "wildcard" in options
                else Element(key, _mark(options), "", excluded="nomatch" in options)
            )
        except ValueError:
            yield None


def _part(which: str, text: str, prefix: str, *, alone: bool) -> Iterator[Pattern]:
    """Raises `ValueError` where it is not modelled."""
    match which:
        case "ip" | "net":
            address = read_network(text if not prefix or "/" in text else f"{text}/{prefix}")
            if address is None:
                raise ValueError(text)
            yield address
        case "port":
            name, _, port = text.rpartition(":")
            found = parse_ports(port)
            if found is not None:
                yield from [found] if alone else [normalize_protocol(name), found]
            elif name in _WITH_PORTS:
                raise ValueError(text)
            else:
                yield from [normalize_protocol(name), port]  # icmp:echo-request
        case "mark":
            yield parse_number(text)
        case "iface" if not text.startswith("physdev:"):
            yield text
        case _:
            raise ValueError(text)


_WITH_PORTS = frozenset({"tcp", "udp", "sctp"})


def _mark(options: list[str]) -> SetMark | None:
    if "skbmark" not in options:
        return None
    value, _, mask = options[options.index("skbmark") + 1].partition("/")
    return SetMark(~(parse_number(mask) if mask else ALL_BITS) & ALL_BITS, parse_number(value))


def set_match_selectors(which: Ipset, directions: str) -> tuple[Selector, ...]:
    """The selectors of ``--match-set NAME dst,src``."""
    found: list[Selector] = []
    for part, direction in zip(which.parts, directions.split(","), strict=False):
        source = direction == "src"
        match part:
            case "ip" | "net":
                found.append(FieldName.SOURCE if source else FieldName.DESTINATION)
            case "port":
                found += [] if which.port_alone else [FieldName.PROTOCOL]
                found.append(FieldName.SOURCE_PORT if source else FieldName.PORT)
            case "iface":
                found.append(FieldName.IN if source else FieldName.OUT)
            case "mark":
                found.append(FieldName.MARK)
            case _:
                found.append(UnmodelledField(f"ipset part {part}"))
    return tuple(found)


def set_collections(sets: Mapping[str, Ipset]) -> dict[str, Collection]:
    """The sets as tables hold them."""
    return {name: which.collection for name, which in sets.items()}
