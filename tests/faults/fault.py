"""Values of a fault and of its outcome, and the judging of it.

Properties that must hold: no connection is lost and no first packet of one; ``/healthz`` replies 503 when, and only when, a change that the daemon
has received has waited for twice the syncPeriod (``hz.stale``); changes made during the fault are in the kernel soon after.
"""

from __future__ import annotations

import asyncio
import enum
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from kproxy.lab.kernels.abilities import KernelName
from kproxy.lab.kernels.current import kernel_here
from tests.faults.stage import IPVS, NFTABLES, OVERDUE, Proxy, Stage, Watchman, open_stage
from tests.support.constant_rate import Client

AFTER = 0.7
"""Seconds for which clients continue after the fault."""
SLACK = 3.0
"""Largest delay of health in seconds: it is polled ten times a second, on a busy machine."""
FEWEST = 10
"""Least number of connections of each client, and of replies of ``/healthz``, for a valid observation."""
AGAIN = 5
"""Number of times that rules are removed again if no client was affected."""


class Health(enum.Enum):
    """Status that ``/healthz`` must have; the value is its text on the page."""

    WELL = "200 throughout: no change it knew of was late"
    LATE = "503 from twice the syncPeriod after the change until it was written, 200 before and after"
    GONE = "no answer while it was down, else 200"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault; ``happen`` injects it, changes the cluster meanwhile, and returns when it is over.

    ``within``: largest number of seconds until changes made meanwhile are in the kernel, by design and not as measured.
    ``proxies``: those it is injected for in every run of the tests; ``also``: further ones; ``long``: not in runs of the
    tests at all.  ``own_clock``: only in a guest, whose clock it sets.  ``losses``: it removes rules, so connections are
    lost until the repair; they are counted.  ``recovered`` waits for recovery, at most the given seconds, and returns how
    many it took.
    """

    name: str
    about: str
    happen: Callable[[Stage], Awaitable[None]]
    within: float
    health: Health = Health.WELL
    proxies: tuple[Proxy, ...] = (NFTABLES,)
    also: tuple[Proxy, ...] = ()
    sync_period: float = 30.0
    long: bool = False
    disk: bool = False
    own_clock: bool = False
    losses: bool = False
    recovered: Callable[[Stage, float], Awaitable[float]] = Stage.applied


@dataclass(frozen=True, slots=True)
class Row:
    """A fault, and the proxy under test."""

    fault: Fault
    proxy: Proxy

    def __str__(self) -> str:
        return f"{self.fault.name}-{self.proxy}"

    @property
    def in_guest(self) -> bool:
        """True if it needs a guest kernel: for its clock, or for IPVS."""
        return self.fault.own_clock or self.proxy == IPVS

    @property
    def short(self) -> bool:
        """True if it is part of every run of the tests."""
        return not self.fault.long and self.proxy in self.fault.proxies

    @property
    def at_home(self) -> bool:
        """True if it can run on the present kernel."""
        return self.in_guest == (kernel_here() is KernelName.UML)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Outcome of a fault; times in seconds."""

    fault: str
    proxy: str
    lasted: float
    connections: int
    lost: int
    health: str
    recovery: float


async def judge(row: Row) -> Outcome:
    """Run a fault; raises AssertionError if a connection was lost, health was wrong, or recovery took too long."""
    fault, proxy = row.fault, row.proxy
    async with open_stage(proxy, fault.sync_period, disk=fault.disk) as stage:
        started = time.monotonic()
        await fault.happen(stage)
        lasted = time.monotonic() - started
        recovery = await fault.recovered(stage, fault.within)
        for _ in range(
            AGAIN if fault.losses else 0
        ):  # a repair may be quicker than a client that had to wait
            if any(one.lost for one in stage.clients.all):
                break
            await fault.happen(stage)
            recovery = await fault.recovered(stage, fault.within)
        recovered = time.monotonic()
        await asyncio.sleep(AFTER)
        await observed_enough(stage)
        clients = await stage.clients.finish()
        for one in clients:
            if not fault.losses:
                check_losses(one)
        assert any(one.lost for one in clients) or not fault.losses, "nothing was taken away"
        health = check_health(stage.watchman, fault, stage.changed, recovered)
        return Outcome(
            fault=fault.name,
            proxy=str(proxy),
            lasted=lasted,
            connections=sum(len(one.answered) + len(one.lost) for one in clients),
            lost=sum(len(one.lost) for one in clients),
            health=health,
            recovery=recovery,
        )


async def observed_enough(stage: Stage) -> None:
    """Wait until each client and the `Watchman` have `FEWEST` observations, on a machine of any speed."""
    began = time.monotonic()
    while len(stage.watchman.observed) < FEWEST or any(
        len(one.answered) + len(one.lost) < FEWEST for one in stage.clients.all
    ):
        assert time.monotonic() - began < OVERDUE
        await asyncio.sleep(0.1)


def check_losses(client: Client) -> None:
    """Raise AssertionError if a connection or its first packet was lost."""
    assert not client.lost, client.lost
    assert not client.repeated, client.repeated


def check_health(watchman: Watchman, fault: Fault, changed: float, recovered: float) -> str:
    """Text of the statuses of ``/healthz``; raises AssertionError if one was wrong."""
    statuses = watchman.between(0)
    assert len(watchman.observed) >= FEWEST
    match fault.health:
        case Health.WELL:
            assert statuses == {200}, watchman.observed
        case Health.GONE:
            assert statuses == {200, None}, statuses
        case Health.LATE:
            patience = 2 * fault.sync_period
            assert watchman.between(0, changed + patience) == {200}
            assert watchman.between(recovered + 1) <= {200}
            ill = [at for at, answer in watchman.observed if answer == 503]
            assert ill, "it never replied that a change waits"
            assert ill[0] < changed + patience + SLACK
            assert statuses == {200, 503}
            return f"503 from {ill[0] - changed:.1f} s after the change on, 200 before and after"
    return str(fault.health.value)
