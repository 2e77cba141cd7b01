"""Base class of testbeds that send real packets: a case's steps as probe requests, observations as outcomes.

A `ProbeTransport` sends the packets.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace

from kproxy.conformance.binding.bind import Instance
from kproxy.conformance.case import (
    CheckHealth,
    CheckProxy,
    HealthRequest,
    Open,
    Ping,
    Probe,
    Reopen,
    Send,
    StopListening,
    UnjudgedAction,
    VantageKind,
)
from kproxy.conformance.subjects.configuration import HEALTHZ_PORT
from kproxy.conformance.testbed import HarnessError, Observation, describe_status
from kproxy.conformance.testbeds.barrier import POLL
from kproxy.conformance.testbeds.interpret import (
    interpret_health,
    interpret_ping,
    interpret_status,
    interpret_step,
)
from kproxy.conformance.testbeds.probe_transport import FlowHandle, ProbeTransport
from kproxy.lab.lab import Traced
from kproxy.lab.probes.observation import Direction, ProbeRequest
from kproxy.spec.outcome import Failure

PATIENCE = 5.0
"""Seconds to wait for a reply where silence would be unlawful."""
QUIET = 0.5
"""Seconds without a reply that count as silence where silence is lawful."""


class PacketTestbed:
    """Performs steps through a `ProbeTransport`; ``patience`` and ``quiet`` as `PATIENCE` and `QUIET`."""

    def __init__(self, transport: ProbeTransport, patience: float = PATIENCE, quiet: float = QUIET) -> None:
        self._transport = transport
        self.patience, self._quiet = patience, quiet
        self._flows: dict[tuple[str, str], tuple[FlowHandle, Open]] = {}

    def read(self, traced: Traced, instance: Instance, step: Probe | Open) -> Observation:
        """Observation as outcomes."""
        return interpret_step(traced.observation, instance, step)

    async def probe(self, instance: Instance, probe: Probe, count: int) -> Sequence[Observation]:
        """Send ``count`` new connections at once."""
        request = self._request(instance, probe, probe.payload_bytes)
        if probe.mark:
            return [await self._marked(instance, probe, request) for _ in range(count)]
        found = await self._transport.probe(request, count)
        if probe.first_packet_only:
            return [self._at_once(traced, instance, probe) for traced in found]
        return [self.read(traced, instance, probe) for traced in found]

    async def _marked(self, instance: Instance, probe: Probe, request: ProbeRequest) -> Observation:
        traced, marks = await self._transport.probe_marked(request, probe.mark)
        seen = self.read(traced, instance, probe)
        if seen.endpoint and not marks:
            marks = (None,)  # what reached the endpoint was sent by another process, with a mark of its own
        return replace(seen, marks=marks)

    def _at_once(self, traced: Traced, instance: Instance, probe: Probe) -> Observation:
        """Observation of a probe that must be answered at its first packet.

        A retransmission (its first packet captured more than once leaving the sender) makes it unlawful; elapsed time
        is not used.
        """
        here = (s for s in traced.evidence.sightings if s.namespace == probe.sender.name)
        times = sum(sighting.direction is Direction.OUT for sighting in here)
        seen = self.read(traced, instance, probe)
        if times <= 1:
            return seen
        return Observation(frozenset(), f"its first packet had to be sent {times} times; then {seen.text}")

    def _request(
        self, instance: Instance, step: Probe | Open | Ping | CheckHealth, size: int = 0
    ) -> ProbeRequest:
        packet = instance.bound_packet(step.sender, step.to).packet
        like = None if isinstance(step, Ping | CheckHealth) else step.from_port_of
        quiet = not isinstance(step, CheckHealth) and Failure.DROPPED in step.expect
        return ProbeRequest(
            sender=step.sender.name,
            destination=packet.destination,
            port=packet.port,
            protocol=packet.protocol,
            source=None if _picks_its_source(step) else packet.source,
            source_port=instance.destination(like)[1] if like else 0,
            size=size,
            patience=self._quiet if quiet else self.patience,
        )

    async def ping(self, instance: Instance, ping: Ping) -> Observation:
        """Send an ICMP echo request."""
        seen, evidence = await self._transport.ping(self._request(instance, ping))
        return interpret_ping(seen, evidence, instance, ping)

    async def check_health(self, instance: Instance, step: HealthRequest) -> Observation:
        """Send a request to a health check node port, or to a proxy."""
        if isinstance(step, CheckProxy):
            return Observation(frozenset(), await self._proxy_health(instance, step))
        seen = await self._transport.get(self._request(instance, step), step.path)
        return Observation(frozenset(), interpret_health(seen, step.count_in))

    async def _proxy_health(self, instance: Instance, step: CheckProxy) -> str:
        request = ProbeRequest(
            sender=step.sender.name,
            destination=instance.topology.node_address[step.node][instance.family],
            port=HEALTHZ_PORT,
            patience=self.patience,
        )
        deadline = time.monotonic() + step.timeout
        while True:
            status = interpret_status(await self._transport.get(request, step.path))
            if status == describe_status(step.expect) or time.monotonic() > deadline:
                return status
            await asyncio.sleep(POLL)

    async def open_flow(self, instance: Instance, step: Open) -> Observation:
        """Open a flow and exchange once."""
        request = replace(self._request(instance, step), shares_port=True)
        if step.same_port_as:
            request = replace(request, source_port=self._flow(instance, step.same_port_as)[0].own.port)
        flow, seen = await self._transport.open_flow(request)
        if flow is not None:
            self._flows[instance.name, step.flow] = (flow, step)
        return self.read(seen, instance, step)

    async def send_on_flow(self, instance: Instance, step: Send) -> Observation:
        """Exchange on a held flow."""
        flow, hold = self._flow(instance, step.flow)
        quiet = isinstance(step.expect, frozenset) and Failure.DROPPED in step.expect
        seen = await self._transport.exchange(flow, self._quiet if quiet else self.patience)
        return self.read(seen, instance, hold)

    async def reopen(self, instance: Instance, reopen: Reopen) -> Observation:
        """Open a held flow again from the same port, and exchange once."""
        flow, hold = self._flow(instance, reopen.flow)
        anew, seen = await self._transport.reopen(flow, self.patience)
        if anew is not None:
            self._flows[instance.name, reopen.flow] = (anew, hold)
        return self.read(seen, instance, hold)

    async def act(self, instance: Instance, act: UnjudgedAction) -> None:
        """Perform an action that is not judged; the one that every transport supports."""
        assert isinstance(act, StopListening)
        await self._transport.close_listener(self._flow(instance, act.flow)[0], hangs=act.hangs)

    def _flow(self, instance: Instance, name: str) -> tuple[FlowHandle, Open]:
        if (instance.name, name) not in self._flows:
            raise HarnessError(f"flow {name!r} could not be opened")
        return self._flows[instance.name, name]


def _picks_its_source(step: Probe | Open | Ping | CheckHealth) -> bool:
    """True if source address selection is left to the sender's kernel.

    For senders on nodes and in pods, and for multi-homed SCTP probes, whose INIT then lists all addresses.
    """
    inside = step.sender.kind in {VantageKind.HOST, VantageKind.POD}
    return inside or (isinstance(step, Probe) and step.multihomed)
