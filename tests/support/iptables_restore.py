"""What ``iptables-restore --noflush`` does with its input, in memory, and what it refuses.

Written from its manual, not from our renderer: it knows lines, no typed rules.
"""

from collections.abc import Iterator
from copy import deepcopy

BUILTIN = {
    "mangle": ("PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"),
    "nat": ("PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"),
    "filter": ("INPUT", "FORWARD", "OUTPUT"),
}
TARGETS = {"RETURN", "ACCEPT", "DROP", "REJECT", "DNAT", "MASQUERADE", "MARK"}


class RestoreError(Exception):
    """The line that the tool would refuse."""


class Tables:
    """Chains and their rules (as text without ``-A CHAIN``), by table."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[str, list[str]]] = {
            table: {chain: [] for chain in chains} for table, chains in BUILTIN.items()
        }

    def restore(self, text: str) -> Iterator[None]:
        """Apply; yields after each ``COMMIT``.  A refused block changes nothing."""
        chains: dict[str, list[str]] = {}
        table = ""
        for line in text.splitlines():
            if line.startswith("*"):
                table = line[1:]
                chains = deepcopy(self.tables[table])
            elif line == "COMMIT":
                _check_jumps(chains)
                self.tables[table] = chains
                yield
            else:
                _edit(chains, line)

    def apply(self, text: str) -> None:
        for _ in self.restore(text):
            pass

    def names(self) -> dict[str, frozenset[str]]:
        return {table: frozenset(chains) for table, chains in self.tables.items()}


def _edit(chains: dict[str, list[str]], line: str) -> None:
    order, _, rest = line.partition(" ")
    if order.startswith(":"):
        chains[order[1:]] = []
        return
    name, _, rule = rest.partition(" ")
    if name not in chains:
        raise RestoreError(f"no chain: {line}")
    rules = chains[name]
    match order:
        case "-A":
            rules.append(rule)
        case "-I":
            rules.insert(0, rule)
        case "-D" if rule in rules:
            rules.remove(rule)
        case "-X" if not rules:
            if name in {_target(r) for members in chains.values() for r in members}:
                raise RestoreError(f"in use: {line}")
            del chains[name]
        case _:
            raise RestoreError(line)


def _target(rule: str) -> str:
    tokens = rule.split()
    return tokens[tokens.index("-j") + 1]


def _check_jumps(chains: dict[str, list[str]]) -> None:
    for name, rules in chains.items():
        for rule in rules:
            if _target(rule) not in TARGETS and _target(rule) not in chains:
                raise RestoreError(f"jump to nowhere in {name}: {rule}")
