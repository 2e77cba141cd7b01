"""From ipvs mode to another and back, or the other way round, under clients at a constant rate.  `tests/uml/test_ipvs.py` runs this in a guest."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

import pytest

from kproxy.conformance.binding.bind import Instance
from kproxy.conformance.binding.world import RestartProxy
from kproxy.conformance.case import SAME_ENDPOINT, Open, Profile, Send
from kproxy.conformance.subjects import subject
from kproxy.conformance.testbed import Observation
from kproxy.conformance.testbeds.netns import NetnsTestbed
from kproxy.conformance.testbeds.probe_transport import lab_flow
from kproxy.lab.processes import Xtables
from kproxy.linux import host
from kproxy.model.network import Family
from tests.support.constant_rate import Clients
from tests.support.continuity import busy_lab
from tests.support.waiting import eventually

QUICK_LOOKS = Profile(name="quick-looks", sync_period="1s")
"""What is drained is looked at every five seconds, not every thirty."""

TIME_WAIT = 120
"""Seconds that IPVS keeps a connection after its end (ip_vs_proto_tcp.c: tcp_timeouts)."""

COMMANDS = {Family.IPV4: ("iptables-legacy-save", "-4"), Family.IPV6: ("ip6tables-legacy-save", "-6")}


def left_of_ipvs(family: Family) -> list[str]:
    """What is there of virtual servers, chains, sets and routes of ipvs mode."""
    save, ip = COMMANDS[family]
    shown = (
        ("virtual server", "-A", ("ipvsadm", "-Sn")),
        ("chain", "KUBE-IPVS-FILTER", (save,)),
        ("set", "KUBE-", ("ipset", "list", "-name")),
        ("route", "local", ("ip", ip, "route", "show", "table", "local", "proto", "75")),
        ("device", "kube-ipvs0", ("ip", "-o", "link", "show")),
    )
    return [what for what, text, command in shown if text in host.run_tool(command)]


def left_of_userspace(family: Family) -> list[str]:
    """What is there of chains, and of the route for answers, of userspace mode."""
    save, ip = COMMANDS[family]
    shown = (("chain", "KUBE-PORTALS", (save,)), ("rule", "lookup 7500", ("ip", ip, "rule")))
    return [what for what, text, command in shown if text in host.run_tool(command)]


def left_of_iptables(family: Family) -> list[str]:
    """What is there of Services' chains of iptables mode."""
    return [name for name in ("KUBE-SEP-", "KUBE-NODEPORTS") if name in host.run_tool((COMMANDS[family][0],))]


def left_of_nftables(family: Family) -> list[str]:
    """Table of nftables mode."""
    table = {Family.IPV4: "ip kube-proxy", Family.IPV6: "ip6 kube-proxy"}[family]
    return [table] if f"table {table}\n" in host.run_tool(("nft", "list", "tables")) else []


LEFT: dict[str, Callable[[Family], list[str]]] = {
    "ipvs": left_of_ipvs,
    "userspace": left_of_userspace,
    "iptables": left_of_iptables,
    "nftables": left_of_nftables,
}


class Held:
    """Connections that are kept open, two of each client: to an endpoint on the node and one elsewhere, in turn."""

    def __init__(self, bed: NetnsTestbed, instance: Instance) -> None:
        self._bed, self._instance = bed, instance
        self._seen: dict[str, Observation] = {}

    async def open(self, clients: Clients, when: str) -> None:
        for one, number in itertools.product(clients.all, (1, 2)):
            name = f"{one.probe.sender} {when} {number}"
            opened = Open(flow=name, sender=one.probe.sender, to=one.probe.to, expect=one.probe.expect)
            self._seen[name] = await self._bed.open_flow(self._instance, opened)
            assert self._seen[name].endpoint, name

    async def lost(self) -> dict[str, str]:
        """Those that their endpoint answers no more, with what was seen."""
        found = {
            name: await self._bed.send_on_flow(self._instance, Send(flow=name, expect=SAME_ENDPOINT))
            for name in self._seen
        }
        return {name: one.text for name, one in found.items() if one.endpoint != self._seen[name].endpoint}

    def close(self) -> None:
        for name in self._seen:
            lab_flow(self._bed._flow(self._instance, name)[0]).close()
        self._seen.clear()


@pytest.mark.parametrize("family", list(Family), ids=lambda family: family.value)
@pytest.mark.parametrize(
    ("first", "then"),
    [("ipvs", "userspace"), ("userspace", "ipvs"), ("ipvs", "iptables"), ("ipvs", "nftables")],
)
def test_no_connection_is_lost_when_the_mode_changes_and_nothing_is_left_when_they_have_ended(
    first: str, then: str, family: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(subject.MODE_BEFORE, first, then)

    async def change() -> None:
        async with busy_lab(first, Xtables.LEGACY, family, QUICK_LOOKS) as (bed, _, clients):
            node = bed.lab.network["a"]
            held = Held(bed, clients.all[0].instance)

            def left(mode: str) -> list[str]:  # also called in a thread
                with node.entered():
                    return LEFT[mode](family)

            await clients.connect(5)
            assert (bool(left(first)), left(then)) == (True, [])
            await held.open(clients, first)
            await bed.proxies.restart_in_other_mode("a")
            await bed.settle()
            await clients.connect(10)
            assert await held.lost() == {}
            await held.open(clients, then)
            await bed.change([RestartProxy("a", ())])
            await bed.settle()
            await clients.connect(10)
            assert await held.lost() == {}
            assert {f"{one.probe.sender}": one.lost for one in clients.all if one.lost} == {}
            held.close()
            await asyncio.to_thread(eventually, lambda: not left(then), TIME_WAIT + 60, 2)
            assert (bool(left(first)), left(then)) == (True, [])
            await clients.connect(5)
            assert {f"{one.probe.sender}": one.lost for one in clients.all if one.lost} == {}
            await clients.finish()

    asyncio.run(change())
