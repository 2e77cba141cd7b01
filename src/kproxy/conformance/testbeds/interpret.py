"""Interpretation of the lab's observations as outcomes of the specification.

Pure. An empty set of outcomes means that the observation can never be lawful, whatever the case expects.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Collection
from dataclasses import dataclass

from kproxy.conformance.binding.bind import Instance
from kproxy.conformance.case import EndpointCountLocation, Ping, Probe, TargetKind, VantageKind
from kproxy.conformance.case import Open as HoldStep
from kproxy.conformance.testbed import (
    ANSWER_LOST,
    NO_ANSWER,
    HarnessError,
    Observation,
    describe_health,
    describe_status,
)
from kproxy.lab.probes import echo, http
from kproxy.lab.probes import observation as lab
from kproxy.model.network import Address, Packet
from kproxy.spec.outcome import Delivered, Failure, Outcome, SourceIP

HOST = "host:"
"""Prefix of the names of bystanders on a node, before the node's name."""
ELSEWHERE = "elsewhere"

Step = Probe | Ping | HoldStep


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeContext:
    """Facts about a probe that its interpretation needs.

    ``judge``: the node whose proxy decides, ``own``: that node's addresses; ``nodes``: all nodes of the lab, whose
    proxies may not stop it on its way to that one; ``host``: the node that sends it, if a node does;
    ``directly``: the target is a pod's own address; ``port``: the port that ICMP errors must quote.
    """

    sender: str
    judge: str
    packet: Packet
    own: Collection[Address]
    nodes: Collection[str] = ()
    host: str = ""
    directly: bool = False
    port: int = 0


def probe_context(instance: Instance, step: Step) -> ProbeContext:
    """Facts about a case's step that its interpretation needs."""
    question = instance.bound_packet(step.sender, step.to)
    return ProbeContext(
        sender=str(step.sender),
        judge=question.node,
        packet=question.packet,
        own=instance.topology.local_addresses(question.node, question.packet.family),
        nodes=instance.topology.nodes,
        host=step.sender.node if step.sender.kind is VantageKind.HOST else "",
        directly=step.to.kind is TargetKind.ENDPOINT,
        port=0 if isinstance(step, Ping) else question.packet.port,
    )


def interpret_step(seen: lab.Observation, instance: Instance, step: Step) -> Observation:
    """Outcomes that an observation of the lab may stand for."""
    return interpret_observation(seen, probe_context(instance, step))


def interpret_observation(seen: lab.Observation, context: ProbeContext) -> Observation:
    """Outcomes that an observation of the lab may stand for, given the context of its probe."""
    match seen:
        case lab.Answered():
            return _answered(seen, context)
        case lab.Refused():
            return _refused(seen, context)
        case lab.Reset(connected=connected):
            return Observation(
                frozenset({Failure.RESET}), "TCP RST" + (" after the handshake" if connected else "")
            )
        case lab.Silent():
            return _silent(seen, context)
        case lab.NetworkError(errno=number):
            return Observation(
                frozenset(), f"the sender's kernel reported {errno.errorcode.get(number, number)}"
            )
        case lab.Garbled(what=what):
            return Observation(frozenset(), f"garbled: {what}")
        case lab.Unsupported(why=why):
            raise HarnessError(why)


def interpret_ping(seen: echo.Ping, evidence: lab.Evidence, instance: Instance, context: Ping) -> Observation:
    """Outcomes that a ping's observation may stand for; its evidence shows whether the node let it out."""
    judge = instance.bound_packet(context.sender, context.to).node
    if not isinstance(seen, echo.EchoReply):
        return interpret_step(seen, instance, context)
    if evidence.left(judge):
        return Observation(frozenset({Failure.UNTOUCHED}), "untouched by the proxy: answered beyond the node")
    return Observation(frozenset(), f"node {judge} answered the ping itself")


def interpret_health(seen: http.Response | lab.Silent | None, count_in: EndpointCountLocation) -> str:
    """Text of the response of a health check node port."""
    if not isinstance(seen, http.Response):
        return interpret_status(seen)
    return describe_health(seen.status, count_in, _count(seen, count_in))


def _count(response: http.Response, count_in: EndpointCountLocation) -> int | str | None:
    if count_in is EndpointCountLocation.IN_HEADER:
        return response.headers.get(count_in.value.lower())
    try:
        return int(json.loads(response.body)["localEndpoints"])
    except (ValueError, LookupError, TypeError):
        return None


def interpret_status(seen: http.Response | lab.Silent | None) -> str:
    """Text of the status of a health response."""
    if isinstance(seen, lab.Silent):
        return NO_ANSWER
    return describe_status(seen.status if seen else None)


def _refused(seen: lab.Refused, context: ProbeContext) -> Observation:
    """Outcome of an ICMP error.

    An error that quotes a destination other than the one probed never reaches the client's socket, so it is unlawful.
    """
    text = f"ICMP type {seen.icmp.type} code {seen.icmp.code} from {seen.by}"
    if seen.about != lab.Socket(context.packet.destination, context.port):
        return Observation(frozenset(), f"{text} about {seen.about}, which was not probed")
    outcomes = {Failure.REJECTED} if seen.icmp.port_unreachable else set()
    return Observation(frozenset(outcomes), text)


def _answered(seen: lab.Answered, context: ProbeContext) -> Observation:
    if seen.who == ELSEWHERE or seen.who.startswith(HOST):
        text = f"untouched by the proxy: answered by {seen.who}, which saw {seen.peer}"
        gist = f"untouched by the proxy: answered by {seen.who}, which saw {seen.peer.address}"
        return Observation(frozenset({Failure.UNTOUCHED}), text, stable_text=gist)
    sources = _sources(seen, context)
    endpoint = (seen.at.address, seen.at.port)
    text = f"delivered to {seen.who} at {seen.at}, which saw {seen.peer} (sent from {seen.own})"
    gist = f"delivered to {seen.who}, which saw {seen.peer.address}"
    if context.directly and SourceIP.PRESERVED in sources:
        return Observation(frozenset({Failure.UNTOUCHED}), text, endpoint, stable_text=gist)
    outcomes: set[Outcome] = {Delivered(*endpoint, source) for source in sources}
    redrawn = seen.peer.port != seen.own.port
    return Observation(frozenset(outcomes), text, endpoint, source_port_changed=redrawn, stable_text=gist)


def _sources(seen: lab.Answered, context: ProbeContext) -> set[SourceIP]:
    """Source handling that an observation is consistent with.

    Both where it would look the same; none for an address that is neither's.
    """
    if seen.peer.address == seen.own.address:
        if context.host == context.judge:  # to its own address it would be masqueraded
            return {SourceIP.PRESERVED, SourceIP.MASQUERADED}
        return {SourceIP.PRESERVED}
    if seen.peer.address in context.own:
        return {SourceIP.MASQUERADED}
    return set()


def _silent(seen: lab.Silent, context: ProbeContext) -> Observation:
    if seen.endpoint_saw or seen.connected:
        who = ", ".join(reception.who for reception in seen.evidence.receptions) or "an endpoint"
        return Observation(frozenset(), f"silence, although {who} got it: {ANSWER_LOST}")
    judge = context.judge
    beyond = seen.evidence.left(judge)
    if beyond:
        last = beyond[-1]
        own = ", its own address" if last.destination.address in context.own else ""
        text = f"silence; it left node {judge} by {last.interface} for {last.destination}{own}"
        return Observation(frozenset(), text)
    if seen.evidence.lost:
        raise HarnessError(f"silence proves nothing: the captures lost {seen.evidence.lost} packets")
    if seen.evidence.entered(judge):
        return Observation(
            frozenset({Failure.DROPPED}), f"silence; it reached node {judge} and nothing left it"
        )
    if context.host == judge:
        where = "the node's own netfilter stopped it" if seen.stopped_at_sender else "not seen on a link"
        return Observation(frozenset({Failure.DROPPED}), f"silence; {where}")
    if context.host and not seen.evidence.left(context.host):
        text = f"silence; node {context.host}, which sends it, let nothing out, and it never reached node {judge}"
        return Observation(frozenset(), text)
    if stopped := [node for node in seen.evidence.stopped_in() if node in context.nodes]:
        text = f"silence; node {stopped[0]} did not pass it on, and it never reached node {judge}"
        return Observation(frozenset(), text)
    raise HarnessError(f"silence proves nothing: {context.sender}'s packet never reached node {judge}")
