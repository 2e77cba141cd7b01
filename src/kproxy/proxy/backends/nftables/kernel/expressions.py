"""Encoder of rules to the expressions of nf_tables, which load registers, compare, look up and set verdicts.

Registers have four bytes; every part of a key takes whole registers.  Pure.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

from kproxy.linux.netfilter.patterns import (
    AnyFlag,
    FieldName,
    Masked,
    Pattern,
    Prefix,
    RandomNumber,
    Selector,
)
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
    Rule,
    SetMark,
    Step,
)
from kproxy.linux.netlink import attribute, nested
from kproxy.model.network import Family, Network, Protocol
from kproxy.proxy.backends.nftables.kernel.elements import NUMBERS, registers_per_address, verdict_data
from kproxy.proxy.backends.nftables.rules import Key

_VERDICT_REGISTER, _FIRST_REGISTER = 0, 8
_NETWORK_HEADER, _TRANSPORT_HEADER = 1, 2
_OFFSETS = {
    (Family.IPV4, FieldName.SOURCE): 12,
    (Family.IPV4, FieldName.DESTINATION): 16,
    (Family.IPV6, FieldName.SOURCE): 8,
    (Family.IPV6, FieldName.DESTINATION): 24,
}
_PORT_OFFSET, _PORT_SIZE = 2, 2
_TCP_FLAGS_OFFSET, _TCP_FLAGS_SIZE = 13, 1
_META_MARK = 3
_META = {FieldName.MARK: _META_MARK, FieldName.IN: 6, FieldName.PROTOCOL: 16}
_CONNTRACK = {FieldName.STATE: 0, FieldName.STATUS: 2}
_FLAGS = {
    FieldName.STATE: {"invalid": 0x1, "new": 0x8},
    FieldName.STATUS: {"dnat": 0x20},
    FieldName.TCP_FLAGS: {"fin": 0x1, "rst": 0x4},
}
_FIB_TYPE, _FIB_FLAGS = 3, {FieldName.SOURCE_TYPE: 1, FieldName.DESTINATION_TYPE: 2}
_ADDRESS_TYPES = {"local": 2}
_EQUAL, _UNEQUAL = 0, 1
_INTERFACE_NAME_SIZE = 16
_NAT_DESTINATION, _NAT_PORT_GIVEN, _NAT_RANDOM_FULLY = 1, 0x2, 0x10
_UNREACHABLE_PORT = {Family.IPV4: 3, Family.IPV6: 4}
_DYNSET_UPDATE = 1
_INCREMENTAL, _RANDOM = 0, 1


def be32(value: int) -> bytes:
    """A number in network byte order, as in most attributes."""
    return struct.pack(">I", value)


def native32(value: int) -> bytes:
    """A number in the machine's byte order, as in registers."""
    return struct.pack("=I", value)


@dataclass(frozen=True, slots=True)
class Expressions:
    """Encodes rules of one family."""

    family: Family

    def encode_rule(self, rule: Rule) -> Iterator[bytes]:
        """The expressions of a rule, each a list item."""
        for step in rule.steps:
            yield from self._step(step)

    def _step(self, step: Step) -> Iterator[bytes]:
        match step:
            case Is((selector,), (pattern,), negated):
                yield from self._compared(selector, pattern, _UNEQUAL if negated else _EQUAL)
            case Chance(share):
                yield _numgen(0, RandomNumber(share.denominator))
                yield _compare(_EQUAL, native32(0))
            case InSet(key, name, negated):
                yield from self._load(key)
                flags = (attribute(5, be32(1)),) if negated else ()
                yield _expression("lookup", _string(1, name), _register(2), *flags)
            case SetMark(keep, flip):
                yield self._read(FieldName.MARK)
                yield _bitwise(native32(keep), native32(flip))
                yield _expression("meta", attribute(2, be32(_META_MARK)), _register(3))
            case Remember(name, key, seconds):
                yield from self._load(key)
                update, timeout = (
                    attribute(3, be32(_DYNSET_UPDATE)),
                    attribute(6, struct.pack(">Q", (seconds or 0) * 1000)),
                )
                yield _expression("dynset", _string(1, name), update, _register(4), timeout)
            case _:
                yield from self._ending(step)

    def _ending(self, step: Step) -> Iterator[bytes]:
        match step:
            case MapLookup(key, name, translate):
                yield from self._load(key)
                found = _register(3) if translate else attribute(3, be32(_VERDICT_REGISTER))
                yield _expression("lookup", _string(1, name), _register(2), found)
                if translate:
                    yield self._nat()
            case Dnat(IPv4Address() | IPv6Address() as address, int(port)):
                yield _immediate(0, address.packed)
                yield _immediate(registers_per_address(self.family), struct.pack(">H", port))
                yield self._nat(_NAT_PORT_GIVEN)
            case Masquerade(random_fully=True):
                yield _expression("masq", attribute(1, be32(_NAT_RANDOM_FULLY)))
            case Jump() | Goto() | End():
                yield _expression(
                    "immediate", attribute(1, be32(_VERDICT_REGISTER)), nested(2, verdict_data(step))
                )
            case Reject():
                code = bytes((_UNREACHABLE_PORT[self.family],))
                yield _expression("reject", attribute(1, be32(0)), attribute(2, code))
            case _:
                raise AssertionError(step)

    def _compared(self, selector: Selector, pattern: Pattern, operation: int) -> Iterator[bytes]:
        match selector, pattern:
            case ((FieldName.SOURCE | FieldName.DESTINATION), (IPv4Network() | IPv6Network())):
                yield from self._within(selector, pattern, operation)
            case FieldName(), AnyFlag(flags):
                yield self._read(selector)
                yield from _has_any([_FLAGS[selector][flag] for flag in flags], selector, operation)
            case Masked(field, mask), int():
                yield self._read(field)
                yield _bitwise(native32(mask), native32(0))
                yield _compare(operation, native32(pattern))
            case _:
                yield self._read(selector)
                yield _compare(operation, _encoded(selector, pattern))

    def _load(self, key: Key) -> Iterator[bytes]:
        """Expressions that load a key into registers, from the first on."""
        index = 0
        for part in key:
            yield self._read(part, index)
            is_address = part in {FieldName.SOURCE, FieldName.DESTINATION}
            index += registers_per_address(self.family) if is_address else 1

    def _read(self, part: Selector, index: int = 0) -> bytes:
        match part:
            case RandomNumber():
                return _numgen(index, part)
            case FieldName.PORT:
                return _payload(_TRANSPORT_HEADER, _PORT_OFFSET, _PORT_SIZE, index)
            case FieldName.TCP_FLAGS:
                return _payload(_TRANSPORT_HEADER, _TCP_FLAGS_OFFSET, _TCP_FLAGS_SIZE, index)
            case FieldName.SOURCE | FieldName.DESTINATION:
                return _payload(_NETWORK_HEADER, _OFFSETS[self.family, part], self.family.bits // 8, index)
            case FieldName.STATE | FieldName.STATUS:
                return _expression("ct", _register(1, index), attribute(2, be32(_CONNTRACK[part])))
            case FieldName.SOURCE_TYPE | FieldName.DESTINATION_TYPE:
                flags = attribute(3, be32(_FIB_FLAGS[part]))
                return _expression("fib", _register(1, index), attribute(2, be32(_FIB_TYPE)), flags)
            case FieldName.MARK | FieldName.IN | FieldName.PROTOCOL:
                return _expression("meta", _register(1, index), attribute(2, be32(_META[part])))
            case _:
                raise AssertionError(part)

    def _within(self, field: FieldName, network: Network, operation: int) -> Iterator[bytes]:
        """Expressions that match a network, like nft's: whole bytes are loaded and compared, else a mask is applied."""
        offset, prefix = _OFFSETS[self.family, field], network.prefixlen
        if prefix and prefix % 8 == 0:
            size = prefix // 8
            yield _payload(_NETWORK_HEADER, offset, size)
            yield _compare(operation, network.network_address.packed[:size])
        else:
            yield _payload(_NETWORK_HEADER, offset, self.family.bits // 8)
            yield _bitwise(network.netmask.packed, bytes(self.family.bits // 8))
            yield _compare(operation, network.network_address.packed)

    def _nat(self, flags: int = 0) -> bytes:
        family = attribute(2, be32(2 if self.family is Family.IPV4 else 10))
        parts = (
            attribute(1, be32(_NAT_DESTINATION)),
            family,
            _register(3),
            _register(5, registers_per_address(self.family)),
        )
        return _expression("nat", *parts, *([attribute(7, be32(flags))] if flags else []))


def _has_any(bits: list[int], field: FieldName, operation: int) -> Iterator[bytes]:
    """Expressions that match some of these bits (`_UNEQUAL`: none of them) in the field that is loaded."""
    one_byte = field is FieldName.TCP_FLAGS
    mask, nothing = (bytes((sum(bits),)), bytes(1)) if one_byte else (native32(sum(bits)), native32(0))
    yield _bitwise(mask, nothing)
    yield _compare(_UNEQUAL if operation == _EQUAL else _EQUAL, nothing)


def _encoded(selector: Selector, pattern: Pattern) -> bytes:
    """A value as registers hold it; of a name's beginning its bytes alone."""
    match selector, pattern:
        case FieldName.IN, Prefix(text):
            return text.encode()
        case FieldName.IN, str():
            return pattern.encode().ljust(_INTERFACE_NAME_SIZE, b"\0")
        case FieldName.PROTOCOL, str():
            return bytes((NUMBERS[Protocol(pattern.upper())],))
        case ((FieldName.SOURCE_TYPE | FieldName.DESTINATION_TYPE), str()):
            return native32(_ADDRESS_TYPES[pattern])
        case _:
            raise AssertionError((selector, pattern))


def _numgen(index: int, number: RandomNumber) -> bytes:
    kind = _INCREMENTAL if number.incremental else _RANDOM
    numbers = (
        attribute(2, be32(number.modulus)),
        attribute(3, be32(kind)),
        attribute(4, be32(number.offset)),
    )
    return _expression("numgen", _register(1, index), *numbers)


def _payload(base: int, offset: int, size: int, index: int = 0) -> bytes:
    where = (attribute(2, be32(base)), attribute(3, be32(offset)), attribute(4, be32(size)))
    return _expression("payload", _register(1, index), *where)


def _compare(operation: int, wanted: bytes) -> bytes:
    return _expression("cmp", _register(1), attribute(2, be32(operation)), nested(3, attribute(1, wanted)))


def _bitwise(mask: bytes, toggled: bytes) -> bytes:
    size = attribute(3, be32(len(mask)))
    values = (nested(4, attribute(1, mask)), nested(5, attribute(1, toggled)))
    return _expression("bitwise", _register(1), _register(2), size, *values)


def _immediate(index: int, value: bytes) -> bytes:
    return _expression("immediate", _register(1, index), nested(2, attribute(1, value)))


def _register(kind: int, index: int = 0) -> bytes:
    return attribute(kind, be32(_FIRST_REGISTER + index))


def _string(kind: int, value: str) -> bytes:
    return attribute(kind, value.encode() + b"\0")


def _expression(name: str, *attributes: bytes) -> bytes:
    return nested(1, _string(1, name), nested(2, *attributes))
