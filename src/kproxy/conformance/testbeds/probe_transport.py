"""What carries out the questions of real packets: the interface, and the lab as one.

`kproxy.conformance.testbeds.packet_testbed` puts a case's questions to a `ProbeTransport` in the lab's addresses, wherever it is.
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
"""Probes under way at the same time."""


class FlowHandle(Interface):
    """A flow that was opened."""

    @property
    def own(self) -> Socket:
        """The sender's address and port."""


class ProbeTransport(Interface):
    """Where packets are sent, and what can be seen of them."""

    async def probe(self, request: ProbeRequest, count: int) -> Sequence[Traced]:
        """Send so many new connections; what came of each, with all that is known of it."""

    async def probe_marked(
        self, request: ProbeRequest, mark: int
    ) -> tuple[Traced, tuple[packet_marks.Mark, ...]]:
        """One whose packets the sender's kernel marks, and the marks that its first ones left the node with."""

    async def ping(self, request: ProbeRequest) -> tuple[echo.Ping, Evidence]:
        """Send an ICMP echo request."""

    async def get(self, request: ProbeRequest, path: str) -> http.Response | Silent | None:
        """Ask by HTTP; None: refused."""

    async def open_flow(self, request: ProbeRequest) -> tuple[FlowHandle | None, Traced]:
        """Connect (or bind), exchange once, and keep the socket."""

    async def exchange(self, flow: FlowHandle, patience: float) -> Traced:
        """Ask again over the same socket."""

    async def reopen(self, flow: FlowHandle, patience: float) -> tuple[FlowHandle | None, Traced]:
        """Have the server close a flow's connection, and connect again from the same port."""

    async def close_listener(self, flow: FlowHandle) -> None:
        """Let the server that answered a flow last listen no more."""


class LabTransport:
    """The lab's namespaces in this process."""

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
        """One whose packets are marked."""
        async with self.semaphore:
            return await packet_marks.probe_marked(self._lab, request, mark)

    async def ping(self, request: ProbeRequest) -> tuple[echo.Ping, Evidence]:
        """Send an ICMP echo request."""
        seen, number = await echo.send_ping(self._lab, request)
        evidence = self._lab.evidence(number)
        self._lab.forget(number)
        return seen, evidence

    async def get(self, request: ProbeRequest, path: str) -> http.Response | Silent | None:
        """Ask by HTTP."""
        return await http.http_get(self._lab, request, path)

    async def open_flow(self, request: ProbeRequest) -> tuple[FlowHandle | None, Traced]:
        """Open a flow."""
        flow, seen = await self._lab.open_flow(request)
        return flow, _traced(seen)

    async def exchange(self, flow: FlowHandle, patience: float) -> Traced:
        """Ask again over it."""
        return _traced(await lab_flow(flow).exchange(patience))

    async def reopen(self, flow: FlowHandle, patience: float) -> tuple[FlowHandle | None, Traced]:
        """Open it anew."""
        anew, seen = await self._lab.reopen(lab_flow(flow), patience)
        return anew, _traced(seen)

    async def close_listener(self, flow: FlowHandle) -> None:
        """Stop its server."""
        held = lab_flow(flow)
        self._lab.close_listener(held.last, held.request.protocol)


def _traced(seen: Observation) -> Traced:
    """An exchange of a flow; of any but silence nothing else is known."""
    return Traced(seen, seen.evidence if isinstance(seen, Silent) else Evidence())


def lab_flow(flow: FlowHandle) -> LabFlow:
    """A flow as the lab's, which it is."""
    assert isinstance(flow, LabFlow)
    return flow
