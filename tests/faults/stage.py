"""Lab for faults: settled, with clients that never pause and a controlled connection to the API server.

Two nodes, a daemon on each, four clients that open one connection after the other (`tests.support.constant_rate`),
and a `Watchman` that polls each daemon's ``/healthz`` ten times a second.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from kproxy.conformance.binding.world import World
from kproxy.conformance.case import DEFAULT, Apply, pods
from kproxy.conformance.subjects.subject import Subject, load_subject
from kproxy.conformance.testbeds.netns import NetnsTestbed
from kproxy.conformance.testbeds.proxies import API_PORT, Proxies
from kproxy.conformance.testbeds.sentinel import Sentinel
from kproxy.lab.apiserver import ApiServer, ResourceKind
from kproxy.lab.lab import Lab, open_lab
from kproxy.lab.namespaces import Namespace
from kproxy.lab.probes.observation import Answered, ProbeRequest
from kproxy.lab.processes import Xtables, listen_in, run_in
from kproxy.lab.topology import LAB, NODES
from kproxy.model.network import Family
from tests.faults.wire import LOOPBACK, SERVER_PORT, Wire
from tests.support.constant_rate import RATE, Clients, sending
from tests.support.continuity import ROTATION, WEB, steady_case

LAUNCH = Path(__file__).with_name("launch.py")
HEALTH_PORT = 10256
HEALTH_PAUSE = 0.1
HEALTH_WITHIN = 5.0
"""Timeout of ``/healthz`` in seconds; an idle machine replies in milliseconds, a guest on a busy one can stall for over one."""
OVERDUE = 30.0
"""Seconds after which a change without any fault must have been applied."""
POLL = 0.01
"""Seconds between two looks at the data plane: in virtual time a loop that does not sleep stops the clock."""


@dataclass(frozen=True, slots=True)
class Proxy:
    """A mode and the tools beneath it."""

    mode: str
    variant: Xtables = Xtables.NFT

    def __str__(self) -> str:
        return f"{self.mode}-{self.variant.name.lower()}" if self.mode == "iptables" else self.mode


IPTABLES_NFT = Proxy("iptables", Xtables.NFT)
IPTABLES_LEGACY = Proxy("iptables", Xtables.LEGACY)
NFTABLES = Proxy("nftables")
IPVS = Proxy("ipvs", Xtables.LEGACY)


@dataclass
class Watchman:
    """Polls ``/healthz`` of both nodes until `stop`; records time (monotonic) and status."""

    nodes: Sequence[Namespace]
    pause: float = HEALTH_PAUSE
    observed: list[tuple[float, int | None]] = field(default_factory=list)
    """Time and status; None: the connection was refused."""
    stopped: bool = False

    async def run(self) -> None:
        while not self.stopped:
            for node in self.nodes:
                answer = await health(node)
                self.observed.append((time.monotonic(), answer))
            await asyncio.sleep(self.pause)

    def between(self, begin: float, end: float = float("inf")) -> set[int | None]:
        return {answer for at, answer in self.observed if begin <= at < end}


@asynccontextmanager
async def watching(watchman: Watchman) -> AsyncIterator[None]:
    """Context in which the watchman polls."""
    running = asyncio.create_task(watchman.run())
    try:
        yield
    finally:
        watchman.stopped = True
        await running


async def health(node: Namespace) -> int | None:
    """The status of ``/healthz``; None if the connection is refused or times out."""
    sock = node.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        async with asyncio.timeout(HEALTH_WITHIN):
            await asyncio.get_running_loop().sock_connect(sock, (str(LOOPBACK), HEALTH_PORT))
            reader, writer = await asyncio.open_connection(sock=sock)
            writer.write(b"GET /healthz HTTP/1.0\r\n\r\n")
            line = await reader.readline()
            writer.close()
    except OSError:
        sock.close()
        return None
    return int(line.split()[1]) if line else None


@dataclass
class Stage:
    """Lab, proxies and clients of a fault."""

    proxy: Proxy
    lab: Lab
    server: ApiServer
    bed: NetnsTestbed
    wires: dict[str, Wire]
    directory: Path
    clients: Clients
    watchman: Watchman
    world: World
    sync_period: float
    _sentinels: itertools.count[int] = field(default_factory=lambda: itertools.count(100))
    _rotation: itertools.cycle[tuple[str, ...]] = field(default_factory=lambda: itertools.cycle(ROTATION))
    pending: Sentinel | None = None
    """Last change, which must be in the kernel after the fault."""
    changed: float = 0.0
    """Time of the last change (monotonic)."""

    async def change(self) -> None:
        """Change the endpoints of the clients' Service, and add a Service."""
        await self.bed.change(
            self.world.apply_step(Apply(WEB.replace(endpoints=pods(*next(self._rotation)))))
        )
        for kind, namespace, name in self.pending.keys if self.pending else ():
            self.server.store.delete(ResourceKind(kind), namespace, name)
        self.pending = Sentinel(next(self._sentinels))
        for document in self.pending.documents:
            self.server.store.put(ResourceKind(document["kind"]), document)
        self.changed = time.monotonic()

    async def applied(self, within: float = OVERDUE) -> float:
        """Wait until both nodes serve the last change in both families; returns the seconds it took."""
        assert self.pending is not None, "a fault must change something meanwhile"
        started = time.monotonic()
        waiting = set(itertools.product(NODES, Family))
        while waiting:
            for node, family in tuple(waiting):
                if await self._served(node, self.pending, family):
                    waiting.discard((node, family))
            await asyncio.sleep(POLL)
            self.bed.proxies.check()
            took = time.monotonic() - started
            assert took < within, (
                f"not applied: {waiting}\n{self.bed.proxies.tail(next(iter(waiting), 'a')[0])}"
            )
        return took

    async def serves_old(self) -> bool:
        """True if no node serves the last change."""
        assert self.pending is not None
        places = itertools.product(NODES, Family)
        return not any([await self._served(node, self.pending, family) for node, family in places])

    async def _served(self, node: str, sentinel: Sentinel, family: Family) -> bool:
        request = ProbeRequest(
            sender=node, destination=sentinel.cluster_ip(family), port=sentinel.port, patience=0.05
        )
        seen = await self.lab.probe(request)
        return isinstance(seen, Answered) and seen.who == LAB.sentinel_pod

    async def rules(self) -> list[str]:
        """Rules of the nodes' kernels for IPv4, without counters and entries that packets create."""
        tool = f"iptables-{self.proxy.variant.name.lower()}-save"
        commands = {
            "iptables": ((tool,),),
            "nftables": (("nft", "-s", "list", "table", "ip", "kube-proxy"),),
            "ipvs": ((tool,), ("ipset", "save"), ("ip", "-o", "addr", "show", "kube-ipvs0")),
        }[self.proxy.mode]
        nodes = [self.lab.network[node] for node in NODES]
        return [lasting(await run_in(node, command)) for node in nodes for command in commands]

    def folder(self, node: str) -> Path:
        """A daemon's own files (`tests.faults.launch`)."""
        return self.directory / node

    def disk(self, node: str) -> Path:
        """The file system of the daemon's log and temporary files, as the daemon sees it."""
        folder = (self.folder(node) / "disk").relative_to("/")
        return Path(f"/proc/{self.bed.proxies.pid(node)}/root", folder)

    def lock(self, node: str) -> Path:
        """The file that its iptables tools lock."""
        return self.bed.proxies.log(node).with_suffix(".xtables.lock")

    def failures(self) -> int:
        """Number of injected write failures on both nodes."""
        reported = (self.folder(node) / "failed" for node in NODES)
        return sum(len(path.read_text().splitlines()) for path in reported if path.exists())

    def log(self, node: str) -> str:
        return self.bed.proxies.log(node).read_text(errors="replace")


def lasting(listed: str) -> str:
    """Lines without comments, which have dates, and without counters."""
    return "\n".join(line.split(" [")[0] for line in listed.splitlines() if line[:1] != "#")


def subject(sync_period: float, *, disk: bool) -> Subject:
    """kproxy by `tests.faults.launch`."""
    place = "disk" if disk else "plain"
    arguments = (
        "{python}",
        str(LAUNCH),
        "{directory}",
        place,
        f"{sync_period:g}s",
        "run",
        "--config",
        "{config}",
    )
    return replace(load_subject("kproxy"), command=arguments)


@asynccontextmanager
async def open_stage(
    proxy: Proxy, sync_period: float = 30.0, *, disk: bool = False, pause: float | None = None
) -> AsyncIterator[Stage]:
    """A stage; all that belongs to it is gone after the block.

    ``disk``: logs are on a small file system of their own.  ``pause``: least seconds between two connections of a client,
    and between two polls of health.
    """
    instance, probes = steady_case()
    with tempfile.TemporaryDirectory(prefix="kproxy-faults-") as name:
        directory = Path(name)
        async with open_lab() as lab, ApiServer() as server:
            proxies = Proxies(
                lab.network, subject(sync_period, disk=disk), proxy.mode, DEFAULT, proxy.variant, directory
            )
            bed = NetnsTestbed(lab, server, proxies)
            bed.prepare([instance])
            wires = await connect(lab, server)
            world = World(instance)
            try:
                for node in NODES:
                    proxies.start(node)
                await bed.change(world.apply_step(Apply(WEB)))
                await bed.settle()
                watchman = Watchman([lab.network[node] for node in NODES], pause or HEALTH_PAUSE)
                async with sending(bed, instance, probes, pause or RATE) as clients, watching(watchman):
                    yield Stage(
                        proxy, lab, server, bed, wires, directory, clients, watchman, world, sync_period
                    )
            finally:
                await proxies.kill_all()
                for wire in wires.values():
                    await wire.disconnect()


async def connect(lab: Lab, server: ApiServer) -> dict[str, Wire]:
    """Put a `Wire` between each node and the API server."""
    await server.listen(listen_in(lab.network[node], LOOPBACK, SERVER_PORT) for node in NODES)
    wires = {
        node: Wire(lab.network[node], API_PORT, f"127.0.0.{number}")
        for number, node in enumerate(NODES, start=2)
    }
    for wire in wires.values():
        await wire.connect()
    return wires
