"""The netns testbed: real packets on this machine's kernel, the subject's real processes.

One lab (`kproxy.lab`) and one API server for each profile.  Waiting is a barrier and no sleep (`settling`).
"""

from __future__ import annotations

import asyncio
import socket
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from ipaddress import ip_address
from pathlib import Path

from kproxy.conformance.binding.bind import FIRST_HEALTH_PORT, LOOPBACK_DAEMON_PORT, Instance
from kproxy.conformance.binding.kubernetes_objects import Document
from kproxy.conformance.binding.lab_objects import node_documents, unlabelled_node_documents
from kproxy.conformance.binding.world import (
    AcceptWrites,
    AddAddress,
    Change,
    NodeFault,
    OccupyPort,
    Put,
    RefuseWrites,
    Remove,
    RemoveProxy,
    RemoveRules,
    RestartProxy,
    SlowWrites,
    WithholdEvents,
    lab_objects,
)
from kproxy.conformance.case import (
    Case,
    CheckHealth,
    CheckLatency,
    CheckTraces,
    DelayWrites,
    DuringWatchFault,
    FailWrites,
    Feature,
    Flushed,
    Open,
    OutOfWindow,
    Ping,
    Probe,
    Profile,
    ReadSysctl,
    Restart,
    Send,
    Step,
    UnjudgedAction,
    UnrelatedEntries,
)
from kproxy.conformance.case.descriptions import NO_TRACES, describe_step
from kproxy.conformance.engine.convergence import BOUND, LatencySample
from kproxy.conformance.engine.session import OpenTestbed
from kproxy.conformance.subjects.subject import Subject
from kproxy.conformance.testbed import HarnessError, Observation, SubjectFailed, Testbed
from kproxy.conformance.testbeds import environment, raw_packets
from kproxy.conformance.testbeds.admission import KINDS, admission_problems
from kproxy.conformance.testbeds.barrier import Place
from kproxy.conformance.testbeds.bystanders import BystanderEntries
from kproxy.conformance.testbeds.evidence.collector import EvidenceCollector
from kproxy.conformance.testbeds.interpret import HOST, probe_context
from kproxy.conformance.testbeds.listeners import listeners
from kproxy.conformance.testbeds.packet_testbed import PATIENCE, QUIET, PacketTestbed
from kproxy.conformance.testbeds.probe_transport import LabTransport, lab_flow
from kproxy.conformance.testbeds.proxies import LabApiServer, Proxies
from kproxy.conformance.testbeds.sentinel import MOVED, MOVED_PORT, SENTINEL_PORT
from kproxy.conformance.testbeds.settling import Settling
from kproxy.conformance.testbeds.taken_answers import require_own_answers
from kproxy.conformance.testbeds.watch_faults import change_during_fault, merge_withheld, start_without_slices
from kproxy.lab.apiserver import ApiServer, ResourceKind
from kproxy.lab.faults import write_faults
from kproxy.lab.kernels.abilities import KernelName
from kproxy.lab.kernels.current import kernel_here
from kproxy.lab.kube import KubeApiServer, NotAdmitted
from kproxy.lab.kube.assets import Assets
from kproxy.lab.lab import Lab, Traced, open_lab
from kproxy.lab.namespaces import LabError
from kproxy.lab.node_objects import describe_difference, list_objects
from kproxy.lab.probes import crafted
from kproxy.lab.probes.observation import Silent
from kproxy.lab.processes import Xtables, listen_in
from kproxy.lab.topology import LOOPBACK
from kproxy.model.network import Family, Protocol
from kproxy.spec.outcome import Failure

SLOW_PATIENCE, SLOW_QUIET = 20.0, 2.0
"""Patience for a reply, and for silence, on an emulated kernel, in seconds."""
BARRIER, SLOW_BARRIER = 60.0, 240.0
"""Seconds that a subject has to apply changes, by default; the second on an emulated kernel."""
EMULATED_TIME = (
    "an emulated kernel starts processes and changes rules many times slower than a machine's own, and no control measures that: "
    "how long changes take is shown, and not judged"
)
ANY_ADDRESS = ip_address("::")
NOT_OURS = "a real API server is not ours to disturb"
MAX_REPROBED = 8
"""Number of connections of a repeated probe, where several endpoints may reply."""


def opener(
    subject: Subject,
    mode: str,
    variant: Xtables,
    barrier: float = 0.0,
    assets: Assets | None = None,
    *,
    sandboxed: bool = False,
) -> OpenTestbed:
    """Opener of labs for a subject, for `kproxy.conformance.engine.session`.

    It has ``barrier`` seconds to apply changes (0: the kernel's default). ``assets``: the programs of a real API
    server, to be used in place of the lab's own. ``sandboxed``: the subject runs in a sandbox and its disk use is
    limited.
    """

    @asynccontextmanager
    async def open_netns(profile: Profile, instances: Sequence[Instance]) -> AsyncIterator[Testbed]:
        with tempfile.TemporaryDirectory(prefix="kproxy-lab-") as directory:
            try:
                async with open_lab() as lab, _api_server(assets, Path(directory, "apiserver")) as server:
                    proxies = Proxies(lab.network, subject, mode, profile, variant, Path(directory))
                    proxies.sandboxed = sandboxed
                    testbed = NetnsTestbed(lab, server, proxies, barrier)
                    testbed.serves(profile.families)
                    testbed.prepare(instances)
                    if all(testbed.not_runnable_reason(instance.case) for instance in instances):
                        yield testbed  # without a proxy, which might not even start on this kernel
                        return
                    if not profile.zones_at_start and _with_hints(instances):
                        testbed.label_zones_later()
                    await testbed.control()
                    if Family.IPV6 not in profile.families:
                        lab.network.switch_off_ipv6(lab.topology.nodes)
                    tried = _tried(instances, subject, mode)
                    if profile.forward_drop and Feature.FORWARD_POLICY in tried:
                        await proxies.drop_forwarded()
                    if profile.health_ports_drop and Feature.INPUT_POLICY in tried:
                        await proxies.drop_health_checks(FIRST_HEALTH_PORT)
                    await testbed.list_traces(instances)
                    try:
                        await proxies.start_all(server)
                        async with _watched(proxies):
                            yield testbed
                        proxies.check()
                    finally:
                        await proxies.kill_all()
            except LabError as reason:
                raise HarnessError(str(reason)) from reason

    return open_netns


@asynccontextmanager
async def _watched(proxies: Proxies) -> AsyncIterator[None]:
    watchman = asyncio.create_task(proxies.watch())
    try:
        yield
    finally:
        watchman.cancel()


def _tried(instances: Sequence[Instance], subject: Subject, mode: str) -> frozenset[Feature]:
    """Features that a lab's cases need, among those that the subject claims; all of them where it claims none."""
    cases = [instance.case for instance in instances]
    claimed = [case for case in cases if not subject.missing_features(case, mode)] or cases
    return frozenset(feature for case in claimed for feature in case.features)


def _with_hints(instances: Sequence[Instance]) -> bool:
    return any(Feature.TOPOLOGY_HINTS in instance.case.features for instance in instances)


def _api_server(
    assets: Assets | None, directory: Path
) -> AbstractAsyncContextManager[ApiServer | KubeApiServer]:
    return ApiServer() if assets is None else KubeApiServer(assets, directory)


class NetnsTestbed(PacketTestbed):
    """A lab with the subject running on its nodes."""

    name = "netns"
    exhaustive = False
    has_long_rounds = False

    def __init__(self, lab: Lab, server: LabApiServer, proxies: Proxies, barrier: float = 0.0) -> None:
        self.lab, self.server, self.proxies = lab, server, proxies
        slow = _emulated()
        self._sync_timeout = barrier or (SLOW_BARRIER if slow else BARRIER)
        self._restored_within = BOUND * (SLOW_BARRIER / BARRIER if slow else 1)
        self._settling = Settling(
            self.change, self.lab.probe, self._overdue, self._sync_timeout, lab.topology, varied=True
        )
        self._ground = LabTransport(lab)
        super().__init__(self._ground, *((SLOW_PATIENCE, SLOW_QUIET) if slow else (PATIENCE, QUIET)))
        self._keeper = EvidenceCollector(lab, proxies)
        self._entries = BystanderEntries(lab.network)
        self._objections: dict[str, str] = {}
        self._refused: dict[str, str] = {}
        self._zones_to_come: Sequence[Document] = ()
        self._occupied: dict[tuple[str, int], socket.socket] = {}
        self._before: dict[str, frozenset[str]] = {}

    # ------------------------------------------------------------------ preparation

    def serves(self, families: Sequence[Family]) -> None:
        """Restrict the families that the subject is expected to serve."""
        self._settling.families = tuple(families)

    def prepare(self, instances: Sequence[Instance]) -> None:
        """Write the lab's own objects to the API server and open every server the cases need."""
        for document in lab_objects(self.lab.topology).values():
            self._put(document)
        if isinstance(self.server, KubeApiServer):
            self._objections = admission_problems(self.server.store, instances)
        for node in self.lab.topology.nodes:
            for protocol in (Protocol.TCP, Protocol.UDP):
                everywhere = tuple(LOOPBACK.values())
                self.lab.servers.serve(
                    self.lab.network[node], LOOPBACK_DAEMON_PORT, protocol, HOST + node, everywhere
                )
        pod = self.lab.topology.sentinel_pod
        for port, who in ((SENTINEL_PORT, pod), (MOVED_PORT, MOVED)):
            self.lab.servers.serve(self.lab.network[pod], port, Protocol.TCP, who)
        able = [instance for instance in instances if self.not_runnable_reason(instance.case) is None]
        for where, port, protocol, who in dict.fromkeys(listeners(able)):
            self.lab.servers.serve(self.lab.network[where], port, protocol, who)

    def label_zones_later(self) -> None:
        """Leave the zone labels of Nodes out until proxies run, so that one case alone judges their effect at a start."""
        for document in unlabelled_node_documents(self.lab.topology):
            self._put(document)
        self._zones_to_come = node_documents(self.lab.topology)

    def not_runnable_reason(self, case: Case) -> str | None:
        """Reason why this kernel cannot run a case."""
        if lacking := environment.reason_kernel_cannot_run(case, self.proxies.mode):
            return lacking
        if any(isinstance(step, CheckLatency) for step in case.steps) and _emulated():
            return EMULATED_TIME
        if case.id in self._objections:
            return f"a real API server does not hold its objects as they are: {self._objections[case.id]}"
        if any(isinstance(step, FailWrites | DelayWrites) for step in case.steps) and (
            reason := write_faults.write_faults_unavailable()
        ):
            return reason
        if not isinstance(self.server, ApiServer) and any(map(_disturbs_the_server, case.steps)):
            return NOT_OURS
        return None

    # ------------------------------------------------------------------ changes

    async def change(self, changes: Sequence[Change]) -> None:
        """Write objects to the API server; restart proxies."""
        for change in merge_withheld(changes):
            match change:
                case Put(document=document):
                    self._put(document)
                case Remove(key=(kind, namespace, name)):
                    self.server.store.delete(KINDS[kind], namespace, name)
                case RestartProxy():
                    await self._restart(change)
                case AddAddress(node=node, family=family):
                    self.lab.network.add_node_address(node, family, self.lab.topology)
                case WithholdEvents(fault=deaf, changes=later):
                    await change_during_fault(self._own_server(), deaf, partial(self.change, later))
                case _:
                    await self._disturb(change)

    async def _disturb(self, fault: NodeFault) -> None:
        match fault:
            case RefuseWrites(node=node, family=family):
                self._settling.excuse(node, family)
                await self.proxies.refuse_writes(node, family)
            case SlowWrites(node=node, seconds=seconds):
                await self.proxies.delay_writes(node, seconds)
            case AcceptWrites(node=node):
                await self.proxies.take_writes(node)
                self._settling.expect(node)
            case RemoveRules(node=node, what=what):
                await self.proxies.flush_rules(node, what)
                self._settling.expect_restored(
                    without_change=what is not Flushed.NFTABLES, within=self._restored_within
                )
            case RemoveProxy(node=node):
                self._settling.excuse(node)
                if self.proxies.runs_on(node):
                    await self.proxies.clean_up(node)
            case OccupyPort(node=node, port=port, ends=True):
                self._occupied.pop((node, port)).close()
            case OccupyPort(node=node, port=port):
                self._occupied[node, port] = listen_in(self.lab.network[node], ANY_ADDRESS, port)

    async def _restart(self, change: RestartProxy) -> None:
        await self.proxies.kill(change.node)
        await self.change(change.while_down)
        start = partial(self.proxies.start, change.node, change.masquerade_bit)
        if not change.without_slices:
            start()
            return
        server, within = self._own_server(), self._sync_timeout
        try:
            await start_without_slices(server, start, change.without_slices, within)
        except TimeoutError:
            silent = f"the subject has not listed EndpointSlices within {within:g} s: node {change.node}"
            raise SubjectFailed(self.proxies.explained(silent, change.node)) from None

    def _own_server(self) -> ApiServer:
        if not isinstance(self.server, ApiServer):
            raise HarnessError(NOT_OURS)
        return self.server

    def _put(self, document: Document) -> None:
        try:
            self.server.store.put(KINDS[document["kind"]], document)
        except NotAdmitted as reason:
            self._refused[document["metadata"].get("namespace", "")] = str(reason)

    def _check_refused(self, instance: Instance) -> None:
        if reason := self._refused.get(instance.namespace):
            raise HarnessError(f"the API server refused an object: {reason}")

    async def control(self) -> None:
        """Prove that the lab works before the subject is started; raises `HarnessError`."""
        await self._settling.control()

    async def list_traces(self, instances: Sequence[Instance]) -> None:
        """List what is on the nodes that a case compares with later."""
        steps = [step for instance in instances for step in instance.case.steps]
        for node in {step.node for step in steps if isinstance(step, CheckTraces)}:
            self._before[node] = await list_objects(self.lab.network[node], self.proxies.tools)

    async def settle(self) -> None:
        """Return when both proxies have applied everything that was written; raises as `Settling.settle`.

        With ``lone_changes`` that is so in the first round; later ones wait by the clock.
        """
        if self.proxies.profile.lone_changes and self._settling.served:
            await self._settling.pass_time(self.proxies.check, self.proxies.profile.min_sync_seconds)
        else:
            await self._settling.settle(self.proxies.check)
        if self._zones_to_come:
            labelled, self._zones_to_come = self._zones_to_come, ()
            for document in labelled:
                self._put(document)
            await self._settling.settle(self.proxies.check)
        self.proxies.settled()

    def convergence(self) -> Sequence[LatencySample]:
        """Latencies of changes up to now."""
        return tuple(self._settling.applied)

    def _overdue(self, waiting: Sequence[Place], seconds: float) -> str:
        missing = ", ".join(f"node {node} {family.value}" for node, family in waiting)
        late = f"the subject has not applied a Service within {seconds:g} s: {missing}"
        return self.proxies.explained(late, waiting[0][0])

    # ------------------------------------------------------------------ questions

    async def probe(self, instance: Instance, probe: Probe, count: int) -> Sequence[Observation]:
        """Send ``count`` new connections at once."""
        self._check_refused(instance)
        if raw_packets.needs_raw_packet(probe):
            quiet = self._quiet if Failure.DROPPED in probe.expect else self.patience
            return await asyncio.gather(
                *(self._send_raw(instance, probe, quiet, who) for who in range(count))
            )
        return await super().probe(instance, probe, count)

    async def _send_raw(self, instance: Instance, probe: Probe, patience: float, who: int) -> Observation:
        async with self._ground.semaphore:
            return await raw_packets.send_raw_probe(self.lab, instance, probe, patience, who)

    def read(self, traced: Traced, instance: Instance, step: Probe | Open) -> Observation:
        """Observation in outcomes. Raises `HarnessError` for silence that the kernel of another node caused."""
        if isinstance(seen := traced.observation, Silent):
            require_own_answers(seen.evidence, probe_context(instance, step), self.lab.network)
        return super().read(traced, instance, step)

    async def read_node(self, step: ReadSysctl | CheckTraces) -> str:
        """Value of a sysctl below ``net`` in a node's network namespace, or what the proxy left."""
        node = self.lab.network[step.node]
        if isinstance(step, ReadSysctl):
            return node.read(f"/proc/sys/net/{step.name}").strip()
        there = await list_objects(node, self.proxies.tools)
        return describe_difference(self._before[step.node], there) or NO_TRACES

    async def watch_entries(self, instance: Instance, step: UnrelatedEntries) -> Observation:
        """State of the inserted conntrack entries."""
        return await self._entries.observe(instance, step)

    async def act(self, instance: Instance, act: UnjudgedAction) -> None:
        """Perform an action that is not judged."""
        if isinstance(act, OutOfWindow):
            await crafted.send_out_of_window(self.lab, lab_flow(self._flow(instance, act.flow)[0]))
        else:
            await super().act(instance, act)

    # ------------------------------------------------------------------ evidence

    async def reprobe(self, instance: Instance, step: Probe | Ping | CheckHealth | Send) -> None:
        """Repeat a check with all witnesses; waits for unlawful silence less long than the first time."""
        patience, self.patience = self.patience, 2 * self._quiet
        try:
            from kproxy.conformance.testbeds.evidence.deciding_rules import deciding_rules

            rules = deciding_rules(self.lab, instance, step) if isinstance(step, Probe) else b""
            probe_again = partial(self._reprobe_step, instance, step)
            await self._keeper.reprobe(instance.name, describe_step(step), probe_again, rules)
        finally:
            self.patience = patience

    async def _reprobe_step(
        self, instance: Instance, step: Probe | Ping | CheckHealth | Send
    ) -> Sequence[Observation]:
        match step:
            case Probe():
                return await self.probe(instance, step, MAX_REPROBED if len(step.expect) > 1 else 1)
            case Ping():
                return [await self.ping(instance, step)]
            case CheckHealth():
                return [await self.check_health(instance, step)]
            case Send():
                return [await self.send_on_flow(instance, step)]

    async def evidence(self, instance: Instance, folder: Path) -> None:
        """Write objects, the state of both nodes, and the evidence of the repeated check."""
        objects = [
            document
            for kind in (ResourceKind.SERVICE, ResourceKind.ENDPOINT_SLICE)
            for document in self.server.store.documents(kind)
            if document["metadata"]["namespace"] == instance.namespace
        ]
        await self._keeper.keep(instance.name, objects, folder)


def _disturbs_the_server(step: Step) -> bool:
    return isinstance(step, DuringWatchFault) or (isinstance(step, Restart) and step.without_slices > 0)


def _emulated() -> bool:
    return kernel_here() in {KernelName.UML, KernelName.VM}
