"""Saved rules of generated worlds: what `trace` reports on them is what the oracle allows, in every mode whose rules choose the endpoint.

The simulator's place is taken by saved text that is read and walked by `trace`: readers, walk and journey are held to the
specification by the same questions as the backends are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kproxy.conformance.generate.generate import generate_worlds
from kproxy.conformance.testbeds.simulator import BACKENDS
from kproxy.conformance.testbeds.simulator.walk import NodeView, Walked
from kproxy.linux.netfilter import node_state as trace_node
from kproxy.linux.netfilter.packet_state import TracedPacket as TracePacket
from kproxy.linux.netfilter.sources import TraceSource, merge_sources
from kproxy.model.network import Address, Packet
from kproxy.proxy.backends.iptables import static_rules
from kproxy.proxy.backends.iptables.desired_state import desired_state as iptables_program
from kproxy.proxy.backends.ipvs.compile import Context
from kproxy.proxy.backends.ipvs.desired_state import desired_state as ipvs_program
from kproxy.proxy.backends.ipvs.static_rules import Options as IpvsOptions
from kproxy.proxy.backends.nftables.desired_state import desired_state as nft_program
from kproxy.proxy.backends.nftables.diff import Rewrite
from kproxy.proxy.backends.nftables.static_rules import Options as NftOptions
from kproxy.proxy.plan import Plan
from kproxy.tools.trace.answer import trace_packet
from tests.support import saved_rules as saved
from tests.support.iptables_model import build_ruleset
from tests.support.nftables_table import SimulatedTable
from tests.support.simulated_worlds import findings
from tests.support.traced import outcome

WORLDS = 30

Save = Callable[[Plan, int, NodeView], list[TraceSource]]


def save_iptables(plan: Plan, mark: int, _: NodeView) -> list[TraceSource]:
    rules = build_ruleset(iptables_program(plan, static_rules.Options(masquerade_mark=mark)))
    return [saved.source("saved", saved.iptables_save(rules))]


def save_ipvs(plan: Plan, mark: int, node: NodeView) -> list[TraceSource]:
    allowed = plan.node_ports.addresses
    accepting = (a for a in node.addresses if not a.is_loopback and (allowed is None or a in allowed))
    context = Context(node.addresses, tuple(sorted(accepting, key=int)))
    made = ipvs_program(plan, context, IpvsOptions(masquerade_mark=mark))
    texts = (saved.ipvs_save(made), saved.ipset_save(made), saved.ipvsadm_save(made))
    bound = [f'{{"local": "{one}"}}' for one in made.needs if not hasattr(one, "text")]
    device = f'[{{"ifname": "kube-ipvs0", "addr_info": [{", ".join(bound)}]}}]'
    return [saved.source(f"saved {n}", text) for n, text in enumerate((*texts, device)) if text]


def save_nftables(plan: Plan, mark: int, node: NodeView) -> list[TraceSource]:
    table = SimulatedTable(plan.family)
    table.apply(Rewrite(nft_program(plan, NftOptions(masquerade_mark=mark))))
    clients: list[Any] = [entry.key for entry in node.remembered]
    return [saved.source("saved", saved.nft_json(table, {"affinity-clients": clients}))]


SAVES: dict[str, Save] = {"iptables": save_iptables, "ipvs": save_ipvs, "nftables": save_nftables}


class Saved:
    """A mode's rules, saved and read again, in the place of what the simulator reads."""

    def __init__(self, save: Save, mark: int) -> None:
        self.save, self.mark = save, mark
        self.plan: Plan | None = None
        self.known: dict[NodeView, trace_node.TracedNode] = {}

    def apply(self, plan: Plan, _: frozenset[Address]) -> None:
        self.plan, self.known = plan, {}

    def walk(self, packet: Packet, view: NodeView) -> tuple[Walked, ...]:
        assert self.plan is not None
        if view not in self.known:
            sources = self.save(self.plan, self.mark, view)
            self.known[view] = merge_sources(sources, sorted(view.addresses, key=int)).node
        return walked(self.known[view], packet, view)


def walked(node: trace_node.TracedNode, packet: Packet, view: NodeView) -> tuple[Walked, ...]:
    clients: dict[str, set[object]] = {}
    for name, key in view.remembered:
        clients.setdefault(name, set()).add(key[0])
    own = packet.entry.from_host and node.is_local(packet.destination)
    source = packet.destination if own and node.virtual_servers else packet.source
    requested = TracePacket(
        source, packet.destination, packet.protocol.value.lower(), packet.port, packet.entry.interface or ""
    )
    lists = trace_node.TracedNode(clients={name: frozenset(found) for name, found in clients.items()})  # type: ignore[arg-type]
    found = trace_packet(node.merged(lists), requested)
    held = [way for way in found.paths if all(held for _, held in way.state.conditions)]
    return tuple(
        Walked(outcome(one), (), way.state.remembered, one.chance)
        for way in held
        for one in found.decisions
        if (one.destination, one.port, one.fate)
        == (way.state.packet.destination, way.state.packet.port, way.fate)
        and one.conditions == way.state.conditions
    )


@pytest.mark.parametrize("mode", SAVES)
def test_what_saved_rules_are_reported_to_do_is_lawful(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BACKENDS, mode, lambda _, mark: Saved(SAVES[mode], mark))
    wrong = findings(tuple(generate_worlds(2026, WORLDS)), mode)
    assert not wrong, "\n".join(f"{f.what}: lawful {f.lawful}, seen {f.seen}" for f in wrong[:5])


@pytest.mark.parametrize("mode", SAVES)
def test_a_wrong_answer_would_be_found(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The positive control: a reader that loses every rule of the dispatch is noticed."""

    def losing(plan: Plan, mark: int, node: NodeView) -> list[TraceSource]:
        empty = replace(plan, services=(), detector=None)
        return SAVES[mode](empty, mark, node)

    monkeypatch.setitem(BACKENDS, mode, lambda _, mark: Saved(losing, mark))
    assert len(findings(tuple(generate_worlds(2026, 10)), mode)) > 10
