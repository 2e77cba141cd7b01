"""Encoder of rules to the expressions of nf_tables, which load registers, compare, look up and set verdicts.

Registers have four bytes; every part of a key takes whole registers.  Pure.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from kproxy.linux.netlink import attribute, nested
from kproxy.model.network import Family, Network
from kproxy.proxy.backends.nftables.kernel.elements import NUMBERS, registers_per_address, verdict_data
from kproxy.proxy.backends.nftables.rules import (
    AddressIsLocal,
    AddressWithin,
    Constant,
    Dispatch,
    Drop,
    Field,
    GoesOn,
    Goto,
    InInterface,
    InSet,
    IsInvalid,
    IsNew,
    IsTranslated,
    Jump,
    Key,
    Marked,
    Masquerade,
    OfProtocol,
    OneIn,
    Random,
    Reject,
    Remember,
    Rule,
    Selector,
    SetMark,
    Step,
    ToggleMark,
    Translate,
    TranslateBy,
)

_VERDICT_REGISTER, _FIRST_REGISTER = 0, 8
_NETWORK_HEADER, _TRANSPORT_HEADER = 1, 2
_OFFSETS = {
    (Family.IPV4, Field.SOURCE): 12,
    (Family.IPV4, Field.DESTINATION): 16,
    (Family.IPV6, Field.SOURCE): 8,
    (Family.IPV6, Field.DESTINATION): 24,
}
_PORT_OFFSET, _PORT_SIZE = 2, 2
_TCP_FLAGS_OFFSET, _FIN, _RST = 13, 1, 4
_META_MARK, _META_IIFNAME, _META_L4PROTO = 3, 6, 16
_CT_STATE, _CT_STATUS = 0, 2
_TRACKED: dict[Step, tuple[int, int]] = {
    IsInvalid(): (_CT_STATE, 0x1),
    IsNew(): (_CT_STATE, 0x8),
    IsTranslated(): (_CT_STATUS, 0x20),
}
_FIB_TYPE, _FIB_FLAGS, _TYPE_LOCAL = 3, {Field.SOURCE: 1, Field.DESTINATION: 2}, 2
_EQUAL, _UNEQUAL = 0, 1
_INTERFACE_NAME_SIZE = 16
_NAT_DESTINATION, _NAT_PORT_GIVEN, _NAT_RANDOM_FULLY = 1, 0x2, 0x10
_UNREACHABLE_PORT = {Family.IPV4: 3, Family.IPV6: 4}
_DYNSET_UPDATE = 1
_INCREMENTAL, _RANDOM = 0, 1
_ALL_BITS = 0xFFFF_FFFF


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
            case InSet(key, name, negated):
                yield from self._load(key)
                flags = (attribute(5, be32(1)),) if negated else ()
                yield _expression("lookup", _string(1, name), _register(2), *flags)
            case Dispatch(key, name):
                yield from self._load(key)
                verdict = attribute(3, be32(_VERDICT_REGISTER))
                yield _expression("lookup", _string(1, name), _register(2), verdict)
            case TranslateBy() | Translate() | Masquerade():
                yield from self._nat_statement(step)
            case Jump() | Goto() | Drop():
                yield _expression(
                    "immediate", attribute(1, be32(_VERDICT_REGISTER)), nested(2, verdict_data(step))
                )
            case Remember(key, name, seconds):
                yield from self._load(key)
                update, timeout = (
                    attribute(3, be32(_DYNSET_UPDATE)),
                    attribute(6, struct.pack(">Q", seconds * 1000)),
                )
                yield _expression("dynset", _string(1, name), update, _register(4), timeout)
            case Reject():
                code = bytes((_UNREACHABLE_PORT[self.family],))
                yield _expression("reject", attribute(1, be32(0)), attribute(2, code))
            case SetMark(bit):
                yield from _rewrite_mark(_ALL_BITS ^ bit, bit)
            case ToggleMark(bit):
                yield from _rewrite_mark(_ALL_BITS, bit)
            case _:
                yield from self._match(step)

    def _nat_statement(self, step: TranslateBy | Translate | Masquerade) -> Iterator[bytes]:
        match step:
            case TranslateBy(key, name):
                yield from self._load(key)
                yield _expression("lookup", _string(1, name), _register(2), _register(3))
                yield self._nat()
            case Translate(address, port):
                yield _immediate(0, address.packed)
                yield _immediate(registers_per_address(self.family), struct.pack(">H", port))
                yield self._nat(_NAT_PORT_GIVEN)
            case Masquerade():
                yield _expression("masq", attribute(1, be32(_NAT_RANDOM_FULLY)))

    def _match(self, step: Step) -> Iterator[bytes]:
        match step:
            case AddressWithin(field, network, negated):
                yield from self._within(field, network, _UNEQUAL if negated else _EQUAL)
            case AddressIsLocal(field):
                flags = attribute(3, be32(_FIB_FLAGS[field]))
                yield _expression("fib", _register(1), attribute(2, be32(_FIB_TYPE)), flags)
                yield _compare(_EQUAL, native32(_TYPE_LOCAL))
            case InInterface(name, negated):
                yield _meta(_META_IIFNAME)
                prefix = name.endswith("*")
                wanted = name[:-1].encode() if prefix else name.encode().ljust(_INTERFACE_NAME_SIZE, b"\0")
                yield _compare(_UNEQUAL if negated else _EQUAL, wanted)
            case OfProtocol(protocol):
                yield _meta(_META_L4PROTO)
                yield _compare(_EQUAL, bytes((NUMBERS[protocol],)))
            case OneIn(count):
                yield _numgen(0, count, _RANDOM)
                yield _compare(_EQUAL, native32(0))
            case GoesOn():
                yield _payload(_TRANSPORT_HEADER, _TCP_FLAGS_OFFSET, 1)
                yield _bitwise(bytes((_FIN | _RST,)), bytes(1))
                yield _compare(_EQUAL, bytes(1))
            case IsNew() | IsInvalid() | IsTranslated():
                key, bit = _TRACKED[step]
                yield _conntrack(key)
                yield from _has_bit(bit)
            case Marked(bit):
                yield _meta(_META_MARK)
                yield from _has_bit(bit)
            case _:
                raise AssertionError(step)

    def _load(self, key: Key) -> Iterator[bytes]:
        """Expressions that load a key into registers, from the first on."""
        index = 0
        for part in key:
            yield self._read(part, index)
            index += registers_per_address(self.family) if part in {Field.SOURCE, Field.DESTINATION} else 1

    def _read(self, part: Selector, index: int) -> bytes:
        match part:
            case Random(modulus):
                return _numgen(index, modulus, _RANDOM)
            case Constant(number):
                return _numgen(index, 1, _INCREMENTAL, number)
            case Field.PROTOCOL:
                return _meta(_META_L4PROTO, index)
            case Field.PORT:
                return _payload(_TRANSPORT_HEADER, _PORT_OFFSET, _PORT_SIZE, index)
            case Field.SOURCE | Field.DESTINATION:
                return _payload(_NETWORK_HEADER, _OFFSETS[self.family, part], self.family.bits // 8, index)

    def _within(self, field: Field, network: Network, operation: int) -> Iterator[bytes]:
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


def _rewrite_mark(mask: int, toggled: int) -> Iterator[bytes]:
    yield _meta(_META_MARK)
    yield _bitwise(native32(mask), native32(toggled))
    yield _expression("meta", attribute(2, be32(_META_MARK)), _register(3))


def _has_bit(bit: int) -> Iterator[bytes]:
    yield _bitwise(native32(bit), native32(0))
    yield _compare(_UNEQUAL, native32(0))


def _numgen(index: int, modulus: int, kind: int, offset: int = 0) -> bytes:
    numbers = (attribute(2, be32(modulus)), attribute(3, be32(kind)), attribute(4, be32(offset)))
    return _expression("numgen", _register(1, index), *numbers)


def _payload(base: int, offset: int, size: int, index: int = 0) -> bytes:
    where = (attribute(2, be32(base)), attribute(3, be32(offset)), attribute(4, be32(size)))
    return _expression("payload", _register(1, index), *where)


def _meta(key: int, index: int = 0) -> bytes:
    return _expression("meta", _register(1, index), attribute(2, be32(key)))


def _conntrack(key: int) -> bytes:
    return _expression("ct", _register(1), attribute(2, be32(key)))


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
