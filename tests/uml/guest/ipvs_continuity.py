"""ipvs mode under clients at a constant rate.  `tests/uml/test_ipvs.py` runs this in a guest."""

from __future__ import annotations

import asyncio
import itertools

from kproxy.conformance.case import Apply, Type
from kproxy.lab.processes import Xtables
from tests.support import continuity
from tests.support.constant_rate import nothing_was_lost


def test_no_connection_is_lost_when_the_proxy_is_killed_and_started_again() -> None:
    asyncio.run(continuity.kill_and_restart("ipvs", Xtables.LEGACY))


def test_no_connection_is_lost_over_endpoint_changes() -> None:
    changes = itertools.islice(itertools.cycle(continuity.ROTATION), 1, continuity.CHANGES + 1)
    asyncio.run(continuity.change_endpoints("ipvs", Xtables.LEGACY, changes))


def test_a_node_port_that_comes_and_goes_costs_the_cluster_ips_clients_nothing() -> None:
    """Its own client notices, which shows that the others would."""

    async def come_and_go() -> None:
        async with continuity.busy_lab("ipvs", Xtables.LEGACY) as (bed, world, clients):
            for _ in range(10):
                await bed.change(world.apply_step(Apply(continuity.WEB.replace(type=Type.CLUSTER_IP))))
                await bed.settle()
                await bed.change(world.apply_step(Apply(continuity.WEB)))
                await bed.settle()
            pod_here, host_here, outside, pod_there = await clients.finish()
        nothing_was_lost([pod_here, host_here, pod_there], at_least=50)
        assert outside.answered
        assert outside.lost

    asyncio.run(come_and_go())
