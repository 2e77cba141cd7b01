"""Connections at a constant rate, while the proxy dies, comes back, and follows 200 changes.

Sources: ``life.restart-keeps``, ``life.atomic``, ``cip.per-connection`` in the catalogue of behaviours.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from kproxy.conformance.bind import Instance, instances
from kproxy.conformance.case import (
    DEFAULT,
    Apply,
    Probe,
    Type,
    case,
    client,
    delivered_to,
    host,
    pod,
    pods,
    service,
)
from kproxy.conformance.subject import load
from kproxy.conformance.testbeds.netns import NetnsTestbed, opener
from kproxy.conformance.world import RestartProxy, World
from kproxy.lab.lab import Traced
from kproxy.lab.observation import Answered, Direction, Observation, ProbeRequest, Silent
from kproxy.lab.processes import Xtables

RATE = 0.02
"""Seconds between two connections of one client."""
CHANGES = 200

WEB = service("web", "a1", "b1", type=Type.NODE_PORT)
ROTATION = (("a1", "b1"), ("b1", "b2"), ("b2", "a2"), ("a2",), ("a2", "a1"))
"""Each set of endpoints shares one with the set before it."""
ENDPOINTS = frozenset(itertools.chain.from_iterable(ROTATION))
"""Who may answer: what finds no rules is answered too, by somebody else."""


PROXIES = [
    pytest.param("iptables", Xtables.NFT, id="iptables-nft"),
    pytest.param("iptables", Xtables.LEGACY, id="iptables-legacy"),
    pytest.param("nftables", Xtables.NFT, id="nftables"),
]


@dataclass
class Client:
    """Opens one connection after the other; remembers what went wrong."""

    bed: NetnsTestbed
    request: ProbeRequest
    pause: float = RATE
    lost: list[Observation] = field(default_factory=list)
    repeated: list[Observation] = field(default_factory=list)
    """Connections that lost their first packet: TCP sent it again.  No clock says so, it is seen."""
    answered: list[str] = field(default_factory=list)
    enough: bool = False

    async def run(self) -> None:
        while not self.enough:
            traced = await self.bed.lab.trace(self.request)
            seen = traced.observation
            if isinstance(seen, Answered) and seen.who in ENDPOINTS:
                self.answered.append(seen.who)
            else:
                self.lost.append(seen)
            if self._times_sent(traced) > 1:
                self.repeated.append(seen)
            await asyncio.sleep(self.pause)

    def _times_sent(self, traced: Traced) -> int:
        here = (s for s in traced.evidence.sightings if s.namespace == self.request.sender)
        return sum(sighting.direction is Direction.OUT for sighting in here)


@dataclass
class Clients:
    """Clients that ask side by side."""

    all: list[Client]
    running: list[asyncio.Task[None]]

    async def finish(self) -> list[Client]:
        """Let each end what it has begun: a connection that hangs is one that is lost."""
        for one in self.all:
            one.enough = True
        await asyncio.gather(*self.running)
        return self.all


def steady_case() -> tuple[Instance, list[Probe]]:
    """A Service in all forms it will have, and who asks for it."""
    forms = [WEB.but(backends=pods(*names)) for names in ROTATION]
    probes = [
        Probe(sender=sender, to=to, expect=delivered_to("a1"))
        for sender, to in (
            (pod("a3"), WEB.cluster_ip),
            (host("a"), WEB.cluster_ip),
            (client("a"), WEB.node_port("a")),
            (pod("b3"), WEB.cluster_ip),
        )
    ]
    steady = case("continuity.steady", "Nothing is lost.", Apply(*forms), *probes, clauses=set())
    (instance, *_) = instances([steady])
    return instance, probes


@asynccontextmanager
async def asking(
    bed: NetnsTestbed, instance: Instance, probes: Sequence[Probe], pause: float = RATE
) -> AsyncIterator[Clients]:
    """Clients that ask all the time meanwhile, ``pause`` seconds after each answer."""
    clients = [Client(bed, _request(instance, probe), pause) for probe in probes]
    running = [asyncio.create_task(one.run()) for one in clients]
    try:
        yield Clients(clients, running)
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


@asynccontextmanager
async def busy_lab(mode: str, variant: Xtables) -> AsyncIterator[tuple[NetnsTestbed, World, Clients]]:
    """A settled lab with a Service and four clients that ask for it without pause."""
    instance, probes = steady_case()
    async with opener(load("kproxy"), mode, variant)(DEFAULT, [instance]) as bed:
        assert isinstance(bed, NetnsTestbed)
        world = World(instance)
        await bed.change(world.change(Apply(WEB)))
        await bed.settle()
        async with asking(bed, instance, probes) as clients:
            yield bed, world, clients


def _request(instance: Instance, probe: Probe) -> ProbeRequest:
    packet = instance.question(probe.sender, probe.to).packet
    outside = probe.sender.name == "client"
    return ProbeRequest(
        sender=probe.sender.name,
        destination=packet.destination,
        port=packet.port,
        source=packet.source if outside else None,
        patience=3.0,
    )


def nothing_was_lost(clients: Sequence[Client], at_least: int) -> None:
    for one in clients:
        assert one.lost == []
        assert one.repeated == []
        assert len(one.answered) >= at_least


@pytest.mark.parametrize(("mode", "variant"), PROXIES)
def test_no_connection_is_lost_when_the_proxy_is_killed_and_started_again(
    mode: str, variant: Xtables
) -> None:
    async def kill_and_restart() -> None:
        async with busy_lab(mode, variant) as (bed, world, clients):
            for node in ("a", "b", "a"):
                await asyncio.sleep(0.3)
                await bed.change([RestartProxy(node, ())])
                await bed.settle()
            await bed.change(world.change(Apply(WEB.but(backends=pods("b1", "b2")))))
            await bed.settle()
            await asyncio.sleep(0.3)
            nothing_was_lost(await clients.finish(), at_least=30)
            for one in clients.all:
                assert set(one.answered[-5:]) <= {"b1", "b2"}

    asyncio.run(kill_and_restart())


@pytest.mark.parametrize(("mode", "variant"), PROXIES)
def test_no_connection_is_lost_over_200_endpoint_changes(mode: str, variant: Xtables) -> None:
    asyncio.run(change_endpoints(mode, variant, itertools.islice(itertools.cycle(ROTATION), 1, CHANGES + 1)))


def test_no_connection_is_lost_over_1000_random_changes_in_nftables_mode() -> None:
    """Any change may follow any other, so a client may be at an endpoint that has left: all of them go on serving."""
    chance = random.Random(1)  # noqa: S311 - the same changes every time
    sets = (tuple(chance.sample(sorted(ENDPOINTS), chance.randint(1, len(ENDPOINTS)))) for _ in range(1000))
    asyncio.run(change_endpoints("nftables", Xtables.NFT, sets))


async def change_endpoints(mode: str, variant: Xtables, sets: Iterable[tuple[str, ...]]) -> None:
    async with busy_lab(mode, variant) as (bed, world, clients):
        for names in sets:
            await bed.change(world.change(Apply(WEB.but(backends=pods(*names)))))
            await asyncio.sleep(0.025)
        await bed.settle()
        nothing_was_lost(await clients.finish(), at_least=50)
        for one in clients.all:
            assert set(one.answered) == ENDPOINTS


def test_the_clients_would_notice_a_service_without_endpoints() -> None:
    async def empty_and_fill() -> None:
        async with busy_lab("iptables", Xtables.NFT) as (bed, world, clients):
            await bed.change(world.change(Apply(WEB.but(backends=()))))
            await bed.settle()
            await asyncio.sleep(0.3)
            assert all(one.lost for one in clients.all)
            assert not any(isinstance(seen, Silent) for one in clients.all for seen in one.lost)

    asyncio.run(empty_and_fill())
