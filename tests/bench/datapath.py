"""What the rules cost traffic: new connections directly to a pod and through Services, beside nodes without a proxy.

All proxies of a run, and the nodes without one, stand in labs of their own at the same time, and get their connections in
turns of a few hundred: what else the machine does meets all alike.  The client is a pod and the server another one of the
same node, so that each packet is forwarded.  In a rule set that is read from top to bottom it matters where a Service's rule
stands: of the Services with a real endpoint those are measured whose rules come first, in the middle and last in the kernel's
KUBE-SERVICES; elsewhere, those with the lowest, middle and highest cluster IP.  Of Services of UDP, in IPv6 and with node
ports only the last is measured.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

from kproxy.conformance.subjects.subject import Subject
from kproxy.conformance.testbed import HarnessError
from kproxy.lab.apiserver import ObjectStore
from kproxy.lab.lab import open_lab
from kproxy.lab.namespaces import LabError, Namespace
from kproxy.lab.processes import Xtables, run_in, xtables_directory
from kproxy.lab.topology import LAB
from kproxy.model.network import Family, Protocol
from tests.bench import world
from tests.bench.connects import Connect, Connector, Destination
from tests.bench.contestant import START_EVERY
from tests.bench.datapath_results import (
    CROWD,
    DIRECT,
    DIRECT_IPV6,
    DIRECT_UDP,
    FLOOR,
    IPV6,
    NODE_PORT,
    PLACES,
    TRACKED,
    UDP,
    Samples,
)
from tests.bench.order import Order
from tests.bench.stage import Stage, open_stage, put
from tests.bench.world import NODE, PORT, Backend, Crowd, Live

CLIENT = "a2"
SERVER = Backend("a1", 9100)
WARM_UP = 50
"""Connections before those that count: addresses are resolved, and caches warm."""

TURN = 100
"""Connections to each destination in a turn."""

_LIST_TRIES = 120
"""How often a listing of rules is tried, a second apart."""

_SERVER = {
    DIRECT: Destination(SERVER.address(), SERVER.port),
    DIRECT_IPV6: Destination(SERVER.address(Family.IPV6), SERVER.port),
    DIRECT_UDP: Destination(SERVER.address(), SERVER.port, Protocol.UDP),
}
"""The pod itself, by place."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Samples of a run, and by name the reasons why a proxy was not measured."""

    samples: tuple[Samples, ...]
    troubles: Mapping[str, str]


@dataclass(slots=True)
class _Contestant:
    """One node: its client and, by place, its destinations with what was measured."""

    name: str
    client: Namespace
    destinations: Mapping[str, Destination]
    found: dict[str, list[Connect]] = field(init=False)

    def __post_init__(self) -> None:
        self.found = {place: [] for place in self.destinations}

    async def turn(self, connector: Connector, count: int, *, counts: bool) -> None:
        """``count`` connections to each place; those of UDP on their own, for after a wait TCP's take twice the time."""
        for protocol in (Protocol.TCP, Protocol.UDP):
            places = {place: to for place, to in self.destinations.items() if to.protocol is protocol}
            results = await connector.connect(self.client, count, list(places.values()))
            for place, result in zip(places, results, strict=True):
                self.found[place].extend(result if counts else ())


async def measure(order: Order, connects: int, crowd: Crowd | None, say: Callable[[str], None]) -> Measured:
    """Measure proxies in one mode at one size, ``connects`` connections to each destination, one of them the ``crowd``.

    Raises `kproxy.lab.namespaces.LabError` when this machine cannot.
    """
    troubles: dict[str, str] = {}
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kproxy-bench-")))
        connector, store = Connector(directory), _filled(order, crowd)
        contestants = [
            await stack.enter_async_context(_bare(connector, name, rules)) for name, rules in _BARE.items()
        ]
        for subject in order.subjects:
            say(f"{subject.name}: start")
            try:
                seat = _served(order, subject, store, crowd, connector, directory)
                contestants.append(await stack.enter_async_context(seat))
            except HarnessError as reason:
                troubles[subject.name] = str(reason)
        for contestant in contestants:
            await contestant.turn(connector, WARM_UP, counts=False)
        turns = max(1, connects // TURN)
        for number in range(turns):
            say(f"turn {number + 1} of {turns}")
            for contestant in (
                contestants[number % len(contestants) :] + contestants[: number % len(contestants)]
            ):
                await contestant.turn(connector, TURN, counts=True)
    return Measured(tuple(each for one in contestants for each in _samples(order, one)), troubles)


def _samples(order: Order, contestant: _Contestant) -> list[Samples]:
    return [
        Samples(
            contestant.name,
            order.mode,
            order.variant.name.lower(),
            str(order.size),
            place,
            sorted(each.nanoseconds for each in found if not each.errno),
            sum(bool(each.errno) for each in found),
        )
        for place, found in contestant.found.items()
    ]


_BARE = {
    FLOOR: (),
    TRACKED: (
        ("-t", "nat", "-A", "PREROUTING", "-j", "ACCEPT"),
        ("-t", "nat", "-A", "POSTROUTING", "-j", "ACCEPT"),
        ("-A", "FORWARD", "-m", "conntrack", "--ctstate", "NEW", "-j", "ACCEPT"),
    ),
}
"""Rules of the nodes without a proxy."""


@asynccontextmanager
async def _bare(
    connector: Connector, name: str, rules: Sequence[Sequence[str]]
) -> AsyncIterator[_Contestant]:
    """A node without a proxy; connections to the pod are all that it can make."""
    async with open_lab() as lab:
        for tool, rule in product(("iptables-nft", "ip6tables-nft"), rules):
            lab.network[NODE].run((tool, *rule))
        with connector.serving(lab.network[SERVER.pod], SERVER.port):
            yield _Contestant(name, lab.network[CLIENT], _SERVER)


@asynccontextmanager
async def _served(
    order: Order,
    subject: Subject,
    store: ObjectStore,
    crowd: Crowd | None,
    connector: Connector,
    directory: Path,
) -> AsyncIterator[_Contestant]:
    """A node with a proxy that has programmed everything.  Raises `HarnessError` if it does not."""
    async with open_stage(subject, order.mode, order.variant, store) as stage:
        with ExitStack() as stack:
            ports = (SERVER.port, *(crowd.ports if crowd else ()))
            stack.enter_context(connector.serving(stage.namespace(SERVER.pod), *ports))
            tree = stage.start()
            for live in world.standing(order.size):
                await stage.answered(live, world.BACKENDS[0], START_EVERY, order.patience)
            client = stage.namespace(CLIENT)
            served = [Destination(live.cluster_ip, PORT, live.protocol) for live in _further(order)[::101]]
            await _all_answer(connector, client, served, order.patience)
            await stage.still(tree)
            destinations = await _destinations(order, stage, directory)
            if crowd:
                destinations[CROWD] = Destination(crowd.service.cluster_ip, PORT)
            await _all_answer(connector, client, tuple(destinations.values()), order.patience)
            yield _Contestant(subject.name, client, destinations)


async def _all_answer(
    connector: Connector, client: Namespace, destinations: Sequence[Destination], within: float
) -> None:
    """Wait until a connection to each destination is made."""
    deadline = asyncio.get_running_loop().time() + within
    while any(each.errno for one in await connector.connect(client, 1, destinations) for each in one):
        if asyncio.get_running_loop().time() > deadline:
            raise HarnessError(f"some of {', '.join(map(str, destinations))} does not answer")
        await asyncio.sleep(START_EVERY)


@dataclass(frozen=True, slots=True)
class _Listing:
    """Where the rules of some Services stand, as ``-S`` prints the chain: the pattern's group is what ``key`` says of one."""

    tool: str
    chain: str
    pattern: re.Pattern[str]
    key: Callable[[Live], str]


_ADDRESSES = re.compile(r" -d (\S+)/(?:32|128) .*--dport \d+ ")
_PORTS = re.compile(r" --dport (\d+) ")


def _address(live: Live) -> str:
    return str(live.cluster_ip)


_SERVICES = _Listing("iptables", "KUBE-SERVICES", _ADDRESSES, _address)
_SERVICES_IPV6 = _Listing("ip6tables", "KUBE-SERVICES", _ADDRESSES, _address)
_NODE_PORTS = _Listing("iptables", "KUBE-NODEPORTS", _PORTS, lambda live: str(live.node_port))


async def _destinations(order: Order, stage: Stage, directory: Path) -> dict[str, Destination]:
    async def ordered(lives: Sequence[Live], listing: _Listing) -> Sequence[Live]:
        lives = sorted(lives, key=lambda live: live.cluster_ip)
        if order.mode != "iptables":
            return lives
        return await _in_order_of_rules(stage.node, order.variant, directory, lives, listing)

    lives = await ordered(world.measured(order.size), _SERVICES)
    chosen = (lives[0], lives[len(lives) // 2], lives[-1])
    port = (await ordered(world.with_node_ports(order.size), _NODE_PORTS))[-1].node_port
    ipv6 = (await ordered(world.of_ipv6(order.size), _SERVICES_IPV6))[-1]
    udp = (await ordered(world.of_udp(order.size), _SERVICES))[-1]
    return {
        **_SERVER,
        **{place: Destination(live.cluster_ip, PORT) for place, live in zip(PLACES, chosen, strict=True)},
        NODE_PORT: Destination(LAB.node_address[NODE][Family.IPV4], port),
        IPV6: Destination(ipv6.cluster_ip, PORT),
        UDP: Destination(udp.cluster_ip, PORT, Protocol.UDP),
    }


async def _in_order_of_rules(
    node: Namespace, variant: Xtables, directory: Path, lives: Sequence[Live], listing: _Listing
) -> Sequence[Live]:
    """The Services as their rules stand in the chain; as they are if not all have one there."""
    tool = xtables_directory(directory / "bin", variant) / listing.tool
    listed = await _listed(node, (str(tool), "-t", "nat", "-S", listing.chain))
    rows = [match[1] for line in listed.splitlines() if (match := listing.pattern.search(line))]
    rank = {key: number for number, key in enumerate(rows)}
    with suppress(KeyError):
        return sorted(lives, key=lambda live: rank[listing.key(live)])
    return lives


async def _listed(node: Namespace, command: Sequence[str]) -> str:
    """What the tool prints; it fails while a proxy writes, so it is tried again."""
    for _ in range(_LIST_TRIES):
        with suppress(LabError):
            return await run_in(node, command)
        await asyncio.sleep(1)
    return await run_in(node, command)


def _further(order: Order) -> tuple[Live, ...]:
    """The Services beside those of the other benches."""
    size = order.size
    return (*world.with_node_ports(size), *world.of_udp(size), *world.of_ipv6(size))


def _filled(order: Order, crowd: Crowd | None) -> ObjectStore:
    store, size = ObjectStore(), order.size
    further = _further(order)
    with store.batch():
        for document in (*world.documents(size), *(crowd.documents() if crowd else ())):
            put(store, document)
        for live in further:
            put(store, live.service())
        for live in (*world.measured(size), *further):
            put(store, live.slice(SERVER))
    return store
