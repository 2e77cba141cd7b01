"""The daemon in nftables mode: ServiceCIDRs are followed at once; two daemons do not undo each other's rules for ever."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from kproxy.conformance.binding.bind import bind_cases
from kproxy.conformance.binding.lab_objects import service_cidr_document
from kproxy.conformance.binding.world import World
from kproxy.conformance.case import DEFAULT, Apply, Probe, case, delivered_to, pod, service
from kproxy.conformance.subjects.subject import SubjectProcess, load_subject
from kproxy.conformance.testbeds.netns import NetnsTestbed, opener
from kproxy.lab.apiserver import ResourceKind
from kproxy.lab.namespaces import LabError
from kproxy.lab.processes import Xtables, run_in
from kproxy.linux.nft_monitor import nft_generation

SOON = 5.0
"""Seconds, beside other tests; the next sync without a change would be after syncPeriod, 30 s."""

WATCHED, MOST_TRANSACTIONS = 8.0, 2 * 2 * 4 + 8
"""Seconds, and as many transactions as two families of two daemons can need: repairs are at 0, 1, 3 and 7 s, and a few of
the start may still be due.  Without a pause it were more than 60."""

WEB = service("web", "a1")


@asynccontextmanager
async def lab() -> AsyncIterator[NetnsTestbed]:
    """A settled lab with a Service."""
    probe = Probe(sender=pod("a3"), to=WEB.cluster_ip, expect=delivered_to("a1"))
    (instance, *_) = bind_cases([case("nftables.daemon", "It answers.", Apply(WEB), probe, clauses=set())])
    async with opener(load_subject("kproxy"), "nftables", Xtables.NFT)(DEFAULT, [instance]) as bed:
        assert isinstance(bed, NetnsTestbed)
        await bed.change(World(instance).apply_step(Apply(WEB)))
        await bed.settle()
        yield bed


async def node_a(bed: NetnsTestbed, *command: str) -> str:
    return await run_in(bed.lab.network["a"], ("nft", *command))


async def table(bed: NetnsTestbed, word: str) -> str:
    try:
        return await node_a(bed, "list", "table", word, "kube-proxy")
    except LabError:
        return ""


async def seconds_until(bed: NetnsTestbed, word: str, reached: Callable[[str], bool]) -> float:
    started = time.monotonic()
    while not reached(await table(bed, word)):
        assert time.monotonic() - started < 2 * SOON, "it never comes"
        await asyncio.sleep(0.02)
    return time.monotonic() - started


def transactions(bed: NetnsTestbed) -> int:
    """How many node a's nf_tables has had."""
    with bed.lab.network["a"].entered():
        return int.from_bytes(nft_generation())


def test_a_service_cidr_that_comes_or_goes_is_followed_at_once() -> None:
    async def change() -> None:
        async with lab() as bed:
            document: dict[str, Any] = service_cidr_document()
            document["metadata"]["name"] = "more"
            document["spec"]["cidrs"] = ["192.168.77.0/24"]
            assert "192.168.77.0/24" not in await table(bed, "ip")
            bed.server.store.put(ResourceKind.SERVICE_CIDR, document)
            assert await seconds_until(bed, "ip", lambda now: "192.168.77.0/24" in now) < SOON
            bed.server.store.delete(ResourceKind.SERVICE_CIDR, "", "more")
            assert await seconds_until(bed, "ip", lambda now: "192.168.77.0/24" not in now) < SOON
            assert "10.96.0.0/16" in await table(bed, "ip")

    asyncio.run(change())


def test_two_daemons_on_a_node_do_not_rewrite_each_others_rules_for_ever() -> None:
    """One is left running when another is installed, or is surged by a DaemonSet."""

    async def count() -> tuple[int, str]:
        kproxy = load_subject("kproxy")
        names = ("first", "second")
        both = tuple(SubjectProcess(name=name, command=kproxy.command) for name in names)
        (instance, *_) = bind_cases([case("nftables.daemon", "It answers.", Apply(WEB), clauses=set())])
        twice = replace(kproxy, command=(), processes=both)
        async with opener(twice, "nftables", Xtables.NFT)(DEFAULT, [instance]) as bed:
            assert isinstance(bed, NetnsTestbed)
            await bed.change(World(instance).apply_step(Apply(WEB)))
            await bed.settle()
            before = transactions(bed)
            await asyncio.sleep(WATCHED)
            return transactions(bed) - before, bed.proxies.log("a").read_text()

    done, log = asyncio.run(count())
    assert 0 < done <= MOST_TRANSACTIONS
    assert "another program changed our rules, writing all again in" in log
    assert "(PID " in log
