"""nftables mode, simulated."""

from __future__ import annotations

from kproxy.backends.nftables.base import Options
from kproxy.backends.nftables.diff import Rewrite
from kproxy.backends.nftables.evaluate import Fate, Machine, Verdict, evaluate
from kproxy.backends.nftables.program import program
from kproxy.backends.nftables.table import Table
from kproxy.conformance.testbeds.simulator.walk import Node, Walk, Walked
from kproxy.net import Packet
from kproxy.plan import Plan
from kproxy.spec.outcome import Delivered, Failure, Outcome, Source


def compiled(plan: Plan, mark: int) -> Walk:
    """The plan as our nftables table."""
    table = Table(plan.family)
    table.apply(Rewrite(program(plan, Options(masquerade_mark=mark))))

    def walk(packet: Packet, node: Node) -> tuple[Walked, ...]:
        machine = Machine(addresses=node.addresses, recent=node.recent)
        return tuple(map(_walked, evaluate(table, packet, machine)))

    return walk


def _walked(verdict: Verdict) -> Walked:
    return Walked(_outcome(verdict), verdict.path, verdict.remembered, verdict.chance)


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
