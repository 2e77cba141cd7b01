"""The API server away for hours, in virtual time.  `tests/uml/test_virtual_outage.py` runs this in a guest.

``life.apiserver-down``: nothing in the data plane changes, neither under a daemon that knew the cluster nor under one that starts
meanwhile; what was changed at the API server is followed when it is back.  In ipvs mode, whose looks at the kernel are
30 s apart: in virtual time every look of hours costs.
"""

from __future__ import annotations

import asyncio
import time

from kproxy.conformance.binding.world import RestartProxy
from kproxy.lab.kernels.current import time_here
from kproxy.lab.kernels.uml import Time
from tests.faults.happen import BACK
from tests.faults.stage import IPVS, Stage, open_stage

HOURS = 2
SYNC_PERIOD = 600.0
TICK = 60.0
"""Seconds between two connections of each client."""


async def hours(stage: Stage) -> None:
    """Rules stay as they are, and every client is served, all the time."""
    before, started = await stage.rules(), time.monotonic()
    while time.monotonic() - started < 3600 * HOURS:
        await asyncio.sleep(TICK)
        assert await stage.serves_old()
    assert await stage.rules() == before


def test_hours_without_an_api_server_change_nothing() -> None:
    async def outage() -> None:
        assert time_here() is Time.VIRTUAL
        async with open_stage(IPVS, SYNC_PERIOD, pause=TICK) as stage:
            for one in stage.wires.values():
                await one.disconnect()
            await stage.change()
            await hours(stage)
            await stage.bed.change([RestartProxy("a", ())])
            await hours(stage)
            for one in stage.wires.values():
                await one.connect()
            assert await stage.applied(BACK) < BACK
            for client in await stage.clients.finish():
                assert not client.lost
                assert len(client.answered) >= 2 * 3600 * HOURS / (2 * TICK)

    asyncio.run(outage())
