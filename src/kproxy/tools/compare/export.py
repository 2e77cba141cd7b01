"""Export of a probe of a cluster as a case of the harness: self-contained, in names, without the cluster's addresses.

Pure.

The Service keeps what decides its packets: type, ports, policies, affinity, endpoints with their conditions and hints
as far as the lab has places for them. Endpoints that are not on the judging node become pods of the other one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from kproxy.conformance.binding.bind import NODE_PORT_KINDS
from kproxy.conformance.case import (
    Apply,
    Case,
    CaseEndpoint,
    CaseService,
    Policy,
    Port,
    Probe,
    Profile,
    SourceRange,
    Target,
    TargetKind,
    Type,
    Vantage,
    VantageKind,
    Vip,
    pod,
)
from kproxy.conformance.case import service as declare
from kproxy.conformance.cases import profiles
from kproxy.conformance.generate.case_source import case_source
from kproxy.conformance.generate.from_dump import PROBE_POD, CopiedInstance
from kproxy.conformance.generate.oracle_answers import with_oracle_answers
from kproxy.lab.topology import LAB
from kproxy.model import api
from kproxy.model.network import Address, Protocol, parse_address, parse_network
from kproxy.tools.explain.dump import Dump

NAME = "web"
_PORT_NAMES = ("a", "b", "c")
_PLACES = 2
"""Number of pods of each node that are endpoints; the third one is the sender."""
_DEFAULT_AFFINITY = 10800


def case_module(dump: Dump, found: CopiedInstance, id: str, reported: str) -> str:
    """Python module of the case of a difference; ``reported``: a sentence on where it comes from."""
    return case_source(case_of(dump, found, id), reported)


def case_of(dump: Dump, copied: CopiedInstance, id: str, profile: Profile = profiles.NODE_CIDR) -> Case:
    """Case of a probe, with the oracle's expectation."""
    writer = _Writer(dump, copied)
    web = writer.service()
    steps = (Apply(web), Probe(sender=writer.sender(), to=writer.target(web), expect=frozenset()))
    about = "From a cluster that was printed by kubectl; names and addresses are the lab's."
    families = (copied.family,)
    draft = Case(id=id, about=about, clauses=frozenset(), steps=steps, profile=profile, families=families)
    return with_oracle_answers(draft)


@dataclass(frozen=True, slots=True)
class _Writer:
    """Writer of one Service in a case's names, seen from the judging node."""

    dump: Dump
    copied: CopiedInstance

    @property
    def _judge(self) -> str:
        return self.copied.bound.node

    @property
    def _own(self) -> api.Service:
        return self.dump.cluster.services.get(self.copied.service, api.Service(metadata=api.Metadata()))

    def service(self) -> CaseService:
        spec, status = self._own.spec, self._own.status
        exposed = spec.type in {"NodePort", "LoadBalancer"} or bool(spec.external_ips)
        kind = Type(spec.type) if spec.type in {"NodePort", "LoadBalancer"} else Type.CLUSTER_IP
        config = spec.session_affinity_config
        seconds = config.client_ip.timeout_seconds if config and config.client_ip else None
        ingress = [e for e in status.load_balancer.ingress or [] if self._same_family(e.ip)]
        return declare(
            NAME,
            type=kind,
            ports=self._ports(),
            endpoints=tuple(self._copied_endpoints()),
            internal_policy=Policy.LOCAL if spec.internal_traffic_policy == "Local" else None,
            external_policy=Policy.LOCAL if exposed and spec.external_traffic_policy == "Local" else None,
            external_ips=sum(self._same_family(text) for text in spec.external_ips or []),
            vips=tuple(Vip(ip_mode=entry.ip_mode) for entry in ingress),
            source_ranges=self._ranges(),
            affinity_seconds=(seconds or _DEFAULT_AFFINITY) if spec.session_affinity == "ClientIP" else None,
        )

    def _same_family(self, text: str) -> bool:
        address = parse_address(text)
        return address is not None and address.version == self.copied.bound.packet.destination.version

    def _ports(self) -> tuple[Port, ...]:
        ports = self._own_ports()
        named = len(ports) > 1
        return tuple(
            Port(
                name=name if named else "",
                number=port.port,
                protocol=Protocol(port.protocol),
                node_port=bool(port.node_port),
            )
            for name, port in zip(_PORT_NAMES, ports, strict=False)
        )

    def _own_ports(self) -> list[api.ServicePort]:
        """As many of its ports as a case has names for, the probed one among them."""
        known = {protocol.value for protocol in Protocol}
        ports = [port for port in self._own.spec.ports or [] if port.protocol in known]
        ports = ports or [api.ServicePort(port=80)]
        probed_port = [port for port in ports[len(_PORT_NAMES) :] if self._is_probed(port)]
        return [*ports[: len(_PORT_NAMES) - len(probed_port)], *probed_port]

    def _is_probed(self, port: api.ServicePort) -> bool:
        packet = self.copied.bound.packet
        number = port.node_port if self.copied.probe.to.kind in NODE_PORT_KINDS else port.port
        return number == packet.port and port.protocol == packet.protocol.value

    def _ranges(self) -> tuple[SourceRange | str, ...]:
        """Source ranges of the exported Service.

        The sender's address alone if the original ranges admit it, else a range that admits no sender.
        """
        texts = self._own.spec.load_balancer_source_ranges or []
        ranges = [network for text in texts if (network := parse_network(text)) is not None]
        if not texts:
            return ()
        let_in = any(self.copied.bound.packet.source in network for network in ranges)
        return (self.sender().name,) if let_in else (SourceRange.NOWHERE,)

    # ----------------------------------------------------------------------- endpoints

    def _copied_endpoints(self) -> Iterator[CaseEndpoint]:
        used: set[str] = set()
        for address, endpoint in self._endpoints():
            on = self._place(address, used)
            if on:
                used.add(on)
                yield self._copied_endpoint(on, endpoint)

    def _endpoints(self) -> Iterator[tuple[Address, api.Endpoint]]:
        namespace, name = self.copied.service
        for piece in self.dump.cluster.slices.values():
            labels = piece.metadata.labels
            if piece.metadata.namespace == namespace and labels.get(api.SERVICE_NAME_LABEL) == name:
                for endpoint in piece.endpoints or []:
                    address = parse_address((endpoint.addresses or [""])[0])
                    if address is not None and self._same_family(str(address)):
                        yield address, endpoint

    def _place(self, address: Address, used: set[str]) -> str:
        """Free place on the endpoint's side: the judging node, or the other; empty when all are taken."""
        home, judge = self.copied.topology.namespace_of(address), self._judge
        if home == judge:
            return home if home not in used else ""
        node = judge if home in self.copied.topology.pods[judge] else self._other
        free = (f"{node}{number}" for number in range(1, _PLACES + 1))
        return next((place for place in free if place not in used), "")

    @property
    def _other(self) -> str:
        return next(node for node in LAB.nodes if node != self._judge)

    def _copied_endpoint(self, on: str, endpoint: api.Endpoint) -> CaseEndpoint:
        conditions, hints = endpoint.conditions or api.EndpointConditions(), endpoint.hints
        judge = self._judge
        zone, hostname = self.copied.topology.zones[judge], self.copied.topology.hostnames[judge]
        zones = {
            LAB.zones[judge if z.name == zone else self._other] for z in (hints and hints.for_zones) or []
        }
        nodes = {judge if n.name == hostname else self._other for n in (hints and hints.for_nodes) or []}
        return CaseEndpoint(
            on=on,
            ready=conditions.ready,
            serving=conditions.serving,
            terminating=conditions.terminating,
            zones=tuple(sorted(zones)),
            nodes=tuple(sorted(nodes)),
        )

    # --------------------------------------------------------------------------- senders and targets

    def sender(self) -> Vantage:
        who = self.copied.probe.sender
        if who.kind is not VantageKind.POD:
            return who
        return pod(f"{who.node}3" if who.name == PROBE_POD[who.node] else self._sending_endpoint())

    def _sending_endpoint(self) -> str:
        used: set[str] = set()
        for address, _ in self._endpoints():
            on = self._place(address, used)
            used.add(on)
            if address == self.copied.bound.packet.source and on:
                return on
        return f"{self._judge}3"

    def target(self, web: CaseService) -> Target:
        """Target of the probe at the exported Service, in the judging node's name."""
        to = self.copied.probe.to
        if to.kind is TargetKind.UNALLOCATED:
            return to
        return replace(to, service=web.name, port="" if to.undefined else self._port_name(web))

    def _port_name(self, web: CaseService) -> str:
        """Name of the probed port, which `_own_ports` always includes."""
        pairs = zip(web.ports, self._own_ports(), strict=True)
        return next(declared.name for declared, own in pairs if self._is_probed(own))
