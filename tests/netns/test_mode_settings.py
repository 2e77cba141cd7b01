"""Settings of a single mode by real packets: clients' addresses and workers in userspace mode, clients under affinity in nftables mode."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from ipaddress import ip_address

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
from kproxy.lab import namespaces
from kproxy.lab.processes import Xtables
from kproxy.linux import host
from kproxy.model.network import Family, Protocol
from kproxy.proxy.backends import AffinityUse, find_backend
from kproxy.proxy.backends.nftables.kernel import NftablesKernel, applier
from kproxy.proxy.backends.nftables.render import Renderer
from kproxy.proxy.backends.nftables.static_rules import Options
from kproxy.proxy.relay.queries import query_relays
from kproxy.proxy.relay.wire import FindSocket
from kproxy.spec.outcome import SourceIP
from tests.support.numbered_plans import numbered, plan

WEB = service("web", "a1", "b1")
DNS = service("dns", "a1", "b1", ports=(Port(number=53, protocol=Protocol.UDP),))
ENDPOINTS = ("b1", "b2")
STICKY = service("sticky", *ENDPOINTS, affinity_seconds=600)
CLIENTS = [pod(name) for name in ("a1", "a3", "a2")]
ATTEMPTS = 30
"""Connections of a client: that all of one that does not stick reach one endpoint of two has a chance of 2 ** -29."""


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


def test_clients_beyond_the_bound_are_served_without_affinity() -> None:
    probes = [
        Probe(sender=sender, to=STICKY.cluster_ip, expect=delivered_to(*ENDPOINTS)) for sender in CLIENTS
    ]
    every = case("affinity.bound", "The bound counts.", Apply(STICKY), *probes, clauses=set())

    async def observe() -> None:
        (instance, *_) = bind_cases([every])
        subject = subject_with("nftables: {affinityClients: 2}")
        async with opener(subject, "nftables", Xtables.NFT)(DEFAULT, [instance]) as bed:
            assert isinstance(bed, NetnsTestbed)
            await bed.change(World(instance).apply_step(Apply(STICKY)))
            await bed.settle()
            reached = []
            for probe in probes:
                seen = await bed.probe(instance, probe, ATTEMPTS)
                assert all(one.outcomes <= instance.outcomes(probe.expect, probe.to) for one in seen)
                reached.append({frozenset(one.outcomes) for one in seen})
            assert [len(endpoints) == 1 for endpoints in reached] == [True, True, False]
            with bed.lab.network["a"].entered():
                used = find_backend("nftables").affinity_use()
            assert used[instance.family] == AffinityUse(clients=2, limit=2)

    asyncio.run(observe())


@pytest.mark.parametrize("family", list(Family))
def test_a_smaller_bound_keeps_the_clients_that_came_last(
    family: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the kernel would refuse the whole table at each start."""
    addresses = ["192.0.2.7", "192.0.2.8"] if family is Family.IPV4 else ["2001:db8::7", "2001:db8::8"]
    namespace = namespaces.create_namespace("bound")
    with namespace.entered():
        assert applier.affinity_use(family) is None, "no table yet"
        NftablesKernel(family, Options(affinity_clients=2)).apply(plan(family))
        for seconds, address in zip((500, 400), addresses, strict=True):
            where = f"{Renderer(family).family_keyword} kube-proxy affinity-clients"
            entry = f"add element {where} {{ {address} . 1 timeout {seconds}s }}"
            host.run_tool(("nft", "-f", "-"), [entry.encode()])
        assert applier.affinity_use(family) == AffinityUse(2, 2)
        smaller = NftablesKernel(family, Options(affinity_clients=1))
        assert smaller.apply(plan(family, numbered(family, 1, 1))).rewritten
        assert [address for address, _ in smaller.affinity_clients()] == [ip_address(addresses[0])]
        monkeypatch.setattr(applier, "_SET_COUNT", 1000)  # an older kernel counts nothing
        assert applier.affinity_use(family) == AffinityUse(1, 1)
    namespace.close()
