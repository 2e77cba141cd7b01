"""iptables mode, simulated."""

from __future__ import annotations

from kproxy.backends.iptables import base
from kproxy.backends.iptables.evaluate import Fate, Machine, Verdict, evaluate
from kproxy.backends.iptables.program import program, ruleset
from kproxy.conformance.testbeds.simulator.walk import Node, Walk, Walked
from kproxy.net import Packet
from kproxy.plan import Plan
from kproxy.spec.outcome import Delivered, Failure, Outcome, Source


def compiled(plan: Plan, mark: int) -> Walk:
    """The plan as iptables rules."""
    rules = ruleset(program(plan, base.Options(masquerade_mark=mark)))

    def walk(packet: Packet, node: Node) -> tuple[Walked, ...]:
        machine = Machine(addresses=node.addresses, recent=node.recent)
        return tuple(map(_walked, evaluate(rules, packet, machine)))

    return walk


def _walked(verdict: Verdict) -> Walked:
    chains = tuple(name for name in verdict.path if name.startswith("KUBE-"))
    return Walked(_outcome(verdict), chains, verdict.remembered, verdict.chance)


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
