"""Expressions of nf_tables, as netlink carries them, read into netfilter's model.

Each expression loads something into a register, compares what is in one, looks it up or acts on it.  So the reader keeps
what stands in which register, by its name, until a comparison, a lookup or a statement makes a step of it.  Numbers are those
of linux/netfilter/nf_tables.h; what is not here is refused, not guessed.  Pure.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from ipaddress import ip_address, ip_network
from typing import ClassVar

from kproxy.linux.netfilter.patterns import (
    AnyFlag,
    FieldName,
    FieldOf,
    Masked,
    Pattern,
    Prefix,
    RandomNumber,
    Selector,
)
from kproxy.linux.netfilter.readers.numbers import as_host_address, normalize_protocol
from kproxy.linux.netfilter.rules import (
    Chance,
    Dnat,
    End,
    Goto,
    InSet,
    Is,
    Jump,
    MapLookup,
    Masquerade,
    Reject,
    Remember,
    SetMark,
    Step,
    Verdict,
)
from kproxy.linux.netlink import attributes
from kproxy.model.network import Family

Attributes = Mapping[int, memoryview]

_VERDICT_REGISTER = 0
_NETWORK_HEADER = {
    Family.IPV4: {12: FieldName.SOURCE, 16: FieldName.DESTINATION},
    Family.IPV6: {8: FieldName.SOURCE, 24: FieldName.DESTINATION},
}
_TRANSPORT_HEADER = {(2, 2): FieldName.PORT, (13, 1): FieldName.TCP_FLAGS}
_META = {3: FieldName.MARK, 6: FieldName.IN, 16: FieldName.PROTOCOL}
_CONNECTION = {0: FieldName.STATE, 2: FieldName.STATUS}
_FLAGS = {
    FieldName.STATE: {0x1: "invalid", 0x2: "established", 0x4: "related", 0x8: "new", 0x40: "untracked"},
    FieldName.STATUS: {0x10: "snat", 0x20: "dnat"},
}
_FIB_TYPE, _FIB_OF = 3, {1: FieldName.SOURCE_TYPE, 2: FieldName.DESTINATION_TYPE}
_ADDRESS_TYPES = {1: "unicast", 2: "local", 3: "broadcast", 5: "multicast"}
_SYN = 0x02
_DESTINATION_NAT, _NAT_RANDOM_FULLY = 1, 0x10


class BatchRefused(Exception):
    """The kernel would not do that, or it is not modelled; and nothing of the transaction is done."""


@dataclass(frozen=True, slots=True)
class RegisterContent:
    """Content of a register: the selector it was loaded from, its bytes, and which of its bits, some of them flipped."""

    of: Selector
    size: int
    mask: bytes = b""
    flipped: bytes = b""


def parse_be32(value: memoryview) -> int:
    """A number of an attribute."""
    return int(struct.unpack(">I", value)[0])


def text(value: memoryview) -> str:
    """A string of an attribute."""
    return bytes(value).rstrip(b"\0").decode()


def decode_verdict(data: memoryview) -> Verdict:
    """A verdict, of a map's element or of a rule."""
    held = attributes(attributes(data)[2])
    (code,) = struct.unpack(">i", held[1])
    match code:
        case -3:
            return Jump(text(held[2]))
        case -4:
            return Goto(text(held[2]))
        case 0:
            return End.DROP
        case 1:
            return End.ACCEPT
        case -5:
            return End.RETURN
        case _:
            raise BatchRefused(f"verdict {code}")


@dataclass(slots=True)
class RuleReader:
    """Reads the expressions of one rule; ``key_sizes``: the bytes of a key of each set and map."""

    family: Family
    key_sizes: Mapping[str, int]
    steps: list[Step] = field(default_factory=list)
    _registers: dict[int, RegisterContent | bytes] = field(default_factory=dict)
    _found: MapLookup | None = None

    def read(self, name: str, held: Attributes) -> None:
        """One expression.  Raises `BatchRefused`."""
        reader = self._READERS.get(name)
        if reader is None:
            raise BatchRefused(f"expression {name}")
        try:
            reader(self, held)
        except (KeyError, ValueError, struct.error) as error:
            raise BatchRefused(f"expression {name}: {error!r}") from error

    def _load(self, register: memoryview, selector: Selector, size: int = 4) -> None:
        self._registers[parse_be32(register)] = RegisterContent(selector, size)

    def _payload(self, held: Attributes) -> None:
        base, offset, size = (parse_be32(held[kind]) for kind in (2, 3, 4))
        if base == 1:
            selector: Selector = FieldOf(_NETWORK_HEADER[self.family][offset], family=self.family)
        else:
            selector = _TRANSPORT_HEADER[offset, size]
        self._load(held[1], selector, size)

    def _meta(self, held: Attributes) -> None:
        selector = _META[parse_be32(held[2])]
        if 3 not in held:
            self._load(held[1], selector)
            return
        changed = self._registers[parse_be32(held[3])]
        if (
            selector is not FieldName.MARK
            or not isinstance(changed, RegisterContent)
            or changed.of is not selector
        ):
            raise BatchRefused("only the mark is written, from itself")
        self.steps.append(SetMark(_native(changed.mask), _native(changed.flipped)))

    def _connection(self, held: Attributes) -> None:
        self._load(held[1], _CONNECTION[parse_be32(held[2])])

    def _fib(self, held: Attributes) -> None:
        if parse_be32(held[2]) != _FIB_TYPE:
            raise BatchRefused("fib for something else than a type")
        self._load(held[1], _FIB_OF[parse_be32(held[3])])

    def _number(self, held: Attributes) -> None:
        self._load(
            held[1],
            RandomNumber(parse_be32(held[2]), parse_be32(held[4]), incremental=parse_be32(held[3]) == 0),
        )

    def _bitwise(self, held: Attributes) -> None:
        loaded = self._registers[parse_be32(held[1])]
        if not isinstance(loaded, RegisterContent) or loaded.mask:
            raise BatchRefused("bits of what is no field")
        mask, flipped = (bytes(attributes(held[kind])[1]) for kind in (4, 5))
        self._registers[parse_be32(held[2])] = RegisterContent(loaded.of, loaded.size, mask, flipped)

    def _compare(self, held: Attributes) -> None:
        loaded, wanted = self._registers[parse_be32(held[1])], bytes(attributes(held[3])[1])
        if not isinstance(loaded, RegisterContent):
            raise BatchRefused("a comparison of what is no field")
        self.steps.append(_match(loaded, wanted, negated=parse_be32(held[2]) == 1))

    def _key(self, register: memoryview, name: str) -> tuple[Selector, ...]:
        """Selectors that were loaded into the registers of a key, from the first on."""
        found: list[Selector] = []
        number, left = parse_be32(register), self.key_sizes[name]
        while left > 0:
            loaded = self._registers[number]
            if not isinstance(loaded, RegisterContent) or loaded.mask:
                raise BatchRefused(f"a key of {name} of what is no field")
            found.append(loaded.of)
            taken = -(-loaded.size // 4)
            number, left = number + taken, left - 4 * taken
        return tuple(found)

    def _lookup(self, held: Attributes) -> None:
        name = text(held[1])
        key = self._key(held[2], name)
        if 3 not in held:
            self.steps.append(InSet(key, name, negated=5 in held and parse_be32(held[5]) == 1))
        elif parse_be32(held[3]) == _VERDICT_REGISTER:
            self.steps.append(MapLookup(key, name))
        else:
            self._found = MapLookup(key, name, translate=True)

    def _immediate(self, held: Attributes) -> None:
        if parse_be32(held[1]) == _VERDICT_REGISTER:
            self.steps.append(decode_verdict(held[2]))
        else:
            self._registers[parse_be32(held[1])] = bytes(attributes(held[2])[1])

    def _remember(self, held: Attributes) -> None:
        name = text(held[1])
        self.steps.append(Remember(name, self._key(held[4], name)))

    def _nat(self, held: Attributes) -> None:
        if parse_be32(held[1]) != _DESTINATION_NAT:
            raise BatchRefused("NAT of the source to an address")
        if self._found is not None:
            self.steps.append(self._found)
            return
        address, port = self._registers[parse_be32(held[3])], self._registers[parse_be32(held[5])]
        if not isinstance(address, bytes) or not isinstance(port, bytes):
            raise BatchRefused("NAT to what a packet has")
        self.steps.append(Dnat(ip_address(address), int.from_bytes(port[:2], "big")))

    def _masquerade(self, held: Attributes) -> None:
        flags = parse_be32(held[1]) if 1 in held else 0
        self.steps.append(Masquerade(random_fully=bool(flags & _NAT_RANDOM_FULLY)))

    def _reject(self, held: Attributes) -> None:
        self.steps.append(Reject(f"icmp code {held[2][0]}" if parse_be32(held[1]) == 0 else "tcp reset"))

    _READERS: ClassVar[Mapping[str, Callable[[RuleReader, Attributes], None]]] = {
        "payload": _payload,
        "meta": _meta,
        "ct": _connection,
        "fib": _fib,
        "numgen": _number,
        "bitwise": _bitwise,
        "cmp": _compare,
        "lookup": _lookup,
        "immediate": _immediate,
        "dynset": _remember,
        "nat": _nat,
        "masq": _masquerade,
        "reject": _reject,
    }


def _native(value: bytes) -> int:
    return int(struct.unpack("=I", value)[0])


def _match(loaded: RegisterContent, wanted: bytes, *, negated: bool) -> Step:
    """A comparison of all of a field, of its first bytes, or of some of its bits."""
    field_ = loaded.of.field if isinstance(loaded.of, FieldOf) else loaded.of
    if isinstance(field_, RandomNumber):
        drawn = 0 <= _native(wanted) - field_.offset < field_.modulus
        return Chance(Fraction(int(drawn), field_.modulus))
    if field_ is FieldName.TCP_FLAGS:  # of a connection's first segment
        holds = ((_SYN & loaded.mask[0]) == wanted[0]) is not negated
        return Is((FieldName.PROTOCOL,), ("tcp" if holds else "none",))
    if field_ in _FLAGS:
        flags = frozenset(name for bit, name in _FLAGS[field_].items() if bit & _native(loaded.mask))
        return Is((loaded.of,), (AnyFlag(flags),), negated is bool(_native(wanted)))
    if field_ is FieldName.MARK:
        return Is((Masked(FieldName.MARK, _native(loaded.mask)),), (_native(wanted),), negated)
    return Is((loaded.of,), (_pattern(loaded, field_, wanted),), negated)


def _pattern(loaded: RegisterContent, field_: object, wanted: bytes) -> Pattern:
    match field_:
        case FieldName.PROTOCOL:
            return normalize_protocol(str(wanted[0]))
        case FieldName.IN:
            name = wanted.rstrip(b"\0").decode()
            return name if wanted.endswith(b"\0") else Prefix(name)
        case FieldName.SOURCE_TYPE | FieldName.DESTINATION_TYPE:
            return _ADDRESS_TYPES[_native(wanted)]
        case FieldName.PORT:
            return int.from_bytes(wanted, "big")
        case FieldName.SOURCE | FieldName.DESTINATION:
            whole = 4 if isinstance(loaded.of, FieldOf) and loaded.of.family is Family.IPV4 else 16
            bits = int.from_bytes(loaded.mask, "big").bit_count() if loaded.mask else 8 * len(wanted)
            return as_host_address(ip_network((wanted.ljust(whole, b"\0"), bits)))
        case _:
            raise BatchRefused(f"comparison of {field_}")
