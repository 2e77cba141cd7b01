"""Agents as a `ProbeTransport`: requests and observations pass through the address map.

Silence is proven by the records of the others: all agents are queried for a probe that got no reply.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kproxy.conformance.testbeds.cluster import messages
from kproxy.conformance.testbeds.cluster.address_map import AddressMap
from kproxy.conformance.testbeds.cluster.fleet import Fleet
from kproxy.conformance.testbeds.probe_transport import FlowHandle
from kproxy.lab.captures.packet_marks import Mark
from kproxy.lab.lab import Traced
from kproxy.lab.probes import echo, http
from kproxy.lab.probes.observation import Answered, Evidence, ProbeRequest, Silent, Socket
from kproxy.model.network import Protocol


@dataclass
class AgentFlow:
    """Flow that an agent holds; ``own`` in the lab's addresses."""

    sender: str
    name: str
    protocol: Protocol
    own: Socket
    last: int


class AgentTransport:
    """Pods and nodes of a cluster, each with an agent."""

    def __init__(self, fleet: Fleet, address_map: AddressMap) -> None:
        self.fleet, self.address_map = fleet, address_map
        self._names = itertools.count()

    async def probe(self, request: ProbeRequest, count: int) -> Sequence[Traced]:
        """Send so many new connections at once."""
        return [traced for traced, _ in await self._probe(request, count)]

    async def probe_marked(self, request: ProbeRequest, mark: int) -> tuple[Traced, tuple[Mark, ...]]:
        """Send one connection whose packets are marked."""
        ((traced, marks),) = await self._probe(request, 1, mark)
        return traced, marks

    async def _probe(
        self, request: ProbeRequest, count: int, mark: int = 0
    ) -> list[tuple[Traced, tuple[Mark, ...]]]:
        command = messages.SendProbes(self.address_map.request(request), count, mark)
        results = (await self.fleet.send(request.sender, command, messages.ProbesSent)).seen
        lost = [one.number for one in results if not isinstance(one.observation, Answered)]
        others = (
            dict(zip(lost, await self._collect_evidence(lost, request.sender), strict=True)) if lost else {}
        )
        return [(self._traced(one, others.get(one.number, Evidence())), one.marks) for one in results]

    def _traced(self, one: messages.Seen, others: Evidence) -> Traced:
        evidence = _merge_evidence(one.evidence, others)
        seen = one.observation
        if isinstance(seen, Silent):
            seen = replace(seen, evidence=evidence)
        return Traced(self.address_map.observation(seen), self.address_map.evidence(evidence), one.number)

    async def _exchanged(self, sender: str, reply: messages.Exchanged) -> Traced:
        """Result of an exchange on a flow; without a reply, with the evidence of the other agents."""
        seen = reply.observation
        own = seen.evidence if isinstance(seen, Silent) else Evidence()
        others = [] if isinstance(seen, Answered) else await self._collect_evidence([reply.number], sender)
        return self._traced(messages.Seen(reply.number, seen, own), _merge_evidence(*others))

    async def _collect_evidence(self, numbers: Sequence[int], sender: str) -> Sequence[Evidence]:
        """Evidence of all other agents about these probes."""
        known = await self.fleet.send_all(
            messages.ReadEvidence(tuple(numbers)), messages.ProbeEvidence, but=(sender,)
        )
        return [
            _merge_evidence(*each) for each in zip(*(one.evidence for one in known.values()), strict=True)
        ]

    async def ping(self, request: ProbeRequest) -> tuple[echo.Ping, Evidence]:
        """Send an ICMP echo request."""
        command = messages.SendPing(self.address_map.request(request))
        reply = await self.fleet.send(request.sender, command, messages.Pinged)
        known = await self.fleet.send_all(messages.ReadEvidence((reply.number,)), messages.ProbeEvidence)
        evidence = self.address_map.evidence(_merge_evidence(*(one.evidence[0] for one in known.values())))
        if isinstance(reply.seen, echo.EchoReply):
            return reply.seen, evidence
        seen = replace(reply.seen, evidence=evidence) if isinstance(reply.seen, Silent) else reply.seen
        return (seen if isinstance(seen, Silent) else self.address_map.observation(seen)), evidence

    async def get(self, request: ProbeRequest, path: str) -> http.Response | Silent | None:
        """Send an HTTP request."""
        command = messages.Get(self.address_map.request(request), path)
        return (await self.fleet.send(request.sender, command, messages.Got)).response

    async def open_flow(self, request: ProbeRequest) -> tuple[FlowHandle | None, Traced]:
        """Open a flow on an agent."""
        name = f"flow-{next(self._names)}"
        command = messages.OpenFlow(self.address_map.request(request), name)
        reply = await self.fleet.send(request.sender, command, messages.Exchanged)
        return await self._opened(request.sender, name, request.protocol, reply)

    async def exchange(self, flow: FlowHandle, patience: float) -> Traced:
        """Send one more request over a flow."""
        held = _own(flow)
        reply = await self.fleet.send(held.sender, messages.Exchange(held.name, patience), messages.Exchanged)
        held.last = reply.number
        return await self._exchanged(held.sender, reply)

    async def reopen(self, flow: FlowHandle, patience: float) -> tuple[FlowHandle | None, Traced]:
        """Make the server of a flow close it, and open it again."""
        held = _own(flow)
        await self.fleet.send_all(messages.HangUp(held.last), messages.Done)
        reply = await self.fleet.send(
            held.sender, messages.ReopenFlow(held.name, patience), messages.Exchanged
        )
        return await self._opened(held.sender, held.name, held.protocol, reply)

    async def _opened(
        self, sender: str, name: str, protocol: Protocol, reply: messages.Exchanged
    ) -> tuple[FlowHandle | None, Traced]:
        seen = await self._exchanged(sender, reply)
        if reply.own is None:
            return None, seen
        return AgentFlow(sender, name, protocol, self.address_map.socket(reply.own), reply.number), seen

    async def close_listener(self, flow: FlowHandle, *, hangs: bool) -> None:
        """Close the listening socket of a flow's server."""
        assert not hangs, "cases with such an endpoint are not run in clusters"
        held = _own(flow)
        await self.fleet.send_all(messages.CloseListener(held.last, held.protocol), messages.Done)


def _own(flow: FlowHandle) -> AgentFlow:
    assert isinstance(flow, AgentFlow)
    return flow


def _merge_evidence(*parts: Evidence) -> Evidence:
    """Evidence of several agents about one probe, merged."""
    return Evidence(
        tuple(sighting for part in parts for sighting in part.sightings),
        tuple(reception for part in parts for reception in part.receptions),
        sum(part.lost for part in parts),
    )
