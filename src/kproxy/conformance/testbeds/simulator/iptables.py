"""iptables mode, simulated: the text that ``iptables-restore`` would be given, restored in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kproxy.conformance.testbeds.simulator.walk import NodeView, Walked, walk_packet
from kproxy.linux.netfilter.node_state import TracedNode
from kproxy.linux.netfilter.restore import RestoredTables
from kproxy.model.network import Address, Family, Packet
from kproxy.proxy.backends.iptables import static_rules
from kproxy.proxy.backends.iptables.compile import localhost_node_ports
from kproxy.proxy.backends.iptables.desired_state import DesiredState, desired_state
from kproxy.proxy.backends.iptables.diff import diff
from kproxy.proxy.backends.xtables.blocks import LEGACY_BLOCK_CHAINS, Block
from kproxy.proxy.backends.xtables.rules import TableName, insert_lines, render
from kproxy.proxy.plan import Plan


class IptablesTables:
    """The first plan is written whole, with the jumps; of later ones what differs."""

    def __init__(self, family: Family, mark: int) -> None:
        """Empty tables."""
        self._family = family
        self._options = static_rules.Options(masquerade_mark=mark)
        self._tables = RestoredTables()
        self._applied: DesiredState | None = None
        self._node = TracedNode()

    def apply(self, plan: Plan, addresses: frozenset[Address]) -> None:
        """Restore what the backend's diff gives; rules do not depend on addresses."""
        ports = tuple(sorted({check.port for check in plan.health_checks}))
        desired = desired_state(plan, replace(self._options, health_check_ports=ports), self._applied)
        if self._applied is None:
            existing = {TableName(name): chains for name, chains in self._tables.names().items()}
            self._tables.apply(str(diff(existing, desired, LEGACY_BLOCK_CHAINS)))
            self._tables.apply("".join(map(str, _hook_blocks(desired))))
        else:
            self._tables.apply(str(diff(self._applied, desired, LEGACY_BLOCK_CHAINS)))
        self._applied = desired
        self._node = TracedNode(
            tables=tuple(self._tables.netfilter_tables(self._family, {})),
            route_localnet=localhost_node_ports(desired.context),
        )

    def walk(self, packet: Packet, view: NodeView) -> Sequence[Walked]:
        """Through the tables; loopback addresses are routed where they have node ports."""
        node = replace(self._node, addresses=view.addresses, remembered=view.remembered)
        return walk_packet(node, packet)


def _hook_blocks(desired: DesiredState) -> list[Block]:
    """The guard against martians and the jumps of builtin chains, as they are written where none stands yet."""
    guard = static_rules.martian_guard(desired.context)
    lines = {table: list[str]() for table in TableName}
    if guard is not None:
        lines[TableName.FILTER] += [f":{guard.name} - [0:0]", *render(guard)]
    for hook in static_rules.hook_rules(localhost=guard is not None):
        lines[hook.table] += insert_lines(hook)
    return [Block(table, found) for table, found in lines.items() if found]
