"""Testbed that predicts each probe's outcome by `kproxy trace`, from the rules of the node that judges it.

The rules are read inside the node's namespace as on a live node; then the packet is sent, and differences are recorded.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, cast

from kproxy.conformance.binding.bind import Instance, bind_cases
from kproxy.conformance.binding.world import World
from kproxy.conformance.case import (
    DEFAULT,
    Apply,
    Case,
    Port,
    Probe,
    Profile,
    Type,
    VantageKind,
    case,
    service,
)
from kproxy.conformance.cases import CATALOGUE
from kproxy.conformance.engine.runner import run_instances
from kproxy.conformance.subjects.subject import Subject, load_subject
from kproxy.conformance.testbed import Observation
from kproxy.conformance.testbeds.netns import NetnsTestbed, opener
from kproxy.lab.processes import Xtables
from kproxy.lab.topology import NODES
from kproxy.linux.netfilter.packet_state import TracedPacket
from kproxy.linux.netfilter.sources import TraceInputs
from kproxy.model.network import Family, Packet, Protocol
from kproxy.spec.outcome import Outcome
from kproxy.tools.trace import live
from kproxy.tools.trace.answer import RelaySocket, TraceResult, trace_packet
from kproxy.tools.trace.relay import find_relay_sockets
from tests.support.traced import outcome

if TYPE_CHECKING:  # pytest would take it for a class of tests
    from kproxy.conformance.testbed import Testbed

GROUPS = (
    "cluster-ip.",
    "no-endpoints.",
    "source-ranges.",
    "external-policy.local",
    "internal-policy.",
    "node-port.",
)
MOST = 8


def chosen() -> list[Case]:
    """Cases of first packets, of one profile, some of each group."""
    plain = [case for case in CATALOGUE if case.id.startswith(GROUPS) and case.profile == DEFAULT]
    able = [case for case in plain if not any(feature.value == "sctp" for feature in case.features)]
    return able[:: max(1, len(able) // MOST)]


class Foretelling:
    """The lab's testbed, with a prediction by `trace` for each probe, from rules read before."""

    def __init__(self, testbed: NetnsTestbed, read: Callable[[NetnsTestbed, str], TraceInputs]) -> None:
        self._testbed, self._read = testbed, read
        self._known: dict[str, TraceInputs] = {}
        self.requested = 0
        self.otherwise: list[str] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._testbed, name)

    async def settle(self) -> None:
        await self._testbed.settle()
        self._known = {node: self._read(self._testbed, node) for node in NODES}

    async def probe(self, instance: Instance, probe: Probe, count: int) -> Sequence[Observation]:
        seen = await self._testbed.probe(instance, probe, count)
        if probe.sender.kind is VantageKind.SPOOFED or probe.sticky_group or probe.mark:
            return seen
        question = instance.bound_packet(probe.sender, probe.to)
        found = trace_packet(self._known[question.node].node, packet_of(question.packet))
        self.requested += 1
        for one in seen:
            if not one.outcomes & outcomes(found):
                reported = (
                    f"{instance.case.id}: {probe.sender} -> {probe.to}: trace reports {outcomes(found)}"
                )
                self.otherwise.append(f"{reported}, seen {one.text}")
        return seen


def packet_of(requested: Packet) -> TracedPacket:
    return TracedPacket(
        requested.source,
        requested.destination,
        requested.protocol.value.lower(),
        requested.port,
        requested.entry.interface or "",
    )


def outcomes(found: TraceResult) -> frozenset[Outcome]:
    """All possible outcomes, as values of the specification."""
    return frozenset(outcome(one) for one in found.decisions)


def read_inside(testbed: NetnsTestbed, node: str) -> TraceInputs:
    with testbed.lab.network[node].entered():
        return live.read_live_node((), ())


def foretold(
    subject: Subject, mode: str, variant: Xtables, read: Callable[[NetnsTestbed, str], TraceInputs]
) -> Foretelling:
    cases = [case for case in chosen() if not subject.missing_features(case, mode)]
    kept: list[Foretelling] = []

    @asynccontextmanager
    async def opened(profile: Profile, requested: Sequence[Instance]) -> AsyncIterator[Foretelling]:
        async with opener(subject, mode, variant)(profile, requested) as testbed:
            assert isinstance(testbed, NetnsTestbed)
            kept.append(Foretelling(testbed, read))
            yield kept[0]

    async def compare() -> None:
        requested = bind_cases(cases)
        async with opened(cases[0].profile, requested) as testbed:
            await run_instances(cast("Testbed", testbed), requested)

    asyncio.run(compare())
    return kept[0]


RELAYED = service("web", "a1", "b1", type=Type.NODE_PORT)
STICKY = service("sticky", "a1", "b1", affinity_seconds=10_800)
NAMES = service("dns", "a1", "b1", ports=(Port(number=53, protocol=Protocol.UDP),))


async def relay_foretold(
    mode: str, variant: Xtables, *probes: Probe
) -> dict[Probe, list[tuple[str, RelaySocket]]]:
    """For each of six connections of each probe: the endpoint that answered, and what the relay's sockets were to do, read before."""
    every = case(
        "trace.relay",
        "The relay chooses.",
        Apply(RELAYED, STICKY, NAMES),
        *probes,
        clauses=set(),
        families=frozenset({Family.IPV4}),
    )
    (instance,) = bind_cases([every])
    seen: dict[Probe, list[tuple[str, RelaySocket]]] = {}
    async with opener(load_subject("kproxy"), mode, variant)(DEFAULT, [instance]) as bed:
        assert isinstance(bed, NetnsTestbed)
        await bed.change(World(instance).apply_step(Apply(RELAYED, STICKY, NAMES)))
        await bed.settle()
        for probe in probes * 6:
            requested = instance.bound_packet(probe.sender, probe.to)
            with bed.lab.network[requested.node].entered():
                traced = trace_packet(live.read_live_node((), ()).node, packet_of(requested.packet))
                found, silent = find_relay_sockets(traced)
            assert not silent
            assert len({(one.destination, one.port) for one in found.relays}) == 1
            (answer,) = await bed.probe(instance, probe, 1)
            assert answer.endpoint is not None, answer.text
            address, port = answer.endpoint
            seen.setdefault(probe, []).extend((f"{address}:{port}", one) for one in found.relays)
    return seen
