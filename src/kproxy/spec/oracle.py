"""The oracle: API objects and one packet in, lawful outcomes out.

The specification as an interpreter, to be read from top to bottom.  It decides for each packet: is it for a Service, is
its source admitted, which endpoints may answer, which source do they see?  Each branch names the clause it rests on
(`kproxy.spec.clauses`).  It knows no proxy, no mode and no rules, keeps no state between packets and has no effects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import reduce

from kproxy.model import api
from kproxy.model.network import Address, Family, Packet
from kproxy.spec.admission import Admission, check_source_ranges
from kproxy.spec.candidates import Candidate, Candidates, endpoint_candidates
from kproxy.spec.clauses import clause
from kproxy.spec.endpoint_choice import EndpointChoice, EndpointScope, NodeLocality, choose_endpoints
from kproxy.spec.incidental_clauses import address_clauses, endpoint_clauses
from kproxy.spec.node import NodeFacts
from kproxy.spec.node_addresses import Serves, check_node_port_address
from kproxy.spec.outcome import Delivered, Expectation, Failure, Outcome, SourceIP
from kproxy.spec.policy import LOCAL, MASQUERADED, PRESERVED, PolicyDecision, SourceIPs, decide_policy
from kproxy.spec.sender import Sender, SenderKind, sender_of
from kproxy.spec.services import (
    Reasons,
    ServiceAddress,
    ServiceAddressKind,
    protocol_of,
    proxied_services,
    service_addresses,
    service_ports,
)
from kproxy.spec.unserved import expect_unserved

UNTOUCHED, REJECTED, DROPPED = Failure.UNTOUCHED, Failure.REJECTED, Failure.DROPPED


def expect(cluster: api.Cluster, node: NodeFacts, packet: Packet) -> Expectation:
    """The lawful outcomes of a packet, the first of its connection, at the first node it comes to.

    Endpoints are named by the address and port of their slices; every lawful one is in the set.
    """
    if packet.destination.is_loopback and not packet.entry.from_host:
        return Expectation(frozenset({DROPPED}), (clause("node-port.localhost.martian-dropped"),))
    if _spoofs_node_address(node, packet):
        return Expectation(frozenset({DROPPED}), (clause("traffic.own-source-from-outside.dropped"),))
    matched = list(matched_ports(cluster, node, packet))
    if not matched:
        return expect_unserved(cluster, node, packet)
    expectations = [_expect_at_port(cluster, node, packet, one) for one in matched]
    if len(expectations) > 1:
        expectations.append(_expectation((), (clause("traffic.two-services-one-address.either"),)))
    return reduce(lambda so_far, one: _with_outcomes(so_far, one.outcomes, one.clauses), expectations)


def _spoofs_node_address(node: NodeFacts, packet: Packet) -> bool:
    """A packet from outside whose source is the node's own address; IPv6 kernels let that pass."""
    own = packet.source.is_loopback or packet.source in node.addresses
    return packet.family is Family.IPV4 and own and not packet.entry.from_host


# --------------------------------------------------------------------------- which service address?


@dataclass(frozen=True, slots=True)
class MatchedPort:
    """A Service's port, at one of its addresses."""

    service: api.Service
    port: api.ServicePort
    service_address: ServiceAddress

    @property
    def kind(self) -> ServiceAddressKind:
        """The kind of address."""
        return self.service_address.kind


def matched_ports(cluster: api.Cluster, node: NodeFacts, packet: Packet) -> Iterator[MatchedPort]:
    """Service ports that a packet is sent to: those at a Service's own address before node ports."""
    own = list(_matched_at_service_address(cluster, node, packet))
    if own or packet.destination not in _own_addresses(node, packet):
        yield from own
        return
    for service, port in _served_ports(cluster, packet):
        if port.node_port == packet.port:
            yield MatchedPort(service, port, ServiceAddress(ServiceAddressKind.NODE_PORT, None))


def _own_addresses(node: NodeFacts, packet: Packet) -> frozenset[Address]:
    """The node's addresses; all of 127.0.0.0/8 and ::1 are, listed or not."""
    loopback = {packet.destination} if packet.destination.is_loopback else set()
    return node.addresses | loopback


def _matched_at_service_address(
    cluster: api.Cluster, node: NodeFacts, packet: Packet
) -> Iterator[MatchedPort]:
    for service, port in _served_ports(cluster, packet):
        listed = service_addresses(service, packet.family, allow_external_ips=node.allow_external_ips)
        for service_address in dict.fromkeys(listed):
            if service_address.address == packet.destination and port.port == packet.port:
                yield MatchedPort(service, port, service_address)


def _served_ports(cluster: api.Cluster, packet: Packet) -> Iterator[tuple[api.Service, api.ServicePort]]:
    """Every port of the packet's protocol, of every Service served in its family."""
    for service in proxied_services(cluster, packet.family):
        for port in service_ports(service):
            if protocol_of(port.protocol) is packet.protocol:
                yield service, port


# --------------------------------------------------------------------------- what becomes of it?

_REACHES = {
    ServiceAddressKind.CLUSTER_IP: "cluster-ip.reaches-ready-endpoint",
    ServiceAddressKind.NODE_PORT: "node-port.reaches-ready-endpoint",
    ServiceAddressKind.EXTERNAL_IP: "external-ip.reaches-ready-endpoint",
    ServiceAddressKind.LOAD_BALANCER_IP: "load-balancer.reaches-ready-endpoint",
}


def _expect_at_port(
    cluster: api.Cluster, node: NodeFacts, packet: Packet, matched: MatchedPort
) -> Expectation:
    """The lawful outcomes of a packet that is sent to a Service's port.

    Is it served at this address?  Is there an endpoint?  Is the source let in?  Who may answer?
    """
    found = endpoint_candidates(cluster, matched.service, matched.port, packet.family)
    serves, here = _served_here(cluster, node, packet, matched)
    if serves is Serves.NO:
        return _not_served_here(cluster, node, matched, here, found)
    sender = sender_of(cluster, node, packet)
    admission, let_in = check_source_ranges(cluster, node, packet, matched.service, matched.kind, sender)
    if not _usable(found):
        answer = _expect_rejection(node, packet, matched, found)
        if admission is not Admission.ALLOWED:
            answer = _with_outcomes(answer, {DROPPED}, (clause("source-ranges.no-endpoint.either"),))
    elif admission is Admission.DENIED:
        answer = _expectation({DROPPED}, let_in)
    else:
        answer = _expect_delivery(cluster, node, packet, AdmittedConnection(matched, sender, found))
        answer = _with_outcomes(answer, {DROPPED} if admission is Admission.EITHER else set(), let_in)
    return _with_outcomes(answer, {UNTOUCHED} if serves is Serves.EITHER else set(), here)


def _served_here(
    cluster: api.Cluster, node: NodeFacts, packet: Packet, matched: MatchedPort
) -> tuple[Serves, Reasons]:
    """Service at this node: a Service's own address is served on every node, a node port on some addresses."""
    if matched.kind is ServiceAddressKind.NODE_PORT:
        return check_node_port_address(cluster, node, packet.destination)
    return Serves.YES, ()


def _not_served_here(
    cluster: api.Cluster, node: NodeFacts, matched: MatchedPort, reasons: Reasons, found: Candidates
) -> Expectation:
    """The lawful outcomes of a node port at an address excluded by nodePortAddresses: left to the node's own sockets.

    Without a usable endpoint the rejection, or the drop of policy Local, may apply here too.
    """
    answer = _expectation({UNTOUCHED}, reasons)
    either = (clause("node-port.addresses.reject-scope.either"),)
    if not _usable(found):
        return _with_outcomes(answer, {REJECTED}, either)
    local = matched.service.spec.external_traffic_policy == LOCAL
    if local and not choose_endpoints(found.endpoints, EndpointScope.NODE, _place(cluster, node)).endpoints:
        return _with_outcomes(answer, {DROPPED}, either)
    return answer


def _usable(found: Candidates) -> bool:
    return any(endpoint.usable for endpoint in found.endpoints)


# --------------------------------------------------------------------------- no endpoint can reply


def _expect_rejection(
    node: NodeFacts, packet: Packet, matched: MatchedPort, found: Candidates
) -> Expectation:
    """The lawful outcomes without any endpoint: rejected, with an ICMP error or a reset."""
    reasons = (clause("endpoints.none.rejected"), *found.reasons)
    if found.endpoints:
        reasons += (clause("endpoints.not-serving.never-used"),)
    answer = _expectation({REJECTED}, reasons)
    external = matched.kind in {ServiceAddressKind.EXTERNAL_IP, ServiceAddressKind.LOAD_BALANCER_IP}
    if external and packet.entry.from_host and packet.destination not in node.addresses:
        return _with_outcomes(
            answer, {UNTOUCHED}, (clause("endpoints.none.host-to-external-address.either"),)
        )
    return answer


def _expect_drop(kind: ServiceAddressKind, found: Candidates) -> Expectation:
    """The lawful outcomes of policy Local with endpoints on other nodes only: dropped."""
    if kind is not ServiceAddressKind.CLUSTER_IP:
        return _expectation({DROPPED}, (clause("external-policy.local.drop-without-local-endpoint"),))
    answer = _expectation({DROPPED}, (clause("internal-policy.local.drop-without-local-endpoint"),))
    if any(endpoint.ready for endpoint in found.endpoints):
        return answer
    either = clause("internal-policy.local.only-terminating-elsewhere.either")
    return _with_outcomes(answer, {REJECTED}, (either,))


# --------------------------------------------------------------------------- an endpoint may answer


@dataclass(frozen=True, slots=True)
class AdmittedConnection:
    """A packet's Service port, its sender, and the endpoints there are (at least one usable)."""

    matched: MatchedPort
    sender: Sender
    candidates: Candidates


def _expect_delivery(
    cluster: api.Cluster, node: NodeFacts, packet: Packet, connection: AdmittedConnection
) -> Expectation:
    """The lawful outcomes of an admitted packet: any endpoint of its scopes; dropped for a scope that has none."""
    matched, sender, found = connection.matched, connection.sender, connection.candidates
    promise = decide_policy(sender, matched.kind, matched.service, node)
    answer = _expectation(promise.also_lawful, ())
    for scope in promise.scopes:
        choice = choose_endpoints(found.endpoints, scope, _place(cluster, node))
        if choice.endpoints:
            reached = _delivered(node, packet, connection, promise, choice)
            about = endpoint_clauses(cluster, node, matched.service, matched.kind, choice.endpoints)
            answer = _with_outcomes(answer, reached.outcomes, (*reached.clauses, *found.reasons, *about))
        else:
            none = _expect_drop(matched.kind, found)
            answer = _with_outcomes(answer, none.outcomes, (*promise.reasons, *none.clauses, *choice.reasons))
    if any(isinstance(outcome, Delivered) for outcome in answer.outcomes):
        about_address = address_clauses(
            cluster, packet, matched.service, matched.port, matched.service_address
        )
        answer = _with_outcomes(
            _expectation((), (clause(_REACHES[matched.kind]), *about_address)),
            answer.outcomes,
            answer.clauses,
        )
    return answer


def _place(cluster: api.Cluster, node: NodeFacts) -> NodeLocality:
    """The node, and its zone by the Node object's label."""
    known = cluster.node(node.name)
    return NodeLocality(node.name, known.metadata.labels.get(api.ZONE_LABEL, "") if known else "")


def _delivered(
    node: NodeFacts,
    packet: Packet,
    connection: AdmittedConnection,
    promise: PolicyDecision,
    choice: EndpointChoice,
) -> Expectation:
    """The lawful deliveries: each endpoint of the choice, with each source it may see."""
    kind, sender = connection.matched.kind, connection.sender
    own = {endpoint for endpoint in choice.endpoints if _stays_on_node(node, sender, endpoint)}
    outcomes = {
        Delivered(endpoint.address, endpoint.port, source)
        for endpoint in choice.endpoints
        for source in (PRESERVED if endpoint in own else _sources(packet, sender, promise, endpoint))
    }
    reasons = (*promise.reasons, *choice.reasons)
    if kind is not ServiceAddressKind.CLUSTER_IP and any(reason in _HINTED for reason in choice.reasons):
        reasons += (clause("topology.external-traffic.hints-followed"),)
    if SourceIP.PRESERVED in promise.sources and any(_hairpin(packet, e) for e in choice.endpoints):
        reasons += (clause("masquerade.hairpin.rewritten"),)
    if own and SourceIP.MASQUERADED in promise.sources:
        reasons += (clause("masquerade.endpoint-of-the-node-itself.preserved"),)
    return _expectation(outcomes, reasons)


def _stays_on_node(node: NodeFacts, sender: Sender, endpoint: Candidate) -> bool:
    """True if a packet from elsewhere ends at a process of this node: sources are rewritten only on the way out."""
    return sender.kind is not SenderKind.HOST and endpoint.address in node.addresses


_HINTED = {clause("topology.same-zone"), clause("topology.same-node")}


def _sources(packet: Packet, sender: Sender, promise: PolicyDecision, endpoint: Candidate) -> SourceIPs:
    """Source addresses that an endpoint may see.

    Hairpin traffic is masqueraded, so an endpoint never sees its own address as a client's.  A node may reply to itself
    from any of its addresses, and for a pod whose packet enters through another node nothing is guaranteed.
    """
    if not _hairpin(packet, endpoint):
        return promise.sources
    if sender.kind is SenderKind.HOST or promise.also_lawful:
        return promise.sources | MASQUERADED
    return MASQUERADED


def _hairpin(packet: Packet, endpoint: Candidate) -> bool:
    return endpoint.address == packet.source


# --------------------------------------------------------------------------- putting answers together


def _expectation(outcomes: Iterable[Outcome], reasons: Reasons) -> Expectation:
    return Expectation(frozenset(outcomes), tuple(dict.fromkeys(reasons)))


def _with_outcomes(answer: Expectation, outcomes: Iterable[Outcome], reasons: Reasons) -> Expectation:
    """The same answer with more lawful outcomes and more clauses behind it."""
    return _expectation((*answer.outcomes, *outcomes), (*answer.clauses, *reasons))
