"""Netlink messages as bytes: packing them, splitting what came back, reading attributes.

Only the few lines of the wire format that the project needs (linux/netlink.h, linux/netfilter/nfnetlink.h):
importing a full netlink library costs a quarter of a second, and it dumps conntrack ten times more
slowly.  Pure: the socket is `kproxy.linux.netlink_socket.Netlink`.
"""

from __future__ import annotations

import enum
import struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

NLMSG_NOOP = 1
NLMSG_ERROR = 2
NLMSG_DONE = 3

_HEADER = struct.Struct("=IHHII")
_ATTRIBUTE = struct.Struct("=HH")
_ERRNO = struct.Struct("=i")
_TYPE_MASK = 0x3FFF
_NESTED = 0x8000


class NetlinkFlag(enum.IntFlag):
    """Flags of a request (``NLM_F_*``)."""

    REQUEST = 0x1
    ACK = 0x4
    DUMP = 0x300
    EXCL = 0x200
    CREATE = 0x400
    APPEND = 0x800


class Message(NamedTuple):
    """One message of a reply; ``payload`` is what follows the netlink header."""

    type: int
    sequence: int
    payload: memoryview


def netlink_message(kind: int, flags: NetlinkFlag, sequence: int, body: bytes) -> bytes:
    """A whole request; ``body`` must already be padded to four bytes, as attributes are."""
    return _HEADER.pack(_HEADER.size + len(body), kind, flags, sequence, 0) + body


def attribute(kind: int, payload: bytes) -> bytes:
    """One attribute: header, payload, padding to four bytes."""
    return _ATTRIBUTE.pack(len(payload) + _ATTRIBUTE.size, kind) + payload + b"\0" * (-len(payload) & 3)


def nested(kind: int, *attributes: bytes) -> bytes:
    """Attribute that contains attributes (NLA_F_NESTED)."""
    return attribute(kind | _NESTED, b"".join(attributes))


def netfilter_header(family: int) -> bytes:
    """``struct nfgenmsg``, the first bytes of every nfnetlink body.

    ``family`` is an ``AF_*`` or ``NFPROTO_*``.
    """
    return struct.pack(">BBH", family, 0, 0)


def messages(data: bytes) -> Iterator[Message]:
    """Messages of one received datagram."""
    view = memoryview(data)
    offset = 0
    while offset + _HEADER.size <= len(data):
        length, kind, _flags, sequence, _port = _HEADER.unpack_from(data, offset)
        yield Message(kind, sequence, view[offset + _HEADER.size : offset + length])
        offset += (length + 3) & ~3


def first_message_type(data: bytes) -> int:
    """Type of a datagram's first message."""
    return int(_HEADER.unpack_from(data)[1])


def attributes(data: memoryview) -> dict[int, memoryview]:
    """Attribute payloads by type; of a repeated type the last."""
    return dict(attribute_list(data))


def attribute_list(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Types and payloads of attributes, as they came."""
    offset = 0
    while offset + _ATTRIBUTE.size <= len(data):
        length, kind = _ATTRIBUTE.unpack_from(data, offset)
        if length < _ATTRIBUTE.size:
            return
        yield kind & _TYPE_MASK, data[offset + _ATTRIBUTE.size : offset + length]
        offset += (length + 3) & ~3


def attributes_before(data: memoryview, kind: int) -> memoryview:
    """The attributes in front of the first one of a type, as they came; all where there is none."""
    offset = 0
    while offset + _ATTRIBUTE.size <= len(data):
        length, found = _ATTRIBUTE.unpack_from(data, offset)
        if length < _ATTRIBUTE.size or found & _TYPE_MASK == kind:
            return data[:offset]
        offset += (length + 3) & ~3
    return data


def error_number(payload: memoryview) -> int:
    """The errno of an `NLMSG_ERROR` payload, 0 for an acknowledgement."""
    return -int(_ERRNO.unpack_from(payload)[0])
