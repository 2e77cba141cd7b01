"""Pings: ICMP echo requests, and the observations of their replies."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kproxy.lab.probes import packets
from kproxy.lab.probes.observation import Garbled, Observation, ProbeRequest, Silent
from kproxy.model.network import Family

if TYPE_CHECKING:
    from kproxy.lab.lab import Lab

_PROTOCOLS = {
    Family.IPV4: (socket.AF_INET, socket.IPPROTO_ICMP),
    Family.IPV6: (socket.AF_INET6, socket.IPPROTO_ICMPV6),
}
_GRACE = 0.05
"""Seconds for an ICMP error to arrive that the sender's own kernel has already sent."""


@dataclass(frozen=True, slots=True)
class EchoReply:
    """Echo reply received."""


Ping = Observation | EchoReply


async def send_ping(lab: Lab, request: ProbeRequest) -> tuple[Ping, int]:
    """Send one ping; returns its observation, and its number for `Lab.evidence`.

    Of the request, sender, destination, source and patience count.
    """
    number = lab.next_number()
    family, protocol = _PROTOCOLS[request.family]
    result: asyncio.Future[Ping] = asyncio.get_running_loop().create_future()

    def end(seen: Ping) -> None:
        if not result.done():
            result.set_result(seen)

    with lab.network[request.sender].socket(family, socket.SOCK_RAW, protocol) as raw:
        if request.source is not None:
            raw.bind((str(request.source), 0))
        loop = asyncio.get_running_loop()
        loop.add_reader(raw, _read, raw, request.family, number, end)
        lab.captures.watch(number, request.sender, end)
        timer = loop.call_later(request.patience, end, Silent())
        try:
            raw.sendto(packets.echo_request(request.family, number), (str(request.destination), 0))
        except PermissionError:  # dropped by the sender's own netfilter; an ICMP error may follow
            loop.call_later(_GRACE, end, Silent(stopped_at_sender=True))
        except OSError as error:
            end(Garbled(f"the sender's kernel reported {error.strerror}"))
        try:
            return await result, number
        finally:
            timer.cancel()
            lab.captures.unwatch(number)
            loop.remove_reader(raw)


def _read(raw: socket.socket, family: Family, number: int, end: Callable[[Ping], None]) -> None:
    """Read and classify messages: a raw socket gets every ICMP message of its namespace."""
    with suppress(BlockingIOError):
        while True:
            data = raw.recv(1 << 12)
            message = data[(data[0] & 0xF) * 4 :] if family is Family.IPV4 else data
            if packets.is_echo_reply(message, number):
                end(EchoReply())
