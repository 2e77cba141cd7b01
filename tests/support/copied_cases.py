"""Cases of a copied cluster, made by hand, and what two subjects did for their packets."""

from __future__ import annotations

from ipaddress import ip_address

from kproxy.conformance.binding.bind import BoundPacket
from kproxy.conformance.case import Case, Probe, Target, TargetKind, host
from kproxy.conformance.engine.differences import ProbeDifference, probe_difference
from kproxy.conformance.generate.from_dump import CopiedInstance
from kproxy.conformance.testbed import Observation
from kproxy.model.network import Address, Entry, Family, Packet, Protocol
from kproxy.spec.outcome import Delivered, Outcome, SourceIP

ONE, OTHER = (ip_address("10.244.1.1"), 80), (ip_address("10.244.2.1"), 80)


def seen(outcome: Outcome) -> Observation:
    endpoint = (outcome.address, outcome.port) if isinstance(outcome, Delivered) else None
    return Observation(frozenset({outcome}), str(outcome), endpoint)


def delivered(at: tuple[Address, int], source: SourceIP = SourceIP.PRESERVED) -> Delivered:
    return Delivered(*at, source)


def copied(lawful: frozenset[Outcome], clauses: tuple[str, ...] = ()) -> CopiedInstance:
    """A probe of a node port at another address of its node."""
    to = Target(TargetKind.NODE_PORT_SECOND, "web", node="a")
    probe = Probe(sender=host("a"), to=to, expect=frozenset(), clauses=clauses)
    case = Case(id="default/web", about="", clauses=frozenset(clauses), steps=(probe,))
    packet = Packet(Entry(None), ONE[0], OTHER[0], Protocol.TCP, 80)
    bound = BoundPacket("a", packet)
    return CopiedInstance(case, Family.IPV4, 0, 0, service=("default", "web"), bound=bound, lawful=lawful)


def held(
    one: Outcome, other: Outcome, *lawful: Outcome, clauses: tuple[str, ...] = ()
) -> ProbeDifference | None:
    instance = copied(frozenset(lawful), clauses)
    return probe_difference(instance, instance.probe, [seen(one)], [seen(other)])
