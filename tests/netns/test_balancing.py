"""New connections are spread evenly over a Service's endpoints, also after some have left.

Source: ``cip.lb.uniform``.  A fair proxy fails each test once in a million runs.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

import pytest

from kproxy.conformance.bind import instances
from kproxy.conformance.case import DEFAULT, Apply, Probe, Service, case, delivered_to, pod, pods, service
from kproxy.conformance.subject import load
from kproxy.conformance.testbeds.netns import opener
from kproxy.conformance.world import World
from kproxy.lab.processes import Xtables

CONNECTIONS = 1500
SIX = ("a1", "a2", "a3", "b1", "b2", "b3")
CHI_SQUARE = {2: 23.93, 5: 35.89}
"""Upper quantiles of the chi-square distribution at 1e-6, by degrees of freedom (any table of it)."""


@pytest.mark.parametrize("mode", ["iptables", "nftables"])
def test_every_endpoint_gets_its_share_also_after_removals(mode: str) -> None:
    web = service("web", *SIX)
    forms = (web, web.but(backends=pods("a2", "b1", "b3")), web.but(backends=pods("b3", "a1", "a2")))
    probe = Probe(sender=pod("a3"), to=web.cluster_ip, expect=delivered_to(*SIX))
    shares = asyncio.run(spread(mode, forms, probe))
    for form, share in zip(forms, shares, strict=True):
        assert len(share) == len(form.backends)
        assert chi_square(share) < CHI_SQUARE[len(form.backends) - 1], share


async def spread(mode: str, forms: Sequence[Service], probe: Probe) -> list[Counter[object]]:
    """How many connections each endpoint got, for each form of the Service in turn."""
    steps = case("balancing.even", "Endpoints share alike.", Apply(*forms), probe, clauses=set())
    (instance, *_) = instances([steps])
    async with opener(load("kproxy"), mode, Xtables.NFT)(DEFAULT, [instance]) as bed:
        world = World(instance)
        found = []
        for form in forms:
            await bed.change(world.change(Apply(form)))
            await bed.settle()
            seen = await bed.probe(instance, probe, CONNECTIONS)
            found.append(Counter[object](one.endpoint for one in seen))
        return found


def chi_square(share: Counter[object]) -> float:
    expected = share.total() / len(share)
    return sum((count - expected) ** 2 / expected for count in share.values())


def test_an_uneven_share_would_be_noticed() -> None:
    assert chi_square(Counter({"a": 600, "b": 450, "c": 450})) > CHI_SQUARE[2]
