"""Types and user data of sets and maps, by which ``nft list`` prints keys and values in their notation.

The kernel stores these bytes and does not interpret them.  Layout and numbers are nft's own (libnftnl udata.h, nft's
datatype.h and proto.h): type, length, value, each of a byte, nested.  Pure.
"""

from __future__ import annotations

import struct

from kproxy.linux.netfilter.patterns import FieldName, RandomNumber, Selector
from kproxy.model.network import Family
from kproxy.proxy.backends.nftables.rules import CollectionDefinition, Holds, Key

_DATATYPE = {Family.IPV4: 7, Family.IPV6: 8}
_INTEGER, _INET_PROTOCOL, _INET_SERVICE = 4, 12, 13
_VERDICT = 0xFFFF_FF00
_TYPE_BITS = 6

_EXPRESSION_VERDICT, _EXPRESSION_PAYLOAD, _EXPRESSION_META = 1, 7, 9
_EXPRESSION_CONCATENATION, _EXPRESSION_NUMGEN = 13, 23
_META_L4PROTO = 16
_TRANSPORT_HEADER, _TRANSPORT_DESTINATION_PORT = 11, 2
_ADDRESSES = {
    (Family.IPV4, FieldName.SOURCE): (12, 11),
    (Family.IPV4, FieldName.DESTINATION): (12, 12),
    (Family.IPV6, FieldName.SOURCE): (13, 8),
    (Family.IPV6, FieldName.DESTINATION): (13, 9),
}
"""Number of the header, and number of the field in it."""

_KEY_BYTE_ORDER, _DATA_BYTE_ORDER, _KEY_TYPEOF, _DATA_TYPEOF, _DATA_INTERVAL, _COMMENT = 0, 1, 3, 4, 6, 7
_ORDER_MIXED, _ORDER_HOST, _ORDER_NETWORK = 0, 1, 2


def key_type(key: Key, family: Family) -> int:
    """The number of a key's type: six bits for each part."""
    number = 0
    for part in key:
        number = number << _TYPE_BITS | _type(part, family)
    return number


def data_type(holds: Holds, family: Family) -> int:
    """The number of the type of a map's values."""
    return _VERDICT if holds is Holds.VERDICT else _DATATYPE[family] << _TYPE_BITS | _INET_SERVICE


def collection_userdata(collection: CollectionDefinition, family: Family) -> bytes:
    """The user data of a set or map."""
    parts = [_item(_KEY_BYTE_ORDER, _number(_order(collection.key)))]
    if collection.holds is not Holds.NOTHING:
        parts.append(_item(_DATA_BYTE_ORDER, _number(_ORDER_MIXED)))
    parts.append(_item(_KEY_TYPEOF, _typeof(collection.key, family)))
    if collection.holds is not Holds.NOTHING:
        endpoint = (FieldName.DESTINATION, FieldName.PORT)
        held = (
            _typeof(endpoint, family)
            if collection.holds is Holds.ENDPOINT
            else _expression(_EXPRESSION_VERDICT, b"")
        )
        parts += [_item(_DATA_TYPEOF, held), _item(_DATA_INTERVAL, _number(0))]
    if collection.comment:
        parts.append(comment_userdata(_COMMENT, collection.comment))
    return b"".join(parts)


def comment_userdata(kind: int, text: str) -> bytes:
    """A comment; ``kind`` is 0 for tables, chains and rules."""
    return _item(kind, text.encode() + b"\0")


def _order(key: Key) -> int:
    if len(key) > 1:
        return _ORDER_MIXED
    return _ORDER_HOST if isinstance(key[0], RandomNumber) else _ORDER_NETWORK


def _type(part: Selector, family: Family) -> int:
    match part:
        case RandomNumber():
            return _INTEGER
        case FieldName.PROTOCOL:
            return _INET_PROTOCOL
        case FieldName.PORT:
            return _INET_SERVICE
        case FieldName.SOURCE | FieldName.DESTINATION:
            return _DATATYPE[family]
        case _:
            raise AssertionError(part)


def _typeof(key: Key, family: Family) -> bytes:
    if len(key) == 1:
        return _selector(key[0], family)
    parts = [_item(index, _selector(part, family)) for index, part in enumerate(key)]
    return _expression(_EXPRESSION_CONCATENATION, b"".join(parts))


def _selector(part: Selector, family: Family) -> bytes:
    match part:
        case RandomNumber(modulus, offset, incremental):
            numbers = int(not incremental), modulus, offset
            data = b"".join(_item(index, _number(number)) for index, number in enumerate(numbers))
            return _expression(_EXPRESSION_NUMGEN, data)
        case FieldName.PROTOCOL:
            return _expression(_EXPRESSION_META, _item(0, _number(_META_L4PROTO)))
        case FieldName.PORT:
            header, place = _TRANSPORT_HEADER, _TRANSPORT_DESTINATION_PORT
        case FieldName.SOURCE | FieldName.DESTINATION:
            header, place = _ADDRESSES[family, part]
        case _:
            raise AssertionError(part)
    return _expression(_EXPRESSION_PAYLOAD, _item(0, _number(header)) + _item(1, _number(place)))


def _expression(kind: int, data: bytes) -> bytes:
    return _item(0, _number(kind)) + _item(1, data)


def _item(kind: int, value: bytes) -> bytes:
    return bytes((kind, len(value))) + value


def _number(value: int) -> bytes:
    return struct.pack("=I", value)
