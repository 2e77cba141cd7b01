"""Oracle's verdicts as expectations of a case: lawful outcomes in names, and the clauses behind them. Pure."""

from __future__ import annotations

from dataclasses import replace

from kproxy.conformance.binding.bind import BoundPacket, Instance
from kproxy.conformance.binding.lab_objects import node_facts
from kproxy.conformance.binding.world import World
from kproxy.conformance.case import Case, Delete, Lawful, Probe, ReachedEndpoint, Step, Target, VantageKind
from kproxy.model import api
from kproxy.spec.oracle import expect
from kproxy.spec.outcome import ClauseId, Delivered, Expectation, Failure, Outcome, SourceIP

MOST_SPREAD = 3
"""Largest number of endpoints whose coverage is checked: more would need too many connections on a real kernel."""


def with_oracle_answers(case: Case) -> Case:
    """Case with the oracle's expectations, for its one family."""
    (family,) = case.families
    instance = Instance(case, family, 0, 0)
    world = World(instance)
    cluster = world.cluster()
    steps: list[Step] = []
    clauses: set[str] = set()
    for step in case.steps:
        if isinstance(step, Probe):
            answered_probe, reasons = _answer_probe(instance, cluster, step)
            clauses.update(reasons)
            steps.append(answered_probe)
        elif not _deletes_nothing(world, step):
            world.apply_step(step)
            cluster = world.cluster()
            steps.append(step)
    return replace(case, steps=tuple(steps), clauses=frozenset(clauses))


def _deletes_nothing(world: World, step: Step) -> bool:
    """True if a step deletes a Service that does not exist."""
    if not isinstance(step, Delete):
        return False
    return ("Service", world.instance.namespace, step.service.name) not in world.objects


def _answer_probe(
    instance: Instance, cluster: api.Cluster, probe: Probe
) -> tuple[Probe, tuple[ClauseId, ...]]:
    """Probe with the oracle's expectation, and the clauses that this rests on."""
    found = _expect(instance, cluster, instance.bound_packet(probe.sender, probe.to))
    lawful = symbolic_outcomes(instance, found.outcomes, probe.to)
    spread = _must_spread(instance, found, probe)
    return replace(probe, expect=lawful, spread=spread), found.clauses


def _expect(instance: Instance, cluster: api.Cluster, bound: BoundPacket) -> Expectation:
    return expect(cluster, node_facts(bound.node, instance.case.profile, instance.topology), bound.packet)


def symbolic_outcomes(instance: Instance, outcomes: frozenset[Outcome], to: Target) -> Lawful:
    """Outcomes in names: addresses of endpoints replaced by the pods they belong to."""
    names = {
        one: seen
        for service in instance.services
        if service.name == to.service
        for endpoint in service.endpoints
        for outcome in outcomes
        if isinstance(outcome, Delivered)
        for seen in [ReachedEndpoint(endpoint.on, outcome.source, endpoint.shift)]
        for one in instance.delivered(seen, to)
    }
    return frozenset(one if isinstance(one, Failure) else names[one] for one in outcomes)


def _must_spread(instance: Instance, found: Expectation, probe: Probe) -> bool:
    """True if all endpoints must be reached: few of them, one lawful set, and no affinity."""
    endpoints = {(o.address, o.port) for o in found.outcomes if isinstance(o, Delivered)}
    sticks = any(s.affinity_seconds for s in instance.services if s.name == probe.to.service)
    either = any(clause.endswith(".either") for clause in found.clauses)
    return 1 < len(endpoints) <= MOST_SPREAD and not sticks and not either


def without_unanswerable_probes(case: Case) -> Case:
    """The case without probes whose reply cannot return, whatever the proxy does.

    An endpoint on another node that sees a source not on the judging node replies directly, past the DNAT.
    """
    (family,) = case.families
    instance = Instance(case, family, 0, 0)
    steps = [step for step in case.steps if not isinstance(step, Probe) or is_answerable(instance, step)]
    return with_oracle_answers(replace(case, steps=tuple(steps)))


def is_answerable(instance: Instance, probe: Probe) -> bool:
    """True if the reply to a probe can return to its sender, by what is lawful for it."""
    judge = instance.bound_packet(probe.sender, probe.to).node
    here = {VantageKind.POD, VantageKind.HOST}
    if probe.sender.kind in here and probe.sender.node == judge:
        return True
    kept = [o.on for o in probe.expect if isinstance(o, ReachedEndpoint) and o.source is SourceIP.PRESERVED]
    return all(on == judge or on in instance.topology.pods[judge] for on in kept)
