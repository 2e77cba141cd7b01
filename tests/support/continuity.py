"""Clients at a constant rate of a Service that changes, while its proxy dies and comes back."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from kproxy.conformance.binding.bind import Instance, bind_cases
from kproxy.conformance.binding.world import RestartProxy, World
from kproxy.conformance.case import (
    DEFAULT,
    MASQUERADED,
    PRESERVED,
    Apply,
    Probe,
    Profile,
    Type,
    case,
    client,
    delivered_to,
    host,
    pod,
    pods,
    service,
)
from kproxy.conformance.subjects.subject import load_subject
from kproxy.conformance.testbeds.netns import NetnsTestbed, opener
from kproxy.lab.processes import Xtables
from kproxy.model.network import Family
from tests.support.constant_rate import Clients, nothing_was_lost, sending

CHANGES = 200


WEB = service("web", "a1", "b1", type=Type.NODE_PORT)


ROTATION = (("a1", "b1"), ("b1", "b2"), ("b2", "a2"), ("a2",), ("a2", "a1"))
"""Each set of endpoints shares one with the set before it."""


ENDPOINTS = frozenset(itertools.chain.from_iterable(ROTATION))
"""Who may answer: what finds no rules is answered too, by somebody else."""


def steady_case(family: Family = Family.IPV4) -> tuple[Instance, list[Probe]]:
    """A Service in all forms it will have, and its clients."""
    forms = [WEB.replace(endpoints=pods(*names)) for names in ROTATION]
    probes = [
        Probe(sender=sender, to=to, expect=delivered_to(*ENDPOINTS, source=source))
        for sender, to, source in (
            (pod("a3"), WEB.cluster_ip, PRESERVED),
            (host("a"), WEB.cluster_ip, MASQUERADED),
            (client("a"), WEB.node_port("a"), MASQUERADED),
            (pod("b3"), WEB.cluster_ip, PRESERVED),
        )
    ]
    steady = case("continuity.steady", "Nothing is lost.", Apply(*forms), *probes, clauses=set())
    (instance,) = (one for one in bind_cases([steady]) if one.family is family)
    return instance, probes


@asynccontextmanager
async def busy_lab(
    mode: str, variant: Xtables, family: Family = Family.IPV4, profile: Profile = DEFAULT
) -> AsyncIterator[tuple[NetnsTestbed, World, Clients]]:
    """A settled lab with a Service and four clients that connect to it without pause."""
    instance, probes = steady_case(family)
    async with opener(load_subject("kproxy"), mode, variant)(profile, [instance]) as bed:
        assert isinstance(bed, NetnsTestbed)
        world = World(instance)
        await bed.change(world.apply_step(Apply(WEB)))
        await bed.settle()
        async with sending(bed, instance, probes) as clients:
            yield bed, world, clients


async def kill_and_restart(mode: str, variant: Xtables) -> None:
    """Clients lose nothing while both nodes' proxies are killed and started again."""
    async with busy_lab(mode, variant) as (bed, world, clients):
        for node in ("a", "b", "a"):
            await clients.connect(10)
            await bed.change([RestartProxy(node, ())])
            await bed.settle()
        await bed.change(world.apply_step(Apply(WEB.replace(endpoints=pods("b1", "b2")))))
        await bed.settle()
        await clients.connect(10)
        nothing_was_lost(await clients.finish(), at_least=40)
        for one in clients.all:
            assert set(one.answered[-5:]) <= {"b1", "b2"}


async def change_endpoints(mode: str, variant: Xtables, sets: Iterable[tuple[str, ...]]) -> None:
    async with busy_lab(mode, variant) as (bed, world, clients):
        for names in sets:
            await bed.change(world.apply_step(Apply(WEB.replace(endpoints=pods(*names)))))
            await asyncio.sleep(0.025)
        await bed.settle()
        nothing_was_lost(await clients.finish(), at_least=50)
        for one in clients.all:
            assert set(one.answered) == ENDPOINTS
