"""The oracle of flows that last."""

from __future__ import annotations

import pytest

from kproxy.conformance.binding.bind import Instance
from kproxy.conformance.binding.world import World
from kproxy.conformance.case import (
    Apply,
    Case,
    CaseEndpoint,
    CaseService,
    Delete,
    Policy,
    Port,
    pod,
    pods,
    service,
)
from kproxy.lab.topology import LAB
from kproxy.model.network import Family, Protocol
from kproxy.spec.established import EstablishedFlow
from kproxy.spec.outcome import Delivered, Failure, SourceIP

TCP = service("web", "a1", "b1")
UDP = TCP.replace(ports=(Port(protocol=Protocol.UDP),))
LEAVING = CaseEndpoint(on="a1", ready=False, serving=True, terminating=True)
DELETED = None


class Flow:
    """Flow of pod a3 that a1 answered, in a window in which the Service has each of these forms."""

    def __init__(self, *forms: CaseService | None) -> None:
        first = next(form for form in forms if form)
        steps = tuple(Apply(form) for form in forms if form)
        self.instance = Instance(Case(id="c", about="", clauses=frozenset(), steps=steps), Family.IPV4, 0, 0)
        self.first, world = first, World(self.instance)
        bound = self.instance.bound_packet(pod("a3"), first.cluster_ip)
        self.flow = EstablishedFlow(
            world.facts(bound.node), bound.packet, frozenset({self.answered_by("a1")})
        )
        for form in forms:
            world.apply_step(Apply(form) if form else Delete(first))
            self.flow.allow(world.cluster(bound.node))

    def answered_by(self, name: str) -> Delivered:
        port = self.instance.target_port(self.first, self.first.ports[0])
        return Delivered(LAB.pod_address[name][Family.IPV4], port, SourceIP.PRESERVED)

    def lawful(self) -> set[str]:
        """Names of endpoints that may answer, and failures."""
        names = {self.answered_by(name): name for name in ("a1", "a2", "b1")}
        outcomes = self.flow.expectation.outcomes
        return {one.value if isinstance(one, Failure) else names[one] for one in outcomes}


@pytest.mark.parametrize("protocol", [TCP, UDP])
def test_a_flow_stays_when_others_come_and_go(protocol: CaseService) -> None:
    assert Flow(protocol, protocol.replace(endpoints=pods("a1", "a2"))).lawful() == {"a1"}
    assert Flow(protocol, protocol.replace(internal_policy=Policy.LOCAL)).lawful() == {"a1"}


def test_a_connection_outlives_its_endpoint_and_datagrams_do_not() -> None:
    gone = pods("a2", "b1")
    assert Flow(TCP.replace(endpoints=gone)).lawful() == {"a1"}
    assert Flow(UDP.replace(endpoints=gone)).lawful() == {"a2", "b1"}
    assert Flow(UDP, UDP.replace(endpoints=gone)).lawful() == {"a1", "a2", "b1"}


def test_datagrams_stay_with_an_endpoint_that_serves_while_it_terminates() -> None:
    leaving = UDP.replace(endpoints=(LEAVING, *pods("b1")))
    assert Flow(UDP, leaving).lawful() == {"a1"}


def test_datagrams_reach_nobody_when_the_last_endpoint_has_left_or_the_service() -> None:
    emptied = Flow(UDP.replace(endpoints=()))
    assert emptied.lawful() == {Failure.REJECTED.value}
    assert emptied.flow.expectation.clauses == ("conntrack.udp.not-to-dead-endpoint-when-none-left",)
    deleted = Flow(UDP, DELETED)
    assert "a1" in deleted.lawful()
    assert deleted.flow.allows(())
    assert deleted.flow.expectation.clauses == ("conntrack.udp.not-to-endpoint-of-deleted-service",)


def test_a_connection_may_end_where_its_frontend_goes_and_nowhere_else() -> None:
    assert Flow(TCP, DELETED).flow.allows({Failure.RESET})
    assert not Flow(TCP, TCP.replace(endpoints=())).flow.allows({Failure.RESET})
    assert not Flow(TCP).flow.allows(())
