"""Settings of userspace mode by real packets: whose address endpoints see, and how many workers run."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from kproxy.conformance.binding.bind import bind_cases
from kproxy.conformance.binding.world import World
from kproxy.conformance.case import (
    DEFAULT,
    MASQUERADED,
    PRESERVED,
    Apply,
    Port,
    Probe,
    case,
    delivered_to,
    pod,
    service,
)
from kproxy.conformance.subjects.subject import Subject, load_subject
from kproxy.conformance.testbeds.netns import NetnsTestbed, opener
from kproxy.lab.processes import Xtables
from kproxy.model.network import Protocol
from kproxy.proxy.relay.queries import query_relays
from kproxy.proxy.relay.wire import FindSocket
from kproxy.spec.outcome import SourceIP

WEB = service("web", "a1", "b1")
DNS = service("dns", "a1", "b1", ports=(Port(number=53, protocol=Protocol.UDP),))


def subject_with(setting: str) -> Subject:
    """kproxy, whose configuration has one more line."""
    plain = load_subject("kproxy")
    run = " ".join(plain.command)
    return replace(plain, command=("sh", "-c", f"echo '{setting}' >> {{config}}; exec {run}"))


@pytest.mark.parametrize(
    ("setting", "source", "workers"),
    [
        ("userspace: {workers: 3}", PRESERVED, 3),
        ("userspace: {keepSources: false, workers: 1}", MASQUERADED, 1),
    ],
)
def test_endpoints_see_the_source_of_the_setting_and_as_many_workers_run(
    setting: str, source: SourceIP, workers: int
) -> None:
    probes = [
        Probe(sender=pod("a3"), to=one.cluster_ip, expect=delivered_to("a1", "b1", source=source))
        for one in (WEB, DNS)
    ]
    every = case("userspace.settings", "Settings count.", Apply(WEB, DNS), *probes, clauses=set())

    async def observe() -> None:
        instances = bind_cases([every])
        async with opener(subject_with(setting), "userspace", Xtables.NFT)(DEFAULT, instances) as bed:
            assert isinstance(bed, NetnsTestbed)
            for instance in instances:
                await bed.change(World(instance).apply_step(Apply(WEB, DNS)))
            await bed.settle()
            for instance in instances:
                for probe in probes:
                    for seen in await bed.probe(instance, probe, 6):
                        assert seen.outcomes <= instance.outcomes(probe.expect, probe.to), seen.text
                        assert seen.outcomes
            with bed.lab.network["a"].entered():
                nowhere = FindSocket("192.0.2.1", 1, Protocol.TCP, "192.0.2.2")
                assert len(list(query_relays(nowhere))) == workers

    asyncio.run(observe())
