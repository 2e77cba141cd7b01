"""Applies plans to the kernel by the iptables tools of one family.

The state applied last is taken for the kernel's.  After any failure it is discarded, and the next `apply` reads the
names of the existing chains and writes everything.
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from itertools import chain as chained
from typing import TYPE_CHECKING

from kproxy.linux import host
from kproxy.linux.conntrack import invalid_drops
from kproxy.linux.netfilter.rules import Jump
from kproxy.proxy.backends import Applied, RuleCounts
from kproxy.proxy.backends.iptables import names, static_rules
from kproxy.proxy.backends.iptables.compile import localhost_node_ports
from kproxy.proxy.backends.iptables.desired_state import desired_state
from kproxy.proxy.backends.iptables.diff import Rewrite, diff
from kproxy.proxy.backends.iptables.kernel import nfacct
from kproxy.proxy.backends.iptables.kernel.drift import drift_monitor, is_ours
from kproxy.proxy.backends.iptables.static_rules import Options
from kproxy.proxy.backends.xtables.blocks import LEGACY_BLOCK_CHAINS, Block
from kproxy.proxy.backends.xtables.kernel import jumps
from kproxy.proxy.backends.xtables.kernel.removal import remove_chains
from kproxy.proxy.backends.xtables.kernel.unchanged import UnchangedTables, state_reader
from kproxy.proxy.backends.xtables.rules import (
    PacketCounter,
    TableName,
    hook_specification,
    insert_lines,
    specification,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from collections.abc import Set as AbstractSet

    from kproxy.proxy.backends.iptables.compile import Context
    from kproxy.proxy.backends.iptables.desired_state import DesiredState
    from kproxy.proxy.backends.iptables.diff import Transaction
    from kproxy.proxy.backends.iptables.kernel.drift import DriftMonitor
    from kproxy.proxy.backends.xtables.kernel.tools import Tools
    from kproxy.proxy.backends.xtables.rules import ChainName, HookRules
    from kproxy.proxy.plan import Plan

    _Chains = Mapping[TableName, frozenset[ChainName]]

_COUNTED_TABLES = (TableName.FILTER, TableName.NAT)
"""The tables whose rules are counted: mangle has a chain of ours, and no rule."""

_ROUTE_LOCALNET = "net/ipv4/conf/all/route_localnet"


class IptablesKernel:
    """One family's iptables rules of the network namespace this runs in."""

    def __init__(self, tools: Tools) -> None:
        """Store the tools (from `find_tools`); no effects yet."""
        self.tools = tools
        self._latest: DesiredState | None = None
        self._last_applied: DesiredState | None = None
        self._total: Counter[TableName] = Counter()
        self._drift_monitor: DriftMonitor | None = None
        self._read_state = state_reader(tools)
        self._unchanged = UnchangedTables(self._read_state)

    def apply(self, plan: Plan, options: Options) -> Applied:
        """Apply a plan; raises `HostError`, and the next call then writes everything.

        Health check node ports are accepted under any policy of INPUT (``health-check.input-policy-drop.passes``).
        """
        started = time.monotonic()
        desired = self._desired_state(plan, options)
        believed, self._last_applied = self._last_applied, None
        written = self._rewrite(desired) if believed is None else self._update(believed, desired)
        self._last_applied = desired
        return Applied(
            believed is None,
            {f"rules of {table.value}": count for table, count in written.items()},
            rules={t.value: RuleCounts(written.get(t, 0), self._total[t]) for t in _COUNTED_TABLES},
            seconds=time.monotonic() - started,
        )

    def _rewrite(self, desired: DesiredState) -> dict[TableName, int]:
        existing = self._begin()
        nfacct.create_counters(desired.options.counters)
        hooks = self._missing_hooks(desired.context, existing)
        written = self._restore(Rewrite(existing, desired, self.tools.block_chains), hooks)
        _route_localhost(desired.context)
        return written

    def _update(self, last_applied: DesiredState, desired: DesiredState) -> dict[TableName, int]:
        due = _hooks(last_applied.context) != _hooks(desired.context)
        hooks = self._missing_hooks(desired.context, None) if due else []
        written = self._restore(diff(last_applied, desired, self.tools.block_chains), hooks)
        if due:
            _route_localhost(desired.context)
        return written

    def forget(self) -> None:
        """Discard the state applied last: the next `apply` writes everything."""
        self._last_applied = None

    def find_drift(self, *, thorough: bool = True) -> tuple[str, ...]:
        """Changes by other processes since the last `apply`, as far as they can be detected; empty before it.

        Detects flushed and deleted tables (``rules.removed-by-another.restored``), a flush that spares the canaries
        (``rules.removed-by-another.one-table-restored``), and changes in our chains: with iptables-nft in every check, with
        iptables-legacy only in a ``thorough`` one.  A check that is not thorough costs microseconds, a thorough one starts some
        fifteen processes (but `UnchangedTables`).
        """
        if self._last_applied is None or self._drift_monitor is None:
            return ()
        changed = self._drift_monitor.find_drift(self._total, thorough=thorough)
        if not thorough:
            return changed
        context = self._last_applied.context
        return changed + self._unchanged.missing(lambda: self._absent(context))

    def notifiers(self) -> tuple[int, ...]:
        """The drift monitor's; none before the first `apply`."""
        return self._drift_monitor.notifiers() if self._drift_monitor else ()

    def _absent(self, context: Context) -> tuple[str, ...]:
        """Missing canary chains, and missing jumps from builtin chains."""
        gone = [
            f"chain {names.CANARY} of table {t.value}"
            for t in TableName
            if not self.tools.has_chain(t, names.CANARY)
        ]
        for hook in _hooks(context):
            where = f"of {hook.hook.name} in table {hook.table.value}"
            gone += [
                f"rule {hook_specification(rule)} {where}" for rule in jumps.missing_jumps(self.tools, hook)
            ]
        return tuple(gone)

    def cleanup(self) -> None:
        """Remove all chains and jumps of ours, but KUBE-FIREWALL, which is the kubelet's too (``cleanup.nothing-left``)."""
        self._last_applied = None
        remove_iptables_rules(self.tools)

    def _desired_state(self, plan: Plan, options: Options) -> DesiredState:
        ports = tuple(sorted({check.port for check in plan.health_checks}))
        self._latest = desired_state(plan, replace(options, health_check_ports=ports), self._latest)
        return self._latest

    def _begin(self) -> _Chains:
        """Existing chains by table, read before everything is written."""
        if self._drift_monitor is None:
            self._drift_monitor = drift_monitor(self.tools, self._read_state)
        self._drift_monitor.reset()
        return self.tools.chains()

    def _restore(self, transaction: Transaction, hooks: list[Block]) -> dict[TableName, int]:
        """Chains first, then the jumps to them; all by one run of the tool, and none where nothing differs."""
        written: Counter[TableName] = Counter()
        if isinstance(transaction, Rewrite):
            self._total.clear()
        counted = self._chunks(transaction, written)
        whole_tables = self.tools.block_chains == LEGACY_BLOCK_CHAINS
        blocks = iter(_with_hooks(list(counted), hooks)) if whole_tables else chained(counted, hooks)
        first = next(blocks, None)
        if first is not None:
            assert self._drift_monitor is not None, "the first apply writes all"
            all_of_it = isinstance(transaction, Rewrite)
            with self._drift_monitor.paused() if all_of_it else nullcontext():
                self._run_restore(self._drift_monitor, chained((first,), blocks))
        return dict(written)

    def _run_restore(self, drift: DriftMonitor, blocks: Iterable[Block]) -> None:
        try:
            self.tools.restore(blocks, drift.ignore_process)
        finally:
            drift.ignore_process(0)

    def _chunks(self, transaction: Iterable[Block], written: Counter[TableName]) -> Iterator[Block]:
        for block in transaction:
            yield replace(block, lines=self._count_lines(block, written))

    def _count_lines(self, block: Block, written: Counter[TableName]) -> Iterator[str]:
        """A block's lines; counts its rules into ``written`` while they are read."""
        appended = 0
        for text in block.lines:
            appended += text.startswith(("-A ", "-I "))
            yield text
        written[block.table] += appended
        self._total[block.table] += appended if block.added_rules is None else block.added_rules

    def _missing_hooks(self, context: Context, existing: _Chains | None) -> list[Block]:
        """Blocks with missing jumps, one for each table; the martian guard comes first, before loopback becomes routable.

        ``existing`` are the chains that were there before, where that is known.
        """
        lines = {TableName.FILTER: self._missing_guard(context, existing), TableName.NAT: []}
        for hook in _hooks(context):
            if existing is None or _may_exist(hook, existing[hook.table]):
                lines[hook.table] += jumps.repair_lines(self.tools, hook)
            else:
                lines[hook.table] += insert_lines(hook)
        return [Block(table, found) for table, found in lines.items() if found]

    def _missing_guard(self, context: Context, existing: _Chains | None) -> list[str]:
        guard = static_rules.martian_guard(context)
        if guard is None:
            return []
        if existing is None:
            stands = self.tools.has_chain(TableName.FILTER, guard.name)
        else:
            stands = guard.name in existing[TableName.FILTER]
        lines = [] if stands else [f":{guard.name} - [0:0]"]
        for rule in guard.rules:
            if lines or not self.tools.has_rule(TableName.FILTER, guard.name, rule):
                lines.append(f"-A {guard.name} {specification(rule)}")
        return lines


def _with_hooks(blocks: list[Block], hooks: list[Block]) -> list[Block]:
    """Blocks with the hooks at the end of each table's last one: for tools that copy the whole table for each block."""
    last = {block.table: number for number, block in enumerate(blocks)}
    for hook in hooks:
        number = last.get(hook.table)
        if number is None:
            blocks.append(hook)
        else:
            blocks[number] = replace(blocks[number], lines=chained(blocks[number].lines, hook.lines))
    return blocks


def _may_exist(hook: HookRules, existing: AbstractSet[ChainName]) -> bool:
    """True if any of the jumps may exist already: nothing jumps to a chain that does not exist."""
    return any(isinstance(s, Jump) and s.chain in existing for rule in hook.rules for s in rule.steps)


def _route_localhost(context: Context) -> None:
    if localhost_node_ports(context):
        host.write_sysctl(_ROUTE_LOCALNET, "1")


def _hooks(context: Context) -> tuple[HookRules, ...]:
    return static_rules.hook_rules(localhost=localhost_node_ports(context))


def machine_options(tools: Tools, masquerade_bit: int) -> Options:
    """Options that depend on this machine, read now; creates the counters.

    Clauses ``conntrack.invalid-not-leaked``, ``masquerade.source-ports.redrawn``.
    """
    drops = invalid_drops()
    return static_rules.Options(
        1 << masquerade_bit,
        random_fully=tools.random_fully,
        drop_invalid=drops.forwarded,
        drop_invalid_input=drops.input,
        counters=nfacct.create_counters(PacketCounter),
    )


def refresh_options(options: Options) -> Options:
    """The options with those that can change while the proxy runs read again from the machine."""
    drops = invalid_drops()
    if (drops.forwarded, drops.input) == (options.drop_invalid, options.drop_invalid_input):
        return options
    return replace(options, drop_invalid=drops.forwarded, drop_invalid_input=drops.input)


def without_broken_counters(tools: Tools, options: Options) -> Options:
    """The options, without counters where the tools or the kernel refuse a rule with a counter."""
    if nfacct.accepts_counting_rules(tools, nfacct.create_counters(options.counters)):
        return options
    return replace(options, counters=frozenset())


def remove_iptables_rules(tools: Tools) -> None:
    """Remove every chain and jump that this backend or kube-proxy made, but KUBE-FIREWALL and its jumps.

    Does nothing on a clean machine (``life.cleanup.stateless``).
    """
    for table in TableName:
        remove_chains(tools, table, is_ours)
