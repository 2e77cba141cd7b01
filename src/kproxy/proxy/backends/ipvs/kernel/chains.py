"""Writer of one family's iptables chains, by the tools.  They are few and of constant size: always written whole.

All failures are `kproxy.linux.host.HostError`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kproxy.linux.host import HostError, Reason
from kproxy.proxy.backends.ipvs import names
from kproxy.proxy.backends.ipvs.rules import HookRule, Ruleset, rule_text
from kproxy.proxy.backends.xtables.blocks import Block
from kproxy.proxy.backends.xtables.kernel.tools import Tools
from kproxy.proxy.backends.xtables.rules import TableName

OWN_CHAINS: Mapping[TableName, tuple[str, ...]] = {
    TableName.MANGLE: (
        names.TRAFFIC_POLICY,
        names.IPVS_OUT_FILTER,
        names.EXTERNAL_POLICY,
        names.SHORTCUT,
        names.SOURCE_RANGES_FIREWALL,
    ),
    TableName.NAT: (names.LOAD_BALANCER, names.NODE_PORT),
    TableName.FILTER: (
        names.NODE_PORT,
        names.IPVS_FILTER,
        names.IPVS_OUT_FILTER,
        names.SOURCE_RANGES_FIREWALL,
    ),
}
"""Chains that only ipvs mode has."""

_REFERRING: Mapping[TableName, tuple[str, ...]] = {
    TableName.MANGLE: ("PREROUTING", "OUTPUT"),
    TableName.NAT: (names.SERVICES, names.POSTROUTING),
    TableName.FILTER: ("INPUT", "FORWARD", "OUTPUT", names.PROXY_FIREWALL),
}
"""Chains that ipvs mode shares with others, and in which rules refer to its chains and sets."""

_FIREWALL_JUMP = f'"kube-proxy firewall rules" -j {names.PROXY_FIREWALL}'
"""A jump of this mode to a chain that iptables mode has too, under another comment."""


_SERVING = ((TableName.NAT, names.SERVICES), (TableName.FILTER, names.PROXY_FIREWALL))
"""Chains of both modes by which iptables mode serves, and guards what it serves."""

ListedChains = Mapping[tuple[TableName, str], Sequence[str]]
"""Rules of chains as ``iptables -S`` lists them, by table and chain."""


@dataclass(frozen=True, slots=True)
class IptablesChains:
    """The chains of ipvs mode, by the tools of one family."""

    tools: Tools

    def write_interim(self, ruleset: Ruleset) -> None:
        """Write all chains, then the missing jumps: what another mode serves by chains of both, it goes on to serve."""
        following = {place: self._others_rules(*place) for place in _SERVING}
        self.tools.restore(chain_blocks(ruleset, following))
        there = self._builtin_chains(ruleset.hooks)
        places = {(hook.table, hook.chain) for hook in _missing(ruleset.hooks, there)}
        if places:
            hooks = [hook for hook in ruleset.hooks if (hook.table, hook.chain) in places]
            self.tools.restore(_hook_blocks(hooks, there))

    def replace(self, ruleset: Ruleset) -> None:
        """Write all chains, without another mode's rules in chains of both; `write_interim` has written the jumps."""
        self.tools.restore(chain_blocks(ruleset))

    def missing_hooks(self, hooks: Sequence[HookRule]) -> list[HookRule]:
        """Jumps that do not exist; runs the tool once for each builtin chain."""
        return _missing(hooks, self._builtin_chains(hooks))

    def _builtin_chains(self, hooks: Sequence[HookRule]) -> ListedChains:
        return {place: self._rules(*place) for place in dict.fromkeys((h.table, h.chain) for h in hooks)}

    def remove(self) -> None:
        """Remove the chains that only this mode has, and every rule that refers to them or to its sets."""
        blocks = [Block(table, lines) for table in TableName if (lines := self._removal(table))]
        if blocks:
            self.tools.restore(blocks)

    def _removal(self, table: TableName) -> list[str]:
        there = [chain for chain in OWN_CHAINS[table] if self._rules(table, chain)]
        rules = [rule for chain in _REFERRING[table] for rule in self._rules(table, chain)]
        return [
            *(f":{chain} - [0:0]" for chain in there),
            *(f"-D {rule.removeprefix('-A ')}" for rule in rules if _refers_to_ours(rule, table)),
            *(f"-X {chain}" for chain in there),
        ]

    def _others_rules(self, table: TableName, chain: str) -> list[str]:
        return [rule for rule in self._rules(table, chain)[1:] if not _refers_to_ours(rule, table)]

    def _rules(self, table: TableName, chain: str) -> list[str]:
        """The chain as ``iptables -S`` lists it, its declaration first; empty where there is none."""
        try:
            return self.tools.list_rules(table, chain)
        except HostError as error:
            if error.reason is Reason.MISSING:
                return []
            raise


def chain_blocks(ruleset: Ruleset, following: ListedChains | None = None) -> list[Block]:
    """All chains as ``iptables-restore`` is given them, without the jumps; ``following`` rules behind ours."""
    behind = following or {}
    return [
        Block(
            table,
            [
                *(f":{chain} - [0:0]" for chain in found),
                *(f"-A {chain} {rule_text(rule)}" for chain, rules in found.items() for rule in rules),
                *(rule for (where, _), rules in behind.items() if where is table for rule in rules),
            ],
        )
        for table, found in ruleset.chains.items()
    ]


def _missing(hooks: Sequence[HookRule], there: ListedChains) -> list[HookRule]:
    return [hook for hook in hooks if _listed(hook) not in there[hook.table, hook.chain]]


def _listed(hook: HookRule) -> str:
    return f"-A {hook.chain} {rule_text(hook.rule)}"


def _hook_blocks(hooks: list[HookRule], there: ListedChains) -> list[Block]:
    """Blocks that put all jumps of a builtin chain at its top, since their order matters; those of an earlier version go."""
    lines: dict[TableName, list[str]] = {hook.table: [] for hook in hooks}
    places: dict[tuple[TableName, str], int] = {(hook.table, hook.chain): 0 for hook in hooks}
    wanted = set(map(_listed, hooks))
    for table, chain in places:
        ours = [r for r in there[table, chain] if r in wanted or _target(r) in OWN_CHAINS[table]]
        lines[table] += [f"-D {rule.removeprefix('-A ')}" for rule in ours]
    for hook in hooks:
        place = places[hook.table, hook.chain] = places[hook.table, hook.chain] + 1
        lines[hook.table].append(f"-I {hook.chain} {place} {rule_text(hook.rule)}")
    return [Block(table, found) for table, found in lines.items()]


def _refers_to_ours(rule: str, table: TableName) -> bool:
    """True if a listed rule refers to a chain or set that only ipvs mode has."""
    if not rule.startswith("-A"):
        return False
    return "--match-set KUBE-" in rule or _target(rule) in OWN_CHAINS[table] or rule.endswith(_FIREWALL_JUMP)


def _target(rule: str) -> str:
    return rule.rpartition(" ")[2]
