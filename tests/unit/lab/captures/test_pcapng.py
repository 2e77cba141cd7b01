"""Captures that others' programs can read."""

import io

import dpkt  # type: ignore[import-untyped]

from kproxy.lab.captures.pcapng import PacketBlock, encode_pcapng

FIRST = PacketBlock("eth0", outgoing=False, at=1_700_000_000_123_456_789, data=b"\x01" * 61)
SECOND = PacketBlock("veth-a1", outgoing=True, at=1_700_000_001_000_000_000, data=b"\x02" * 64)


def test_a_standard_reader_finds_every_packet_with_its_time() -> None:
    reader = dpkt.pcapng.Reader(io.BytesIO(encode_pcapng([FIRST, SECOND], "namespace a")))
    assert reader.datalink() == dpkt.pcap.DLT_EN10MB
    found = [(round(at, 5), data) for at, data in reader]
    assert found == [(1_700_000_000.12346, FIRST.data), (1_700_000_001.0, SECOND.data)]


def test_interfaces_have_their_names_and_packets_their_direction() -> None:
    data = encode_pcapng([FIRST, SECOND, FIRST])
    assert data.count(b"eth0") == 1
    assert data.count(b"veth-a1\x00") == 1
    inbound, outbound = (b"\x02\x00\x04\x00" + bytes([way, 0, 0, 0]) for way in (1, 2))
    assert (data.count(inbound), data.count(outbound)) == (2, 1)
