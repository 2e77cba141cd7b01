"""Packets of probes: what is written can be read back, and the socket filter lets through what is read."""

from __future__ import annotations

import struct
from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy.lab.captures import bpf
from kproxy.lab.probes import packets
from kproxy.lab.probes.message import encode_request
from kproxy.lab.probes.observation import Icmp, Socket
from kproxy.lab.probes.packets import PacketKind, Segment, tcp_packet, udp_packet
from kproxy.model.network import Family

NUMBER = 0x12345678
ENDS = {
    Family.IPV4: (Socket(IPv4Address("10.0.0.1"), 40000), Socket(IPv4Address("10.0.0.2"), 80)),
    Family.IPV6: (Socket(IPv6Address("fd00::1"), 40000), Socket(IPv6Address("fd00::2"), 80)),
}
both_families = pytest.mark.parametrize("family", Family)


def tcp(
    family: Family, *, sequence: int = NUMBER, acknowledgement: int = 0, flags: int = packets.SYN
) -> bytes:
    source, destination = ENDS[family]
    segment = Segment(
        source=source,
        destination=destination,
        sequence=sequence,
        acknowledgement=acknowledgement,
        flags=flags,
    )
    return tcp_packet(segment)


def udp(family: Family, payload: bytes) -> bytes:
    return udp_packet(*ENDS[family], payload)


def icmp(family: Family, type_: int, code: int, quoted: bytes) -> bytes:
    """An ICMP error from the destination to the source of a probe."""
    source, destination = (end.address for end in ENDS[family])
    protocol = packets.ICMP if family is Family.IPV4 else packets.ICMPV6
    body = struct.pack("!BBHI", type_, code, 0, 0) + quoted
    return packets._ip_header(destination, source, protocol, len(body)) + body


def unreachable(family: Family, quoted: bytes) -> bytes:
    return icmp(family, *((3, 3) if family is Family.IPV4 else (1, 4)), quoted)


def sctp(family: Family, chunk: int, *, verification: int = 0, tag: int = 0) -> bytes:
    source, destination = (end.address for end in ENDS[family])
    body = struct.pack("!HHIIBBHI", 40000, 80, verification, 0, chunk, 0, 20, tag) + bytes(12)
    return packets._ip_header(source, destination, packets.SCTP, len(body)) + body


def fragment(packet: bytes, *, offset: int) -> bytes:
    """The same IPv6 packet as a fragment at an offset (in units of 8 bytes)."""
    header = struct.pack("!BBHI", packet[6], 0, offset << 3 | 1, 7)
    return packet[:6] + bytes([44]) + packet[7:40] + header + packet[40:]


def later_fragment(packet: bytes) -> bytes:
    return packet[:6] + struct.pack("!H", 185) + packet[8:]


@both_families
def test_every_packet_that_concerns_a_probe_gives_its_number(family: Family) -> None:
    request = udp(family, encode_request(NUMBER))
    reset = tcp(family, sequence=0, acknowledgement=NUMBER + 1, flags=packets.RST | packets.ACK)
    assert packets.identify(tcp(family)) == (PacketKind.FIRST, NUMBER)
    assert packets.identify(request) == (PacketKind.FIRST, NUMBER)
    assert packets.identify(reset) == (PacketKind.RESET, NUMBER)
    assert packets.identify(sctp(family, packets.INIT, tag=NUMBER)) == (PacketKind.FIRST, NUMBER)
    assert packets.identify(sctp(family, packets.ABORT, verification=NUMBER)) == (PacketKind.RESET, NUMBER)
    for quoted in (tcp(family), request, sctp(family, packets.INIT, tag=NUMBER)):
        assert packets.identify(unreachable(family, quoted)) == (PacketKind.ICMP, NUMBER)


@both_families
def test_a_ping_is_known_by_its_number_and_so_are_its_answer_and_its_refusal(family: Family) -> None:
    source, destination = (end.address for end in ENDS[family])
    protocol = packets.ICMP if family is Family.IPV4 else packets.ICMPV6
    message = packets.echo_request(family, NUMBER)
    ping = packets._ip_header(source, destination, protocol, len(message)) + message
    assert packets.identify(ping) == (PacketKind.FIRST, NUMBER)
    assert packets.identify(unreachable(family, ping)) == (PacketKind.ICMP, NUMBER)
    assert packets.quoted_destination(unreachable(family, ping)) == Socket(destination, 0)
    answer = bytes([packets.ECHO_REPLY[family is Family.IPV6]]) + message[1:]
    assert packets.is_echo_reply(answer, NUMBER)
    assert not packets.is_echo_reply(answer, NUMBER + 1)
    assert not packets.is_echo_reply(message, NUMBER)


def test_a_ping_of_ipv4_sums_to_zero_as_a_receiver_checks() -> None:
    assert packets.checksum(packets.echo_request(Family.IPV4, NUMBER)) == 0


@both_families
def test_an_icmp_error_reports_which_destination_it_is_about(family: Family) -> None:
    for packet in (tcp(family), udp(family, encode_request(NUMBER))):
        assert packets.quoted_destination(unreachable(family, packet)) == ENDS[family][1]


def test_an_icmp_error_that_quotes_only_eight_bytes_of_tcp_is_enough() -> None:
    assert packets.identify(unreachable(Family.IPV4, tcp(Family.IPV4)[:28])) == (PacketKind.ICMP, NUMBER)


@both_families
def test_other_packets_belong_to_no_probe(family: Family) -> None:
    others = [
        tcp(family, flags=packets.SYN | packets.ACK),
        tcp(family, flags=packets.ACK),
        udp(family, b"{not a request}"),
        sctp(family, 0),
        icmp(family, 8 if family is Family.IPV4 else 128, 0, tcp(family)),
        icmp(family, *((3, 4) if family is Family.IPV4 else (2, 0)), tcp(family)),
        unreachable(family, udp(family, b"someone else's")),
    ]
    assert [packets.identify(other) for other in others] == [None] * len(others)


def test_only_the_first_fragment_is_read() -> None:
    request = udp(Family.IPV6, encode_request(NUMBER))
    assert packets.identify(fragment(request, offset=0)) == (PacketKind.FIRST, NUMBER)
    assert packets.identify(fragment(request, offset=185)) is None
    assert packets.identify(later_fragment(udp(Family.IPV4, encode_request(NUMBER)))) is None


@given(st.binary(max_size=80))
def test_no_bytes_can_upset_the_reader(data: bytes) -> None:
    packets.identify(data)


@both_families
def test_ends_and_icmp_codes_are_read_where_they_are(family: Family) -> None:
    assert packets.packet_sockets(tcp(family)) == ENDS[family]
    source, destination = ENDS[family]
    error = icmp(family, 3, 9, tcp(family))
    assert packets.packet_sockets(error) == (Socket(destination.address, 0), Socket(source.address, 0))
    assert packets.icmp_of(error) == Icmp(family, 3, 9)


def test_the_checksum_is_that_of_rfc_1071() -> None:
    assert packets.checksum(bytes.fromhex("0001f203f4f5f6f7")) == 0xFFFF - 0xDDF2  # its section 3


@both_families
@given(payload=st.binary(max_size=64))
def test_written_packets_sum_to_zero_as_a_receiver_checks(family: Family, payload: bytes) -> None:
    source, destination = ENDS[family]
    segment = Segment(source=source, destination=destination, sequence=NUMBER, payload=payload)
    for protocol, packet in ((packets.TCP, tcp_packet(segment)), (packets.UDP, udp(family, payload))):
        header = 20 if family is Family.IPV4 else 40
        body = packet[header:]
        pseudo = source.address.packed + destination.address.packed + struct.pack("!II", len(body), protocol)
        assert packets.checksum(pseudo + body) == 0
        if family is Family.IPV4:
            assert packets.checksum(packet[:header]) == 0


# --------------------------------------------------------------------------- the filter


def passes(packet: bytes) -> bool:
    """Run the filter as the kernel would: an interpreter of the few instructions it uses."""
    code = list(struct.iter_unpack("=HBBI", bpf.PROBES))
    a = x = at = 0
    while True:
        operation, jump, other, k = code[at]
        at += 1
        try:
            if operation == 0x06:
                return bool(k)
            if operation in _LOADS:
                a = _LOADS[operation](packet, k, x)
            elif operation == 0x01:
                x = k
            elif operation == 0xB1:
                x = (packet[k] & 0xF) * 4
            elif operation == 0x54:
                a &= k
            elif operation == 0x05:
                at += k
            else:
                taken = {0x15: a == k, 0x45: bool(a & k)}[operation]
                at += jump if taken else other
        except IndexError:
            return False


def _word(packet: bytes, at: int, size: int) -> int:
    if at + size > len(packet):
        raise IndexError
    return int.from_bytes(packet[at : at + size])


def _half(packet: bytes, k: int, _: int) -> int:
    if k == 0xFFFFF000:  # the link layer's protocol
        return 0x0800 if packet[0] >> 4 == 4 else 0x86DD
    return _word(packet, k, 2)


_LOADS: dict[int, Callable[[bytes, int, int], int]] = {
    0x20: lambda packet, k, _: _word(packet, k, 4),
    0x28: _half,
    0x30: lambda packet, k, _: _word(packet, k, 1),
    0x40: lambda packet, k, x: _word(packet, k + x, 4),
    0x50: lambda packet, k, x: _word(packet, k + x, 1),
}


@both_families
def test_the_filter_passes_what_the_reader_knows(family: Family) -> None:
    request = udp(family, encode_request(NUMBER))
    reset = tcp(family, sequence=0, acknowledgement=NUMBER + 1, flags=packets.RST | packets.ACK)
    wanted = [tcp(family), request, reset, unreachable(family, request), unreachable(family, tcp(family))]
    wanted += [sctp(family, packets.INIT, tag=NUMBER), sctp(family, packets.ABORT, verification=NUMBER)]
    assert [packet for packet in wanted if not passes(packet)] == []
    assert all(packets.identify(packet[: bpf.SNAP]) for packet in wanted)


@both_families
def test_the_filter_stops_the_rest_of_a_conversation(family: Family) -> None:
    unwanted = [
        tcp(family, flags=packets.SYN | packets.ACK),
        tcp(family, flags=packets.ACK | packets.PSH),
        tcp(family, flags=packets.RST | packets.ACK),  # one end's abort: it has a sequence number
        udp(family, b'{"probe":1}'),
        sctp(family, 0),
        icmp(family, 8 if family is Family.IPV4 else 128, 0, b""),
    ]
    assert [packet for packet in unwanted if passes(packet)] == []


def test_the_filter_passes_first_fragments_only() -> None:
    request = udp(Family.IPV6, encode_request(NUMBER))
    assert passes(fragment(request, offset=0))
    assert not passes(fragment(request, offset=185))
    assert not passes(later_fragment(udp(Family.IPV4, encode_request(NUMBER))))


def test_an_address_of_the_socket_module_becomes_a_socket() -> None:
    assert packets.socket_of(("fe80::1%eth0", 80, 0, 2)) == Socket(ip_address("fe80::1"), 80)
