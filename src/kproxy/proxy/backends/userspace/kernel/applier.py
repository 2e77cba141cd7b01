"""Applies plans whose endpoints are sockets to one family's chains, by the iptables tools.

The state applied last is taken for the kernel's.  After any failure it is discarded, and the next `UserspaceKernel.apply`
writes everything.  All failures are `kproxy.linux.host.HostError`.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from kproxy.linux.host import HostError
from kproxy.linux.policy_routing import MarkedRoute, add_marked_route, remove_marked_route
from kproxy.proxy.backends import Applied, RuleCounts, failures_of
from kproxy.proxy.backends.userspace import names
from kproxy.proxy.backends.userspace.desired_state import DesiredState, desired_state
from kproxy.proxy.backends.userspace.diff import diff
from kproxy.proxy.backends.userspace.static_rules import hook_rules
from kproxy.proxy.backends.xtables.blocks import Block
from kproxy.proxy.backends.xtables.kernel import jumps
from kproxy.proxy.backends.xtables.kernel.leftovers import remove_all_chains, remove_variant
from kproxy.proxy.backends.xtables.kernel.tools import Variant, find_tools
from kproxy.proxy.backends.xtables.kernel.unchanged import UnchangedTables, state_reader
from kproxy.proxy.backends.xtables.rules import TableName

if TYPE_CHECKING:
    from kproxy.model.network import Family
    from kproxy.proxy.plan import Plan


ANSWER_ROUTE = MarkedRoute(names.ANSWER_MARK, names.ANSWER_MASK, names.ANSWER_TABLE)
"""The way of answers to clients' addresses."""

log = logging.getLogger(__name__)


class UserspaceKernel:
    """One family's chains of userspace mode."""

    def __init__(self, family: Family, *, keep_sources: bool) -> None:
        """Find the tools; raises `HostError` UNSUPPORTED if there are none."""
        self._tools = find_tools(family)
        self._keep_sources = keep_sources
        self._latest: DesiredState | None = None
        self._last_applied: DesiredState | None = None
        self._unchanged = UnchangedTables(state_reader(self._tools))

    def apply(self, plan: Plan) -> Applied:
        """Apply a plan; raises `HostError`, and the next call then writes everything."""
        started = time.monotonic()
        believed, self._last_applied = self._last_applied, None
        desired = self._latest = desired_state(plan, self._latest, keep_sources=self._keep_sources)
        if believed is None and self._keep_sources:
            add_marked_route(plan.family, ANSWER_ROUTE)
        blocks = diff(believed, desired) if believed is not None else self._rewrite(desired)
        if blocks:
            self._tools.restore(blocks)
        self._last_applied = desired
        written = {block.table for block in blocks}
        counts = {table: sum(map(len, found.values())) for table, found in desired.tables.items()}
        return Applied(
            believed is None,
            {f"rules of {table.value}": counts[table] for table in counts if table in written},
            rules={t.value: RuleCounts(counts[t] if t in written else 0, counts[t]) for t in counts},
            seconds=time.monotonic() - started,
        )

    def _rewrite(self, desired: DesiredState) -> tuple[Block, ...]:
        refusals = jumps.list_chain_rules(self._tools, TableName.FILTER, names.PORTALS_FILTER)
        return (*diff(None, desired, refusals), *self._missing_hooks())

    def find_drift(self, *, thorough: bool = True) -> tuple[str, ...]:
        """Missing jumps, and chains with another number of rules than was written; only when ``thorough``."""
        applied = self._last_applied
        if applied is None or not thorough:
            return ()
        return self._unchanged.missing(lambda: self._damage(applied))

    def _damage(self, applied: DesiredState) -> tuple[str, ...]:
        gone = [
            f"jumps of {hook.hook.name} in table {hook.table.value}"
            for hook in hook_rules()
            if jumps.missing_jumps(self._tools, hook)
        ]
        changed = [
            f"chain {name} of table {table.value}"
            for table, chains in applied.tables.items()
            for name, lines in chains.items()
            if len(jumps.list_chain_rules(self._tools, table, name)) != len(lines)
        ]
        return (*gone, *changed)

    def notifiers(self) -> tuple[int, ...]:
        """None: looks are always thorough."""
        return ()

    def refresh_options(self) -> bool:
        """False: no rule depends on options of the machine."""
        return False

    def forget(self) -> None:
        """Discard the state applied last: the next `apply` writes everything."""
        self._last_applied = None

    def _missing_hooks(self) -> list[Block]:
        lines: dict[TableName, list[str]] = {}
        for hook in hook_rules():
            lines.setdefault(hook.table, []).extend(jumps.repair_lines(self._tools, hook))
        return [Block(table, found) for table, found in lines.items() if found]


def remove_portals(family: Family, *, running: bool) -> tuple[HostError, ...]:
    """Remove this mode's chains, ours or kube-proxy's; ``running``: only those in the variant that this mode does not write."""
    if not running:
        routes = failures_of(lambda: remove_marked_route(family, ANSWER_ROUTE))
        return (*remove_all_chains(family, names.is_ours), *routes)
    own = find_tools(family).variant
    return tuple(
        p for each in Variant if each is not own for p in remove_variant(family, each, names.is_ours)
    )


def withdraw_portals(family: Family) -> None:
    """Remove the chains that lead new connections to the relay; a chain that stays is reported by `remove_portals`."""

    def leads_there(table: TableName, name: str) -> bool:
        return table is not TableName.MANGLE and names.is_ours(table, name)

    remove_all_chains(family, leads_there)


def keeps_sources(family: Family, *, wanted: bool = True) -> bool:
    """Route answers to clients' addresses here, or not where that is not wanted; False, and a warning, where the kernel cannot."""
    if not wanted:
        for problem in failures_of(lambda: remove_marked_route(family, ANSWER_ROUTE)):
            log.warning("%s: the route of answers to clients' addresses stays: %s", family.value, problem)
        return False
    try:
        add_marked_route(family, ANSWER_ROUTE)
    except HostError as error:
        log.warning("%s: endpoints see an address of this node, not the client's: %s", family.value, error)
        return False
    return True
