"""Cluster testbed: the catalogue's checks, made by agents in pods and on nodes of a real cluster.

The subject is the cluster's own service proxy; nothing of it is started, configured or restarted. Objects are written
through `object_map`, probes are sent through `agent_transport`, and waiting is the same barrier as in a lab.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar, cast

import msgspec

from kproxy.conformance.binding.bind import LOOPBACK_DAEMON_PORT, Instance
from kproxy.conformance.binding.kubernetes_objects import Document
from kproxy.conformance.binding.world import Change, Put, Remove
from kproxy.conformance.case import (
    Case,
    CheckHealth,
    CheckTraces,
    Open,
    Ping,
    Probe,
    Profile,
    ReadSysctl,
    Send,
    UnrelatedEntries,
)
from kproxy.conformance.case.descriptions import describe_step
from kproxy.conformance.engine.convergence import LatencySample
from kproxy.conformance.engine.session import OpenTestbed
from kproxy.conformance.testbed import HarnessError, Observation, Testbed
from kproxy.conformance.testbeds.admission import KINDS, admission_problems
from kproxy.conformance.testbeds.barrier import Place as Late
from kproxy.conformance.testbeds.cluster import messages, pods, rejections
from kproxy.conformance.testbeds.cluster.address_map import (
    CLIENT,
    OUTSIDE,
    AddressesExhausted,
    AddressMap,
    build_address_map,
)
from kproxy.conformance.testbeds.cluster.agent_transport import AgentTransport
from kproxy.conformance.testbeds.cluster.cluster_topology import (
    ClusterNode,
    ClusterTopology,
    lowest_addresses,
)
from kproxy.conformance.testbeds.cluster.connection import ClusterConnection, NoCluster
from kproxy.conformance.testbeds.cluster.fleet import NO_OUTSIDE_AGENTS, Fleet, OutsideAgents, open_fleet
from kproxy.conformance.testbeds.cluster.limits import ClusterShape, case_not_runnable
from kproxy.conformance.testbeds.cluster.object_map import CASE, ObjectMap
from kproxy.conformance.testbeds.cluster.proxy_configuration import ProxyDaemonSet
from kproxy.conformance.testbeds.cluster.survey import (
    ClusterSurvey,
    node_internal_addresses,
    node_zone,
    object_name,
)
from kproxy.conformance.testbeds.interpret import HOST, probe_context
from kproxy.conformance.testbeds.listeners import listeners
from kproxy.conformance.testbeds.packet_testbed import PacketTestbed
from kproxy.conformance.testbeds.sentinel import SENTINEL_PORT
from kproxy.conformance.testbeds.settling import Settling
from kproxy.lab.apiserver import ResourceKind
from kproxy.lab.kube import NotAdmitted
from kproxy.lab.kube.store import KubeStore
from kproxy.lab.lab import Traced
from kproxy.lab.namespaces import LabError
from kproxy.lab.probes.observation import Answered, ProbeRequest
from kproxy.lab.probes.observation import Observation as Seen
from kproxy.lab.topology import LAB, LOOPBACK, NODES
from kproxy.model.network import Address, Family, Protocol
from kproxy.spec.outcome import Failure

T = TypeVar("T")

BARRIER = 60.0
"""Seconds that the cluster's proxies have to apply changes, by default."""


WRITERS = 4
"""Number of connections that objects are written over at once: one is mostly waiting."""


@dataclass(frozen=True)
class ClusterUnderTest:
    """Usable cluster: its connection, inventory, and the image of its agents."""

    connection: ClusterConnection
    store: KubeStore
    survey: ClusterSurvey
    image: str
    barrier: float = BARRIER
    outside: OutsideAgents = NO_OUTSIDE_AGENTS
    proxy: ProxyDaemonSet | None = None
    """The service proxy, if its configuration may be changed."""

    @property
    def neighbour(self) -> Document | None:
        """Third node, where there is one and no better client outside."""
        return None if self.outside.urls else self.survey.neighbour

    def stores(self, namespace: str) -> list[KubeStore]:
        """Stores for concurrent writes; each knows the namespace, which exists."""
        made = [self.connection.store() for _ in range(WRITERS)]
        for store in made:
            store.knows(namespace)
        return made

    @property
    def shape(self) -> ClusterShape:
        """Cases that can be expressed, as far as is known before agents run."""
        return ClusterShape(
            families=self.survey.families,
            zones_differ=self.survey.zones_differ,
            neighbour=self.neighbour is not None,
            outside=bool(self.outside.urls),
            configurable=self.proxy is not None,
        )


def opener(cluster: ClusterUnderTest) -> OpenTestbed:
    """Opener of cluster testbeds for `kproxy.conformance.engine.session`; without a runnable case it creates nothing there."""

    @asynccontextmanager
    async def open_cluster(profile: Profile, instances: Sequence[Instance]) -> AsyncIterator[Testbed]:
        able = [instance for instance in instances if case_not_runnable(instance.case, cluster.shape) is None]
        if not able:
            yield cast("Testbed", IdleTestbed(cluster.shape))
            return
        try:
            configured = cluster.proxy.having(profile) if cluster.proxy else nullcontext()
            async with configured, _agents(cluster) as agents:
                testbed = await _prepared(cluster, agents, able)
                yield testbed
        except (LabError, AddressesExhausted) as reason:
            raise HarnessError(str(reason)) from reason

    return open_cluster


@asynccontextmanager
async def _agents(cluster: ClusterUnderTest) -> AsyncIterator[Fleet]:
    survey = cluster.survey
    nodes = {name: object_name(node) for name, node in survey.nodes.items()}
    neighbour = "" if cluster.neighbour is None else object_name(cluster.neighbour)
    members = pods.agent_pods(nodes, neighbour)
    async with open_fleet(cluster.connection, cluster.store, members, cluster.image, cluster.outside) as made:
        yield made


async def _prepared(cluster: ClusterUnderTest, agents: Fleet, able: Sequence[Instance]) -> ClusterTestbed:
    abouts = await agents.send_all(messages.Hello(), messages.About)
    place = _cluster_topology(cluster, agents, abouts)
    shape = replace(cluster.shape, sctp=all(about.sctp for about in abouts.values()))
    testbed = ClusterTestbed(cluster, agents, build_address_map(place, able), shape)
    await testbed.prepare(able)
    return testbed


def _cluster_topology(
    cluster: ClusterUnderTest, agents: Fleet, abouts: Mapping[str, messages.About]
) -> ClusterTopology:
    for who in cluster.outside.urls:
        if abouts[who].accepts_redirects:
            raise NoCluster(
                f"the agent {who} outside accepts ICMP redirects, which would lead its packets round the node that a case is "
                f"about: on its machine set to 0 {', '.join(abouts[who].accepts_redirects)}"
            )
    nodes, survey = {}, cluster.survey
    for name, node in survey.nodes.items():
        own = node_internal_addresses(node)
        others: set[Address] = set(abouts[name].addresses) - set(own.values())
        nodes[name] = ClusterNode(
            name=object_name(node), addresses=own, zone=node_zone(node), others=frozenset(others)
        )
    try:
        outside = {who: lowest_addresses(abouts[who].addresses) for who in cluster.outside.urls}
    except ValueError as error:
        raise NoCluster(
            "a client outside needs two addresses of each family it has: see docs/kind.md"
        ) from error
    return ClusterTopology(
        namespace=agents.namespace,
        nodes=nodes,
        pods={pod: agents.addresses[pod] for pod in LAB.pod_address},
        service_cidrs=survey.service_cidrs,
        taken_addresses=survey.taken_addresses,
        taken_ports=survey.taken_ports,
        neighbour=None if cluster.neighbour is None else node_internal_addresses(cluster.neighbour),
        outside=outside,
    )


class IdleTestbed:
    """Testbed for a run without a runnable case: gives the reason for each case and does nothing else."""

    has_long_rounds = False

    def __init__(self, shape: ClusterShape) -> None:
        self._shape = shape

    def not_runnable_reason(self, case: Case) -> str | None:
        """Reason why a cluster cannot run a case."""
        return case_not_runnable(case, self._shape)

    def convergence(self) -> Sequence[LatencySample]:
        """Nothing changes."""
        return ()


class ClusterTestbed(PacketTestbed):
    """Testbed of agents in a cluster; made by `opener`."""

    name = "cluster"
    exhaustive = False
    has_long_rounds = True

    def __init__(
        self, cluster: ClusterUnderTest, agents: Fleet, address_map: AddressMap, shape: ClusterShape
    ) -> None:
        ground = AgentTransport(agents, address_map)
        super().__init__(ground)
        self._ground, self._agents, self._address_map = ground, agents, address_map
        self._stores, self._shape = cluster.stores(agents.namespace), shape
        self._outward = ObjectMap(address_map)
        served = replace(LAB, families=shape.families)
        self._settling = Settling(self.change, self._seen_by, _overdue, cluster.barrier, served)
        self._objections: dict[str, str] = {}
        self._refused: dict[str, str] = {}
        self._reprobed: dict[str, str] = {}
        self._rejections = rejections.RejectionPacer()

    # ------------------------------------------------------------------ preparation

    async def prepare(self, instances: Sequence[Instance]) -> None:
        """Query which objects the API server would not store, and open every server the cases need.

        A case's objects are much the same in both families: those of its first one are queried.
        """
        first = list({one.case.id: one for one in reversed(instances)}.values())
        through = self._outward.document
        checks = (
            asyncio.to_thread(admission_problems, store, lane, through) for store, lane in self._lanes(first)
        )
        for found in await asyncio.gather(*checks):
            self._objections |= found
        able = [instance for instance in instances if self.not_runnable_reason(instance.case) is None]
        wanted: dict[str, list[messages.Listener]] = {}
        for where, port, protocol, who in dict.fromkeys(listeners(able)):
            listener = messages.Listener(self._address_map.ports.apply(port), protocol, who)
            wanted.setdefault(where, []).append(listener)
        for node in NODES:
            wanted.setdefault(node, []).extend(self._daemons(node))
        sentinel = messages.Listener(SENTINEL_PORT, Protocol.TCP, LAB.sentinel_pod)
        wanted.setdefault(LAB.sentinel_pod, []).append(sentinel)
        served = await asyncio.gather(
            *(
                self._agents.send(where, messages.Serve(tuple(those)), messages.Served)
                for where, those in wanted.items()
            )
        )
        if problems := [problem for one in served for problem in one.problems]:
            raise HarnessError("; ".join(problems))

    def _daemons(self, node: str) -> list[messages.Listener]:
        loopback = tuple(LOOPBACK[family] for family in self._shape.families)
        return [
            messages.Listener(LOOPBACK_DAEMON_PORT, protocol, HOST + node, loopback)
            for protocol in (Protocol.TCP, Protocol.UDP)
        ]

    def not_runnable_reason(self, case: Case) -> str | None:
        """Reason why this cluster cannot run a case."""
        if case.id in self._objections:
            return (
                f"the cluster's API server does not hold its objects as they are: {self._objections[case.id]}"
            )
        return case_not_runnable(case, self._shape)

    # ------------------------------------------------------------------ changes

    async def change(self, changes: Sequence[Change]) -> None:
        """Write objects, in threads, since clients go on probing meanwhile. Changes of one case keep their order."""
        groups: dict[str, list[Change]] = {}
        for change in changes:
            groups.setdefault(_whose(change), []).append(change)
        lanes = self._lanes(list(groups.values()))
        await asyncio.gather(
            *(asyncio.to_thread(self._write, store, list(itertools.chain(*lane))) for store, lane in lanes)
        )

    def _lanes(self, work: Sequence[T]) -> list[tuple[KubeStore, Sequence[T]]]:
        """Work distributed over all connections."""
        return [(store, work[n :: len(self._stores)]) for n, store in enumerate(self._stores)]

    def _write(self, store: KubeStore, changes: Sequence[Change]) -> None:
        for change in changes:
            match change:
                case Put(document=document):
                    try:
                        store.put(KINDS[document["kind"]], self._outward.document(document))
                    except NotAdmitted as reason:
                        self._refused[document["metadata"]["namespace"]] = str(reason)
                case Remove(key=key):
                    kind, namespace, name = self._outward.key(key)
                    store.delete(KINDS[kind], namespace, name)
                case _:
                    raise HarnessError(f"in a cluster there is no {type(change).__name__}")

    async def settle(self) -> None:
        """Return when the proxies of both nodes have applied everything that was written; raises as `Settling.settle`."""
        await self._agents.send_all(messages.Forget(), messages.Done)
        await self._settling.settle()

    def convergence(self) -> Sequence[LatencySample]:
        """Latencies of changes up to now, as observed by the agents."""
        return tuple(self._settling.applied)

    async def _seen_by(self, request: ProbeRequest) -> Seen:
        (traced,) = await self._ground.probe(request, 1)
        return traced.observation

    # ------------------------------------------------------------------ questions

    async def probe(self, instance: Instance, probe: Probe, count: int) -> Sequence[Observation]:
        """Send ``count`` new connections at once."""
        if reason := self._refused.get(instance.namespace):
            raise HarnessError(f"the API server refused an object: {reason}")
        if not rejections.expects_rejection(probe.expect) or probe.mark:
            return await super().probe(instance, probe, count)
        request = replace(self._request(instance, probe, probe.payload_bytes), patience=rejections.PATIENCE)

        async def send() -> Observation:
            (traced,) = await self._transport.probe(request, 1)
            return self.read(traced, instance, probe)

        turns = (self._rejections.send(probe.sender.name, probe.expect, send) for _ in range(count))
        return await asyncio.gather(*turns)

    async def send_on_flow(self, instance: Instance, step: Send) -> Observation:
        """Exchange on a held flow."""
        seen = await super().send_on_flow(instance, step)
        if not isinstance(step.expect, frozenset):
            return seen
        flow, hold = self._flow(instance, step.flow)

        async def repeat() -> Observation:
            return self.read(await self._transport.exchange(flow, rejections.PATIENCE), instance, hold)

        return await self._rejections.judge(hold.sender.name, seen, step.expect, repeat)

    def read(self, traced: Traced, instance: Instance, step: Probe | Open) -> Observation:
        """Observation in outcomes.

        Beyond a cluster's nodes there is no server of the harness: a packet that leaves the judging node with the
        destination that it was sent to has been left alone, whatever happened to it then.
        """
        context = probe_context(instance, step)
        left = traced.evidence.left(context.judge)
        answered = isinstance(traced.observation, Answered)
        if left and not answered and not context.directly:
            destination = left[-1].destination
            if (destination.address, destination.port) == (context.packet.destination, context.port):
                text = (
                    f"untouched by the proxy: it left node {context.judge} by {left[-1].interface} as it came"
                )
                return Observation(frozenset({Failure.UNTOUCHED}), text)
        return super().read(traced, instance, step)

    async def read_node(self, step: ReadSysctl | CheckTraces) -> str:
        """Never called: `case_not_runnable` excludes cases that read a node's settings."""
        raise HarnessError(f"node {step.node} of a cluster cannot be read")

    async def watch_entries(self, instance: Instance, step: UnrelatedEntries) -> Observation:
        """Never called: `case_not_runnable` excludes cases with conntrack entries."""
        raise HarnessError(f"{instance.name}: the connection tracking of node {step.node} is the cluster's")

    # ------------------------------------------------------------------ evidence

    async def reprobe(self, instance: Instance, step: Probe | Ping | CheckHealth | Send) -> None:
        """Repeat a check once, alone."""
        match step:
            case Probe():
                seen = await self.probe(instance, step, 1)
            case Ping():
                seen = [await self.ping(instance, step)]
            case CheckHealth():
                seen = [await self.check_health(instance, step)]
            case Send():
                seen = [await self.send_on_flow(instance, step)]
        observed = "; ".join(one.text for one in seen) or "nothing"
        self._reprobed[instance.name] = f"repeated alone: {describe_step(step)}\nseen: {observed}\n"

    async def evidence(self, instance: Instance, folder: Path) -> None:
        """Write objects as the cluster stores them, places, reprobed observations, and both nodes' rules and tables."""
        objects = [
            document
            for kind in (ResourceKind.SERVICE, ResourceKind.ENDPOINT_SLICE)
            for document in await asyncio.to_thread(self._stores[0].documents, kind)
            if document["metadata"].get("labels", {}).get(CASE) == instance.namespace
        ]
        (folder / "objects.json").write_bytes(msgspec.json.format(msgspec.json.encode(objects)))
        (folder / "places.txt").write_text(self._places(instance.family))
        (folder / "reprobe.txt").write_text(self._reprobed.get(instance.name, "it was not repeated\n"))
        for node in NODES:
            reply = await self._agents.send(node, messages.ReadState(), messages.NodeState)
            for name, text in reply.texts.items():
                (folder / f"{node}.{name}.txt").write_text(text)

    def _places(self, family: Family) -> str:
        """Table of the lab's names and addresses, which verdicts use, and those of the cluster."""
        place = self._address_map.cluster
        nodes = {name: node.addresses for name, node in place.nodes.items()}
        lab = {**LAB.pod_address, **LAB.node_address}
        there = {**place.pods, **nodes, **({CLIENT: place.neighbour} if place.neighbour else {})}
        for who, addresses in place.outside.items():
            there |= {f"{who} {node}": own for node, own in addresses.items()}
            lab |= {f"{who} {node}": OUTSIDE[who][node] for node in addresses}
        names = {name: node.name for name, node in place.nodes.items()}
        lines = [
            f"{name:8}{lab.get(name, LAB.client_address['a'])[family]!s:>24} is {at[family]} {names.get(name, '')}"
            for name, at in there.items()
        ]
        return "\n".join(line.rstrip() for line in lines) + "\n"


def _whose(change: Change) -> str:
    """Lab's namespace of the changed object."""
    match change:
        case Put(document=document):
            return str(document["metadata"].get("namespace", ""))
        case Remove(key=(_, namespace, _)):
            return namespace
        case _:
            return ""


def _overdue(waiting: Sequence[Late], seconds: float) -> str:
    missing = ", ".join(f"node {node} {family.value}" for node, family in waiting)
    return f"the cluster's proxies have not applied a Service within {seconds:g} s: {missing}"
