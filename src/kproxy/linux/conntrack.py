"""Connection tracking: lists and deletes UDP entries by destination; which TCP segments this kernel calls INVALID.

Raw netlink, since the dump of a busy node has tens of thousands of entries (50,000 in 0.4 s, where a general
library takes 4 s) and deleting by entry costs microseconds. Which entries are stale is decided by the caller.
All failures are `kproxy.linux.host.HostError`.
"""

from __future__ import annotations

import errno
import socket
import struct
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import TYPE_CHECKING

from kproxy.linux import host
from kproxy.linux.host import HostError, Reason
from kproxy.linux.netlink import NetlinkFlag, attribute, attributes, nested, netfilter_header
from kproxy.linux.netlink_socket import NETLINK_NETFILTER, Netlink, NetlinkError
from kproxy.model.network import Address, Family, family_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

Socket = tuple[Address, int]
"""An address and a port."""

_BE_LIBERAL = "net/netfilter/nf_conntrack_tcp_be_liberal"
_LOOSE = "net/netfilter/nf_conntrack_tcp_loose"

# linux/netfilter/nfnetlink_conntrack.h
_GET = 0x101
_DELETE = 0x102
_TUPLE_ORIGINAL = 1
_TUPLE_REPLY = 2
_ID = 12
_ZONE = 18
_FILTER = 25
_FILTER_ORIGINAL_FLAGS = 1
_FILTER_REPLY_FLAGS = 2
_FILTER_BY_PROTOCOL = 8
_TUPLE_IP = 1
_TUPLE_PROTOCOL = 2
_PROTOCOL_NUMBER = 1
_PROTOCOL_SOURCE_PORT = 2
_PROTOCOL_DESTINATION_PORT = 3
_HEADER_SIZE = 4

_ADDRESS_FAMILY = {Family.IPV4: socket.AF_INET, Family.IPV6: socket.AF_INET6}
_SOURCE = {Family.IPV4: 1, Family.IPV6: 3}
_DESTINATION = {Family.IPV4: 2, Family.IPV6: 4}
_PORT = struct.Struct(">H")
_FLAGS = struct.Struct("=I")


@dataclass(frozen=True, slots=True)
class InvalidDrops:
    """Hooks at which TCP segments in state INVALID are to be dropped: ``forwarded`` ones, and ``input`` to this node's own processes."""

    forwarded: bool
    input: bool


def invalid_drops() -> InvalidDrops:
    """The drops of INVALID segments that this network namespace's sysctls allow, read now.

    ``nf_conntrack_tcp_be_liberal`` 1: segments out of the window are not INVALID, so nothing is dropped
    (``ct.invalid-drop``). ``nf_conntrack_tcp_loose`` 0: all segments of a connection that began before it was
    tracked are INVALID, and it is not picked up. Such connections of the node's own processes must survive,
    so ``input`` drops nothing; no clause promises to forward them.
    """
    liberal = _sysctl(_BE_LIBERAL, "0") != "0"
    loose = _sysctl(_LOOSE, "1") != "0"
    return InvalidDrops(forwarded=not liberal, input=loose and not liberal)


def _sysctl(name: str, default: str) -> str:
    """Value of a sysctl; ``default`` where conntrack is not loaded, so that the file is missing."""
    try:
        return host.read_sysctl(name)
    except HostError as error:
        if error.reason is not Reason.MISSING:
            raise
        return default


@dataclass(frozen=True, slots=True)
class UdpFlow:
    """One UDP entry of conntrack.

    ``destination`` is the original tuple's destination, ``reply_source`` the reply tuple's source; they
    differ when the entry is DNATed. ``handle``: the attributes that identify the entry in a delete request.
    """

    family: Family
    destination: Socket
    reply_source: Socket
    handle: bytes

    @property
    def is_dnat(self) -> bool:
        """True if the entry rewrites the destination."""
        return self.destination != self.reply_source


def list_udp_flows(family: Family, wanted: Callable[[Socket], bool]) -> Iterator[UdpFlow]:
    """UDP entries of this network namespace whose destination satisfies ``wanted``."""
    header = netfilter_header(_ADDRESS_FAMILY[family])
    with Netlink(NETLINK_NETFILTER) as netlink:
        # a kernel before 5.8 ignores the filter and gives the entries of all protocols
        for payload in netlink.dump(_GET, header + _only_udp()):
            flow = _parse_flow(payload, family, wanted)
            if flow is not None:
                yield flow


def delete_flows(flows: Iterable[UdpFlow]) -> int:
    """Delete entries and return how many were deleted; entries that have expired meanwhile (ENOENT) do not count."""
    requests = [
        (_DELETE, NetlinkFlag(0), netfilter_header(_ADDRESS_FAMILY[f.family]) + f.handle) for f in flows
    ]
    return _delete(requests)


def _delete(requests: list[tuple[int, NetlinkFlag, bytes]]) -> int:
    """Send requests to delete entries, and return how many were there."""
    if not requests:
        return 0
    with Netlink(NETLINK_NETFILTER) as netlink:
        results = netlink.send_all(requests)
    refused = next((number for number in results if number not in {0, errno.ENOENT}), None)
    if refused is not None:
        raise NetlinkError("delete conntrack entry", refused)
    return results.count(0)


def delete_flows_answered_by(answering: Socket, clients: Iterable[Socket]) -> None:
    """Delete the UDP entries whose replies go from a socket of this node to these clients; one that is not there is none."""
    family = family_of(answering[0])
    _delete([(_DELETE, NetlinkFlag(0), _answered(family, answering, client)) for client in clients])


def find_destinations(answering: Socket, clients: Iterable[Socket]) -> dict[Socket, Socket]:
    """Where each of these clients sends the datagrams that a socket of this node answers; those without an entry are left out."""
    family = family_of(answering[0])
    found: dict[Socket, Socket] = {}
    with Netlink(NETLINK_NETFILTER) as netlink:
        for client in clients:
            try:
                payload = netlink.get(_GET, _answered(family, answering, client))
            except NetlinkError as error:
                if error.number != errno.ENOENT:
                    raise
                continue
            flow = _parse_flow(payload, family, lambda _: True)
            if flow is not None:
                found[client] = flow.destination
    return found


def _answered(family: Family, answering: Socket, client: Socket) -> bytes:
    """Body of a request for the UDP entry whose replies go from a socket to a client."""
    tuple_ = nested(_TUPLE_REPLY, _udp_tuple(family, answering, client))
    return netfilter_header(_ADDRESS_FAMILY[family]) + tuple_


def _udp_tuple(family: Family, source: Socket, destination: Socket) -> bytes:
    addresses = attribute(_SOURCE[family], source[0].packed) + attribute(
        _DESTINATION[family], destination[0].packed
    )
    ports = (
        attribute(_PROTOCOL_NUMBER, bytes([socket.IPPROTO_UDP])),
        attribute(_PROTOCOL_SOURCE_PORT, _PORT.pack(source[1])),
        attribute(_PROTOCOL_DESTINATION_PORT, _PORT.pack(destination[1])),
    )
    return nested(_TUPLE_IP, addresses) + nested(_TUPLE_PROTOCOL, *ports)


def _only_udp() -> bytes:
    protocol = nested(_TUPLE_PROTOCOL, attribute(_PROTOCOL_NUMBER, bytes([socket.IPPROTO_UDP])))
    flags = (
        attribute(_FILTER_ORIGINAL_FLAGS, _FLAGS.pack(_FILTER_BY_PROTOCOL)),
        attribute(_FILTER_REPLY_FLAGS, _FLAGS.pack(0)),
    )
    return nested(_TUPLE_ORIGINAL, protocol) + nested(_FILTER, *flags)


def _parse_flow(payload: memoryview, family: Family, wanted: Callable[[Socket], bool]) -> UdpFlow | None:
    entry = attributes(payload[_HEADER_SIZE:])
    original = attributes(entry[_TUPLE_ORIGINAL])
    protocol = attributes(original[_TUPLE_PROTOCOL])
    if protocol[_PROTOCOL_NUMBER][0] != socket.IPPROTO_UDP:
        return None
    address = attributes(original[_TUPLE_IP])[_DESTINATION[family]]
    destination = (_address(address), _port(protocol[_PROTOCOL_DESTINATION_PORT]))
    if not wanted(destination):
        return None
    reply = attributes(entry[_TUPLE_REPLY])
    answering = _address(attributes(reply[_TUPLE_IP])[_SOURCE[family]])
    port = _port(attributes(reply[_TUPLE_PROTOCOL])[_PROTOCOL_SOURCE_PORT])
    return UdpFlow(family, destination, (answering, port), _handle(entry))


def _handle(entry: dict[int, memoryview]) -> bytes:
    """Attributes that identify an entry: the original tuple, the zone if there is one, and the ID."""
    found = [nested(_TUPLE_ORIGINAL, bytes(entry[_TUPLE_ORIGINAL]))]
    found += [attribute(kind, bytes(entry[kind])) for kind in (_ZONE, _ID) if kind in entry]
    return b"".join(found)


def _address(raw: memoryview) -> Address:
    return IPv4Address(bytes(raw)) if len(raw) == 4 else IPv6Address(bytes(raw))


def _port(raw: memoryview) -> int:
    return int(_PORT.unpack(raw)[0])
