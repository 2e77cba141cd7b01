"""One node of a lab with one proxy process, its API server, and a client that connects to Services.

The lab's ``elsewhere`` replies for a Service that is not programmed yet, so no SYN is lost and retransmitted after a
second.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from ipaddress import ip_address
from pathlib import Path

from kproxy.conformance.subjects.subject import Subject
from kproxy.conformance.testbed import HarnessError
from kproxy.conformance.testbeds.proxies import API_PORT, Proxies
from kproxy.lab.apiserver import ApiServer, ObjectStore, ResourceKind
from kproxy.lab.lab import Lab, open_lab
from kproxy.lab.namespaces import Namespace
from kproxy.lab.probes.observation import Answered, ProbeRequest
from kproxy.lab.processes import Xtables, listen_in
from kproxy.model.network import Protocol
from tests.bench.process import Tree
from tests.bench.world import LIVE_ENDPOINTS, NODE, PORT, PROFILE, Document, Live, LiveEndpoint

ANSWER_PATIENCE = 0.2
"""Largest timeout of a connection attempt in seconds; then a new one begins."""
_FIRST_PATIENCE, _MORE_PATIENCE = 0.01, 0.001
"""First timeout, and its increment: a lost attempt must cost little compared with the time elapsed."""

_STILL = 0.25
"""Seconds without use of CPU after which a proxy is taken to have finished."""

_STILL_WITHIN = 20.0
_KINDS = {kind.value: kind for kind in ResourceKind}


def put(store: ObjectStore, document: Document) -> None:
    """Write an object to the API server."""
    store.put(_KINDS[document["kind"]], document)


def take_away(store: ObjectStore, *documents: Document) -> None:
    """Delete these objects from the API server, if they exist."""
    for document in documents:
        metadata = document["metadata"]
        with suppress(KeyError):
            store.delete(_KINDS[document["kind"]], metadata["namespace"], metadata["name"])


class Stage:
    """A lab's node, its proxy, and its API server's objects."""

    def __init__(self, lab: Lab, server: ApiServer, proxies: Proxies) -> None:
        """See `open_stage`."""
        self._lab, self._server, self._proxies = lab, server, proxies
        self.store = server.store

    @property
    def node(self) -> Namespace:
        """The namespace the proxy programs."""
        return self._lab.network[NODE]

    def namespace(self, name: str) -> Namespace:
        """A namespace of the lab."""
        return self._lab.network[name]

    def start(self) -> Tree:
        """Start the proxy."""
        self._proxies.start(NODE)
        return Tree(self._proxies.pid(NODE))

    def requested(self) -> float:
        """Time at which the proxy had requested all objects: its first request for the last kind of them."""
        first: dict[ResourceKind, float] = {}
        for request in self._server.requests:
            first.setdefault(request.kind, request.at)
        return max(first[kind] for kind in (ResourceKind.SERVICE, ResourceKind.ENDPOINT_SLICE))

    async def answered(self, live: Live, endpoint: LiveEndpoint, every: float, within: float) -> float:
        """Connect repeatedly until this endpoint replies for the Service; returns the time of the reply.

        Raises `HarnessError` after a timeout, or if the proxy has ended.
        """
        deadline = time.monotonic() + within
        attempt = 0
        while True:
            seen = await self._lab.probe(_request(live, attempt))
            now = time.monotonic()
            if isinstance(seen, Answered) and seen.who == endpoint.who:
                return now
            self._proxies.check()
            if now > deadline:
                raise HarnessError(
                    f"Service {live.name} is not answered by {endpoint.who} within {within:.0f} s: {seen}"
                )
            attempt += 1
            await asyncio.sleep(every)

    async def still(self, tree: Tree, within: float = _STILL_WITHIN) -> float:
        """Wait until the proxy uses no CPU, or ``within`` seconds; returns its CPU seconds so far."""
        deadline = time.monotonic() + within
        used, since = tree.cpu(), time.monotonic()
        while (now := time.monotonic()) < min(since + _STILL, deadline):
            await asyncio.sleep(_STILL / 5)
            if (more := tree.cpu()) != used:
                used, since = more, now
        return used


def _request(live: Live, attempt: int) -> ProbeRequest:
    patience = min(ANSWER_PATIENCE, _FIRST_PATIENCE + attempt * _MORE_PATIENCE)
    return ProbeRequest(sender=NODE, destination=live.cluster_ip, port=PORT, patience=patience)


@asynccontextmanager
async def open_stage(
    subject: Subject, mode: str, variant: Xtables, store: ObjectStore
) -> AsyncIterator[Stage]:
    """A lab in which the proxy can be started; all of it is gone after the block."""
    with tempfile.TemporaryDirectory(prefix="kproxy-bench-") as directory:
        async with open_lab() as lab, ApiServer(store) as server:
            proxies = Proxies(lab.network, subject, mode, PROFILE, variant, Path(directory))
            await server.listen([listen_in(lab.network[NODE], ip_address("127.0.0.1"), API_PORT)])
            for endpoint in LIVE_ENDPOINTS:
                lab.servers.serve(lab.network[endpoint.pod], endpoint.port, Protocol.TCP, endpoint.who)
            try:
                yield Stage(lab, server, proxies)
            finally:
                await proxies.kill_all()
