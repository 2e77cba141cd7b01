"""Encoder of set and map elements: most bytes that are sent are these, so each collection has an encoder.  Pure."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from ipaddress import IPv4Network, IPv6Network

from kproxy.linux.netfilter.patterns import FieldName
from kproxy.linux.netfilter.rules import End, Goto, Jump, Verdict
from kproxy.linux.netlink import attribute, nested
from kproxy.model.network import Family, Network, Protocol
from kproxy.proxy.backends.nftables.rules import CollectionDefinition, ElementKey, Holds, Key, Part, Value

NUMBERS = {Protocol.TCP: 6, Protocol.UDP: 17, Protocol.SCTP: 132}
_PROTOCOLS = {protocol: struct.pack("B3x", number) for protocol, number in NUMBERS.items()}
_JUMP, _GOTO = -3, -4
_ENDS = {End.DROP: 0, End.ACCEPT: 1, End.CONTINUE: -1, End.RETURN: -5}
_KEY, _DATA, _FLAGS, _TIMEOUT, _KEY_END = 1, 2, 3, 4, 10
_INTERVAL_END = 1

_port = struct.Struct(">H2x").pack
_number = struct.Struct("=I").pack
_header = struct.Struct("=HH").pack
_NESTED = 0x8000


def registers_per_address(family: Family) -> int:
    """Number of registers of an address."""
    return family.bits // 32


def key_length(key: Key, family: Family) -> int:
    """Length of a key in bytes."""
    addresses = sum(part in {FieldName.SOURCE, FieldName.DESTINATION} for part in key)
    return 4 * (addresses * registers_per_address(family) + len(key) - addresses)


def verdict_data(value: Verdict) -> bytes:
    """A verdict as data of map elements and immediate expressions."""
    match value:
        case Jump(chain):
            return _verdict(_JUMP, chain)
        case Goto(chain):
            return _verdict(_GOTO, chain)
        case End():
            return _verdict(_ENDS[value])


def _verdict(code: int, chain: str = "") -> bytes:
    target = attribute(2, chain.encode() + b"\0") if chain else b""
    return nested(2, attribute(1, struct.pack(">i", code)) + target)


class ElementEncoder:
    """Encodes elements of one collection, each as list items of ``NFTA_SET_ELEM_LIST_ELEMENTS``."""

    def __init__(self, collection: CollectionDefinition) -> None:
        """Encode all verdicts once, since they are few."""
        self._collection = collection
        self._parts: tuple[Callable[..., bytes], ...] = tuple(map(_part_encoder, collection.key))
        self._values: dict[Value, bytes] = {None: b""}
        self.encode = self._intervals if collection.interval else self._single

    def _single(self, key: ElementKey, value: Value, timeout: int | None = None) -> bytes:
        packed = b"".join([encode(part) for encode, part in zip(self._parts, key, strict=True)])
        size = len(packed)
        body = b"".join(
            (
                _header(size + 8, _KEY | _NESTED),
                _header(size + 4, 1),
                packed,
                self._value(value),
                _timeout(timeout),
            )
        )
        return _header(len(body) + 4, 1 | _NESTED) + body

    def _value(self, value: Value) -> bytes:
        if self._collection.holds is Holds.ENDPOINT and isinstance(value, tuple):
            address, port = value
            packed = address.packed + _port(port)
            return _header(len(packed) + 8, _DATA | _NESTED) + _header(len(packed) + 4, 1) + packed
        found = self._values.get(value)
        if found is None and isinstance(value, Jump | Goto | End):
            found = self._values[value] = nested(_DATA, verdict_data(value))
        return found or b""

    def _intervals(self, key: ElementKey, _value: Value, _lives: int | None = None) -> bytes:
        """An element whose last part is a network: a range from its first address to its last."""
        network = key[-1]
        assert isinstance(network, IPv4Network | IPv6Network)
        start = b"".join(encode(part) for encode, part in zip(self._parts[:-1], key, strict=False))
        first, last = network.network_address, network.broadcast_address
        if start:
            return nested(1, _key(_KEY, start + first.packed), _key(_KEY_END, start + last.packed))
        return b"".join(_interval_bounds(network))


def _interval_bounds(network: Network) -> Iterator[bytes]:
    """Elements of an interval of addresses alone: its first address, and the first one after it if there is any."""
    yield nested(1, _key(_KEY, network.network_address.packed))
    behind = int(network.broadcast_address) + 1
    if behind >> network.max_prefixlen == 0:
        packed = behind.to_bytes(network.max_prefixlen // 8, "big")
        yield nested(1, _key(_KEY, packed), attribute(_FLAGS, struct.pack(">I", _INTERVAL_END)))


def _key(kind: int, packed: bytes) -> bytes:
    return nested(kind, attribute(1, packed))


def _timeout(milliseconds: int | None) -> bytes:
    return b"" if milliseconds is None else attribute(_TIMEOUT, struct.pack(">Q", milliseconds))


def _part_encoder(selector: object) -> Callable[..., bytes]:
    match selector:
        case FieldName.SOURCE | FieldName.DESTINATION:
            return _packed
        case FieldName.PROTOCOL:
            return _PROTOCOLS.__getitem__
        case FieldName.PORT:
            return _port
        case _:
            return _number


def _packed(part: Part) -> bytes:
    assert not isinstance(part, Protocol | int | IPv4Network | IPv6Network)
    return part.packed
