"""Socket filter of the captures: probes' first packets, resets that reply to them, ICMP errors.

Pure: classic BPF assembled from mnemonics with labels. It keeps the captures cheap: of a probe's ten packets only the
first passes. Packets begin at the network layer (AF_PACKET, SOCK_DGRAM).
"""

from __future__ import annotations

import struct

from kproxy.lab.probes import packets
from kproxy.lab.probes.message import MAGIC

SNAP = 192
"""Bytes kept of each packet: enough for an ICMPv6 error with the quoted headers and the number."""

_PROTOCOL = 0xFFFFF000
"""SKF_AD_OFF + SKF_AD_PROTOCOL (linux/filter.h)."""
_MARK = 0xFFFFF014
"""SKF_AD_OFF + SKF_AD_MARK (linux/filter.h)."""

_CODES = {
    "ld": 0x20,  # A = 4 bytes at k
    "ldh": 0x28,
    "ldb": 0x30,
    "ld x+": 0x40,  # A = 4 bytes at X + k
    "ldb x+": 0x50,
    "ldx": 0x01,  # X = k
    "ldx ihl": 0xB1,  # X = length of the IPv4 header at k
    "and": 0x54,
    "jeq": 0x15,
    "jset": 0x45,
    "ja": 0x05,
    "ret": 0x06,
}

Instruction = tuple[str, int] | tuple[str, int, str] | str
"""Mnemonic and operand; a jump also names its label, and falls through otherwise.  A string is a label."""


def assemble(program: tuple[Instruction, ...]) -> bytes:
    """Program as an array of ``struct sock_filter``."""
    labels: dict[str, int] = {}
    code: list[tuple[str, int] | tuple[str, int, str]] = []
    for line in program:
        if isinstance(line, str):
            labels[line] = len(code)
        else:
            code.append(line)
    return b"".join(_encode(at, line, labels) for at, line in enumerate(code))


def _encode(at: int, line: tuple[str, int] | tuple[str, int, str], labels: dict[str, int]) -> bytes:
    mnemonic, operand, *target = line
    distance = labels[str(target[0])] - at - 1 if target else 0
    if mnemonic == "ja":
        return struct.pack("=HBBI", _CODES[mnemonic], 0, 0, distance)
    return struct.pack("=HBBI", _CODES[mnemonic], distance, 0, int(operand))


PROBES = assemble(
    (
        ("ldh", _PROTOCOL),
        ("jeq", 0x0800, "ipv4"),
        ("jeq", 0x86DD, "ipv6"),
        ("ret", 0),
        "ipv4",
        ("ldh", 6),
        ("jset", 0x1FFF, "drop"),
        ("ldx ihl", 0),
        ("ldb", 9),
        ("ja", 0, "transport"),
        "ipv6",
        ("ldx", 40),
        ("ldb", 6),
        ("jeq", 44, "fragment"),
        ("ja", 0, "transport"),
        "fragment",
        ("ldh", 42),
        ("jset", 0xFFF8, "drop"),
        ("ldx", 48),
        ("ldb", 40),
        "transport",
        ("jeq", packets.TCP, "tcp"),
        ("jeq", packets.UDP, "udp"),
        ("jeq", packets.ICMP, "icmp"),
        ("jeq", packets.ICMPV6, "icmpv6"),
        ("jeq", packets.SCTP, "sctp"),
        "drop",
        ("ret", 0),
        "tcp",
        ("ldb x+", 13),
        ("and", packets.SYN | packets.RST | packets.ACK),
        ("jeq", packets.SYN, "keep"),
        ("jset", packets.RST, "rst"),
        ("ret", 0),
        "rst",  # sequence number 0: the reply to a SYN (RFC 9293, 3.10.7.1), not the abort of a connection
        ("ld x+", 4),
        ("jeq", 0, "keep"),
        ("ret", 0),
        "udp",
        ("ld x+", 8),
        ("jeq", int.from_bytes(MAGIC), "keep"),
        ("ret", 0),
        "icmp",
        ("ldb x+", 0),
        *(("jeq", number, "keep") for number in packets.ICMP_ERRORS),
        ("jeq", packets.ECHO_REQUEST[0], "echo"),
        ("ret", 0),
        "icmpv6",
        ("ldb x+", 0),
        *(("jeq", number, "keep") for number in packets.ICMPV6_ERRORS),
        ("jeq", packets.ECHO_REQUEST[1], "echo"),
        ("ret", 0),
        "echo",
        ("ld x+", 8),
        ("jeq", int.from_bytes(MAGIC), "keep"),
        ("ret", 0),
        "sctp",
        ("ldb x+", 12),
        ("jeq", packets.INIT, "keep"),
        ("jeq", packets.ABORT, "keep"),
        ("ret", 0),
        "keep",
        ("ret", SNAP),
    )
)
"""Filter of the captures; `kproxy.lab.probes.packets.identify` parses the packets that it passes."""


def marked(mark: int) -> bytes:
    """Filter that passes packets with exactly this mark."""
    return assemble((("ld", _MARK), ("jeq", mark, "keep"), ("ret", 0), "keep", ("ret", SNAP)))
