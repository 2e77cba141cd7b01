"""Which endpoint a connection is tried at next: round robin, ClientIP affinity, and the next one where one fails.  Pure.

kube-proxy's userspace mode did the same until it was removed in 1.26 (pkg/proxy/userspace/roundrobin.go and proxysocket.go of 1.25):
attempts wait 250 ms, 500 ms, 1 s and 2 s for an endpoint, and a client whose endpoint fails is no longer bound to it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from kproxy.proxy.relay.table import RelayEndpoint, RelayPort

DIAL_SECONDS = (0.25, 0.5, 1.0, 2.0)
"""Seconds that each attempt of a connection may take; the last one counts for all that follow."""

MAX_CLIENTS = 65_536
"""Clients whose endpoint one port remembers; one more forgets the one that came first."""


def attempts(endpoints: int) -> int:
    """Number of attempts for a connection: every endpoint once, and at least as many as there are timeouts."""
    return max(endpoints, len(DIAL_SECONDS))


def dial_seconds(attempt: int) -> float:
    """Seconds that an attempt, counted from zero, may take (``balancing.retry.unanswered``)."""
    return DIAL_SECONDS[min(attempt, len(DIAL_SECONDS) - 1)]


@dataclass(slots=True)
class EndpointTurns:
    """The turn of one port's endpoints, and the endpoints that its clients are bound to.  ``port`` may be replaced at any time."""

    port: RelayPort
    turn: int = 0
    _bound: dict[str, tuple[RelayEndpoint, float]] = field(default_factory=dict)

    def choose(self, client: str, now: float, failed: Collection[RelayEndpoint] = ()) -> RelayEndpoint:
        """The endpoint to try: the client's own while its affinity lasts and the endpoint is there, else the next in turn.

        ``failed``: endpoints that this connection has tried; another is taken if there is one, whatever turns other
        connections took meanwhile (``balancing.retry.refused``).  ``now`` in seconds on any steady clock.

        Clauses ``affinity.client-ip.sticks``, ``affinity.timeout.frees-choice``.
        """
        endpoint = self.bound(client, now)
        if endpoint is None or endpoint in failed:
            endpoint = self._next(self.port.endpoints, failed)
        if self.port.affinity_seconds is not None:
            self._bind(client, endpoint, now)
        return endpoint

    def bound(self, client: str, now: float) -> RelayEndpoint | None:
        """The endpoint that a client's affinity leads to; None: the next in turn is chosen."""
        seconds, (endpoint, since) = self.port.affinity_seconds, self._bound.get(client, (None, 0.0))
        lasts = seconds is not None and now - since < seconds
        return endpoint if lasts and endpoint in self.port.endpoints else None

    @property
    def coming(self) -> RelayEndpoint | None:
        """The endpoint whose turn it is; None where there is none."""
        endpoints = self.port.endpoints
        return endpoints[self.turn % len(endpoints)] if endpoints else None

    def _next(self, endpoints: tuple[RelayEndpoint, ...], failed: Collection[RelayEndpoint]) -> RelayEndpoint:
        for _ in endpoints:
            endpoint = endpoints[self.turn % len(endpoints)]
            self.turn += 1
            if endpoint not in failed:
                break
        return endpoint

    def failed(self, client: str, endpoint: RelayEndpoint) -> None:
        """The endpoint did not answer this client: it is bound to it no longer (``affinity.retry.moves``)."""
        if self._bound.get(client, (None,))[0] == endpoint:
            del self._bound[client]

    def _bind(self, client: str, endpoint: RelayEndpoint, now: float) -> None:
        self._bound.pop(client, None)  # a dictionary keeps the order of insertion: the oldest comes first
        if len(self._bound) >= MAX_CLIENTS:
            del self._bound[next(iter(self._bound))]
        self._bound[client] = (endpoint, now)
