"""Agents as a `ProbeTransport`: what is asked goes outward through the lens, what they saw comes back inward.

Silence is proven by what the others saw: all agents are asked for what they know of a probe that nobody answered.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kproxy.conformance.testbeds.cluster import messages
from kproxy.conformance.testbeds.cluster.address_map import AddressMap
from kproxy.conformance.testbeds.cluster.fleet import Fleet
from kproxy.conformance.testbeds.probe_transport import FlowHandle
from kproxy.lab import echo, http
from kproxy.lab.lab import Traced
from kproxy.lab.observation import (
    Answered,
    Evidence,
    ProbeRequest,
    Silent,
    Socket,
)
from kproxy.lab.packet_marks import Mark
from kproxy.net import Protocol


@dataclass
class AgentFlow:
    """A flow that an agent holds; ``own`` in the lab's addresses."""

    sender: str
    name: str
    protocol: Protocol
    own: Socket
    last: int


class AgentTransport:
    """The pods and nodes of a cluster, each with an agent."""

    def __init__(self, fleet: Fleet, lens: AddressMap) -> None:
        self.fleet, self.lens = fleet, lens
        self._names = itertools.count()

    async def probe(self, request: ProbeRequest, count: int) -> Sequence[Traced]:
        """Send so many new connections at once."""
        return [traced for traced, _ in await self._asked(request, count)]

    async def marked(self, request: ProbeRequest, mark: int) -> tuple[Traced, tuple[Mark, ...]]:
        """One whose packets are marked."""
        ((traced, marks),) = await self._asked(request, 1, mark)
        return traced, marks

    async def _asked(
        self, request: ProbeRequest, count: int, mark: int = 0
    ) -> list[tuple[Traced, tuple[Mark, ...]]]:
        command = messages.Ask(self.lens.request(request), count, mark)
        asked = (await self.fleet.ask(request.sender, command, messages.Asked)).seen
        lost = [one.number for one in asked if not isinstance(one.observation, Answered)]
        others = dict(zip(lost, await self._look(lost, request.sender), strict=True)) if lost else {}
        return [(self._traced(one, others.get(one.number, Evidence())), one.marks) for one in asked]

    def _traced(self, one: messages.Seen, others: Evidence) -> Traced:
        evidence = _merge_evidence(one.evidence, others)
        seen = one.observation
        if isinstance(seen, Silent):
            seen = replace(seen, evidence=evidence)
        return Traced(self.lens.observation(seen), self.lens.evidence(evidence), one.number)

    async def _exchanged(self, sender: str, told: messages.Exchanged) -> Traced:
        """An exchange of a flow; where nobody answered, with what the others know of it."""
        seen = told.observation
        own = seen.evidence if isinstance(seen, Silent) else Evidence()
        others = [] if isinstance(seen, Answered) else await self._look([told.number], sender)
        return self._traced(messages.Seen(told.number, seen, own), _merge_evidence(*others))

    async def _look(self, numbers: Sequence[int], sender: str) -> Sequence[Evidence]:
        """What all other agents know of these probes."""
        known = await self.fleet.ask_all(messages.Look(tuple(numbers)), messages.Known, but=(sender,))
        return [
            _merge_evidence(*each) for each in zip(*(one.evidence for one in known.values()), strict=True)
        ]

    async def ping(self, request: ProbeRequest) -> tuple[echo.Ping, Evidence]:
        """Send an ICMP echo request."""
        command = messages.SendPing(self.lens.request(request))
        told = await self.fleet.ask(request.sender, command, messages.Pinged)
        known = await self.fleet.ask_all(messages.Look((told.number,)), messages.Known)
        evidence = self.lens.evidence(_merge_evidence(*(one.evidence[0] for one in known.values())))
        if isinstance(told.seen, echo.EchoReply):
            return told.seen, evidence
        seen = replace(told.seen, evidence=evidence) if isinstance(told.seen, Silent) else told.seen
        return (seen if isinstance(seen, Silent) else self.lens.observation(seen)), evidence

    async def get(self, request: ProbeRequest, path: str) -> http.Response | Silent | None:
        """Ask by HTTP."""
        command = messages.Get(self.lens.request(request), path)
        return (await self.fleet.ask(request.sender, command, messages.Got)).response

    async def open_flow(self, request: ProbeRequest) -> tuple[FlowHandle | None, Traced]:
        """Open a flow."""
        name = f"flow-{next(self._names)}"
        command = messages.Open(self.lens.request(request), name)
        told = await self.fleet.ask(request.sender, command, messages.Exchanged)
        return await self._opened(request.sender, name, request.protocol, told)

    async def exchange(self, flow: FlowHandle, patience: float) -> Traced:
        """Ask again over it."""
        held = _own(flow)
        told = await self.fleet.ask(held.sender, messages.Exchange(held.name, patience), messages.Exchanged)
        held.last = told.number
        return await self._exchanged(held.sender, told)

    async def reopen(self, flow: FlowHandle, patience: float) -> tuple[FlowHandle | None, Traced]:
        """Have whoever serves a flow hang up, and open it anew."""
        held = _own(flow)
        await self.fleet.ask_all(messages.HangUp(held.last), messages.Done)
        told = await self.fleet.ask(held.sender, messages.Reopen(held.name, patience), messages.Exchanged)
        return await self._opened(held.sender, held.name, held.protocol, told)

    async def _opened(
        self, sender: str, name: str, protocol: Protocol, told: messages.Exchanged
    ) -> tuple[FlowHandle | None, Traced]:
        seen = await self._exchanged(sender, told)
        if told.own is None:
            return None, seen
        return AgentFlow(sender, name, protocol, self.lens.socket(told.own), told.number), seen

    async def deafen(self, flow: FlowHandle) -> None:
        """Stop the server of a flow."""
        held = _own(flow)
        await self.fleet.ask_all(messages.StopListening(held.last, held.protocol), messages.Done)


def _own(flow: FlowHandle) -> AgentFlow:
    assert isinstance(flow, AgentFlow)
    return flow


def _merge_evidence(*parts: Evidence) -> Evidence:
    """All that several agents know of one probe."""
    return Evidence(
        tuple(sighting for part in parts for sighting in part.sightings),
        tuple(reception for part in parts for reception in part.receptions),
        sum(part.lost for part in parts),
    )
