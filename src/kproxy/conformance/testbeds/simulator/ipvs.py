"""ipvs mode, simulated."""

from __future__ import annotations

from functools import cache

from kproxy.backends.ipvs.chains import Options
from kproxy.backends.ipvs.compile import Context
from kproxy.backends.ipvs.evaluate import Fate, Machine, Outcome, evaluate
from kproxy.backends.ipvs.program import Program, program
from kproxy.conformance.testbeds.simulator.walk import Node, Walk, Walked
from kproxy.net import Address, Packet
from kproxy.plan import Plan
from kproxy.spec import outcome as spec


def compiled(plan: Plan, mark: int) -> Walk:
    """The plan as virtual servers, sets and chains; which, depends on the node's addresses too."""

    @cache
    def programmed(addresses: frozenset[Address]) -> Program:
        allowed = plan.node_ports.addresses
        accepting = (a for a in addresses if not a.is_loopback and (allowed is None or a in allowed))
        context = Context(addresses, tuple(sorted(accepting, key=int)))
        return program(plan, context, Options(masquerade_mark=mark))

    def walk(packet: Packet, node: Node) -> tuple[Walked, ...]:
        machine = Machine(addresses=node.addresses, recent=node.recent)
        return tuple(map(_walked, evaluate(programmed(node.addresses), packet, machine)))

    return walk


def _walked(found: Outcome) -> Walked:
    return Walked(_outcome(found), found.path, found.remembered, found.chance)


def _outcome(found: Outcome) -> spec.Outcome:
    if found.fate is Fate.REJECTED:
        return spec.Failure.REJECTED
    if found.fate is Fate.DROPPED:
        return spec.Failure.DROPPED
    if found.destination is None:
        return spec.Failure.UNTOUCHED
    source = spec.Source.MASQUERADED if found.masqueraded else spec.Source.PRESERVED
    return spec.Delivered(found.destination.address, found.destination.port, source)
