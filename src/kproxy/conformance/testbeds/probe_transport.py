"""Transport interface for probes, flows and HTTP requests (`ProbeTransport`), and its implementation over the lab.

`kproxy.conformance.testbeds.packet_testbed` sends a case's probes through a `ProbeTransport` in the lab's addresses,
wherever it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol as Interface

from kproxy.conformance.testbeds.fifo_semaphore import FifoSemaphore
from kproxy.lab.captures import packet_marks
from kproxy.lab.lab import Lab, LabFlow, Traced
from kproxy.lab.probes import echo, http
from kproxy.lab.probes.observation import Evidence, Observation, ProbeRequest, Silent, Socket

MAX_CONCURRENT_PROBES = 150
"""Number of probes under way at the same time."""


class FlowHandle(Interface):
    """Handle of an open flow."""

    @property
    def own(self) -> Socket:
        """Sender's address and port."""


class ProbeTransport(Interface):
    """Transport of packets, with the evidence about them."""

    async def probe(self, request: ProbeRequest, count: int) -> Sequence[Traced]:
        """Send so many new connections; returns the observation of each, with all evidence."""

    async def probe_marked(
        self, request: ProbeRequest, mark: int
    ) -> tuple[Traced, tuple[packet_marks.Mark, ...]]:
        """Send one whose packets the sender's kernel marks; returns also the marks that its first packets left the node with."""

    async def ping(self, request: ProbeRequest) -> tuple[echo.Ping, Evidence]:
        """Send an ICMP echo request."""

    async def get(self, request: ProbeRequest, path: str) -> http.Response | Silent | None:
        """Send an HTTP request; None: refused."""

    async def open_flow(self, request: ProbeRequest) -> tuple[FlowHandle | None, Traced]:
        """Connect (or bind), exchange once, and keep the socket."""

    async def exchange(self, flow: FlowHandle, patience: float) -> Traced:
        """Send one more request over the same socket."""

    async def reopen(self, flow: FlowHandle, patience: float) -> tuple[FlowHandle | None, Traced]:
        """Make the server close a flow's connection, and connect again from the same port."""

    async def close_listener(self, flow: FlowHandle, *, hangs: bool) -> None:
        """Close the listening socket of the server that replied on a flow last; ``hangs``: one stays that does not answer."""


class LabTransport:
    """Transport over the lab's namespaces in this process."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self.semaphore = FifoSemaphore(MAX_CONCURRENT_PROBES)

    async def probe(self, request: ProbeRequest, count: int) -> Sequence[Traced]:
        """Send so many new connections at once."""
        return await asyncio.gather(*(self._one(request) for _ in range(count)))

    async def _one(self, request: ProbeRequest) -> Traced:
        async with self.semaphore:
            return await self._lab.trace(request)

    async def probe_marked(
        self, request: ProbeRequest, mark: int
    ) -> tuple[Traced, tuple[packet_marks.Mark, ...]]:
        """Send one whose packets are marked."""
        async with self.semaphore:
            return await packet_marks.probe_marked(self._lab, request, mark)

    async def ping(self, request: ProbeRequest) -> tuple[echo.Ping, Evidence]:
        """Send an ICMP echo request."""
        seen, number = await echo.send_ping(self._lab, request)
        evidence = self._lab.evidence(number)
        self._lab.forget(number)
        return seen, evidence

    async def get(self, request: ProbeRequest, path: str) -> http.Response | Silent | None:
        """Send an HTTP request."""
        return await http.http_get(self._lab, request, path)

    async def open_flow(self, request: ProbeRequest) -> tuple[FlowHandle | None, Traced]:
        """Open a flow in the lab."""
        flow, seen = await self._lab.open_flow(request)
        return flow, _traced(seen)

    async def exchange(self, flow: FlowHandle, patience: float) -> Traced:
        """Send one more request over a flow."""
        return _traced(await lab_flow(flow).exchange(patience))

    async def reopen(self, flow: FlowHandle, patience: float) -> tuple[FlowHandle | None, Traced]:
        """Open a flow again from the same port."""
        anew, seen = await self._lab.reopen(lab_flow(flow), patience)
        return anew, _traced(seen)

    async def close_listener(self, flow: FlowHandle, *, hangs: bool) -> None:
        """Close the listening socket of a flow's server."""
        held = lab_flow(flow)
        self._lab.close_listener(held.last, held.request.protocol, hangs=hangs)


def _traced(seen: Observation) -> Traced:
    """Exchange of a flow with its evidence, which only silence has."""
    return Traced(seen, seen.evidence if isinstance(seen, Silent) else Evidence())


def lab_flow(flow: FlowHandle) -> LabFlow:
    """The flow handle narrowed to `LabFlow`: this transport makes no other."""
    assert isinstance(flow, LabFlow)
    return flow
