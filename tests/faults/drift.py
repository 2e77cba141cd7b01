"""Faults by other programs that remove or change rules: repaired at once where the kernel notifies, else within syncPeriod.

``life.canary-blindspot``, ``life.nft-no-monitor``, ``life.max-sync``.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Sequence

from kproxy.lab.processes import run_in
from kproxy.lab.topology import NODES
from tests.faults.fault import Fault
from tests.faults.stage import IPTABLES_LEGACY, IPTABLES_NFT, IPVS, NFTABLES, Proxy, Stage

BUSY = 4.0
"""Further seconds that a repair may take in a guest, or beside other tests."""
REPORTED_SECONDS = 1.0
"""Seconds within which notified drift is repaired, where nothing else runs (`tests/netns/test_budgets.py`)."""
SYNC_PERIOD = 2.0
NOTICED = "another program changed our rules"


def damage(*commands: str) -> Callable[[Stage], Awaitable[None]]:
    """Fault that runs these commands on each node of a settled lab."""

    async def happen(stage: Stage) -> None:
        await stage.change()
        await stage.applied()
        tools = {"iptables": f"iptables-{stage.proxy.variant.name.lower()}"}
        for node in NODES:
            lock = {"XTABLES_LOCKFILE": str(stage.lock(node))}
            for command in commands:
                tokens = [tools.get(word, word) for word in command.split()]
                await run_in(stage.lab.network[node], tokens, env=os.environ | lock)

    return happen


async def repaired(stage: Stage, within: float) -> float:
    """Wait until both nodes have repaired the drift and serve again."""
    started = time.monotonic()
    while not all(NOTICED in stage.log(node) for node in NODES):
        assert time.monotonic() - started < within, "nobody noticed"
        await asyncio.sleep(0.01)
    await stage.applied()
    took = time.monotonic() - started
    assert took < within, f"{took:.2f} s"
    return took


def drift(
    name: str, about: str, commands: Sequence[str], proxies: Sequence[Proxy], *, reported: bool
) -> Fault:
    return Fault(
        name=name,
        about=about,
        happen=damage(*commands),
        within=BUSY + (REPORTED_SECONDS if reported else SYNC_PERIOD),
        proxies=tuple(proxies),
        sync_period=30.0 if reported else SYNC_PERIOD,
        losses=True,
        recovered=repaired,
        long=not reported,
    )


ALTERED = ("iptables -t nat -I KUBE-SERVICES -j RETURN",)
FLUSHED = ("iptables -t nat -F",)
DELETED = tuple(f"iptables -t {table} -{what}" for table in ("nat", "filter", "mangle") for what in "FX")
LOOK = "; looked for every syncPeriod, here 2 s"

DRIFT = (
    drift(
        "table-deleted",
        "Our table is deleted.",
        ["nft delete table ip kube-proxy"],
        [NFTABLES],
        reported=True,
    ),
    drift(
        "element-deleted",
        "All elements of one of our maps are deleted.",
        ["nft flush map ip kube-proxy service-ips"],
        [NFTABLES],
        reported=True,
    ),
    drift(
        "ruleset-flushed",
        "`nft flush ruleset`.",
        ["nft flush ruleset"],
        [NFTABLES, IPTABLES_NFT],
        reported=True,
    ),
    drift("nat-flushed", "`iptables -t nat -F`: the canaries live.", FLUSHED, [IPTABLES_NFT], reported=True),
    drift(
        "chain-altered",
        "A rule is put before those of KUBE-SERVICES.",
        ALTERED,
        [IPTABLES_NFT],
        reported=True,
    ),
    drift(
        "nat-flushed-legacy",
        f"`iptables -t nat -F`: the canaries live{LOOK}.",
        FLUSHED,
        [IPTABLES_LEGACY],
        reported=False,
    ),
    drift(
        "chain-altered-legacy",
        f"A rule is put before those of KUBE-SERVICES{LOOK}.",
        ALTERED,
        [IPTABLES_LEGACY],
        reported=False,
    ),
    drift(
        "tables-deleted-legacy",
        f"All chains of all tables are flushed and deleted{LOOK}.",
        DELETED,
        [IPTABLES_LEGACY],
        reported=False,
    ),
    drift(
        "device-deleted",
        f"The device with all cluster IPs is deleted{LOOK}.",
        ["ip link delete kube-ipvs0"],
        [IPVS],
        reported=False,
    ),
)
