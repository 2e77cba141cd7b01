"""nftables mode, simulated: the batches that netlink would carry, done in memory."""

from __future__ import annotations

from collections.abc import Sequence

from kproxy.conformance.testbeds.simulator.netlink_table import NetlinkTable
from kproxy.conformance.testbeds.simulator.walk import NodeView, Walked, walk_packet
from kproxy.linux.netfilter.node_state import TracedNode
from kproxy.model.network import Address, Family, Packet
from kproxy.proxy.backends.nftables.desired_state import DesiredState, desired_state
from kproxy.proxy.backends.nftables.diff import Leftovers, diff
from kproxy.proxy.backends.nftables.kernel.messages import Encoder
from kproxy.proxy.backends.nftables.static_rules import Options
from kproxy.proxy.plan import Plan


class NftablesTable:
    """The first plan is written whole; of later ones what differs."""

    def __init__(self, family: Family, mark: int) -> None:
        """No table yet."""
        self._family, self._options = family, Options(masquerade_mark=mark)
        self._table = NetlinkTable()
        self._applied: DesiredState | None = None
        self._leftovers: Leftovers = {}

    def apply(self, plan: Plan, _: frozenset[Address]) -> None:
        """Commit what the backend's diff gives; rules do not depend on addresses."""
        desired = desired_state(plan, self._options, self._applied)
        transaction = diff(self._applied, desired, self._leftovers)
        for batch in transaction.batches():
            encoder = Encoder(self._family)
            self._table.commit(message for command in batch for message in encoder.messages(command))
        self._applied, self._leftovers = desired, transaction.leftovers

    def walk(self, packet: Packet, view: NodeView) -> Sequence[Walked]:
        """Through the table."""
        tables = self._table.netfilter_tables()
        node = TracedNode(tables=tables, addresses=view.addresses, remembered=view.remembered)
        return walk_packet(node, packet)
