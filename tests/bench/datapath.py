"""What the rules cost traffic: new connections directly to a pod and through Services, beside nodes without a proxy.

All proxies of a run, and the nodes without one, stand in labs of their own at the same time, and get their connections in
turns of a few hundred: what else the machine does meets all alike.  The client is a pod and the server another one of the
same node, so that each packet is forwarded.  In a rule set that is read from top to bottom it matters where a Service's rule
stands: of the Services with a real endpoint those are measured whose rules come first, in the middle and last in the kernel's
KUBE-SERVICES; elsewhere, those with the lowest, middle and highest cluster IP.  Of Services of UDP, in IPv6 and with node
ports only the last is measured.  On request, direct connections and those through the last Service once more while the cluster
changes, and full load (`tests.bench.full_load`).
"""

from __future__ import annotations

import asyncio
import itertools
import re
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import NamedTuple

from kproxy.conformance.subjects.subject import Subject
from kproxy.conformance.testbed import HarnessError
from kproxy.lab.apiserver import ObjectStore
from kproxy.lab.lab import open_lab
from kproxy.lab.namespaces import LabError, Namespace
from kproxy.lab.processes import Xtables, run_in, xtables_directory
from kproxy.lab.topology import LAB
from kproxy.model.network import Family, Protocol
from tests.bench import full_load, world
from tests.bench.changes import CHANGES
from tests.bench.connects import Client, Connect, Connector, Destination, Kind
from tests.bench.datapath_results import (
    CROWD,
    DIRECT,
    DIRECT_IPV6,
    DIRECT_UDP,
    EXTERNAL,
    FLOOR,
    FLOORS,
    IPV6,
    NODE_PORT,
    PLACES,
    TRACKED,
    UDP,
    Samples,
    amid,
)
from tests.bench.full_load import SINK, Loaded, Target
from tests.bench.measured_proxy import START_EVERY
from tests.bench.parameters import Parameters
from tests.bench.process import Tree
from tests.bench.stage import Stage, open_stage, put
from tests.bench.world import NODE, PORT, Crowd, Live, LiveEndpoint

CLIENT = "a2"
SERVER = LiveEndpoint("a1", 9100)
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
class Extent:
    """What is measured: connections to each place, one of them the ``crowd``; turns of full load; seconds of each churn."""

    connects: int
    crowd: Crowd | None = None
    load: int = 0
    churn: float = 0.0


@dataclass(frozen=True, slots=True)
class Measured:
    """Samples of a run, and by name the reasons why a proxy was not measured."""

    samples: tuple[Samples, ...]
    loads: tuple[Loaded, ...]
    troubles: Mapping[str, str]


class _Servers(NamedTuple):
    """Processes of a node's server: of new connections, and of flows."""

    accepting: Tree
    sinking: Tree


@dataclass(slots=True)
class _Node:
    """One node: the namespace of its client and, by place, its destinations with what was measured."""

    name: str
    namespace: Namespace
    servers: _Servers
    destinations: Mapping[str, Destination]
    found: dict[str, list[Connect]] = field(init=False)
    targets: Sequence[Target] = field(init=False)

    def __post_init__(self) -> None:
        self.found = {place: [] for place in self.destinations}
        self.targets = full_load.targets(self.destinations)

    def client_to(self, places: Iterable[str]) -> Client:
        """The client, to connect to these places."""
        return Client(self.namespace, [self.destinations[place] for place in places])

    async def turn_amid(self, connector: Connector, churn: str) -> None:
        """Connections directly and through the last Service, while something changes."""
        places = [place for place in (DIRECT, PLACES[-1]) if place in self.destinations]
        (results,) = await connector.connect(TURN, [self.client_to(places)])
        for place, result in zip(places, results, strict=True):
            self.found.setdefault(amid(place, churn), []).extend(result)

    async def load(self, connector: Connector, *, counts: bool) -> None:
        """A turn of each kind of load to each place."""
        for target in self.targets:
            server = self.servers.accepting if target.kind is Kind.CONNECTIONS else self.servers.sinking
            await target.turn(connector, self.namespace, server, counts=counts)


async def measure(parameters: Parameters, extent: Extent, progress: Callable[[str], None]) -> Measured:
    """Measure proxies in one mode at one size.

    Raises `kproxy.lab.namespaces.LabError` when this machine cannot.
    """
    troubles: dict[str, str] = {}
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kproxy-bench-")))
        connector, store = Connector(directory), _filled(parameters, extent.crowd)
        nodes = [
            await stack.enter_async_context(_bare(connector, name, rules)) for name, rules in _BARE.items()
        ]
        for subject in parameters.subjects:
            progress(f"{subject.name}: start")
            try:
                served_node = _served(parameters, subject, store, extent.crowd, connector, directory)
                nodes.append(await stack.enter_async_context(served_node))
            except HarnessError as reason:
                troubles[subject.name] = str(reason)
        await _turn(nodes, connector, WARM_UP, counts=False)
        turns = max(1, extent.connects // TURN)
        for number in range(turns):
            progress(f"turn {number + 1} of {turns}")
            await _turn(_rotated(nodes, number), connector, TURN, counts=True)
        for name, write in CHANGES.items() if extent.churn else ():
            progress(f"amid churn of {name}")
            await _amid(name, write(store, parameters), nodes, connector, extent.churn)
        for number in range(extent.load + bool(extent.load)):
            progress(f"load {number} of {extent.load}")
            for node in _rotated(nodes, number):
                await node.load(connector, counts=number > 0)
    samples = tuple(each for one in nodes for each in _samples(parameters, one))
    return Measured(
        samples, tuple(each for one in nodes if extent.load for each in _loads(parameters, one)), troubles
    )


async def _turn(nodes: Sequence[_Node], connector: Connector, count: int, *, counts: bool) -> None:
    """``count`` connections to each place of each node; those of UDP on their own, for after a wait TCP's take twice the time."""
    for protocol in (Protocol.TCP, Protocol.UDP):
        places = [
            [place for place, to in node.destinations.items() if to.protocol is protocol] for node in nodes
        ]
        clients = [node.client_to(own) for node, own in zip(nodes, places, strict=True)]
        results = await connector.connect(count, clients)
        for node, own, found in zip(nodes, places, results, strict=True):
            for place, result in zip(own, found, strict=True):
                node.found[place].extend(result if counts else ())


def _rotated(nodes: list[_Node], number: int) -> list[_Node]:
    """Each turn begins with another node."""
    first = number % len(nodes)
    return nodes[first:] + nodes[:first]


async def _amid(
    churn: str,
    written: Coroutine[None, None, None],
    nodes: list[_Node],
    connector: Connector,
    seconds: float,
) -> None:
    """Connections of all nodes while the cluster changes, for so many seconds."""
    loop, changing = asyncio.get_running_loop(), asyncio.ensure_future(written)
    until = loop.time() + seconds
    try:
        for number in itertools.count():
            for node in _rotated(nodes, number):
                await node.turn_amid(connector, churn)
            if changing.done() or loop.time() > until:
                break
    finally:
        changing.cancel()
        with suppress(asyncio.CancelledError):
            await changing


def _loads(parameters: Parameters, node: _Node) -> Iterator[Loaded]:
    tools = f"{parameters.mode} {parameters.variant.name.lower()}"
    for target in node.targets:
        yield Loaded(
            node.name,
            "" if node.name in FLOORS else tools,
            str(parameters.size),
            target.kind,
            target.place,
            target.turns,
        )


def _samples(parameters: Parameters, node: _Node) -> list[Samples]:
    return [
        Samples(
            node.name,
            parameters.mode,
            parameters.variant.name.lower(),
            str(parameters.size),
            place,
            sorted(each.nanoseconds for each in found if not each.errno),
            sum(bool(each.errno) for each in found),
        )
        for place, found in node.found.items()
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
async def _bare(connector: Connector, name: str, rules: Sequence[Sequence[str]]) -> AsyncIterator[_Node]:
    """A node without a proxy; connections to the pod are all that it can make."""
    async with open_lab() as lab:
        for tool, rule in product(("iptables-nft", "ip6tables-nft"), rules):
            lab.network[NODE].run((tool, *rule))
        lab.network[NODE].set(_FORGET_SOON)
        with _serving(connector, lab.network[SERVER.pod]) as servers:
            yield _Node(name, lab.network[CLIENT], servers, _SERVER)


_FORGET_SOON = {"netfilter/nf_conntrack_tcp_timeout_close": "1"}
"""Closed connections are forgotten after a second: at full load the table would be full of them."""


@contextmanager
def _serving(connector: Connector, pod: Namespace, *ports: int) -> Iterator[_Servers]:
    with connector.serving(pod, SERVER.port, *ports) as accepting, connector.sinking(pod, SINK.port) as sink:
        yield _Servers(accepting, sink)


@asynccontextmanager
async def _served(
    parameters: Parameters,
    subject: Subject,
    store: ObjectStore,
    crowd: Crowd | None,
    connector: Connector,
    directory: Path,
) -> AsyncIterator[_Node]:
    """A node with a proxy that has programmed everything.  Raises `HarnessError` if it does not."""
    async with open_stage(subject, parameters.mode, parameters.variant, store) as stage:
        stage.node.set(_FORGET_SOON)
        ports = crowd.ports if crowd else ()
        with _serving(connector, stage.namespace(SERVER.pod), *ports) as servers:
            tree = stage.start()
            for live in world.standing(parameters.size):
                await stage.answered(live, world.LIVE_ENDPOINTS[0], START_EVERY, parameters.patience)
            client = stage.namespace(CLIENT)
            served = [
                Destination(live.cluster_ip, PORT, live.protocol) for live in _further(parameters)[::101]
            ]
            await _all_answer(connector, client, served, parameters.patience)
            await stage.still(tree, parameters.patience)  # a proxy that answers may have rules to write yet
            destinations = await _destinations(parameters, stage, directory)
            if crowd:
                destinations[CROWD] = Destination(crowd.service.cluster_ip, PORT)
            await _all_answer(connector, client, tuple(destinations.values()), parameters.patience)
            yield _Node(subject.name, client, servers, destinations)


async def _all_answer(
    connector: Connector, client: Namespace, destinations: Sequence[Destination], within: float
) -> None:
    """Wait until a connection to each destination is made."""
    deadline = asyncio.get_running_loop().time() + within
    clients = [Client(client, destinations)]
    while any(each.errno for places in await connector.connect(1, clients) for one in places for each in one):
        if asyncio.get_running_loop().time() > deadline:
            raise HarnessError(f"some of {', '.join(map(str, destinations))} does not answer")
        await asyncio.sleep(START_EVERY)


@dataclass(frozen=True, slots=True)
class _Listing:
    """Where the rules of some Services stand, as ``-S`` prints the chain: the pattern's group is what ``key`` returns for one."""

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
_EXTERNAL_IPS = _Listing("iptables", "KUBE-SERVICES", _ADDRESSES, lambda live: str(live.external_ip))
_NODE_PORTS = _Listing("iptables", "KUBE-NODEPORTS", _PORTS, lambda live: str(live.node_port))


async def _destinations(parameters: Parameters, stage: Stage, directory: Path) -> dict[str, Destination]:
    async def ordered(lives: Sequence[Live], listing: _Listing) -> Sequence[Live]:
        lives = sorted(lives, key=lambda live: live.cluster_ip)
        if parameters.mode != "iptables":
            return lives
        return await _in_order_of_rules(stage.node, parameters.variant, directory, lives, listing)

    lives = await ordered(world.measured(parameters.size), _SERVICES)
    chosen = (lives[0], lives[len(lives) // 2], lives[-1])
    port = (await ordered(world.with_node_ports(parameters.size), _NODE_PORTS))[-1].node_port
    external = (await ordered(world.with_node_ports(parameters.size), _EXTERNAL_IPS))[-1].external_ip
    assert external is not None
    ipv6 = (await ordered(world.of_ipv6(parameters.size), _SERVICES_IPV6))[-1]
    udp = (await ordered(world.of_udp(parameters.size), _SERVICES))[-1]
    return {
        **_SERVER,
        **{place: Destination(live.cluster_ip, PORT) for place, live in zip(PLACES, chosen, strict=True)},
        NODE_PORT: Destination(LAB.node_address[NODE][Family.IPV4], port),
        EXTERNAL: Destination(external, PORT),
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


def _further(parameters: Parameters) -> tuple[Live, ...]:
    """The Services beside those of the other benches."""
    size = parameters.size
    return (*world.with_node_ports(size), *world.of_udp(size), *world.of_ipv6(size))


def _filled(parameters: Parameters, crowd: Crowd | None) -> ObjectStore:
    store, size = ObjectStore(), parameters.size
    further = _further(parameters)
    with store.batch():
        for document in (*world.documents(size), *(crowd.documents() if crowd else ())):
            put(store, document)
        for live in further:
            put(store, live.service())
        for live in (*world.measured(size), *further):
            put(store, live.slice(SERVER))
        for live in world.flows():
            put(store, live.service())
            put(store, live.slice(SINK))
    return store
