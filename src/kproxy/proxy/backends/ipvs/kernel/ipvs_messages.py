"""Codec of IPVS's messages (linux/ip_vs.h, generic netlink family IPVS, version 1).  Pure.

No general library, since it costs a quarter of a second to import and hides three traps:
flags are a value *and* a mask, the netmask of an IPv6 virtual server is a prefix length in the machine's byte
order, and NAT is forwarding method 0, which a destination must name together with all its other numbers.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv6Address
from typing import NamedTuple

from kproxy.linux.netlink import NetlinkFlag, attribute, attributes, attributes_before, nested
from kproxy.model.network import Address, Family, Protocol
from kproxy.proxy.backends.ipvs.diff import (
    IpvsCommand,
    RemoveDestination,
    RemoveServer,
    SetDestination,
    SetServer,
)
from kproxy.proxy.backends.ipvs.rules import PERSISTENT, AddressKey, Destination, Key, MarkKey, Server

NEW_SERVICE, SET_SERVICE, DELETE_SERVICE, GET_SERVICE = 1, 2, 3, 4
NEW_DESTINATION, SET_DESTINATION, DELETE_DESTINATION, GET_DESTINATION = 5, 6, 7, 8
SET_CONFIG = 12
HEADER_SIZE = 4

_SERVICE, _DESTINATION, _TIMEOUT_TCP, _TIMEOUT_TCP_FIN, _TIMEOUT_UDP = 1, 2, 4, 5, 6
_FAMILY, _PROTOCOL, _ADDRESS, _PORT, _MARK, _SCHEDULER, _FLAGS, _TIMEOUT, _NETMASK, _STATISTICS = range(1, 11)
_D_ADDRESS, _D_PORT, _D_METHOD, _D_WEIGHT, _D_UPPER, _D_LOWER, _D_ACTIVE, _D_INACTIVE = range(1, 9)
_D_FAMILY = 11
_HASHED = 0x2
"""IP_VS_SVC_F_HASHED, a flag that the kernel adds by itself."""

_AF = {Family.IPV4: 2, Family.IPV6: 10}
_NUMBERS = {Protocol.TCP: 6, Protocol.UDP: 17, Protocol.SCTP: 132}
_PROTOCOLS = {number: protocol for protocol, number in _NUMBERS.items()}
_ONE_CLIENT = {Family.IPV4: b"\xff\xff\xff\xff", Family.IPV6: struct.pack("=I", 128)}

_u16, _u32, _be16 = struct.Struct("=H"), struct.Struct("=I"), struct.Struct(">H")


class ListedServer(NamedTuple):
    """A virtual server in the kernel."""

    key: Key
    server: Server


class ListedDestination(NamedTuple):
    """A destination in the kernel; ``connections``: number of active and inactive ones."""

    destination: Destination
    weight: int
    connections: int


def generic_netlink_message(command: int, *parts: bytes) -> bytes:
    """The body of a generic netlink message."""
    return struct.pack("BBxx", command, 1) + b"".join(parts)


def encode_command(request: IpvsCommand, family: Family) -> tuple[NetlinkFlag, bytes]:
    """A command as additional netlink flags and body."""
    match request:
        case SetServer(key, server, new):
            parts = nested(_SERVICE, *_key(key, family), *_server(server, family))
            return NetlinkFlag(0), generic_netlink_message(NEW_SERVICE if new else SET_SERVICE, parts)
        case RemoveServer(key):
            return NetlinkFlag(0), generic_netlink_message(
                DELETE_SERVICE, nested(_SERVICE, *_key(key, family))
            )
        case SetDestination(key, destination, weight, new):
            parts = nested(_DESTINATION, *_socket(destination, family), *_numbers(weight))
            command = NEW_DESTINATION if new else SET_DESTINATION
            return NetlinkFlag(0), generic_netlink_message(
                command, nested(_SERVICE, *_key(key, family)), parts
            )
        case RemoveDestination(key, destination):
            parts = nested(_DESTINATION, *_socket(destination, family))
            return NetlinkFlag(0), generic_netlink_message(
                DELETE_DESTINATION, nested(_SERVICE, *_key(key, family)), parts
            )


def encode_timeouts(tcp: int, tcp_fin: int, udp: int) -> bytes:
    """Body that sets the timeouts, in seconds; 0 leaves one unchanged."""
    values = {_TIMEOUT_TCP: tcp, _TIMEOUT_TCP_FIN: tcp_fin, _TIMEOUT_UDP: udp}
    return generic_netlink_message(
        SET_CONFIG, *(attribute(kind, _u32.pack(seconds)) for kind, seconds in values.items())
    )


def encode_destinations_query(key: Key, family: Family) -> bytes:
    """Body of the query for a virtual server's destinations."""
    return generic_netlink_message(GET_DESTINATION, nested(_SERVICE, *_key(key, family)))


def without_statistics(payload: memoryview) -> bytes:
    """A virtual server's reply without its counters, which come last (ip_vs_ctl.c: ip_vs_genl_fill_service).

    Equal ones are the same for `decode_server`.
    """
    service = attributes(payload[HEADER_SIZE:])[_SERVICE]
    return bytes(attributes_before(service, _STATISTICS))


def decode_server(payload: memoryview, family: Family) -> ListedServer | None:
    """Virtual server in a reply; None if it is of the other family, or of a kind that this proxy does not create."""
    values = attributes(attributes(payload[HEADER_SIZE:])[_SERVICE])
    if _number(values, _FAMILY, _u16) != _AF[family]:
        return None
    key: Key
    if _MARK in values:
        key = MarkKey(_number(values, _MARK, _u32))
    else:
        protocol = _PROTOCOLS.get(_number(values, _PROTOCOL, _u16))
        if protocol is None:
            return None
        key = AddressKey(_address(values[_ADDRESS], family), _number(values, _PORT, _be16), protocol)
    flags = _number(values, _FLAGS, _u32) & ~_HASHED
    lasting = _number(values, _TIMEOUT, _u32) if flags & PERSISTENT else None
    scheduler = bytes(values.get(_SCHEDULER, memoryview(b""))).rstrip(b"\0").decode()
    return ListedServer(key, Server(scheduler, flags, lasting))


def decode_destination(payload: memoryview, family: Family) -> ListedDestination:
    """Destination in a reply."""
    values = attributes(attributes(payload[HEADER_SIZE:])[_DESTINATION])
    destination = Destination(_address(values[_D_ADDRESS], family), _number(values, _D_PORT, _be16))
    connections = _number(values, _D_ACTIVE, _u32) + _number(values, _D_INACTIVE, _u32)
    return ListedDestination(destination, _number(values, _D_WEIGHT, _u32), connections)


def _key(key: Key, family: Family) -> list[bytes]:
    parts = [attribute(_FAMILY, _u16.pack(_AF[family]))]
    if isinstance(key, MarkKey):
        return [*parts, attribute(_MARK, _u32.pack(key.mark))]
    return [
        *parts,
        attribute(_PROTOCOL, _u16.pack(_NUMBERS[key.protocol])),
        attribute(_ADDRESS, _padded(key.address)),
        attribute(_PORT, _be16.pack(key.port)),
    ]


def _server(server: Server, family: Family) -> list[bytes]:
    return [
        attribute(_SCHEDULER, server.scheduler.encode() + b"\0"),
        attribute(_FLAGS, struct.pack("=II", server.flags, 0xFFFF_FFFF)),
        attribute(_TIMEOUT, _u32.pack(server.persistence or 0)),
        attribute(_NETMASK, _ONE_CLIENT[family]),
    ]


def _socket(destination: Destination, family: Family) -> list[bytes]:
    return [
        attribute(_D_ADDRESS, _padded(destination.address)),
        attribute(_D_PORT, _be16.pack(destination.port)),
        attribute(_D_FAMILY, _u16.pack(_AF[family])),
    ]


def _numbers(weight: int) -> list[bytes]:
    values = {_D_METHOD: 0, _D_WEIGHT: weight, _D_UPPER: 0, _D_LOWER: 0}
    return [attribute(kind, _u32.pack(value)) for kind, value in values.items()]


def _padded(address: Address) -> bytes:
    return address.packed.ljust(16, b"\0")


def _address(raw: memoryview, family: Family) -> Address:
    return IPv4Address(bytes(raw[:4])) if family is Family.IPV4 else IPv6Address(bytes(raw[:16]))


def _number(values: Mapping[int, memoryview], kind: int, layout: struct.Struct) -> int:
    found = values.get(kind)
    return int(layout.unpack_from(found)[0]) if found is not None else 0
