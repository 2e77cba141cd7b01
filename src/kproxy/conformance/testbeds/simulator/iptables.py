"""iptables mode, simulated."""

from __future__ import annotations

from kproxy.conformance.testbeds.simulator.walk import NodeView, PacketWalk, Walked
from kproxy.model.network import Packet
from kproxy.proxy.backends.iptables import static_rules
from kproxy.proxy.backends.iptables.desired_state import build_ruleset, desired_state
from kproxy.proxy.backends.iptables.evaluate import Fate, PacketVerdict, SimulatedNode, evaluate
from kproxy.proxy.plan import Plan
from kproxy.spec.outcome import Delivered, Failure, Outcome, SourceIP


def compile_iptables(plan: Plan, mark: int) -> PacketWalk:
    """The plan as iptables rules."""
    rules = build_ruleset(desired_state(plan, static_rules.Options(masquerade_mark=mark)))

    def walk(packet: Packet, node: NodeView) -> tuple[Walked, ...]:
        machine = SimulatedNode(addresses=node.addresses, affinity_entries=node.recent)
        return tuple(map(_walked, evaluate(rules, packet, machine)))

    return walk


def _walked(verdict: PacketVerdict) -> Walked:
    chains = tuple(name for name in verdict.path if name.startswith("KUBE-"))
    return Walked(_outcome(verdict), chains, verdict.affinity, verdict.probability)


def _outcome(verdict: PacketVerdict) -> Outcome:
    match verdict.fate:
        case Fate.REJECTED:
            return Failure.REJECTED
        case Fate.DROPPED:
            return Failure.DROPPED
        case Fate.PASSED if verdict.rewritten or verdict.masqueraded:
            source = SourceIP.MASQUERADED if verdict.masqueraded else SourceIP.PRESERVED
            return Delivered(verdict.destination, verdict.port, source)
        case Fate.PASSED:
            return Failure.UNTOUCHED
