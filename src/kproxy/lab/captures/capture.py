"""Captures: one ring of packets per namespace, sorted by the probe each packet belongs to.

Captures only read; nothing is sent here. Theory of operation:

A probe's outcome cannot be had from the sender's socket alone. A TCP RST and an ICMP port unreachable are both
ECONNREFUSED there; an ICMP error that quotes another destination is not delivered to it at all; and silence does not
show where the packet was lost. So each namespace has one packet socket with the filter of `bpf`, which passes the
first packets of probes, resets that reply to them, and ICMP errors, and nothing else.

A packet belongs to a probe by the probe's number, which address translation leaves alone
(`kproxy.lab.probes.packets.identify`): the initial sequence number of a TCP probe, the payload of a UDP probe, the
same quoted in an ICMP error or acknowledged by a RST. An SCTP kernel draws its own initiate tag, so the tag is
learned: the sender announces its source port (`expect_sctp`), and the INIT that leaves from there carries the tag.

Two consumers: `watch` calls a channel as soon as a refusal of its probe enters the sender's namespace; `sightings`
returns, for a probe that stayed silent, every interface that its packet (or a copy) crossed, with the addresses it
had there.  A TCP socket that is busy as its ICMP error arrives reports the error, and yet sends its SYN again after a
second (the kernel counts ``LockDroppedIcmps``); on a busy machine that second is over before the channel is closed.
So what a sender sends after its refusal is ignored.

As buffers are finite, `lost` counts what they dropped: absence proves something only when it is 0. What is known of a
probe is kept until it is judged (`forget`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from kproxy.lab.captures import bpf
from kproxy.lab.captures.ring import FRAMES, PacketRing
from kproxy.lab.namespaces import Namespace
from kproxy.lab.probes import packets
from kproxy.lab.probes.observation import Direction, Refused, Reset, Sighting, Socket


@dataclass(frozen=True, slots=True)
class _Captured:
    namespace: str
    interface: str
    outgoing: bool
    kind: packets.PacketKind
    data: bytes


class Captures:
    """Running captures in some namespaces; create it inside a running event loop."""

    def __init__(self, namespaces: Iterable[Namespace], frames: int = FRAMES) -> None:
        """``frames``: packets that each has room for until they are read. Raises OSError."""
        self._loop = asyncio.get_running_loop()
        self._seen: dict[int, list[_Captured]] = {}
        self._watchers: dict[int, tuple[str, Socket | None, Callable[[Refused | Reset], None]]] = {}
        self._ports: dict[tuple[str, int], int] = {}
        self._tags: dict[int, int] = {}
        self._refused: dict[int, str] = {}
        self._rings = [
            (namespace.name, PacketRing(namespace, bpf.PROBES, frames)) for namespace in namespaces
        ]
        for name, ring in self._rings:
            self._loop.add_reader(ring.fileno(), self._read, name, ring)

    def close(self) -> None:
        """Close all captures."""
        rings = [ring for _, ring in self._rings]
        self._rings = []
        for ring in rings:
            self._loop.remove_reader(ring.fileno())
        with ThreadPoolExecutor(len(rings) or 1) as pool:  # each close waits for an RCU grace period
            list(pool.map(PacketRing.close, rings))

    def watch(
        self,
        number: int,
        namespace: str,
        refused: Callable[[Refused | Reset], None],
        about: Socket | None = None,
    ) -> None:
        """Call ``refused`` when a refusal of this probe enters its sender's namespace.

        ``about``: the destination that an ICMP error must quote; in a namespace that translates addresses itself,
        errors about others are on the wire before they are translated.
        """
        self._watchers[number] = (namespace, about, refused)

    def unwatch(self, number: int) -> None:
        """End a `watch`."""
        self._watchers.pop(number, None)

    def drain(self) -> None:
        """Read all that has been captured so far."""
        for name, ring in self._rings:
            self._read(name, ring)

    def sightings(self, number: int) -> tuple[Sighting, ...]:
        """First packets of this probe seen so far; `drain` first."""
        return tuple(_sighting(c) for c in self._seen.get(number, ()) if c.kind is packets.PacketKind.FIRST)

    def expect_sctp(self, namespace: str, port: int, number: int) -> None:
        """Associate the SCTP association begun here from this port with this number; its INIT carries the tag it drew."""
        self._ports[namespace, port] = number

    def forget(self, number: int) -> None:
        """Drop all records of a probe that has been judged."""
        self._seen.pop(number, None)
        self._refused.pop(number, None)
        self._tags = {tag: other for tag, other in self._tags.items() if other != number}

    def forget_all(self) -> None:
        """Drop all records of all probes."""
        self._seen.clear()
        self._refused.clear()
        self._tags.clear()

    def lost(self) -> int:
        """Number of packets dropped for want of buffer space, since the start; `drain` first."""
        return sum(ring.lost for _, ring in self._rings)

    def _read(self, name: str, ring: PacketRing) -> None:
        """Read all packets that wait."""
        for packet in ring.read():
            if known := packets.identify(packet.data):
                captured = _Captured(name, packet.interface, packet.outgoing, known[0], packet.data)
                self._take(self._number(known[1], captured), captured)

    def _number(self, mark: int, captured: _Captured) -> int:
        """Number of the probe that a packet's identifier stands for: the same, except for SCTP tags."""
        sender = _association(captured) if self._ports else None
        number = self._ports.pop(sender, None) if sender else None
        if number is not None:
            self._tags[mark] = number
            self._seen.setdefault(number, []).extend(self._seen.pop(mark, ()))
        return self._tags.get(mark, mark)

    def _take(self, number: int, captured: _Captured) -> None:
        if captured.kind is packets.PacketKind.FIRST and self._refused.get(number) == captured.namespace:
            return
        self._seen.setdefault(number, []).append(captured)
        if captured.kind is packets.PacketKind.FIRST or captured.outgoing:
            return
        namespace, about, refused = self._watchers.get(number, ("", None, None))
        if refused is None or namespace != captured.namespace:
            return
        refusal = _refusal(captured)
        if about is None or isinstance(refusal, Reset) or refusal.about == about:
            self._refused[number] = namespace
            refused(refusal)


def _sighting(captured: _Captured) -> Sighting:
    direction = Direction.OUT if captured.outgoing else Direction.IN
    return Sighting(captured.namespace, captured.interface, direction, *packets.packet_sockets(captured.data))


def _association(captured: _Captured) -> tuple[str, int] | None:
    """Namespace and source port of an SCTP association, if this packet is its INIT leaving; else None."""
    if captured.kind is not packets.PacketKind.FIRST or not captured.outgoing:
        return None
    found = packets.transport(captured.data)
    if found is None or found[0] != packets.SCTP:
        return None
    return captured.namespace, packets.packet_sockets(captured.data)[0].port


def _refusal(captured: _Captured) -> Refused | Reset:
    if captured.kind is packets.PacketKind.RESET:
        return Reset()
    by, about = packets.packet_addresses(captured.data)[0], packets.quoted_destination(captured.data)
    return Refused(packets.icmp_of(captured.data), by, about)
