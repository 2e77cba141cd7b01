"""Tables of nf_tables in memory: the messages of a batch applied as the kernel would, or refused.

A batch is done whole or not at all.  Keys and data stay the bytes they came as, and are read into netfilter's model when a
packet comes to them.  Numbers are those of linux/netfilter/nf_tables.h.  Pure.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from ipaddress import ip_address
from typing import TypeVar

from kproxy.conformance.testbeds.simulator.netlink_rules import (
    Attributes,
    BatchRefused,
    RuleReader,
    decode_verdict,
    parse_be32,
    text,
)
from kproxy.linux.netfilter.patterns import Pattern, Span
from kproxy.linux.netfilter.readers.numbers import normalize_protocol
from kproxy.linux.netfilter.rules import (
    Chain,
    Collection,
    Dnat,
    Element,
    End,
    Goto,
    Hook,
    Jump,
    Point,
    Rule,
    RulesToRead,
    Table,
)
from kproxy.linux.netlink import attributes
from kproxy.model.network import Family
from kproxy.proxy.backends.nftables.kernel.batch import list_items
from kproxy.proxy.backends.nftables.kernel.messages import BatchMessage

_FAMILIES = {2: Family.IPV4, 10: Family.IPV6}
_LABELS = {Family.IPV4: "ip", Family.IPV6: "ip6"}
_POINTS = (Point.PREROUTING, Point.INPUT, Point.FORWARD, Point.OUTPUT, Point.POSTROUTING)
_ADDRESSES, _PROTOCOL, _SERVICE, _TYPE_BITS = {7: 4, 8: 16}, 12, 13, 6
_INTERVAL, _CONCATENATED, _INTERVAL_END = 0x4, 0x80, 1
_VERDICT = 0xFFFF_FF00

_Bytes = tuple[bytes, bytes]
"""The first and the last key of an element; of one key the last is empty, of an interval's end it is `_END`.

Of a rule its expressions and its user data.
"""
_END = b"end"


@dataclass(frozen=True, slots=True)
class _Set:
    """A set or map; ``types`` of its key's parts, ``elements`` with what they hold."""

    name: str
    flags: int
    types: tuple[int, ...]
    key_size: int
    data_type: int
    elements: Mapping[_Bytes, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Chain:
    hook: Hook | None
    rules: tuple[_Bytes, ...] = ()


@dataclass
class NetlinkTable:
    """The one table of a family."""

    name: str = ""
    family: Family = Family.IPV4
    chains: dict[str, _Chain] = field(default_factory=dict)
    sets: dict[str, _Set] = field(default_factory=dict)
    _read: dict[str, tuple[object, Chain | Collection]] = field(default_factory=dict)

    def commit(self, batch: Iterable[BatchMessage]) -> None:
        """Does all of it.  Raises `BatchRefused`, and then nothing is done."""
        before = self.name, self.family, dict(self.chains), dict(self.sets)
        try:
            for message in batch:
                self._do(message)
            self._check_references()
        except BatchRefused:
            self.name, self.family, self.chains, self.sets = before
            raise

    def netfilter_tables(self) -> tuple[Table, ...]:
        """The table as packets walk it; what has not changed is not read again."""
        if not self.name:
            return ()
        sizes = tuple((name, one.key_size) for name, one in self.sets.items())
        read = partial(self._chain, sizes)
        chains = {name: self._known("chain", name, held, read) for name, held in self.chains.items()}
        sets = {name: self._known("set", name, held, _collection) for name, held in self.sets.items()}
        label = f"{_LABELS[self.family]} {self.name}"
        return (Table(label, frozenset({self.family}), chains, sets),)  # type: ignore[arg-type]

    def _known(
        self, kind: str, name: str, held: object, read: Callable[..., Chain | Collection]
    ) -> Chain | Collection:
        known = self._read.get(f"{kind} {name}")
        if known is None or known[0] is not held:
            known = self._read[f"{kind} {name}"] = held, read(name, held)
        return known[1]

    def _chain(self, sizes: tuple[tuple[str, int], ...], name: str, held: _Chain) -> Chain:
        return Chain(name, RulesToRead(partial(_rules, held.rules, self.family, sizes)), held.hook)

    def _do(self, message: BatchMessage) -> None:
        view = memoryview(message.body)
        held = attributes(view[4:])
        match message.kind:
            case 0:
                self.name, self.family = text(held[1]), _FAMILIES[view[0]]
            case _ if text(held[1]) != self.name:
                raise BatchRefused(f"there is no table {text(held[1])}")
            case 2:
                self.name = ""
                self.chains.clear()
                self.sets.clear()
            case 3:
                self.chains.setdefault(text(held[3]), _Chain(_hook(held)))
            case 9:
                made = _Set(text(held[2]), _flags(held), _types(held), parse_be32(held[5]), _data_type(held))
                self.sets.setdefault(made.name, made)
            case 5:
                _take(self.chains, text(held[3]))
            case 11:
                _take(self.sets, text(held[2]))
            case 12 | 14:
                self._change_elements(text(held[2]), held[3], added=message.kind == 12)
            case _:
                self._change_rules(message.kind, text(held[2]), held)

    def _change_rules(self, kind: int, name: str, held: Attributes) -> None:
        old = _take(self.chains, name)
        if kind not in {6, 8}:
            raise BatchRefused(f"message {kind}")
        rules = (*old.rules, (bytes(held[4]), bytes(held.get(7, b"")))) if kind == 6 else ()
        self.chains[name] = _Chain(old.hook, rules)

    def _change_elements(self, name: str, packed: memoryview, *, added: bool) -> None:
        held = _take(self.sets, name)
        elements = dict(held.elements)
        for key, data in map(_element, list_items(packed)):
            if not added:
                _take(elements, key)
            elif elements.setdefault(key, data) != data:
                raise BatchRefused(f"set {name} has another element of that key")
            else:
                continue
        self.sets[name] = replace(held, elements=elements)

    def _check_references(self) -> None:
        """Rules and elements lead to chains that are there; sets that are not are refused when a rule is read."""
        for table in self.netfilter_tables():
            steps = (step for chain in table.chains.values() for rule in chain.rules for step in rule.steps)
            verdicts = (
                _verdict(data)
                for one in self.sets.values()
                if one.data_type == _VERDICT
                for data in set(one.elements.values())
            )
            for step in (*steps, *verdicts):
                if isinstance(step, Jump | Goto) and step.chain not in self.chains:
                    raise BatchRefused(f"there is no chain {step.chain}")


Held = TypeVar("Held")
Name = TypeVar("Name")


def _take(held: dict[Name, Held], name: Name) -> Held:
    if name not in held:
        raise BatchRefused(f"there is no {name!r}")
    return held.pop(name)


def _hook(held: Attributes) -> Hook | None:
    if 4 not in held:
        return None
    where = attributes(held[4])
    (priority,) = struct.unpack(">i", where[2])
    return Hook(_POINTS[parse_be32(where[1])], priority, nat=text(held[7]) == "nat")


def _flags(held: Attributes) -> int:
    return parse_be32(held[3]) if 3 in held else 0


def _data_type(held: Attributes) -> int:
    return parse_be32(held[6]) if 6 in held else 0


def _types(held: Attributes) -> tuple[int, ...]:
    """The types of a key's parts, first to last: nft numbers them in six bits each."""
    number, found = parse_be32(held[4]), list[int]()
    while number:
        found.append(number & ((1 << _TYPE_BITS) - 1))
        number >>= _TYPE_BITS
    return tuple(reversed(found))


def _element(packed: memoryview) -> tuple[_Bytes, bytes]:
    """An element's key and the bytes of its data."""
    held = attributes(packed)
    first = bytes(attributes(held[1])[1])
    last = bytes(attributes(held[10])[1]) if 10 in held else b""
    if 3 in held and parse_be32(held[3]) & _INTERVAL_END:
        last = _END
    return (first, last), bytes(held[2]) if 2 in held else b""


@lru_cache(maxsize=1 << 12)
def _rules(held: tuple[_Bytes, ...], family: Family, sizes: tuple[tuple[str, int], ...]) -> tuple[Rule, ...]:
    """Remembered, since all but a few chains are the same in every table."""
    found = []
    for number, (expressions, userdata) in enumerate(held, 1):
        reader = RuleReader(family, dict(sizes))
        for expression in list_items(memoryview(expressions)):
            parts = attributes(expression)
            reader.read(text(parts[1]), attributes(parts[2]))
        comment = userdata[2:].rstrip(b"\0").decode()
        found.append(Rule(tuple(reader.steps), comment, f"rule {number}", comment))
    return tuple(found)


def _collection(_: str, held: _Set) -> Collection:
    return Collection(held.name, partial(_elements, held))


def _elements(held: _Set) -> Iterator[Element]:
    if held.flags & _INTERVAL and not held.flags & _CONCATENATED:
        yield from _ranges(held)
        return
    for (first, last), data in held.elements.items():
        parts = _parts(held.types, first)
        ends = _parts(held.types, last) if last else parts
        key = tuple(
            one if one == end else Span(one, end)  # type: ignore[arg-type]
            for one, end in zip(parts, ends, strict=True)
        )
        yield Element(key, _data(held, data))


def _ranges(held: _Set) -> Iterator[Element]:
    """Each from an element to the one that ends it, which is the first address behind it; none: to the last address."""
    bounds = sorted(held.elements)
    for at, (first, kind) in enumerate(bounds):
        if kind == _END:
            continue
        behind = bounds[at + 1][0] if at + 1 < len(bounds) else b""
        last = int.from_bytes(behind, "big") - 1 if behind else (1 << 8 * len(first)) - 1
        end = ip_address(last.to_bytes(len(first), "big"))
        yield Element((Span(ip_address(first), end),), _data(held, held.elements[first, kind]))


@lru_cache(maxsize=1 << 12)
def _parts(types: tuple[int, ...], packed: bytes) -> tuple[Pattern, ...]:
    found: list[Pattern] = []
    at = 0
    for kind in types:
        size = _ADDRESSES.get(kind, 4)
        part = packed[at : at + size]
        at += size
        if kind in _ADDRESSES:
            found.append(ip_address(part))
        elif kind == _PROTOCOL:
            found.append(normalize_protocol(str(part[0])))
        elif kind == _SERVICE:
            found.append(int.from_bytes(part[:2], "big"))
        else:
            found.append(int(struct.unpack("=I", part)[0]))
    return tuple(found)


def _data(held: _Set, data: bytes) -> Jump | Goto | End | Dnat | None:
    if not data:
        return None
    if held.data_type == _VERDICT:
        return _verdict(data)
    packed = bytes(attributes(memoryview(data))[1])
    return Dnat(ip_address(packed[:-4]), int.from_bytes(packed[-4:-2], "big"))


@lru_cache(maxsize=1 << 12)
def _verdict(data: bytes) -> Jump | Goto | End:
    return decode_verdict(memoryview(data))
