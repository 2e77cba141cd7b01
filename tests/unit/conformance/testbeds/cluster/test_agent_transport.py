"""Agents as a ground: which requests each of them gets, and how their replies are read."""

import asyncio
from dataclasses import replace
from typing import cast

import pytest

from kproxy.conformance.binding.bind import bind_cases
from kproxy.conformance.case import Apply, Probe, case, delivered_to, endpoint_target, pod, service
from kproxy.conformance.testbeds.cluster import messages
from kproxy.conformance.testbeds.cluster.address_map import build_address_map
from kproxy.conformance.testbeds.cluster.agent_transport import AgentTransport
from kproxy.conformance.testbeds.cluster.fleet import Fleet
from kproxy.conformance.testbeds.cluster.testbed import ClusterTestbed
from kproxy.lab.lab import Traced
from kproxy.lab.probes.observation import (
    Answered,
    Direction,
    Evidence,
    Icmp,
    Observation,
    ProbeRequest,
    Reception,
    Refused,
    Sighting,
    Silent,
    Socket,
)
from kproxy.lab.topology import LAB
from kproxy.spec.outcome import Failure
from tests.support.scripted_cluster import PLACE, V4

WEB = service("web", "b1")
(INSTANCE, _) = bind_cases([case("group.name", "It is probed.", Apply(WEB), clauses=set())])
LENS = build_address_map(PLACE, [INSTANCE])
VIP = INSTANCE.cluster_ip(WEB)
OWN = Socket(PLACE.pods["a1"][V4], 40000)
THERE = Socket(LENS.addresses.apply(VIP), 80)
REQUEST = ProbeRequest(sender="a1", destination=VIP, port=80)


class Agents:
    """In a fleet's place: they give the replies of the test, and record the requests."""

    def __init__(self, seen: Observation, known: dict[str, Evidence]) -> None:
        self.seen, self.known = seen, known
        self.requested: list[tuple[str, object]] = []

    async def send(self, agent: str, command: object, _: type) -> object:
        self.requested.append((agent, command))
        match command:
            case messages.SendProbes(count=count):
                one = messages.Seen(7, self.seen, self.known.get(agent, Evidence()))
                return messages.ProbesSent((one,) * count)
            case messages.ReadEvidence(numbers=numbers):
                return messages.ProbeEvidence((self.known.get(agent, Evidence()),) * len(numbers))
            case _:
                return messages.Exchanged(8, self.seen, OWN)

    async def send_all(self, command: object, answer: type, but: tuple[str, ...] = ()) -> dict[str, object]:
        names = [name for name in ("a", "b", "a1", "b1") if name not in but]
        return {name: await self.send(name, command, answer) for name in names}


def ground(agents: Agents) -> AgentTransport:
    return AgentTransport(cast("Fleet", agents), LENS)


def on(namespace: str, direction: Direction, to: Socket, interface: str = "eth0") -> Evidence:
    return Evidence((Sighting(namespace, interface, direction, OWN, to),))


def test_a_probe_goes_out_in_the_clusters_addresses_and_comes_back_in_the_labs() -> None:
    agents = Agents(Answered(who="b1", at=Socket(PLACE.pods["b1"][V4], 20000), peer=OWN, own=OWN), {})
    (first, _) = asyncio.run(ground(agents).probe(REQUEST, 2))
    ((agent, command),) = agents.requested
    assert agent == "a1"
    assert isinstance(command, messages.SendProbes)
    assert command.request.destination == THERE.address != VIP
    here = Socket(LAB.pod_address["a1"][V4], 40000)
    at = Socket(LAB.pod_address["b1"][V4], 10000)
    assert first.observation == Answered(who="b1", at=at, peer=here, own=here)


def test_silence_comes_with_what_all_others_know() -> None:
    known = {
        "a1": on("a1", Direction.OUT, THERE),
        "a": on("a", Direction.IN, THERE),
        "b1": Evidence(receptions=(Reception("b1", THERE, OWN),), lost=2),
    }
    agents = Agents(Silent(evidence=known["a1"]), known)
    (traced,) = asyncio.run(ground(agents).probe(REQUEST, 1))
    assert {agent for agent, command in agents.requested if isinstance(command, messages.ReadEvidence)} == {
        "a",
        "b",
        "b1",
    }
    assert isinstance(traced.observation, Silent)
    evidence = traced.observation.evidence
    assert [sighting.namespace for sighting in evidence.sightings] == ["a1", "a"]
    assert {sighting.destination for sighting in evidence.sightings} == {Socket(VIP, 80)}
    assert [reception.who for reception in evidence.receptions] == ["b1"]
    assert evidence.lost == 2


def test_a_flow_is_known_by_the_number_of_its_last_exchange() -> None:
    agents = Agents(Answered(who="b1", at=THERE, peer=OWN, own=OWN), {})

    async def run() -> None:
        requested = ground(agents)
        flow, _ = await requested.open_flow(REQUEST)
        assert flow is not None
        assert flow.own == Socket(LAB.pod_address["a1"][V4], 40000)
        await requested.exchange(flow, 1.0)
        await requested.reopen(flow, 1.0)
        await requested.close_listener(flow, hangs=False)

    asyncio.run(run())
    commands = [command for _, command in agents.requested]
    names = {command.flow for command in commands if hasattr(command, "flow")}
    assert len(names) == 1
    assert messages.HangUp(8) in commands
    assert messages.CloseListener(8, REQUEST.protocol) in commands


REFUSED = Refused(Icmp(V4, 3, 1), LAB.router_address[V4], Socket(VIP, 80))


@pytest.mark.parametrize("seen", [Silent(), REFUSED])
@pytest.mark.parametrize(
    ("left", "untouched"),
    [
        (Evidence((Sighting("a", "eth0", Direction.OUT, OWN, Socket(VIP, 80)),)), True),
        (
            Evidence((Sighting("a", "eth0", Direction.OUT, OWN, Socket(LAB.pod_address["b1"][V4], 10000)),)),
            False,
        ),
        (Evidence((Sighting("a", "eth0", Direction.IN, OWN, Socket(VIP, 80)),)), False),
        (Evidence((Sighting("b", "eth0", Direction.OUT, OWN, Socket(VIP, 80)),)), False),
        (Evidence((Sighting("a", "lo", Direction.OUT, OWN, Socket(VIP, 80)),)), False),
    ],
)
def test_what_leaves_the_judging_node_as_it_came_is_untouched(
    seen: Observation, left: Evidence, *, untouched: bool
) -> None:
    entered = Sighting("a", "veth1", Direction.IN, OWN, Socket(VIP, 80))
    left = replace(left, sightings=(entered, *left.sightings))
    seen = replace(seen, evidence=left) if isinstance(seen, Silent) else seen
    probe = Probe(sender=pod("a1"), to=WEB.cluster_ip, expect=delivered_to("b1"))
    read = object.__new__(ClusterTestbed).read(Traced(seen, left), INSTANCE, probe)
    assert (Failure.UNTOUCHED in read.outcomes) is untouched


def test_what_was_sent_to_a_pod_itself_is_not_untouched_for_want_of_an_answer() -> None:
    to = Socket(LAB.pod_address["b1"][V4], 10000)
    left = Evidence((Sighting("a", "eth0", Direction.OUT, OWN, to),))
    probe = Probe(sender=pod("a1"), to=endpoint_target(WEB, "b1"), expect=delivered_to("b1"))
    testbed = object.__new__(ClusterTestbed)
    read = testbed.read(Traced(Silent(evidence=left), left), INSTANCE, probe)
    assert read.outcomes == frozenset()
