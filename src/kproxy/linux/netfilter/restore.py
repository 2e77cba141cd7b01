"""``iptables-restore --noflush`` in memory: its input becomes the tables that a packet walks, or is refused.

Written from the tool's manual and not from our renderer: it knows lines, no typed rules.  The rules of a chain are read by
the reader of ``iptables-save`` when a packet comes to them, and again only when the chain has changed.  Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kproxy.linux.netfilter.readers.ipset import Ipset
from kproxy.linux.netfilter.readers.iptables import chains_table, saved_chain
from kproxy.linux.netfilter.readers.iptables_options import RuleContext
from kproxy.linux.netfilter.readers.iptables_targets import is_target
from kproxy.linux.netfilter.rules import Chain, Table
from kproxy.model.network import Family

BUILTIN = {
    "mangle": ("PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"),
    "nat": ("PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"),
    "filter": ("INPUT", "FORWARD", "OUTPUT"),
}

Lines = tuple[str, ...]


class RestoreError(Exception):
    """The line that the tool would refuse."""


class RestoredTables:
    """Chains and their rules (as text without ``-A CHAIN``), by table; builtin chains accept what no rule decides."""

    def __init__(self) -> None:
        """Builtin chains alone, all empty."""
        self.tables: dict[str, dict[str, Lines]] = {
            table: dict.fromkeys(chains, ()) for table, chains in BUILTIN.items()
        }
        self._read: dict[tuple[str, str], tuple[Lines, Chain]] = {}

    def restore(self, text: str) -> Iterator[None]:
        """Applies; yields after each ``COMMIT``.  A block that is refused (`RestoreError`) changes nothing."""
        table, block = "", _Block({})
        for line in text.splitlines():
            if line.startswith("*"):
                table = line[1:]
                block = _Block(self.tables[table])
            elif line == "COMMIT":
                _check_jumps(block.chains, self.tables[table])
                self.tables[table] = block.chains
                yield
            else:
                block.edit(line)

    def apply(self, text: str) -> None:
        """Applies all blocks.  Raises `RestoreError`."""
        for _ in self.restore(text):
            pass

    def names(self) -> dict[str, frozenset[str]]:
        """The names of all chains by table."""
        return {table: frozenset(chains) for table, chains in self.tables.items()}

    def netfilter_tables(self, family: Family, sets: Mapping[str, Ipset]) -> Iterator[Table]:
        """The tables as a packet of the family walks them; ``sets`` must be the same object as long as no type of a set changes."""
        for table, chains in self.tables.items():
            context = RuleContext(family, frozenset(chains), sets)
            found = {name: self._chain(table, name, lines, context) for name, lines in chains.items()}
            yield chains_table(table, found, context)

    def _chain(self, table: str, name: str, lines: Lines, context: RuleContext) -> Chain:
        known = self._read.get((table, name))
        if known is not None and known[0] is lines:
            return known[1]
        policy = "ACCEPT" if name in BUILTIN[table] else "-"
        chain = saved_chain(table, name, policy, [f"-A {name} {line}" for line in lines], context)
        self._read[table, name] = lines, chain
        return chain


class _Block:
    """A table while the lines of one block change it."""

    def __init__(self, chains: Mapping[str, Lines]) -> None:
        self.chains = dict(chains)
        self._targets: frozenset[str] | None = None

    def edit(self, line: str) -> None:
        order, _, rest = line.partition(" ")
        name, _, rule = rest.partition(" ")
        if order == "-X":
            self._delete(name, line)
            return
        self._targets = None
        if order.startswith(":"):
            self.chains[order[1:]] = ()
        elif name not in self.chains:
            raise RestoreError(f"no chain: {line}")
        else:
            self.chains[name] = _edited(self.chains[name], order, rule, line)

    def _delete(self, name: str, line: str) -> None:
        if self._targets is None:
            self._targets = frozenset(_target(rule) for rules in self.chains.values() for rule in rules)
        if self.chains.get(name, line) or name in self._targets:
            raise RestoreError(f"not there, not empty or in use: {line}")
        del self.chains[name]


def _edited(rules: Lines, order: str, rule: str, line: str) -> Lines:
    """A chain's rules after one line.  Raises `RestoreError`."""
    match order:
        case "-A":
            return (*rules, rule)
        case "-I":
            place, rule = _placed(rule)
            if place <= len(rules) + 1:
                return (*rules[: place - 1], rule, *rules[place - 1 :])
        case "-D" if rule in rules:
            at = rules.index(rule)
            return (*rules[:at], *rules[at + 1 :])
    raise RestoreError(line)


def _placed(rule: str) -> tuple[int, str]:
    """Where ``-I`` puts a rule, and the rule."""
    first, _, rest = rule.partition(" ")
    return (int(first), rest) if first.isdigit() else (1, rule)


def _target(rule: str) -> str:
    tokens = rule.split()
    flag = "-j" if "-j" in tokens else "-g"
    return tokens[tokens.index(flag) + 1]


def _check_jumps(chains: Mapping[str, Lines], before: Mapping[str, Lines]) -> None:
    """Rules that were there before can have lost no chain: ``-X`` refuses that."""
    for name, rules in chains.items():
        for rule in () if before.get(name) is rules else rules:
            if not is_target(_target(rule)) and _target(rule) not in chains:
                raise RestoreError(f"jump to nowhere in {name}: {rule}")
