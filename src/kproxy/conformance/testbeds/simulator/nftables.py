"""nftables mode, simulated."""

from __future__ import annotations

from kproxy.conformance.testbeds.simulator.walk import NodeView, PacketWalk, Walked
from kproxy.model.network import Packet
from kproxy.proxy.backends.nftables.desired_state import desired_state
from kproxy.proxy.backends.nftables.diff import Rewrite
from kproxy.proxy.backends.nftables.evaluate import Fate, PacketVerdict, SimulatedNode, evaluate
from kproxy.proxy.backends.nftables.static_rules import Options
from kproxy.proxy.backends.nftables.table import SimulatedTable
from kproxy.proxy.plan import Plan
from kproxy.spec.outcome import Delivered, Failure, Outcome, SourceIP


def compile_nftables(plan: Plan, mark: int) -> PacketWalk:
    """The plan as our nftables table."""
    table = SimulatedTable(plan.family)
    table.apply(Rewrite(desired_state(plan, Options(masquerade_mark=mark))))

    def walk(packet: Packet, node: NodeView) -> tuple[Walked, ...]:
        machine = SimulatedNode(addresses=node.addresses, affinity_entries=node.recent)
        return tuple(map(_walked, evaluate(table, packet, machine)))

    return walk


def _walked(verdict: PacketVerdict) -> Walked:
    return Walked(_outcome(verdict), verdict.path, verdict.affinity, verdict.probability)


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
