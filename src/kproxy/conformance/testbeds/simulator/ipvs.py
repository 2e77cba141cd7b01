"""ipvs mode, simulated."""

from __future__ import annotations

from functools import cache

from kproxy.conformance.testbeds.simulator.walk import NodeView, PacketWalk, Walked
from kproxy.model.network import Address, Packet
from kproxy.proxy.backends.ipvs.compile import Context
from kproxy.proxy.backends.ipvs.desired_state import DesiredState, desired_state
from kproxy.proxy.backends.ipvs.evaluate import Fate, PacketVerdict, SimulatedNode, evaluate
from kproxy.proxy.backends.ipvs.static_rules import Options
from kproxy.proxy.plan import Plan
from kproxy.spec import outcome as spec


def compile_ipvs(plan: Plan, mark: int) -> PacketWalk:
    """The plan as virtual servers, sets and chains; which, depends on the node's addresses too."""

    @cache
    def programmed(addresses: frozenset[Address]) -> DesiredState:
        allowed = plan.node_ports.addresses
        accepting = (a for a in addresses if not a.is_loopback and (allowed is None or a in allowed))
        context = Context(addresses, tuple(sorted(accepting, key=int)))
        return desired_state(plan, context, Options(masquerade_mark=mark))

    def walk(packet: Packet, node: NodeView) -> tuple[Walked, ...]:
        machine = SimulatedNode(addresses=node.addresses, affinity_entries=node.recent)
        return tuple(map(_walked, evaluate(programmed(node.addresses), packet, machine)))

    return walk


def _walked(found: PacketVerdict) -> Walked:
    return Walked(_outcome(found), found.path, found.affinity, found.probability)


def _outcome(found: PacketVerdict) -> spec.Outcome:
    if found.fate is Fate.REJECTED:
        return spec.Failure.REJECTED
    if found.fate is Fate.DROPPED:
        return spec.Failure.DROPPED
    if found.destination is None:
        return spec.Failure.UNTOUCHED
    source = spec.SourceIP.MASQUERADED if found.masqueraded else spec.SourceIP.PRESERVED
    return spec.Delivered(found.destination.address, found.destination.port, source)
