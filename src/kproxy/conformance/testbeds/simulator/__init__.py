"""The simulator testbed: what kproxy would give the kernel, walked in memory.  No root, no kernel, no time.

The only room of the harness that may import the proxy.  Probes are exhaustive: every outcome that
chance allows is returned once.  What needs a connection's later packets, time or a process is left
to the kernel, and `lacks` says so.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from kproxy.conformance.binding.bind import Instance
from kproxy.conformance.binding.kubernetes_objects import Document
from kproxy.conformance.binding.world import (
    AddAddress,
    Change,
    Key,
    Put,
    Remove,
    WithholdEvents,
    document_key,
    lab_objects,
)
from kproxy.conformance.case import (
    AllowWrites,
    Case,
    CheckHealth,
    CheckLatency,
    CheckProxy,
    CheckTraces,
    CleanUp,
    ContinuousProbe,
    DelayWrites,
    DuringWatchFault,
    FailWrites,
    Feature,
    FlushRules,
    HealthRequest,
    Open,
    OutOfWindow,
    Ping,
    Probe,
    Profile,
    ReadSysctl,
    ReleasePort,
    Reopen,
    Restart,
    Send,
    StopListening,
    TakePort,
    UnjudgedAction,
    UnrelatedEntries,
    Wait,
)
from kproxy.conformance.engine.convergence import LatencySample
from kproxy.conformance.engine.session import OpenTestbed
from kproxy.conformance.testbed import HarnessError, Observation, Testbed
from kproxy.conformance.testbeds.simulator import iptables, ipvs, nftables, userspace
from kproxy.conformance.testbeds.simulator.settings import settings_of
from kproxy.conformance.testbeds.simulator.walk import NodeView, OpenKernel, SimulatedKernel, Walked
from kproxy.lab.topology import LAB, NODES
from kproxy.linux.netfilter.node_state import ClientEntry
from kproxy.model import api
from kproxy.model.network import Address, Family
from kproxy.proxy.plan import make_plan
from kproxy.proxy.snapshot import normalise
from kproxy.spec.outcome import Failure

BACKENDS: Mapping[str, OpenKernel] = {
    "iptables": iptables.IptablesTables,
    "ipvs": ipvs.IpvsState,
    "nftables": nftables.NftablesTable,
    "userspace": userspace.UserspaceTables,
}
"""The modes that can be simulated."""

NEEDS_KERNEL = {
    ContinuousProbe: "sends while rules change",
    Open: "follows a connection beyond its first packet",
    Send: "follows a connection beyond its first packet",
    Reopen: "follows a connection beyond its first packet",
    Ping: "sends something else than TCP, UDP or SCTP",
    CheckHealth: "queries a process",
    CheckProxy: "queries a process",
    ReadSysctl: "needs a kernel",
    UnrelatedEntries: "needs a kernel",
    CheckLatency: "needs time",
    OutOfWindow: "needs a kernel's conntrack",
    StopListening: "needs an endpoint that can refuse",
    Wait: "needs time",
    Restart: "needs a process",
    FailWrites: "needs a process",
    DelayWrites: "needs a process",
    AllowWrites: "needs a process",
    FlushRules: "needs a process",
    CleanUp: "needs a process",
    TakePort: "needs a process",
    ReleasePort: "needs a process",
    CheckTraces: "needs a kernel",
    DuringWatchFault: "needs an API server",
}
"""Steps that rules in memory cannot show."""


def opener(mode: str) -> OpenTestbed:
    """How `kproxy.conformance.engine.session` opens simulators of a mode."""
    if mode not in BACKENDS:
        raise HarnessError(f"there is no simulator for mode {mode}")

    @asynccontextmanager
    async def open_simulator(profile: Profile, _: Sequence[Instance]) -> AsyncIterator[Testbed]:
        yield Simulator(profile, mode)

    return open_simulator


@dataclass(slots=True)
class Simulator:
    """Both nodes' kernels, which are given at each `settle` what the proxy would give them."""

    profile: Profile
    mode: str = "iptables"
    name: str = "simulator"
    exhaustive: bool = True
    has_long_rounds: bool = False
    objects: dict[Key, Document] = field(default_factory=lab_objects)
    kernels: dict[tuple[str, Family], SimulatedKernel] = field(default_factory=dict)
    gained: set[tuple[str, Family]] = field(default_factory=set)
    remembered: dict[str, frozenset[ClientEntry]] = field(default_factory=dict)

    def not_runnable_reason(self, case: Case) -> str | None:
        """Why the simulator cannot run a case."""
        if case.features & {Feature.FORWARD_POLICY, Feature.INPUT_POLICY}:
            return "the simulator has no rules of others"
        if Feature.LOCALHOST_NODE_PORTS in case.features and self.mode in {"ipvs", "nftables"}:
            return "the simulator has no sockets, by which a relay serves loopback"
        if Feature.EXTERNAL_IPS_OF_NODES in case.features:
            return "the simulator has no routing, by which an address that a mode adds is missed elsewhere"
        for step in case.steps:
            if isinstance(step, Probe) and step.sender.spoofs_node:
                return "the simulator has no routing, which is what drops a node's own address from outside"
            if isinstance(step, Probe) and step.mark and self.mode == "userspace":
                return "the simulator has no process, whose packets have not the client's mark in this mode"
            if (reason := NEEDS_KERNEL.get(type(step))) is not None:
                return f"the simulator has no {type(step).__name__}: it {reason}"
        return None

    async def change(self, changes: Sequence[Change]) -> None:
        """Write objects."""
        for change in changes:
            match change:
                case Put(document=document):
                    self.objects[document_key(document)] = document
                case Remove(key=key):
                    del self.objects[key]
                case AddAddress(node=node, family=family):
                    self.gained.add((node, family))
                case WithholdEvents(changes=later):
                    await self.change(later)
                case _:
                    raise HarnessError("the simulator has no processes")

    async def settle(self) -> None:
        """Program both nodes for what the cluster is now."""
        cluster = api.parse_cluster(
            msgspec.json.encode({"kind": "List", "items": list(self.objects.values())})
        )
        for node in NODES:
            for family in Family:
                addresses = self._addresses(node, family)
                settings = settings_of(cluster, self.profile, self.mode, node, family)
                plan = make_plan(normalise(cluster, family), replace(settings, node_addresses=addresses))
                if (node, family) not in self.kernels:
                    mark = 1 << self.profile.masquerade_bit
                    self.kernels[node, family] = BACKENDS[self.mode](family, mark)
                self.kernels[node, family].apply(plan, frozenset(addresses))

    async def probe(self, instance: Instance, probe: Probe, count: int) -> Sequence[Observation]:
        """Every outcome the packet may have, with its chance; ``count`` does not matter."""
        question = instance.bound_packet(probe.sender, probe.to)
        node = question.node
        family = question.packet.family
        if (node, family) not in self.kernels:
            await self.settle()
        known = self.remembered.get(node, frozenset())
        view = NodeView(frozenset(self._addresses(node, family)), known)
        found = self.kernels[node, family].walk(question.packet, view)
        if probe.sticky_group:  # one of the possible connections has happened
            self.remembered[node] = known | min(found, key=lambda one: str(one.outcome)).remembered
        return [_observation(walked) for walked in found]

    def _addresses(self, node: str, family: Family) -> tuple[Address, ...]:
        more = (LAB.gained_address[node][family],) if (node, family) in self.gained else ()
        return (*LAB.local_addresses(node, family), *more)

    async def open_flow(self, instance: Instance, step: Open) -> Observation:
        """Not here: see `not_runnable_reason`."""
        raise HarnessError("the simulator has no flows")

    async def send_on_flow(self, instance: Instance, step: Send) -> Observation:
        """Not here: see `not_runnable_reason`."""
        raise HarnessError("the simulator has no flows")

    async def reopen(self, instance: Instance, reopen: Reopen) -> Observation:
        """Not here: see `not_runnable_reason`."""
        raise HarnessError("the simulator has no flows")

    async def ping(self, instance: Instance, ping: Ping) -> Observation:
        """Not here: see `not_runnable_reason`."""
        raise HarnessError("the simulator has no pings")

    async def check_health(self, instance: Instance, step: HealthRequest) -> Observation:
        """Not here: see `not_runnable_reason`."""
        raise HarnessError("the simulator has no processes")

    def convergence(self) -> Sequence[LatencySample]:
        """Rules in memory take no time."""
        return ()

    async def read_node(self, step: ReadSysctl | CheckTraces) -> str:
        """Not here: see `not_runnable_reason`."""
        raise HarnessError("the simulator has no kernel")

    async def watch_entries(self, instance: Instance, step: UnrelatedEntries) -> Observation:
        """Not here: see `not_runnable_reason`."""
        raise HarnessError("the simulator has no kernel")

    async def act(self, instance: Instance, act: UnjudgedAction) -> None:
        """Not here: see `not_runnable_reason`."""
        raise HarnessError("nothing happens in the simulator")

    async def reprobe(self, instance: Instance, step: Probe | Ping | CheckHealth | Send) -> None:
        """Nothing more can be seen here: each observation says by which chains it came."""

    async def evidence(self, instance: Instance, folder: Path) -> None:
        """Write the objects of the instance."""
        own = [document for key, document in self.objects.items() if key[1] == instance.namespace]
        folder.joinpath("objects.json").write_bytes(msgspec.json.format(msgspec.json.encode(own), indent=2))


def _observation(walked: Walked) -> Observation:
    outcome = walked.outcome
    by = f" by way of {' > '.join(walked.chains)}" if walked.chains else ""
    if isinstance(outcome, Failure):
        text = f"{outcome.value}{by}"
        return Observation(frozenset({outcome}), text, probability=walked.chance, stable_text=outcome.value)
    gist = f"delivered to {outcome.address}:{outcome.port} (source {outcome.source.value})"
    endpoint = (outcome.address, outcome.port)
    return Observation(frozenset({outcome}), gist + by, endpoint, walked.chance, stable_text=gist)
