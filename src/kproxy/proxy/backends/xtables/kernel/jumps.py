"""Jumps from builtin chains to ours: those that exist, and the lines of a restore that repair them.

Jumps are compared by effect, not by text: to the tools, rules whose matches are ordered differently are different, and
other proxies and earlier versions of this one wrote them in another order.  Reads rules and writes none.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from kproxy.linux.host import HostError, Reason
from kproxy.proxy.backends.xtables.rules import format_step, hook_specification, insert_lines

if TYPE_CHECKING:
    from kproxy.linux.netfilter.rules import Rule
    from kproxy.proxy.backends.xtables.kernel.tools import Tools
    from kproxy.proxy.backends.xtables.rules import HookRules, TableName


def missing_jumps(tools: Tools, wanted: HookRules) -> list[Rule]:
    """The jumps that do not exist in the form in which this proxy writes them."""
    standing = _present_jumps(tools, wanted)
    return [rule for rule in wanted.rules if hook_specification(rule) not in standing]


def repair_lines(tools: Tools, wanted: HookRules) -> list[str]:
    """Lines after which each jump exists once, in our form; none where that is so already.

    All jumps of the builtin chain are inserted again at its top, since their order matters.
    """
    standing, chain = _present_jumps(tools, wanted), wanted.hook.name
    desired = [hook_specification(rule) for rule in wanted.rules]
    if sorted(standing) == sorted(desired):
        return []
    return [*(f"-D {chain} {line}" for line in standing), *insert_lines(wanted)]


def _present_jumps(tools: Tools, wanted: HookRules) -> list[str]:
    """The builtin chain's rules with the effect of one of our jumps, as the tool lists them, in order."""
    targets = tuple(f" {format_step(rule.steps[-1])}" for rule in wanted.rules)
    ours = [_rule_parts(hook_specification(rule)) for rule in wanted.rules]
    found = list_chain_rules(tools, wanted.table, wanted.hook.name)
    return [line for line in found if f" {line}".endswith(targets) and _rule_parts(line) in ours]


def list_chain_rules(tools: Tools, table: TableName, chain: str) -> list[str]:
    """A chain's rules without ``-A CHAIN``; none where it does not exist, or iptables-nft cannot show it."""
    try:
        lines = tools.list_rules(table, chain)
    except HostError as error:
        if error.reason is Reason.MISSING:
            return []
        raise
    prefix = f"-A {chain} "
    return [line.removeprefix(prefix) for line in lines if line.startswith(prefix)]


def _rule_parts(line: str) -> list[str]:
    """Options of a listed rule, without their order."""
    return sorted(shlex.split(line))
