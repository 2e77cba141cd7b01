"""The simulator testbed: kproxy's own rules, walked in memory.  No root, no kernel, no time.

The only room of the harness that may import the proxy.  Probes are exhaustive: every outcome that
chance allows is returned once.  What needs a connection's later packets, time or a process is left
to the kernel, and `lacks` says so.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import ip_network
from pathlib import Path

import msgspec

from kproxy import api
from kproxy.backends.iptables import base
from kproxy.backends.iptables.evaluate import Fate, Machine, Verdict, evaluate
from kproxy.backends.iptables.program import program, ruleset
from kproxy.backends.iptables.rules import Ruleset
from kproxy.conformance.bind import Instance
from kproxy.conformance.case import (
    Case,
    Hold,
    OutOfWindow,
    Probe,
    Profile,
    Restart,
    Use,
    Wait,
)
from kproxy.conformance.documents import Document
from kproxy.conformance.session import OpenTestbed
from kproxy.conformance.testbed import Broken, Observation, Testbed
from kproxy.conformance.world import Change, Key, Put, Remove, RestartProxy, key_of, surroundings
from kproxy.lab import topology
from kproxy.net import Address, Family, Network
from kproxy.plan import (
    DetectByCIDR,
    DetectByInterface,
    DetectByInterfacePrefix,
    LocalDetector,
    Settings,
    plan,
)
from kproxy.spec.outcome import Delivered, Failure, Outcome, Source
from kproxy.state import normalise

NEEDS_KERNEL = {
    Hold: "follows a connection beyond its first packet",
    Use: "follows a connection beyond its first packet",
    OutOfWindow: "needs a kernel's conntrack",
    Wait: "needs time",
    Restart: "needs a process",
}
"""Steps that rules in memory cannot show."""


def opener(mode: str) -> OpenTestbed:
    """How `kproxy.conformance.session` opens simulators of a mode."""
    if mode != "iptables":
        raise Broken(f"there is no simulator for mode {mode}")

    @asynccontextmanager
    async def open_simulator(profile: Profile, _: Sequence[Instance]) -> AsyncIterator[Testbed]:
        yield Simulator(profile)

    return open_simulator


@dataclass(slots=True)
class Simulator:
    """Both nodes' rules for a cluster, compiled anew at each `settle`."""

    profile: Profile
    name: str = "simulator"
    exhaustive: bool = True
    objects: dict[Key, Document] = field(default_factory=surroundings)
    rulesets: dict[tuple[str, Family], Ruleset] = field(default_factory=dict)
    recent: dict[str, frozenset[tuple[str, Address]]] = field(default_factory=dict)

    def lacks(self, case: Case) -> str | None:
        """Why the simulator cannot run a case."""
        for step in case.steps:
            if (reason := NEEDS_KERNEL.get(type(step))) is not None:
                return f"the simulator has no {type(step).__name__}: it {reason}"
        return None

    async def change(self, changes: Sequence[Change]) -> None:
        """Write objects."""
        for change in changes:
            match change:
                case Put(document=document):
                    self.objects[key_of(document)] = document
                case Remove(key=key):
                    del self.objects[key]
                case RestartProxy():
                    raise Broken("the simulator has no processes")

    async def settle(self) -> None:
        """Compile both nodes' rules for what the cluster is now."""
        cluster = api.parse(msgspec.json.encode({"kind": "List", "items": list(self.objects.values())}))
        for node in topology.NODES:
            for family in Family:
                settings = _settings(cluster, self.profile, node, family)
                desired = plan(normalise(cluster, family), settings)
                mark = 1 << self.profile.masquerade_bit
                self.rulesets[node, family] = ruleset(program(desired, base.Options(masquerade_mark=mark)))

    async def probe(self, instance: Instance, probe: Probe, count: int) -> Sequence[Observation]:
        """Every outcome the packet may have; ``count`` does not matter."""
        question = instance.question(probe.sender, probe.to)
        node = question.judge
        if (node, instance.family) not in self.rulesets:
            await self.settle()
        addresses = frozenset(topology.local_addresses(node, instance.family))
        machine = Machine(addresses=addresses, recent=self.recent.get(node, frozenset()))
        verdicts = evaluate(self.rulesets[node, instance.family], question.packet, machine)
        if probe.sticks:
            self._remember(node, question.packet.source, verdicts)
        return [_observation(verdict) for verdict in verdicts]

    def _remember(self, node: str, source: Address, verdicts: frozenset[Verdict]) -> None:
        """Let one of the possible connections have happened."""
        chosen = min(verdicts, key=lambda verdict: str(verdict.destination))
        known = self.recent.get(node, frozenset())
        self.recent[node] = known | {(name, source) for name in chosen.remembered}

    async def hold(self, instance: Instance, hold: Hold) -> Observation:
        """Not here: see `lacks`."""
        raise Broken("the simulator has no flows")

    async def use(self, instance: Instance, use: Use) -> Observation:
        """Not here: see `lacks`."""
        raise Broken("the simulator has no flows")

    async def out_of_window(self, instance: Instance, step: OutOfWindow) -> None:
        """Not here: see `lacks`."""
        raise Broken("the simulator has no flows")

    async def evidence(self, instance: Instance, folder: Path) -> None:
        """Write the objects of the instance."""
        own = [document for key, document in self.objects.items() if key[1] == instance.namespace]
        folder.joinpath("objects.json").write_bytes(msgspec.json.format(msgspec.json.encode(own), indent=2))


def _observation(verdict: Verdict) -> Observation:
    outcome = _outcome(verdict)
    chains = [name for name in verdict.path if name.startswith("KUBE-")]
    by = f" by way of {' > '.join(chains)}" if chains else ""
    if isinstance(outcome, Failure):
        return Observation(frozenset({outcome}), f"{outcome.value}{by}")
    text = f"delivered to {outcome.address}:{outcome.port} (source {outcome.source.value}){by}"
    return Observation(frozenset({outcome}), text, (outcome.address, outcome.port))


def _outcome(verdict: Verdict) -> Outcome:
    match verdict.fate:
        case Fate.REJECTED:
            return Failure.REJECTED
        case Fate.DROPPED:
            return Failure.DROPPED
        case Fate.PASSED if verdict.rewritten or verdict.masqueraded:
            source = Source.MASQUERADED if verdict.masqueraded else Source.PRESERVED
            return Delivered(verdict.destination, verdict.port, source)
        case Fate.PASSED:
            return Failure.UNTOUCHED


def _settings(cluster: api.Cluster, profile: Profile, node: str, family: Family) -> Settings:
    """What the profile's KubeProxyConfiguration means for a node."""
    document = cluster.node(topology.HOSTNAMES[node])
    labels = document.metadata.labels if document else {}
    return Settings(
        family=family,
        node=topology.HOSTNAMES[node],
        zone=labels.get(api.ZONE_LABEL, ""),
        node_ips=(topology.NODE_ADDRESS[node][family],),
        node_addresses=topology.local_addresses(node, family),
        detector=_detector(profile, node, family),
        masquerade_all=profile.masquerade_all,
        node_port_cidrs=_node_port_cidrs(profile, node, family),
        localhost_node_ports=profile.localhost_node_ports is not False,
        allow_external_ips=profile.allow_external_ips,
    )


def _detector(profile: Profile, node: str, family: Family) -> LocalDetector:
    match profile.detect:
        case "ClusterCIDR":
            return DetectByCIDR(topology.CLUSTER_CIDR[family])
        case "NodeCIDR":
            return DetectByCIDR(topology.POD_CIDRS[node][family])
        case "BridgeInterface":
            return DetectByInterface(profile.detect_interface)
        case "InterfaceNamePrefix":
            return DetectByInterfacePrefix(profile.detect_interface)
        case _:
            return None


def _node_port_cidrs(profile: Profile, node: str, family: Family) -> tuple[Network, ...] | None:
    if not profile.node_port_addresses:
        return None
    if profile.node_port_addresses == ("primary",):
        return (ip_network(topology.NODE_ADDRESS[node][family]),)
    return tuple(ip_network(text) for text in profile.node_port_addresses)
