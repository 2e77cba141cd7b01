"""The endpoints of one service port: all slices of the Service together, in one family.

Part of the specification: the endpoints of the EndpointSlices, before any is chosen.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kproxy.model import api
from kproxy.model.network import Address, Family, family_of, parse_address
from kproxy.spec.clauses import clause
from kproxy.spec.services import Reasons, protocol_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """An endpoint with the port it is reached on; conditions with the defaults of the API for those not written."""

    address: Address
    port: int
    ready: bool
    serving: bool
    terminating: bool
    node: str | None
    zones: frozenset[str]
    nodes: frozenset[str]
    slice: api.Key
    conditions_written: bool
    text: str

    @property
    def serves_while_terminating(self) -> bool:
        """True if it may answer when no endpoint is ready."""
        return self.serving and self.terminating

    @property
    def usable(self) -> bool:
        """True if it may answer in some state of the other endpoints."""
        return self.ready or self.serves_while_terminating


@dataclass(frozen=True, slots=True)
class Candidates:
    """The endpoints of a service port, one for each address and port, and the clauses that decided."""

    endpoints: tuple[Candidate, ...]
    reasons: Reasons


def endpoint_candidates(
    cluster: api.Cluster, service: api.Service, port: api.ServicePort, family: Family
) -> Candidates:
    """The endpoints that a service port has in a family."""
    listed = [
        found
        for piece in _slices(cluster, service, family)
        for number in _port_numbers(piece, port)
        for endpoint in piece.endpoints or []
        if (found := _candidate(piece, endpoint, number, family)) is not None
    ]
    merged: dict[tuple[Address, int], Candidate] = {}
    for found in sorted(listed, key=_precedence):
        merged[found.address, found.port] = found
    endpoints = tuple(merged.values())
    reasons = (
        *_merge_reasons(listed, endpoints),
        *_exclusion_reasons(cluster, service, port, family, endpoints),
    )
    return Candidates(endpoints, reasons)


def _slices(cluster: api.Cluster, service: api.Service, family: Family) -> Iterator[api.EndpointSlice]:
    """The EndpointSlices of a Service in a family."""
    for piece in own_slices(cluster, service):
        if piece.address_type == family.value and api.HEADLESS_LABEL not in piece.metadata.labels:
            yield piece


def own_slices(cluster: api.Cluster, service: api.Service) -> Iterator[api.EndpointSlice]:
    """The EndpointSlices of a Service, of any family."""
    namespace, name = api.key_of(service)
    for piece in cluster.slices.values():
        labelled = piece.metadata.labels.get(api.SERVICE_NAME_LABEL)
        if piece.metadata.namespace == namespace and labelled == name:
            yield piece


def _port_numbers(piece: api.EndpointSlice, service_port: api.ServicePort) -> Iterator[int]:
    """The numbers a slice gives for a service port: those under its name and protocol."""
    for port in piece.ports or []:
        same = port.name == (service_port.name or "") and protocol_of(port.protocol) is protocol_of(
            service_port.protocol
        )
        if same and port.port:
            yield port.port


def _candidate(
    piece: api.EndpointSlice, endpoint: api.Endpoint, number: int, family: Family
) -> Candidate | None:
    text = (endpoint.addresses or [""])[0]
    address = parse_address(text)
    if address is None or family_of(address) is not family:
        return None
    conditions = endpoint.conditions or api.EndpointConditions()
    hints = endpoint.hints or api.EndpointHints()
    return Candidate(
        address=address,
        port=number,
        ready=conditions.ready is not False,
        serving=conditions.serving is not False,
        terminating=conditions.terminating is True,
        node=endpoint.node_name,
        zones=frozenset(hint.name for hint in hints.for_zones or []),
        nodes=frozenset(hint.name for hint in hints.for_nodes or []),
        slice=api.key_of(piece),
        conditions_written=conditions.ready is not None,
        text=text,
    )


def _precedence(found: Candidate) -> tuple[bool, bool, bool, bool]:
    """Sort key of entries with one address and port; the greatest counts, first of all one not terminating."""
    return (not found.terminating, found.ready, found.serving, found.node is not None)


def _merge_reasons(listed: list[Candidate], endpoints: tuple[Candidate, ...]) -> Reasons:
    """Clauses by which several entries became one set of endpoints."""
    reasons = []
    if len({found.slice for found in endpoints if found.usable}) > 1:
        reasons.append(clause("slices.merged"))
    if len(listed) > len(endpoints):
        states = {(f.address, f.port, f.terminating) for f in listed}
        reused = len(states) > len(endpoints)
        reasons.append(
            clause("slices.address-reused.live-endpoint-wins")
            if reused
            else clause("slices.duplicates-are-one-endpoint")
        )
    return tuple(reasons)


def _exclusion_reasons(
    cluster: api.Cluster,
    service: api.Service,
    port: api.ServicePort,
    family: Family,
    endpoints: tuple[Candidate, ...],
) -> Reasons:
    """Clauses that exclude entries which look like endpoints of the port."""
    own = list(own_slices(cluster, service))
    usable = list(_slices(cluster, service, family))
    signs = {
        "slices.headless-label.ignored": any(api.HEADLESS_LABEL in s.metadata.labels for s in own),
        "slices.fqdn.ignored": any(s.address_type == "FQDN" for s in own),
        "slices.other-family.ignored": any(_other_family(s, family) for s in own),
        "slices.without-service-name.ignored": not own and _has_unclaimed(cluster, service),
        "slices.ports.without-name-or-number.skipped": any(_has_nameless_port(s) for s in usable),
        "slices.ports.matched-by-name-and-protocol": not endpoints
        and any(_names_another(s, port) for s in usable),
        "slices.endpoint.first-address-only": any(_has_more_addresses(s) for s in usable),
    }
    return tuple(clause(id) for id, holds in signs.items() if holds)


def _other_family(piece: api.EndpointSlice, family: Family) -> bool:
    return piece.address_type in {other.value for other in Family if other is not family}


def _has_unclaimed(cluster: api.Cluster, service: api.Service) -> bool:
    namespace = service.metadata.namespace
    return any(
        s.metadata.namespace == namespace and api.SERVICE_NAME_LABEL not in s.metadata.labels
        for s in cluster.slices.values()
    )


def _has_nameless_port(piece: api.EndpointSlice) -> bool:
    return any(port.name is None or not port.port for port in piece.ports or [])


def _names_another(piece: api.EndpointSlice, service_port: api.ServicePort) -> bool:
    named = piece.endpoints and piece.ports and not _has_nameless_port(piece)
    return bool(named) and not list(_port_numbers(piece, service_port))


def _has_more_addresses(piece: api.EndpointSlice) -> bool:
    return any(len(endpoint.addresses or []) != 1 for endpoint in piece.endpoints or [])
