"""Services that come, change and go in ipvs mode, one step of the proxy at a time: a packet between two steps is treated
as before or as after, and in no third way.

`tests/uml/test_ipvs.py` runs this in a guest.  The proxy waits before each step (`tests.uml.stepwise`), so no
result depends on how busy the machine is.
The controls are kube-proxy's order of steps, in which a Service is reached before all that belongs to it stands, and the order
in which another mode's rules end with the first chains.
Sources: ``life.atomic``, ``cip.up-down``, ``masq.*``, ``itp.local.none``, ``etp.local.none`` in the catalogue of behaviours.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from itertools import filterfalse
from pathlib import Path
from unittest import mock

import pytest

from kproxy.conformance.binding.bind import Instance, bind_cases
from kproxy.conformance.binding.world import Change, Put, Remove, RestartProxy, World
from kproxy.conformance.case import (
    DEFAULT,
    DROPPED,
    MASQUERADED,
    REJECTED,
    UNTOUCHED,
    Apply,
    CaseService,
    Delete,
    Lawful,
    Policy,
    Probe,
    Profile,
    SourceRange,
    Target,
    Type,
    Vantage,
    Vip,
    case,
    client,
    delivered_to,
    host,
    pod,
    pods,
    service,
)
from kproxy.conformance.cases.profiles import MODE_CHANGE
from kproxy.conformance.subjects import subject
from kproxy.conformance.subjects.subject import Subject, load_subject
from kproxy.conformance.testbed import Observation
from kproxy.conformance.testbeds import netns
from kproxy.conformance.testbeds.netns import NetnsTestbed, opener
from kproxy.lab.processes import Xtables
from kproxy.lab.topology import LAB
from kproxy.model.network import Family
from kproxy.spec.outcome import Delivered, SourceIP

ROOT = Path(__file__).parents[3]
PATIENCE = 600.0
"""Seconds that a proxy may take for its steps: at each of them all clients send."""
SILENCE = 0.3
"""Seconds without an answer that count as silence: between two steps nothing else goes on."""
FEWEST_STEPS = 20


@dataclass(frozen=True)
class Turn:
    """Two states of a Service (None: there is none), and what a sender may see in each."""

    sender: Vantage
    to: Target
    first: CaseService | None
    then: CaseService
    before: Lawful
    after: Lawful

    @property
    def refused_somehow(self) -> Lawful:
        """``after``, in whatever mode: userspace mode notifies the node's own senders whom it refuses."""
        return self.after | REJECTED if self.after == DROPPED else self.after


BALANCED = service("", "a1", "b1", type=Type.LOAD_BALANCER, vips=(Vip(),), external_ips=1)
FROM_BOTH = delivered_to("a1", "b1")
FROM_BOTH_HIDDEN = delivered_to("a1", "b1", source=MASQUERADED)
FROM_A1_HIDDEN = delivered_to("a1", source=MASQUERADED)


def named(name: str, **fields: object) -> CaseService:
    return BALANCED.replace(name=name, **fields)


WEB = named("web")
LOCAL = named("local", external_policy=Policy.LOCAL)
AWAY = named("away", external_policy=Policy.LOCAL, endpoints=pods("b1"))
INWARD = named("inward", internal_policy=Policy.LOCAL, endpoints=pods("b1"))
RANGES = named("ranges", source_ranges=(SourceRange.CLUSTER_CIDR,))

COMING = [
    Turn(sender, to, None, whole, UNTOUCHED, lawful)
    for whole, sender, to, lawful in (
        (WEB, pod("a3"), WEB.cluster_ip, FROM_BOTH),
        (WEB, host("a"), WEB.cluster_ip, FROM_BOTH_HIDDEN),
        (WEB, client("a"), WEB.cluster_ip, FROM_BOTH_HIDDEN),
        (WEB, client("a"), WEB.node_port("a"), FROM_BOTH_HIDDEN),
        (WEB, client("a"), WEB.external_ip(), FROM_BOTH_HIDDEN),
        (WEB, client("a"), WEB.vip(), FROM_BOTH_HIDDEN),
        (LOCAL, client("a"), LOCAL.vip(), delivered_to("a1")),
        (LOCAL, client("a"), LOCAL.node_port("a"), delivered_to("a1")),
        (LOCAL, client("a"), LOCAL.external_ip(), delivered_to("a1")),
        (LOCAL, pod("a3"), LOCAL.vip(), FROM_BOTH),
        (LOCAL, host("a"), LOCAL.vip(), FROM_BOTH_HIDDEN),
        (AWAY, client("a"), AWAY.vip(), DROPPED),
        (INWARD, pod("a3"), INWARD.cluster_ip, DROPPED),
        (RANGES, client("a"), RANGES.vip(), DROPPED),
        (RANGES, pod("a3"), RANGES.vip(), FROM_BOTH_HIDDEN),
    )
]


def changing(
    name: str,
    sender: Vantage,
    target: str,
    first: dict[str, object],
    then: dict[str, object],
    *lawful: Lawful,
) -> Turn:
    """A Service of its own that goes from the first form to the other."""
    one, two = named(name, **first), named(name, **then)
    to = {"vip": one.vip(), "cluster ip": one.cluster_ip, "node port": one.node_port("a")}[target]
    return Turn(sender, to, one, two, *lawful)


LOCALLY: dict[str, object] = {"external_policy": Policy.LOCAL}
CLUSTERWIDE: dict[str, object] = {"external_policy": Policy.CLUSTER}
GUARDED: dict[str, object] = {"source_ranges": (SourceRange.CLUSTER_CIDR,)}

CHANGING = [
    changing("to-local", client("a"), "vip", CLUSTERWIDE, LOCALLY, FROM_BOTH_HIDDEN, delivered_to("a1")),
    changing("port-to-local", client("a"), "node port", CLUSTERWIDE, LOCALLY, FROM_BOTH_HIDDEN, delivered_to("a1")),
    changing("pods-to-local", pod("a3"), "vip", CLUSTERWIDE, LOCALLY, FROM_BOTH_HIDDEN, FROM_BOTH),
    changing("guarded", client("a"), "vip", {}, GUARDED, FROM_BOTH_HIDDEN, DROPPED),
    changing("guarded-inside", pod("a3"), "vip", {}, GUARDED, FROM_BOTH_HIDDEN, FROM_BOTH_HIDDEN),
    changing("guarded-host", host("a"), "vip", {}, GUARDED, FROM_BOTH_HIDDEN, DROPPED),
    changing(
        "local-endpoint-goes", client("a"), "vip", LOCALLY, {**LOCALLY, "endpoints": pods("b1")},
        delivered_to("a1"), DROPPED,
    ),
    changing(
        "local-endpoint-goes-inside", pod("a3"), "cluster ip",
        {"internal_policy": Policy.LOCAL}, {"internal_policy": Policy.LOCAL, "endpoints": pods("b1")},
        delivered_to("a1"), DROPPED,
    ),
    changing(
        "host-without-local", host("a"), "vip", LOCALLY, {**LOCALLY, "endpoints": pods("b1")},
        FROM_BOTH_HIDDEN, delivered_to("b1", source=MASQUERADED),
    ),
    changing("last-endpoint-goes", client("a"), "vip", {}, {"endpoints": ()}, FROM_BOTH_HIDDEN, REJECTED),
    changing("moves", client("a"), "node port", {}, {"endpoints": pods("b1", "b2")},
        FROM_BOTH_HIDDEN, delivered_to("b1", "b2", source=MASQUERADED)),
    changing("hairpin", pod("a1"), "cluster ip", {"endpoints": pods("b1")}, {"endpoints": pods("a1")},
        delivered_to("b1"), FROM_A1_HIDDEN),
    changing("shrinks", pod("a3"), "cluster ip", {}, {"type": Type.CLUSTER_IP, "vips": (), "external_ips": 0},
        FROM_BOTH, FROM_BOTH),
]  # fmt: skip


NEIGHBOUR = named("neighbour", endpoints=pods("a2", "b2"))
FROM_NEIGHBOURS = delivered_to("a2", "b2", source=MASQUERADED)
STAYING = [
    Turn(sender, to, NEIGHBOUR, NEIGHBOUR, lawful, lawful)
    for sender, to, lawful in (
        (pod("a3"), NEIGHBOUR.cluster_ip, delivered_to("a2", "b2")),
        (host("a"), NEIGHBOUR.cluster_ip, FROM_NEIGHBOURS),
        (client("a"), NEIGHBOUR.vip(), FROM_NEIGHBOURS),
        (client("a"), NEIGHBOUR.node_port("a"), FROM_NEIGHBOURS),
    )
]
TURNS = (*COMING, *CHANGING, *STAYING)


class Play:
    """A lab in which all Services change at once, there and back; at each step of node a's proxy all clients send."""

    def __init__(self, bed: NetnsTestbed, instance: Instance) -> None:
        self.bed, self.instance, self.world = bed, instance, World(instance)
        self.lawful: tuple[str, ...] = ()
        """The states whose answers are lawful now; none: nothing is sent."""
        self.steps = 0
        self.wrong: list[tuple[str, Turn, Observation]] = []

    async def play(self) -> None:
        """There and back."""
        await self.back()
        for way, state in ((self.there, "after"), (self.back, "before")):
            self.lawful = ("before", "after")
            await way()
            self.lawful = (state,)
            await self._send("when all is done")
            self.lawful = ()

    async def take_over(self) -> None:
        """All Services in their second state, in another mode until the proxy starts in its own; at each of its steps all clients send."""
        await self.there()
        self.lawful = ("refused_somehow",)
        await self._send("in the other mode")
        await self.bed.change([RestartProxy("a", ())])
        await self.bed.settle()
        self.lawful = ("after",)
        await self._send("when all is done")
        self.lawful = ()

    async def there(self) -> None:
        """To the second state of all.  Slices before Services, for each watch has its own pace."""
        forms = {turn.then.name: turn.then for turn in TURNS}
        changes = self.world.apply_step(Apply(*forms.values()))
        await self._write(filter(of_slice, changes))
        await self._write(filterfalse(of_slice, changes))

    async def back(self) -> None:
        """To the first state; slices of Services that go stay."""
        forms = {turn.first.name: turn.first for turn in TURNS if turn.first}
        there = {key[2] for key in self.world.objects if key[0] == "Service"}
        gone = {turn.then.name: turn.then for turn in TURNS if turn.first is None and turn.then.name in there}
        away = [c for each in gone.values() for c in self.world.apply_step(Delete(each, keep_slices=True))]
        changes = [*away, *self.world.apply_step(Apply(*forms.values()))]
        await self._write(filterfalse(of_slice, changes))
        await self._write(filter(of_slice, changes))

    async def _write(self, changes: Iterable[Change]) -> None:
        await self.bed.change(list(changes))
        await self.bed.settle()

    async def give_leave(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Let a proxy's step happen when all clients have sent before it."""
        step = (await reader.readuntil(b"\0")).decode().rstrip("\0")
        if self.lawful and not for_a_sentinel(step):
            self.steps += 1
            await self._send(f"before {step.partition(chr(10))[0]} ...")
        writer.write(b".")
        await writer.drain()
        writer.close()

    async def _send(self, when: str) -> None:
        probes = [Probe(sender=turn.sender, to=turn.to, expect=self._expected(turn)) for turn in TURNS]
        seen = await asyncio.gather(*(self.bed.probe(self.instance, probe, 1) for probe in probes))
        for turn, probe, (one,) in zip(TURNS, probes, seen, strict=True):
            if not one.outcomes & self.instance.outcomes(probe.expect, turn.to):
                self.wrong.append((when, turn, one))

    def _expected(self, turn: Turn) -> Lawful:
        return frozenset().union(*(getattr(turn, state) for state in self.lawful))


def of_slice(change: Change) -> bool:
    match change:
        case Put(document=document):
            return bool(document["kind"] == "EndpointSlice")
        case Remove(key=(kind, _, _)):
            return kind == "EndpointSlice"
        case _:
            raise AssertionError(change)


def for_a_sentinel(step: str) -> bool:
    """Whether a step is about nothing but Services of the lab's own, by whose answers a change is known to be applied."""
    own = set(map(str, LAB.sentinel_addresses[Family.IPV4]))
    return all(own.intersection(re.findall(r"[0-9.]+", line)) for line in step.splitlines())


async def played(
    order: str,
    place: Path,
    patience: float,
    how: Callable[[Play], Awaitable[None]] = Play.play,
    profile: Profile = DEFAULT,
) -> Play:
    """What was seen while the proxy took its steps in this order; ``patience`` in seconds for an answer that must come."""
    forms = [each for turn in TURNS for each in (turn.first, turn.then) if each]
    probes = [Probe(sender=turn.sender, to=turn.to, expect=turn.before) for turn in TURNS]
    steps = case("order.steps", "No third.", Apply(*forms), *probes, clauses=set(), families=(Family.IPV4,))
    (instance,) = bind_cases([steps])
    gate = place / "gate"
    open_bed = opener(stepwise(order, gate), "ipvs", Xtables.LEGACY, barrier=PATIENCE)
    with mock.patch.multiple(netns, SLOW_QUIET=SILENCE, SLOW_PATIENCE=patience):
        async with open_bed(profile, [instance]) as bed:
            assert isinstance(bed, NetnsTestbed)
            play = Play(bed, instance)
            async with await asyncio.start_unix_server(play.give_leave, gate):
                await how(play)
            return play


def stepwise(order: str, gate: Path) -> Subject:
    command = (
        "{python}",
        "-m",
        "tests.uml.stepwise",
        order,
        str(gate),
        "{node}",
        "run",
        "--config",
        "{config}",
    )
    return replace(load_subject("kproxy"), command=command, environment={"PYTHONPATH": str(ROOT)})


def test_between_two_steps_a_packet_is_treated_as_before_or_as_after(tmp_path: Path) -> None:
    all_was_lawful(asyncio.run(played("ours", tmp_path, patience=5.0)))


@pytest.mark.parametrize("before", ["iptables", "nftables", "userspace"])
def test_what_another_mode_serves_is_served_before_each_step_of_a_start(
    before: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(subject.MODE_BEFORE, "ipvs", before)
    all_was_lawful(
        asyncio.run(played("ours", tmp_path, patience=5.0, how=Play.take_over, profile=MODE_CHANGE))
    )


@pytest.mark.parametrize("before", ["iptables", "userspace"])
def test_where_that_modes_rules_end_with_the_first_chains_its_services_are_not_served(
    before: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control; a table of nftables mode is its own, and is not touched by these chains."""
    monkeypatch.setitem(subject.MODE_BEFORE, "ipvs", before)
    taken_over = played(
        "final-chains-first", tmp_path, patience=SILENCE, how=Play.take_over, profile=MODE_CHANGE
    )
    play = asyncio.run(taken_over)
    assert [when for when, _, _ in play.wrong if when != "when all is done"]


def all_was_lawful(play: Play) -> None:
    reported = [
        f"{when}: {turn.sender} -> {turn.then.name} {turn.to.kind.name}: {one.text}"
        for when, turn, one in play.wrong
    ]
    assert not reported, "\n".join(reported)
    assert play.steps >= FEWEST_STEPS


def test_who_reaches_a_service_before_its_sets_is_refused_or_seen_with_his_own_address(
    tmp_path: Path,
) -> None:
    """The control; it is what kube-proxy does."""
    play = asyncio.run(played("servers-first", tmp_path, patience=SILENCE))
    wrong = [one.outcomes for _, _, one in play.wrong]
    assert REJECTED in wrong
    assert any(
        isinstance(o, Delivered) and o.source is SourceIP.PRESERVED for outcomes in wrong for o in outcomes
    )
