"""Running lab: network, servers, captures, and probes.

Everything runs in one event loop. ``async with open_lab() as lab`` builds it; leaving removes it.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from types import MappingProxyType

from kproxy.lab.captures.capture import Captures
from kproxy.lab.namespaces import LabError, Namespace
from kproxy.lab.network import Network, build_network
from kproxy.lab.probes.channel import Channel, unsupported
from kproxy.lab.probes.observation import Evidence, NetworkError, Observation, ProbeRequest, Silent, Socket
from kproxy.lab.probes.source_ports import SourcePorts
from kproxy.lab.servers import Servers
from kproxy.lab.topology import CLIENT, ELSEWHERE, LAB, Topology
from kproxy.lab.wiring import CATCH_ALL_PORT
from kproxy.linux import descriptors
from kproxy.model.network import Protocol

DESCRIPTORS = 1 << 16
"""Open files for the whole catalogue in one lab, which has more than 4096, or for a universe's flows, which leave both ends to it
when they are reset and opened again.
"""

_REOPENINGS, _REOPENING_SECONDS = 20, 0.05
_STEP = 65537
"""Distance between the numbers of successive probes: odd, so that 2^32 differ; as TCP's sequence numbers they rise."""


@dataclass(frozen=True, slots=True)
class Traced:
    """Observation with all evidence, and the probe's number."""

    observation: Observation
    evidence: Evidence
    number: int = 0


class LabFlow:
    """Held TCP (or SCTP) connection, or a UDP socket that keeps its port."""

    def __init__(self, lab: Lab, channel: Channel) -> None:
        self._lab, self._channel = lab, channel
        self._last = channel.number

    async def exchange(self, patience: float, size: int = 0) -> Observation:
        """Send one more request over the same socket; `Reset` when the connection is gone."""
        self._last = self._lab.next_number()
        return await self._lab.exchange(self._channel, self._last, size, patience)

    @property
    def own(self) -> Socket:
        """Sender's address and port."""
        return self._channel.own

    @property
    def last(self) -> int:
        """Number of the last exchange."""
        return self._last

    @property
    def request(self) -> ProbeRequest:
        """Request that opened the flow, with its actual source."""
        own = self._channel.own
        return replace(self._channel.request, source=own.address, source_port=own.port)

    async def closed_by_server(self, patience: float) -> ProbeRequest:
        """Wait for the server's end of the connection, close, and return the request that would open it again."""
        request = self.request
        await self._channel.closed_by_server(patience)
        return request

    def close(self) -> None:
        """Close it (a stream by an abort); leaving the lab closes all flows."""
        self._channel.close()


class Lab:
    """Running lab; create it with `open_lab`."""

    def __init__(
        self,
        network: Network,
        watched: Sequence[str] = (),
        first_number: int = 0,
        topology: Topology = LAB,
    ) -> None:
        """``watched``: the namespaces whose packets are captured, all that send probes among them; if empty, `senders`.

        ``first_number``: first probe number, for several labs whose captures see each other's packets.
        """
        self.network, self.topology = network, topology
        self.servers = Servers()
        self.captures = Captures(network[name] for name in watched or topology.senders)
        self._flows: list[LabFlow] = []
        self._source_ports = SourcePorts()
        self._count = first_number
        self._wire: socket.socket | None = None
        if ELSEWHERE in network:
            self._serve_elsewhere()

    @property
    def wire(self) -> socket.socket:
        """Packet socket of the on-link client: one for all, as closing one takes the kernel long."""
        if self._wire is None:
            self._wire = self.network[CLIENT].socket(socket.AF_PACKET, socket.SOCK_DGRAM)
        return self._wire

    def close_flows(self) -> None:
        """Close all flows, those too that were opened again and are no longer used."""
        for flow in self._flows:
            flow.close()
        self._flows.clear()

    def close(self) -> None:
        """Close flows, stop servers and captures, and release the namespaces."""
        self.close_flows()
        if self._wire is not None:
            self._wire.close()
        self.captures.close()
        self.servers.close()
        self.network.close()

    def _serve_elsewhere(self) -> None:
        elsewhere = self.network[ELSEWHERE]
        for protocol in (Protocol.TCP, Protocol.UDP):
            self.servers.serve(elsewhere, CATCH_ALL_PORT, protocol, ELSEWHERE)
        with suppress(OSError):  # a kernel without SCTP
            self.servers.serve(elsewhere, CATCH_ALL_PORT, Protocol.SCTP, ELSEWHERE)

    async def probe(self, request: ProbeRequest) -> Observation:
        """Send one probe and return its observation, as soon as there is a reply of any kind."""
        return (await self.trace(request)).observation

    async def trace(self, request: ProbeRequest) -> Traced:
        """As `probe`, with the evidence whatever the outcome."""
        number = self.next_number()
        try:
            channel = self._channel(request, number)
        except OSError as error:
            return Traced(unsupported(request, error), Evidence(), number)
        try:
            observation = await self.exchange(channel, number, request.size, request.patience)
            return Traced(observation, self.evidence(number), number)
        finally:
            channel.close()
            self.forget(number)

    async def open_flow(self, request: ProbeRequest) -> tuple[LabFlow | None, Observation]:
        """Connect (or bind), exchange once, and keep the socket; None when it could not be made."""
        number = self.next_number()
        try:
            channel = self._channel(request, number)
        except OSError as error:
            return None, unsupported(request, error)
        flow = LabFlow(self, channel)
        self._flows.append(flow)
        return flow, await self.exchange(channel, number, request.size, request.patience)

    def _channel(self, request: ProbeRequest, number: int) -> Channel:
        """Channel for a request, with a source port of its own unless the request has one."""

        def bind(port: int) -> Channel:
            with_port = replace(request, source_port=port)
            return Channel(self.network[request.sender], self.captures, with_port, number)

        if request.source_port:
            return bind(request.source_port)
        return self._source_ports.bound(request.sender, bind)

    async def reopen(self, flow: LabFlow, patience: float) -> tuple[LabFlow | None, Observation]:
        """Make the server close a flow's connection, and connect again from the same port.

        The side that closes first keeps the pair of ports in TIME_WAIT: were it the client, it could not use its port
        again.
        """
        self.close_server_end(flow.last)
        return await self.reconnect(flow, patience)

    def close_server_end(self, number: int) -> None:
        """Close the server's end of the connection that carried this probe's request, if there is one."""
        connection = self.servers.connection(number)
        if connection is not None:
            connection.close()

    async def reconnect(self, flow: LabFlow, patience: float) -> tuple[LabFlow | None, Observation]:
        """Connect again from the same port, once the server has closed a flow's connection."""
        request = await flow.closed_by_server(patience)
        for _ in range(_REOPENINGS):
            await asyncio.sleep(_REOPENING_SECONDS)
            reopened, seen = await self.open_flow(replace(request, patience=patience))
            if not isinstance(seen, NetworkError) or seen.errno not in {
                errno.EADDRINUSE,
                errno.EADDRNOTAVAIL,
            }:
                break
        return reopened, seen

    def close_listener(self, number: int, protocol: Protocol, *, hangs: bool = False) -> None:
        """Close the listening socket of the server that this probe's request reached.

        ``hangs``: TCP connections are not refused from now on, but not answered. Raises `LabError` when it reached none.
        """
        if not (receptions := self.servers.receptions(number)):
            raise LabError("no server of the lab has answered the flow")
        server = receptions[-1]
        self.servers.stop(self.network[server.who], server.at.port, protocol)
        if hangs:
            self.servers.hang(self.network[server.who], server.at)

    async def exchange(self, channel: Channel, number: int, size: int, patience: float) -> Observation:
        """One exchange over a channel; `Silent` gets its evidence."""
        try:
            observation = await channel.exchange(number, size, patience)
        except OSError as error:
            return NetworkError(error.errno or 0)
        if isinstance(observation, Silent):
            return replace(observation, evidence=self.evidence(number))
        return observation

    def evidence(self, number: int) -> Evidence:
        """Evidence of an exchange in captures and servers, up to now."""
        self.captures.drain()
        return Evidence(
            self.captures.sightings(number), self.servers.receptions(number), self.captures.lost()
        )

    def forget(self, number: int) -> None:
        """Drop all records of a probe that has been judged."""
        self.captures.forget(number)
        self.servers.forget(number)

    def next_number(self) -> int:
        """Number that no probe of this lab has had."""
        self._count += 1
        return self._count * _STEP & 0xFFFFFFFF


@asynccontextmanager
async def open_lab(existing: Mapping[str, Namespace] = MappingProxyType({})) -> AsyncIterator[Lab]:
    """Build a lab, with ``existing`` namespaces in it if there are any; everything of it is gone after the block.

    Raises `kproxy.lab.namespaces.LabError` when a prerequisite is missing.
    """
    allow_many_files()
    lab = Lab(build_network(existing=existing))
    try:
        yield lab
    finally:
        lab.close()


def allow_many_files() -> None:
    """Raise this process's limit of open files: every probe needs one."""
    descriptors.raise_limit(at_least=DESCRIPTORS)
