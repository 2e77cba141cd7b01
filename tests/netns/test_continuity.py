"""Connections at a constant rate, while the proxy dies, comes back, and follows 200 changes.

Sources: ``life.restart-keeps``, ``life.atomic``, ``cip.per-connection`` in the catalogue of behaviours.
"""

from __future__ import annotations

import asyncio
import itertools
import random

import pytest

from kproxy.conformance.case import (
    Apply,
)
from kproxy.lab.probes.observation import Silent
from kproxy.lab.processes import Xtables
from tests.support.continuity import (
    CHANGES,
    ENDPOINTS,
    ROTATION,
    WEB,
    busy_lab,
    change_endpoints,
    kill_and_restart,
)

PROXIES = [
    pytest.param("iptables", Xtables.NFT, id="iptables-nft"),
    pytest.param("iptables", Xtables.LEGACY, id="iptables-legacy"),
    pytest.param("nftables", Xtables.NFT, id="nftables"),
    pytest.param("userspace", Xtables.NFT, id="userspace-nft"),
    pytest.param("userspace", Xtables.LEGACY, id="userspace-legacy"),
]


@pytest.mark.parametrize(("mode", "variant"), PROXIES)
def test_no_connection_is_lost_when_the_proxy_is_killed_and_started_again(
    mode: str, variant: Xtables
) -> None:
    asyncio.run(kill_and_restart(mode, variant))


@pytest.mark.parametrize(("mode", "variant"), PROXIES)
def test_no_connection_is_lost_over_200_endpoint_changes(mode: str, variant: Xtables) -> None:
    asyncio.run(change_endpoints(mode, variant, itertools.islice(itertools.cycle(ROTATION), 1, CHANGES + 1)))


@pytest.mark.long
def test_no_connection_is_lost_over_1000_random_changes_in_nftables_mode() -> None:
    """Any change may follow any other, so a client may be at an endpoint that has left: all of them go on serving."""
    chance = random.Random(1)  # noqa: S311 - the same changes every time
    sets = (tuple(chance.sample(sorted(ENDPOINTS), chance.randint(1, len(ENDPOINTS)))) for _ in range(1000))
    asyncio.run(change_endpoints("nftables", Xtables.NFT, sets))


def test_the_clients_would_notice_a_service_without_endpoints() -> None:
    async def empty_and_fill() -> None:
        async with busy_lab("iptables", Xtables.NFT) as (bed, world, clients):
            await bed.change(world.apply_step(Apply(WEB.replace(endpoints=()))))
            await bed.settle()
            await clients.connect(3)
            assert all(one.lost for one in clients.all)
            assert not any(isinstance(seen, Silent) for one in clients.all for seen in one.lost)

    asyncio.run(empty_and_fill())
