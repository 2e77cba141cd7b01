"""Parser and builder of packets from the network layer up, as far as probes need it.

Pure: bytes in, values out. A probe's packets are known by its number, which address translation does not change: a
TCP probe's initial sequence number *is* its number, a UDP probe's payload begins with it, and a refusal quotes or
acknowledges it. SCTP probes are known by the initiate tag their kernel drew.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

from kproxy.lab.probes.message import MAGIC
from kproxy.lab.probes.observation import Icmp, Socket, address_from_text
from kproxy.model.network import Address, Family, Protocol

TCP, UDP, SCTP, ICMP, ICMPV6 = 6, 17, 132, 1, 58
NUMBERS = {Protocol.TCP: TCP, Protocol.UDP: UDP, Protocol.SCTP: SCTP}
"""IANA protocol numbers."""

SYN, RST, PSH, ACK = 0x02, 0x04, 0x08, 0x10
ICMP_ERRORS = (3, 11, 12)
ICMPV6_ERRORS = (1, 3, 4)
"""Unreachable, time exceeded, parameter problem; IPv6's "packet too big" is no refusal."""

INIT, ABORT = 1, 6
"""SCTP chunk types."""

ECHO_REQUEST, ECHO_REPLY = (8, 128), (0, 129)
"""ICMP types, of IPv4 and of IPv6."""

_FRAGMENT = 44
_FRAGMENTATION_NEEDED = (3, 4)


class PacketKind(enum.Enum):
    """Role of a captured packet in a probe."""

    FIRST = enum.auto()
    """SYN, SCTP INIT, or the request's datagram."""
    RESET = enum.auto()
    """RST (or ABORT) in reply to it."""
    ICMP = enum.auto()
    """An ICMP error that quotes it."""


def identify(packet: bytes) -> tuple[PacketKind, int] | None:
    """Role of a packet and the probe it belongs to; None for any other, or one cut too short."""
    try:
        return _identify(packet)
    except (struct.error, IndexError):
        return None


def _identify(packet: bytes) -> tuple[PacketKind, int] | None:
    found = transport(packet)
    if found is None:
        return None
    protocol, at = found
    code = tuple(packet[at : at + 2])
    if protocol == ICMP and code[0] in ICMP_ERRORS and code != _FRAGMENTATION_NEEDED:
        return _quoted(packet[at + 8 :])
    if protocol == ICMPV6 and code[0] in ICMPV6_ERRORS:
        return _quoted(packet[at + 8 :])
    reader = _READERS.get(protocol)
    return reader(packet, at) if reader else None


def transport(packet: bytes) -> tuple[int, int] | None:
    """Protocol number and offset of the transport header; None for later fragments and other versions."""
    match packet[0] >> 4:
        case 4:
            later = (packet[6] << 8 | packet[7]) & 0x1FFF
            return None if later else (packet[9], (packet[0] & 0xF) * 4)
        case 6 if packet[6] == _FRAGMENT:
            later = (packet[42] << 8 | packet[43]) & 0xFFF8
            return None if later else (packet[40], 48)
        case 6:
            return packet[6], 40
        case _:
            return None


def _identify_tcp(packet: bytes, at: int) -> tuple[PacketKind, int] | None:
    flags = packet[at + 13]
    if flags & RST:
        return PacketKind.RESET, (_word(packet, at + 8) - 1) & 0xFFFFFFFF
    if flags & (SYN | ACK) == SYN:
        return PacketKind.FIRST, _word(packet, at + 4)
    return None


def _identify_udp(packet: bytes, at: int) -> tuple[PacketKind, int] | None:
    if packet[at + 8 : at + 12] != MAGIC:
        return None
    return PacketKind.FIRST, _word(packet, at + 12)


def _identify_sctp(packet: bytes, at: int) -> tuple[PacketKind, int] | None:
    if packet[at + 12] == INIT:
        return PacketKind.FIRST, _word(packet, at + 16)
    if packet[at + 12] == ABORT:
        return PacketKind.RESET, _word(packet, at + 4)
    return None


def _identify_echo(packet: bytes, at: int) -> tuple[PacketKind, int] | None:
    """Role of a ping: known by its payload, as a datagram is, and both headers have eight bytes."""
    return _identify_udp(packet, at) if packet[at] in ECHO_REQUEST else None


_READERS = {
    TCP: _identify_tcp,
    UDP: _identify_udp,
    SCTP: _identify_sctp,
    ICMP: _identify_echo,
    ICMPV6: _identify_echo,
}


def _quoted(packet: bytes) -> tuple[PacketKind, int] | None:
    found = transport(packet)
    if found is None:
        return None
    protocol, at = found
    if protocol == TCP:
        return PacketKind.ICMP, _word(packet, at + 4)
    reader = _READERS.get(protocol)
    known = reader(packet, at) if reader else None
    return (PacketKind.ICMP, known[1]) if known else None


def _word(packet: bytes, at: int) -> int:
    return int(struct.unpack_from("!I", packet, at)[0])


def packet_sockets(packet: bytes) -> tuple[Socket, Socket]:
    """Source and destination of a packet that `identify` knows (port 0 for ICMP)."""
    source, destination = packet_addresses(packet)
    found = transport(packet)
    if found is None or found[0] in {ICMP, ICMPV6}:
        return Socket(source, 0), Socket(destination, 0)
    ports = struct.unpack_from("!HH", packet, found[1])
    return Socket(source, ports[0]), Socket(destination, ports[1])


def packet_addresses(packet: bytes) -> tuple[Address, Address]:
    """Source and destination address."""
    if packet[0] >> 4 == 4:
        return IPv4Address(packet[12:16]), IPv4Address(packet[16:20])
    return IPv6Address(packet[8:24]), IPv6Address(packet[24:40])


def quoted_destination(packet: bytes) -> Socket:
    """Destination of the packet that a packet of `PacketKind.ICMP` quotes (port 0 for a ping)."""
    found = transport(packet)
    assert found is not None
    return packet_sockets(packet[found[1] + 8 :])[1]


def icmp_of(packet: bytes) -> Icmp:
    """Type and code of a packet of `PacketKind.ICMP`."""
    found = transport(packet)
    assert found is not None
    family = Family.IPV4 if packet[0] >> 4 == 4 else Family.IPV6
    return Icmp(family, packet[found[1]], packet[found[1] + 1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """TCP segment to be built."""

    source: Socket
    destination: Socket
    sequence: int
    acknowledgement: int = 0
    flags: int = SYN
    payload: bytes = b""


def tcp_packet(segment: Segment) -> bytes:
    """A whole IP packet with this segment, checksums included."""
    ports = (segment.source.port, segment.destination.port)
    window, offset = 64240, 5 << 4
    numbers = (segment.sequence & 0xFFFFFFFF, segment.acknowledgement & 0xFFFFFFFF)
    header = struct.pack("!HHIIBBHHH", *ports, *numbers, offset, segment.flags, window, 0, 0)
    return _packet(segment.source.address, segment.destination.address, TCP, header, 16, segment.payload)


def udp_packet(source: Socket, destination: Socket, payload: bytes) -> bytes:
    """A whole IP packet with this datagram, checksums included."""
    header = struct.pack("!HHHH", source.port, destination.port, 8 + len(payload), 0)
    return _packet(source.address, destination.address, UDP, header, 6, payload)


def sctp_packet(source: Socket, destination: Socket, number: int) -> bytes:
    """IP packet that begins an association (RFC 9260, 3.3.2), with this number as its initiate tag."""
    chunk = struct.pack("!BBHIIHHI", INIT, 0, 20, number, 1 << 16, 1, 1, number)
    ports = struct.pack("!HHI", source.port, destination.port, 0)
    body = ports + struct.pack("<I", crc32c(ports + bytes(4) + chunk)) + chunk
    return _ip_header(source.address, destination.address, SCTP, len(body)) + body


def crc32c(data: bytes) -> int:
    """SCTP's checksum (RFC 9260, appendix A), which goes out with its lowest byte first."""
    remainder = 0xFFFFFFFF
    for byte in data:
        remainder ^= byte
        for _ in range(8):
            remainder = remainder >> 1 ^ (0x82F63B78 if remainder & 1 else 0)
    return remainder ^ 0xFFFFFFFF


def echo_request(family: Family, number: int) -> bytes:
    """An ICMP echo request with this number; the kernel adds ICMPv6's checksum."""
    kind = ECHO_REQUEST[family is Family.IPV6]
    payload = MAGIC + struct.pack("!I", number)
    header = struct.pack("!BBHHH", kind, 0, 0, number & 0xFFFF, 1)
    if family is Family.IPV6:
        return header + payload
    return header[:2] + struct.pack("!H", checksum(header + payload)) + header[4:] + payload


def is_echo_reply(packet: bytes, number: int) -> bool:
    """True if an ICMP message (from its own header on) is the reply to that request."""
    return packet[0] in ECHO_REPLY and packet[8:16] == MAGIC + struct.pack("!I", number)


def _packet(
    source: Address, destination: Address, protocol: int, header: bytes, checksum_at: int, payload: bytes
) -> bytes:
    body = bytearray(header + payload)
    pseudo = source.packed + destination.packed + struct.pack("!II", len(body), protocol)
    struct.pack_into("!H", body, checksum_at, checksum(pseudo + body) or 0xFFFF)
    return _ip_header(source, destination, protocol, len(body)) + bytes(body)


def _ip_header(source: Address, destination: Address, protocol: int, length: int) -> bytes:
    ends = source.packed + destination.packed
    if source.version == 6:
        return struct.pack("!IHBB", 6 << 28, length, protocol, 64) + ends
    header = bytearray(struct.pack("!BBHHHBBH", 0x45, 0, 20 + length, 0, 0, 64, protocol, 0) + ends)
    struct.pack_into("!H", header, 10, checksum(bytes(header)))
    return bytes(header)


def checksum(data: bytes) -> int:
    """The Internet checksum (RFC 1071)."""
    padded = data + b"\0" * (len(data) % 2)
    total: int = sum(struct.unpack(f"!{len(padded) // 2}H", padded))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return 0xFFFF - total


def socket_of(address: tuple[object, ...]) -> Socket:
    """`Socket` from an address of Python's socket module."""
    host, port = address[:2]
    return Socket(address_from_text(str(host).partition("%")[0]), int(str(port)))
