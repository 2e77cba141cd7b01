"""Members of ipsets as netlink messages (linux/netfilter/ipset/ip_set.h).

A change is one message for each member; a process of the ``ipset`` tool costs ten times as much as all else in an endpoint
change. A dump has many members in each message; the tool needs two hundred times as long for it. Pure.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from ipaddress import ip_address

from kproxy.linux.netlink import (
    NetlinkFlag,
    attribute,
    attribute_list,
    attributes,
    nested,
    netfilter_header,
)
from kproxy.model.network import Address, Family, format_address
from kproxy.proxy.backends.ipvs.names import IpSet, SetType, set_name
from kproxy.proxy.backends.ipvs.rules import Member

NetlinkRequest = tuple[int, NetlinkFlag, bytes]

_SUBSYSTEM, _LIST, _ADD, _DELETE = 6 << 8, 7, 9, 10
_VERSION = b"\x06"
_PROTOCOL, _NAME, _TYPE_NAME, _FLAGS, _DATA, _MEMBERS = 1, 2, 3, 6, 7, 8
_NAMES_ALONE = 1 << 1
"""IPSET_FLAG_LIST_SETNAME."""

_NFGENMSG_SIZE = 4
_IP, _PORT, _L4_PROTOCOL, _IP2, _CIDR2, _SKB_MARK = 1, 4, 7, 20, 21, 27
_NETWORK_ORDER = 0x4000
_NUMBERS = {"tcp": 6, "udp": 17, "sctp": 132}
_PROTOCOLS = {number: name for name, number in _NUMBERS.items()}
_AF_INET = 2


def encode_member(member: Member, family: Family, *, add: bool) -> NetlinkRequest:
    """Type, flags and body of the message that adds or removes a member.

    Without ``NLM_F_EXCL`` an addition or removal that is done already succeeds.
    """
    element, *options = member.text.split(" ") if add else [member.element]
    data = nested(_DATA, *_element(member.set.type, element), *_options(options))
    name = attribute(_NAME, set_name(member.set, family).encode() + b"\0")
    body = netfilter_header(_AF_INET) + attribute(_PROTOCOL, _VERSION) + name + data
    return _SUBSYSTEM | (_ADD if add else _DELETE), NetlinkFlag(0), body


def encode_list_of_names() -> tuple[int, bytes]:
    """Type and body of the query for the names of all sets, to be sent as a dump."""
    flags = attribute(_FLAGS | _NETWORK_ORDER, struct.pack(">I", _NAMES_ALONE))
    return _SUBSYSTEM | _LIST, netfilter_header(_AF_INET) + attribute(_PROTOCOL, _VERSION) + flags


def decode_name(payload: memoryview) -> str:
    """Name of a set in a reply."""
    return bytes(attributes(payload[_NFGENMSG_SIZE:])[_NAME]).rstrip(b"\0").decode()


def encode_list_of_members(which: IpSet, family: Family) -> tuple[int, bytes]:
    """Type and body of the query for the members of one set, to be sent as a dump."""
    name = attribute(_NAME, set_name(which, family).encode() + b"\0")
    return _SUBSYSTEM | _LIST, netfilter_header(_AF_INET) + attribute(_PROTOCOL, _VERSION) + name


def is_of_type(which: IpSet, payload: memoryview) -> bool:
    """False if a reply begins a set of another type; only the first reply of a set has it."""
    kind = attributes(payload[_NFGENMSG_SIZE:]).get(_TYPE_NAME)
    return kind is None or bytes(kind).rstrip(b"\0").decode() == which.type.value


def decode_members(which: IpSet, payload: memoryview) -> Iterator[Member]:
    """Members in a reply."""
    members = attributes(payload[_NFGENMSG_SIZE:]).get(_MEMBERS, memoryview(b""))
    for _, data in attribute_list(members):
        yield Member(which, _decode_element(which.type, attributes(data)))


def _decode_element(kind: SetType, found: Mapping[int, memoryview]) -> str:
    """Text of a member as `encode_member` reads it."""
    if kind is SetType.PORT:
        return str(_decode_port(found))
    text = format_address(_decode_address(found[_IP]))
    if _L4_PROTOCOL in found:
        number = found[_L4_PROTOCOL][0]
        text += f",{_PROTOCOLS.get(number, number)}:{_decode_port(found)}"
    if _IP2 in found:
        address = _decode_address(found[_IP2])
        text += f",{format_address(address)}"
        if _CIDR2 in found and (length := found[_CIDR2][0]) != address.max_prefixlen:
            text += f"/{length}"
    if _SKB_MARK in found:
        value, mask = struct.unpack(">II", found[_SKB_MARK])
        text += f" skbmark {value:#x}/{mask:#x}"
    return text


def _decode_port(found: Mapping[int, memoryview]) -> int:
    return int.from_bytes(found[_PORT])


def _decode_address(data: memoryview) -> Address:
    (packed,) = attributes(data).values()
    return ip_address(bytes(packed))


def _element(kind: SetType, text: str) -> list[bytes]:
    if kind is SetType.PORT:
        return [_port(text)]
    address, *others = text.split(",")
    found = [_address(_IP, ip_address(address))]
    if others:
        protocol, _, port = others[0].partition(":")
        found += [_port(port), attribute(_L4_PROTOCOL, bytes([_number(protocol)]))]
    for third in others[1:]:
        host, _, length = third.partition("/")
        found.append(_address(_IP2, ip_address(host)))
        if length:
            found.append(attribute(_CIDR2, bytes([int(length)])))
    return found


def _number(protocol: str) -> int:
    """Number of a protocol, by its name if it is one that Services have."""
    return _NUMBERS[protocol] if protocol in _NUMBERS else int(protocol)


def _options(tokens: list[str]) -> list[bytes]:
    """Attributes of a member's options: those of ``skbmark VALUE/MASK``, or none."""
    if not tokens:
        return []
    value, _, mask = tokens[1].partition("/")
    return [attribute(_SKB_MARK | _NETWORK_ORDER, struct.pack(">II", int(value, 16), int(mask, 16)))]


def _port(text: str) -> bytes:
    return attribute(_PORT | _NETWORK_ORDER, struct.pack(">H", int(text)))


def _address(kind: int, address: Address) -> bytes:
    """Attribute of an address; the inner attribute's number is 1 for IPv4, 2 for IPv6."""
    which = 1 if address.version == 4 else 2
    return nested(kind, attribute(which | _NETWORK_ORDER, address.packed))
