"""Packets that no socket would send: martians, spoofed sources, segments far outside of a connection's window."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from kproxy.lab.namespaces import LabError, Namespace
from kproxy.lab.probes import message, packets
from kproxy.lab.probes.channel import sequence_numbers
from kproxy.lab.probes.observation import Answered, Direction, Sighting, Silent, Socket
from kproxy.lab.topology import LAB, UPLINK
from kproxy.model.network import Address, Protocol

if TYPE_CHECKING:
    from kproxy.lab.lab import Lab, LabFlow

T = TypeVar("T")

_POLL = 0.02
_FIRST_PORT, _PORTS = 20000, 10007
"""Range of source ports of crafted packets."""

_SYN_RECEIVED = "03"
"""Value of the state column of ``/proc/net/tcp`` for SYN_RECV."""

_BEYOND_WINDOW = 0x40000000
"""Offset beyond any window, and less than half of the sequence space, where it would count as behind."""


@dataclass(frozen=True, slots=True)
class Martian:
    """Result: True if a packet from the wire to a loopback address reached the daemon that listens there."""

    delivered: bool


async def send_martian(
    lab: Lab, node: str, source: Address, daemon: Socket, protocol: Protocol, patience: float
) -> Martian:
    """From the on-link client, send a packet to a loopback address at the node's link address.

    ``source``: the packet's source address. ``daemon``: where a server of the lab (`Servers.serve`) listens,
    127.0.0.1 or ::1. UDP: a request, delivered when the server has recorded it. TCP: a SYN, delivered when the
    listener holds a half-open connection for it.
    """
    number = lab.next_number()
    sender = Socket(source, _FIRST_PORT + number % _PORTS)
    _send_to_neighbour(lab, node, _martian_packet(sender, daemon, protocol, number))
    delivered = await _looked_for(partial(_delivered, lab, node, number, sender, daemon, protocol), patience)
    lab.forget(number)
    return Martian(delivered)


async def send_spoofed(
    lab: Lab, node: str, source: Address, to: Socket, patience: float
) -> Answered | Silent:
    """From the on-link client, send a node a UDP request whose source is not the client's.

    The server replies to the owner of that address, so the record of the servers is the result: `Answered` is the
    server that received it, and the source it saw.
    """
    number = lab.next_number()
    sender = Socket(source, _FIRST_PORT + number % _PORTS)
    _send_to_neighbour(lab, node, packets.udp_packet(sender, to, message.encode_request(number)))
    await _looked_for(partial(lab.servers.receptions, number), patience)
    evidence = lab.evidence(number)
    lab.forget(number)
    if not evidence.receptions:
        return Silent(evidence=evidence)
    received = evidence.receptions[0]
    return Answered(who=received.who, at=received.at, peer=received.peer, own=sender)


async def send_sctp_init(
    lab: Lab, who: str, source: Address, to: Socket, patience: float
) -> Answered | Silent:
    """Send an INIT, which begins an SCTP association, from a namespace of the lab that needs no SCTP for it.

    `Answered` is the namespace it entered, and its source there: the endpoint need not support SCTP either.
    """
    number = lab.next_number()
    sender = Socket(source, _FIRST_PORT + number % _PORTS)
    _send_as(lab.network[who], packets.sctp_packet(sender, to, number), sender, to)
    arrived = await _looked_for(lambda: list(filter(_at_home, lab.evidence(number).sightings)), patience)
    evidence = lab.evidence(number)
    lab.forget(number)
    if not arrived:
        return Silent(evidence=evidence)
    seen = arrived[0]
    return Answered(who=seen.namespace, at=seen.destination, peer=seen.source, own=sender)


async def _looked_for(look: Callable[[], T], patience: float) -> T:
    """Result of ``look``, polled until it is true or ``patience`` seconds have passed."""
    for _ in range(max(1, round(patience / _POLL))):
        await asyncio.sleep(_POLL)
        if seen := look():
            break
    return seen


def _at_home(sighting: Sighting) -> bool:
    """True if a packet entered the pod that has its destination address."""
    own = LAB.pod_address.get(sighting.namespace, {}).values()
    return sighting.direction is Direction.IN and sighting.destination.address in own


def _send_as(namespace: Namespace, packet: bytes, sender: Socket, to: Socket) -> None:
    """Send a packet, routed as from the sender's address."""
    family = socket.AF_INET if packet[0] >> 4 == 4 else socket.AF_INET6
    with namespace.socket(family, socket.SOCK_RAW, socket.IPPROTO_RAW) as raw:
        raw.bind((str(sender.address), 0))
        raw.sendto(packet, (str(to.address), 0))


def _martian_packet(source: Socket, daemon: Socket, protocol: Protocol, number: int) -> bytes:
    match protocol:
        case Protocol.UDP:
            return packets.udp_packet(source, daemon, message.encode_request(number))
        case Protocol.TCP:
            return packets.tcp_packet(packets.Segment(source=source, destination=daemon, sequence=number))
        case Protocol.SCTP:
            raise LabError("martians are UDP or TCP")


async def send_out_of_window(lab: Lab, flow: LabFlow) -> None:
    """From the endpoint of a held TCP flow, send a segment far ahead of the window.

    Connection tracking classifies it as INVALID and does not translate it. A node that forwards it all the same
    delivers to the client a segment of no connection of its own; its RST kills the endpoint's connection, and the
    next exchange on the flow is reset.

    LabError when no server holds the flow's connection.
    """
    connection = lab.servers.connection(flow.last)
    if connection is None:
        raise LabError("the flow has no TCP connection to a server of the lab")
    following, expected = sequence_numbers(connection.end)
    segment = packets.Segment(
        source=connection.reception.at,
        destination=connection.reception.peer,
        sequence=following + _BEYOND_WINDOW,
        acknowledgement=expected,
        flags=packets.ACK | packets.PSH,
        payload=b"out of window",
    )
    _send_raw(lab.network[connection.namespace], segment)
    await asyncio.sleep(_POLL)


def _send_raw(namespace: Namespace, segment: packets.Segment) -> None:
    address = segment.destination.address
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with namespace.socket(family, socket.SOCK_RAW, socket.IPPROTO_RAW) as raw:
        raw.sendto(packets.tcp_packet(segment), (str(address), 0))


def _send_to_neighbour(lab: Lab, node: str, packet: bytes) -> None:
    ethertype = 0x0800 if packet[0] >> 4 == 4 else 0x86DD
    link_address = lab.network[node].link_address(UPLINK)
    lab.wire.sendto(packet, (UPLINK, ethertype, 0, 0, link_address))


def _delivered(lab: Lab, node: str, number: int, source: Socket, daemon: Socket, protocol: Protocol) -> bool:
    if protocol is Protocol.UDP:
        return bool(lab.servers.receptions(number))
    table = "tcp" if daemon.address.version == 4 else "tcp6"
    half_open = [_proc_form(daemon), _proc_form(source), _SYN_RECEIVED]
    lines = lab.network[node].read(f"/proc/thread-self/net/{table}").splitlines()[1:]
    return any(line.split()[1:4] == half_open for line in lines)


def _proc_form(end: Socket) -> str:
    """Address and port in the notation of ``/proc/net/tcp``: 32-bit integers in the machine's byte order, in hexadecimal."""
    return f"{_native_integers(end.address)}:{end.port:04X}"


def _native_integers(address: Address) -> str:
    integers = memoryview(address.packed).cast("I")
    return "".join(f"{word:08X}" for word in integers)
