"""Changes of the cluster amid which the bench of the data path measures connections; each goes on until it is cancelled."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Mapping

from kproxy.lab.apiserver import ObjectStore
from tests.bench import world
from tests.bench.datapath_results import CHURN
from tests.bench.parameters import Parameters
from tests.bench.stage import put, take_away
from tests.bench.world import LIVE_ENDPOINTS

_ADDED = 50
"""Names of Services that come and go, before they begin anew."""


async def change_endpoints(store: ObjectStore, parameters: Parameters) -> None:
    """The one endpoint of some Services changes, 50 times a second."""
    lives = world.standing(parameters.size)
    for number in itertools.count():
        turn, chosen = divmod(number, len(lives))
        put(store, lives[chosen].slice(LIVE_ENDPOINTS[turn % len(LIVE_ENDPOINTS)]))
        await asyncio.sleep(1 / 50)


async def change_services(store: ObjectStore, parameters: Parameters) -> None:  # noqa: ARG001 - as `change_endpoints`
    """A Service a second comes, and goes half a second later."""
    for number in itertools.count():
        live = world.added(number % _ADDED)
        put(store, live.service())
        put(store, live.slice(LIVE_ENDPOINTS[0]))
        try:
            await asyncio.sleep(0.5)
        finally:
            take_away(store, live.service(), live.slice(LIVE_ENDPOINTS[0]))
        await asyncio.sleep(0.5)


CHANGES: Mapping[str, Callable[[ObjectStore, Parameters], Coroutine[None, None, None]]] = dict(
    zip(CHURN, (change_endpoints, change_services), strict=True)
)
"""By the name that results have."""
