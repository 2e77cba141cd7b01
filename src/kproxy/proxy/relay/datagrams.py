"""UDP flows of the relay: one connected socket towards an endpoint for each client's address and port.

A flow keeps its endpoint while that one serves and the client sends (``conntrack.udp.stays-on-policy-change``); after `IDLE_SECONDS` without a
datagram it is forgotten.  An endpoint that refuses (ICMP port unreachable) before it has answered is replaced, and the datagram
is sent again to the next one.  A socket without endpoints is kept for the flows that it has; a client without one is left to the rules
again.  Called by `kproxy.proxy.relay.relay` in its thread only, but for `DatagramPort.came_by`; else blocks nowhere.
"""

from __future__ import annotations

import logging
import select
import socket
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

from kproxy.linux.conntrack import find_destinations
from kproxy.linux.host import HostError
from kproxy.proxy.relay.choice import attempts
from kproxy.proxy.relay.dialing import dial, source_for

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from kproxy.linux.conntrack import Socket
    from kproxy.proxy.relay.choice import EndpointTurns
    from kproxy.proxy.relay.streams import Loop
    from kproxy.proxy.relay.table import RelayEndpoint, RelayFrontend
    from kproxy.proxy.relay.untracking import Untracker

IDLE_SECONDS = 120.0
"""Seconds without a datagram after which a flow ends: as connection tracking's, for a flow of several datagrams."""

MAX_FLOWS = 4096
"""Flows of one port; one more ends the one that was idle longest."""

_LARGEST = 1 << 16
_BATCH = 64

_Client = tuple[str, int]

log = logging.getLogger(__name__)


class Flow:
    """A client's flow: the socket towards its endpoint, and what that has not answered.

    ``doubted``: a frontend is gone since its last datagram, maybe the one that it came by.
    """

    __slots__ = ("attempt", "doubted", "endpoint", "last", "socket", "tried", "unanswered")

    def __init__(self) -> None:
        self.doubted = False
        self.socket: socket.socket | None = None
        self.endpoint: RelayEndpoint | None = None
        self.last = 0.0
        self.attempt = 0
        self.tried: tuple[RelayEndpoint, ...] = ()
        self.unanswered: bytes | None = None


LeftFlows = dict[_Client, Flow]
"""Flows by client, of sockets that were closed."""


@dataclass(slots=True)
class SharedFlows:
    """Flows that sockets of one service port may take over: ``left`` by closed ones, and ``offered`` by those that have them."""

    left: LeftFlows = field(default_factory=dict)
    offered: dict[_Client, DatagramPort] = field(default_factory=dict)


def expire_left(left: LeftFlows, now: float) -> None:
    """End the flows that nobody took over in time."""
    _end_left(left, [client for client, flow in left.items() if flow.last <= now - IDLE_SECONDS])


def end_unserved(left: LeftFlows, serving: Container[RelayEndpoint | None]) -> None:
    """End the flows of endpoints that do not serve."""
    _end_left(left, [client for client, flow in left.items() if flow.endpoint not in serving])


def _end_left(left: LeftFlows, clients: Iterable[_Client]) -> None:
    for client in clients:
        flow = left.pop(client)
        if flow.socket is not None:
            flow.socket.close()


class DatagramPort:
    """All flows of one listening UDP socket, which it owns."""

    def __init__(
        self,
        listener: socket.socket,
        chooser: EndpointTurns,
        loop: Loop,
        shared: SharedFlows,
        untracker: Untracker,
        *,
        keeps_source: bool = False,
    ) -> None:
        """Start to receive.  ``shared``: flows of the service port's other sockets, to be taken over."""
        self._keeps_source, self._shared, self._untracker = keeps_source, shared, untracker
        self._listener, self._chooser, self._loop = listener, chooser, loop
        self._place = _socket(listener.getsockname())
        self._flows: dict[_Client, Flow] = {}
        loop.watch(listener, select.EPOLLIN, self._receive)

    @property
    def number(self) -> int:
        """Number of the listening socket."""
        return self._place[1]

    @property
    def flows(self) -> int:
        """Number of flows."""
        return len(self._flows)

    def endpoints_of(self, client: str) -> list[RelayEndpoint]:
        """The endpoint of each flow that an address has."""
        flows = self._flows.items()
        return [flow.endpoint for (address, *_), flow in flows if address == client and flow.endpoint]

    def endpoints_changed(self) -> None:
        """End the flows whose endpoint no longer serves: their next datagram chooses again, by the rules.

        Connection tracking leads it here though its frontend may lead elsewhere by now, or nowhere.
        Clauses ``conntrack.udp.moves-off-removed-endpoint``, ``conntrack.udp.not-to-dead-endpoint-when-none-left``.
        """
        serving = self._chooser.port.serving
        ended = [client for client, flow in self._flows.items() if flow.endpoint not in serving]
        for client in ended:
            self._end(client)
        self._untrack(*ended)

    def offer_flows(self) -> None:
        """Let other sockets of the service port take over the flows, as a frontend that led here leads to another."""
        self._shared.offered.update(dict.fromkeys(self._flows, self))

    @property
    def clients(self) -> list[_Client]:
        """Clients that have a flow."""
        return list(self._flows)

    def came_by(self, lost: Iterable[RelayFrontend], clients: Iterable[_Client]) -> list[_Client]:
        """Those of the clients that came by these frontends, or may have.  Queries connection tracking, so it blocks."""
        sockets = {_socket(client): client for client in clients}
        try:
            by = find_destinations(self._place, sockets)
        except HostError as error:
            log.debug("relay: frontends of flows to %s:%d are not known: %s", *self._place, error)
            by = {}
        unknown, places = self._place, {frontend.place for frontend in lost}
        return [
            client
            for socket_, client in sockets.items()
            if (came := by.get(socket_, unknown)) == unknown
            or not places.isdisjoint(((str(came[0]), came[1]), ("", came[1])))
        ]

    def doubt_flows(self, clients: Iterable[_Client]) -> None:
        """Let no other socket take over these flows before their clients have sent again, as the frontend that led here is gone.

        What then comes from a client is another flow (``conntrack.udp.not-to-endpoint-of-deleted-service``), by another policy maybe.
        """
        for client in clients:
            if (flow := self._flows.get(client)) is not None:
                flow.doubted = True

    def give(self, client: _Client) -> Flow | None:
        """Give up an offered flow; what its endpoint sends is its new owner's."""
        self._withdraw(client)
        flow = self._flows.pop(client, None)
        if flow is not None and flow.socket is not None:
            self._loop.unwatch(flow.socket)
        return flow

    def _withdraw(self, client: _Client) -> None:
        if self._shared.offered.get(client) is self:
            del self._shared.offered[client]

    def expire(self) -> None:
        """End the flows that are idle; the first are those that were idle longest."""
        limit = self._loop.now() - IDLE_SECONDS
        for client, flow in list(self._flows.items()):
            if flow.last > limit:
                break
            self._end(client)

    def close(self) -> None:
        """End as `release` does, and close the socket."""
        self.release().close()

    def release(self) -> socket.socket:
        """Give up the listening socket; flows whose endpoint serves are left to another socket of the service port, at their client's next datagram."""
        for client, flow in list(self._flows.items()):
            serves = flow.endpoint in self._chooser.port.serving
            if flow.socket is not None and serves and not flow.doubted:
                _end_left(self._shared.left, {client} & self._shared.left.keys())  # by another frontend
                self._shared.left[client] = flow
                self.give(client)
            else:
                self._end(client)
        self._loop.unwatch(self._listener)
        return self._listener

    def _receive(self, _: int) -> None:
        for _round in range(_BATCH):
            try:
                data, client = self._listener.recvfrom(_LARGEST)
            except OSError:  # none is left, or an earlier answer was refused by its client
                return
            self._forward(client, data)

    def _forward(self, client: _Client, data: bytes) -> None:
        flow = self._flows.pop(client, None) or self._take_over(client) or Flow()
        if len(self._flows) >= MAX_FLOWS:
            self._end(next(iter(self._flows)))
        self._flows[client] = flow  # at the end: in order of their last datagram
        flow.last, flow.attempt, flow.tried, flow.doubted = self._loop.now(), 0, (), False
        flow.unanswered = data
        self._send(client, flow, data)

    def _take_over(self, client: _Client) -> Flow | None:
        """The client's flow of another socket, if its endpoint still serves (``conntrack.udp.stays-on-policy-change``)."""
        flow, owner = self._shared.left.pop(client, None), self._shared.offered.get(client)
        if flow is None and owner is not None and owner is not self:
            flow = owner.give(client)
        if flow is None or flow.socket is None:
            return None
        if flow.doubted or flow.endpoint not in self._chooser.port.serving:
            flow.socket.close()
            return None
        self._loop.watch(flow.socket, select.EPOLLIN, lambda _: self._answer(client, flow))
        return flow

    def _send(self, client: _Client, flow: Flow, data: bytes) -> None:
        """Send to the flow's endpoint, or to the next as long as one refuses at once; a full buffer, and no endpoint, loses the datagram."""
        while flow.attempt < attempts(len(self._chooser.port.endpoints)):
            if flow.socket is None and not self._chooser.port.endpoints:
                break
            try:
                (flow.socket or self._connect(client, flow)).send(data)
            except BlockingIOError:
                return
            except OSError:
                self._refused(client, flow)
            else:
                return
        self._end(client)
        if not self._chooser.port.endpoints:
            self._untrack(client)

    def _untrack(self, *clients: _Client) -> None:
        """Have the rules decide about the clients' next datagrams, which connection tracking leads here."""
        if clients:
            self._untracker.untrack(self._place, map(_socket, clients))

    def _connect(self, client: _Client, flow: Flow) -> socket.socket:
        endpoint = flow.endpoint = self._chooser.choose(client[0], self._loop.now(), flow.tried)
        ends, port = (client[0], client[1]), self._chooser.port
        source = source_for(ends, endpoint, port, keeps_source=self._keeps_source)
        made = flow.socket = dial(endpoint, socket.SOCK_DGRAM, source)
        self._loop.watch(made, select.EPOLLIN, lambda _: self._answer(client, flow))
        return made

    def _answer(self, client: _Client, flow: Flow) -> None:
        for _round in range(_BATCH):
            if flow.socket is None:
                return
            try:
                data = flow.socket.recv(_LARGEST)
            except BlockingIOError:
                return
            except OSError:
                self._resend(client, flow)
                return
            flow.unanswered, flow.attempt = None, 0
            try:
                self._listener.sendto(data, client)
            except OSError:  # the client's buffer is full or it is gone: a lost datagram
                return

    def _resend(self, client: _Client, flow: Flow) -> None:
        """The endpoint refused: send again elsewhere what it has not answered."""
        self._refused(client, flow)
        if flow.unanswered is not None:
            self._send(client, flow, flow.unanswered)

    def _refused(self, client: _Client, flow: Flow) -> None:
        flow.attempt += 1
        if flow.endpoint is not None:
            flow.tried += (flow.endpoint,)
            self._chooser.failed(client[0], flow.endpoint)
        self._disconnect(flow)

    def _end(self, client: _Client) -> None:
        self._withdraw(client)
        flow = self._flows.pop(client, None)
        if flow is not None:
            self._disconnect(flow)

    def _disconnect(self, flow: Flow) -> None:
        if flow.socket is not None:
            self._loop.unwatch(flow.socket)
            flow.socket.close()
            flow.socket = None


def _socket(name: tuple[Any, ...]) -> Socket:
    """The address and port of what the socket module returns, which has more of IPv6."""
    return ip_address(name[0]), name[1]
