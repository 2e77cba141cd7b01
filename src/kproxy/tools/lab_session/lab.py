"""Running lab of a cluster: its network, the objects in an API server, servers of endpoints, the proxy on each node.

``async with open_replica(...)`` builds it and waits until the proxy has applied everything; leaving removes it.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from ipaddress import ip_address
from pathlib import Path

from kproxy.conformance.binding.bind import Instance
from kproxy.conformance.binding.world import Change, Put, Remove
from kproxy.conformance.case import CheckHealth, Open, Ping, Probe, Profile, VantageKind
from kproxy.conformance.generate.from_dump import PROBE_POD
from kproxy.conformance.subjects.subject import Subject
from kproxy.conformance.testbeds.admission import KINDS
from kproxy.conformance.testbeds.barrier import Place
from kproxy.conformance.testbeds.interpret import HOST
from kproxy.conformance.testbeds.netns import (
    BARRIER,
    SLOW_BARRIER,
    SLOW_PATIENCE,
)
from kproxy.conformance.testbeds.packet_testbed import PATIENCE, PacketTestbed
from kproxy.conformance.testbeds.probe_transport import LabTransport
from kproxy.conformance.testbeds.proxies import Proxies, node_identities
from kproxy.conformance.testbeds.sentinel import SENTINEL_PORT
from kproxy.conformance.testbeds.settling import Settling
from kproxy.lab.apiserver import ApiServer
from kproxy.lab.kernels.abilities import KernelName
from kproxy.lab.kernels.current import kernel_here
from kproxy.lab.lab import Lab, allow_many_files
from kproxy.lab.network import build_network
from kproxy.lab.probes.observation import ProbeRequest
from kproxy.lab.processes import Xtables
from kproxy.lab.topology import CLIENT, REMOTE, Topology
from kproxy.lab.wiring import LabWiring
from kproxy.model.network import Address, Protocol, parse_address
from kproxy.tools.explain.dump import Dump

_COPIED = {"Service", "EndpointSlice", "Node", "ServiceCIDR"}

_ANYWHERE = (ip_address("0.0.0.0"), ip_address("::"))  # noqa: S104 (in a namespace of the lab)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxySetup:
    """Subject and mode on the nodes, with configuration and seconds to apply (0: the kernel's default).

    ``daemons``: a server on each node replies at every node port's number, so that packets which a proxy leaves alone
    are recognised; `kproxy lab up` has none, as in the real cluster.
    """

    subject: Subject
    mode: str
    variant: Xtables
    profile: Profile
    cluster_cidrs: tuple[str, ...] = ()
    sync_timeout: float = 0.0
    daemons: bool = True


class Replica(PacketTestbed):
    """Running lab of a cluster: a testbed for the Services that it has."""

    def __init__(self, dump: Dump, lab: Lab, order: ProxySetup, directory: Path) -> None:
        self.topology, self.lab, self.order, self.directory = lab.topology, lab, order, directory
        super().__init__(LabTransport(lab))
        slow = kernel_here() in {KernelName.UML, KernelName.VM}
        barrier = order.sync_timeout or (SLOW_BARRIER if slow else BARRIER)
        self._settling = Settling(self.change, lab.probe, self._overdue, barrier, lab.topology)
        self._slowness = SLOW_PATIENCE / PATIENCE if slow else 1.0
        self._dump = dump
        self.server = ApiServer()
        self.proxies = Proxies(
            lab.network, order.subject, order.mode, order.profile, order.variant, directory
        )
        self.proxies.nodes = node_identities(lab.topology, order.cluster_cidrs)
        self.unserved: list[str] = []
        """Endpoints that no server could listen for, with the reason."""

    # ----------------------------------------------------------------------- before the start

    def prepare(self) -> None:
        """Write the objects to the API server and listen wherever an endpoint or a node port is."""
        for document in self._dump.documents:
            if document["kind"] in _COPIED:
                self.server.store.put(KINDS[document["kind"]], document)
        for where, port, protocol, who, addresses in dict.fromkeys(self._listeners()):
            try:
                self.lab.servers.serve(self.lab.network[where], port, protocol, who, addresses)
            except OSError as error:
                self.unserved.append(f"{who} {port}/{protocol.value}: {error.strerror}")
        pod = self.topology.sentinel_pod
        self.lab.servers.serve(self.lab.network[pod], SENTINEL_PORT, Protocol.TCP, pod)

    def _listeners(self) -> Iterator[tuple[str, int, Protocol, str, tuple[Address, ...]]]:
        nodes = self.topology.nodes
        for address, port, protocol in self._endpoints():
            home = self.topology.namespace_of(address)
            if home in nodes:  # of the host's network: beside the node's own servers
                yield home, port, protocol, home, (address,)
            elif home:
                yield home, port, protocol, home, _ANYWHERE
        taken = {
            (port, protocol)
            for a, port, protocol in self._endpoints()
            if self.topology.namespace_of(a) in nodes
        }
        for service in self._dump.cluster.services.values():
            for entry in service.spec.ports or []:
                protocol = Protocol(entry.protocol or "TCP")
                if self.order.daemons and entry.node_port and (entry.node_port, protocol) not in taken:
                    for node in nodes:
                        yield node, entry.node_port, protocol, HOST + node, _ANYWHERE

    def _endpoints(self) -> Iterator[tuple[Address, int, Protocol]]:
        for piece in self._dump.cluster.slices.values():
            for endpoint in piece.endpoints or []:
                address = parse_address((endpoint.addresses or [""])[0])
                for port in piece.ports or []:
                    if address is not None and port.port:
                        with suppress(ValueError):  # an unknown protocol
                            yield address, port.port, Protocol(port.protocol or "TCP")

    # ----------------------------------------------------------------------- the barrier

    async def settle(self) -> None:
        """Return when the proxy of every node has applied all objects. Raises `SubjectFailed` when it never does."""
        await self._settling.settle(self.proxies.check)

    async def remove_sentinels(self) -> None:
        """Delete the Services by which `settle` has seen it."""
        await self._settling.remove_sentinels()

    async def change(self, changes: Sequence[Change]) -> None:
        """Write or delete objects."""
        for change in changes:
            match change:
                case Put(document=document):
                    self.server.store.put(KINDS[document["kind"]], document)
                case Remove(key=(kind, namespace, name)):
                    self.server.store.delete(KINDS[kind], namespace, name)
                case _:
                    raise AssertionError(change)

    def _overdue(self, waiting: Sequence[Place], seconds: float) -> str:
        missing = ", ".join(f"{self.topology.hostnames[node]} {family.value}" for node, family in waiting)
        log = self.proxies.tail(waiting[0][0]) or "(it has written nothing)"
        name = f"{self.order.subject.name} ({self.order.mode})"
        return f"{name} has not applied all objects within {seconds:g} s: {missing}\n{log}"

    # ----------------------------------------------------------------------- probes

    def _request(
        self, instance: Instance, step: Probe | Open | Ping | CheckHealth, size: int = 0
    ) -> ProbeRequest:
        """Request from the packet's own source, since many pods share a namespace; on an emulated kernel it waits longer."""
        request = super()._request(instance, step, size)
        packet = instance.bound_packet(step.sender, step.to).packet
        source = None if step.sender.kind is VantageKind.HOST else packet.source
        return replace(request, source=source, patience=request.patience * self._slowness)


@asynccontextmanager
async def open_replica(dump: Dump, topology: Topology, order: ProxySetup) -> AsyncIterator[Replica]:
    """Build a lab, start the proxies and wait until they have applied everything; all is gone after the block.

    Raises `LabError` when a prerequisite is missing, `SubjectFailed` when a proxy ends or does not get ready.
    """
    allow_many_files()
    senders = (p for p, own in topology.pod_addresses.items() if len(own) > 2 or p in PROBE_POD.values())
    watched = (*topology.nodes, CLIENT, REMOTE, *senders)
    with tempfile.TemporaryDirectory(prefix="kproxy-lab-") as directory:
        lab = Lab(build_network(LabWiring(topology)), watched, topology=topology)
        try:
            replica = Replica(dump, lab, order, Path(directory))
            replica.prepare()
            async with replica.server:
                try:
                    await replica.proxies.start_all(replica.server)
                    await replica.settle()
                    yield replica
                finally:
                    await replica.proxies.kill_all()
        finally:
            lab.close()
