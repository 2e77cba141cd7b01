"""From ipvs mode to userspace mode and back, under clients at a constant rate.  `tests/uml/test_ipvs.py` runs this in a guest."""

from __future__ import annotations

import asyncio

import pytest

from kproxy.conformance.binding.world import RestartProxy
from kproxy.conformance.case import SAME_ENDPOINT, Open, Send
from kproxy.conformance.subjects import subject
from kproxy.conformance.testbed import Observation
from kproxy.lab.processes import Xtables
from kproxy.linux import host
from tests.support.continuity import busy_lab

OURS = {
    "ipvs": lambda: "TCP" in host.run_tool(("ipvsadm", "-Sn")).upper() or "KUBE-CLUSTER-IP" in saved(),
    "userspace": lambda: "KUBE-PORTALS" in saved() or "lookup 7500" in host.run_tool(("ip", "rule")),
}


def saved() -> str:
    return host.run_tool(("iptables-legacy-save",))


@pytest.mark.parametrize(
    ("first", "then", "kept"),
    [
        ("ipvs", "userspace", {"pod b3"}),
        ("userspace", "ipvs", {"host a", "client via a", "pod b3"}),
    ],
)
def test_new_connections_are_served_and_nothing_is_left_when_the_mode_changes(
    first: str, then: str, kept: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """``kept``: whose held connections go on: IPVS loses its own with its virtual servers, the relay those from clients' addresses.

    Connections at the moment of a change may be lost, later ones are not.
    """
    monkeypatch.setitem(subject.MODE_BEFORE, first, then)

    async def change() -> None:
        async with busy_lab(first, Xtables.LEGACY) as (bed, _, clients):
            node, instance = bed.lab.network["a"], clients.all[0].instance
            held: dict[str, Observation] = {}
            for one in clients.all:
                name = f"{one.probe.sender}"
                opened = Open(flow=name, sender=one.probe.sender, to=one.probe.to, expect=one.probe.expect)
                held[name] = await bed.open_flow(instance, opened)

            async def alive() -> set[str]:
                seen = {
                    name: await bed.send_on_flow(instance, Send(flow=name, expect=SAME_ENDPOINT))
                    for name in held
                }
                return {name for name in held if seen[name].endpoint == held[name].endpoint}

            async def all_answered() -> None:
                """Connections that begin after the change; those that were open during it have ended."""
                await clients.connect(2)
                before = [len(one.lost) for one in clients.all]
                await clients.connect(10)
                assert [len(one.lost) for one in clients.all] == before

            await all_answered()
            with node.entered():
                assert (OURS[first](), OURS[then]()) == (True, False)
            await bed.proxies.restart_in_other_mode("a")
            await bed.settle()
            await all_answered()
            with node.entered():
                assert (OURS[first](), OURS[then]()) == (False, True)
            assert await alive() == kept
            await bed.change([RestartProxy("a", ())])
            await bed.settle()
            await all_answered()
            with node.entered():
                assert (OURS[first](), OURS[then]()) == (True, False)
            assert await alive() == kept
            await clients.finish()

    asyncio.run(change())
