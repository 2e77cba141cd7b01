"""Clients that connect without pause, on a lab's testbed: each connection is judged when it ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from kproxy.conformance.binding.bind import Instance
from kproxy.conformance.case import Probe
from kproxy.conformance.testbeds.interpret import interpret_step
from kproxy.conformance.testbeds.netns import NetnsTestbed
from kproxy.lab.lab import Traced
from kproxy.lab.probes.observation import Answered, Direction, Observation, ProbeRequest

RATE = 0.02
"""Seconds between two connections of one client."""


@dataclass
class Client:
    """Opens one connection after the other; records those whose outcome, source included, the probe does not expect."""

    bed: NetnsTestbed
    instance: Instance
    probe: Probe
    pause: float = RATE
    lost: list[Observation] = field(default_factory=list)
    repeated: list[Observation] = field(default_factory=list)
    """Connections whose first packet TCP retransmitted, as seen in the capture; elapsed time is not used."""
    answered: list[str] = field(default_factory=list)
    enough: bool = False

    async def run(self) -> None:
        request = _request(self.instance, self.probe)
        lawful = self.instance.outcomes(self.probe.expect, self.probe.to)
        while not self.enough:
            traced = await self.bed.lab.trace(request)
            seen = traced.observation
            if (
                isinstance(seen, Answered)
                and interpret_step(seen, self.instance, self.probe).outcomes & lawful
            ):
                self.answered.append(seen.who)
            else:
                self.lost.append(seen)
            if self._times_sent(traced) > 1:
                self.repeated.append(seen)
            await asyncio.sleep(self.pause)

    def _times_sent(self, traced: Traced) -> int:
        here = (s for s in traced.evidence.sightings if s.namespace == self.probe.sender.name)
        return sum(sighting.direction is Direction.OUT for sighting in here)


@dataclass
class Clients:
    """Clients that connect concurrently."""

    all: list[Client]
    running: list[asyncio.Task[None]]

    async def connect(self, times: int, seconds: float = 30) -> None:
        """Wait until each client has ended ``times`` more connections, on a machine of any speed."""
        goals = [(one, len(one.answered) + len(one.lost) + times) for one in self.all]
        deadline = time.monotonic() + seconds
        while any(len(one.answered) + len(one.lost) < goal for one, goal in goals):
            assert time.monotonic() < deadline, [len(one.answered) for one in self.all]
            await asyncio.sleep(self.all[0].pause)

    async def finish(self) -> list[Client]:
        """Stop after the connections in progress; one that hangs counts as lost."""
        for one in self.all:
            one.enough = True
        await asyncio.gather(*self.running)
        return self.all


@asynccontextmanager
async def sending(
    bed: NetnsTestbed, instance: Instance, probes: Sequence[Probe], pause: float = RATE
) -> AsyncIterator[Clients]:
    """Context in which clients connect all the time, ``pause`` seconds after each reply."""
    clients = [Client(bed, instance, probe, pause) for probe in probes]
    running = [asyncio.create_task(one.run()) for one in clients]
    try:
        yield Clients(clients, running)
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def _request(instance: Instance, probe: Probe) -> ProbeRequest:
    packet = instance.bound_packet(probe.sender, probe.to).packet
    outside = probe.sender.name == "client"
    return ProbeRequest(
        sender=probe.sender.name,
        destination=packet.destination,
        port=packet.port,
        source=packet.source if outside else None,
        patience=3.0,
    )


def nothing_was_lost(clients: Sequence[Client], at_least: int) -> None:
    """Assert that every connection had an expected outcome, and that none lost a packet."""
    for one in clients:
        assert one.lost == []
        assert one.repeated == []
        assert len(one.answered) >= at_least
