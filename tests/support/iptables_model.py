"""Rules of iptables mode as values, and tables of iptables in memory, after its transactions."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_network

from kproxy.linux.netfilter.restore import BUILTIN, RestoredTables
from kproxy.linux.netfilter.rules import Chain, Rule
from kproxy.model.network import Family
from kproxy.proxy.backends.iptables import names, static_rules
from kproxy.proxy.backends.iptables.desired_state import DesiredState, edited_trees
from kproxy.proxy.backends.iptables.diff import diff
from kproxy.proxy.backends.iptables.dispatch import SharedTrees, empty_trees
from kproxy.proxy.backends.iptables.dispatch_tree import SHAPE, Shape
from kproxy.proxy.backends.iptables.names import SharedChain
from kproxy.proxy.backends.iptables.static_rules import Options
from kproxy.proxy.backends.xtables.rules import ChainName, Destination, TableName

SMALL_BLOCKS = 3


OPTIONS = Options()

NARROW = Shape(flat=0, leaf=1, bits=1, depth=6)
"""The smallest trees: every Service has a chain of its own, at the end of many."""

SHAPES = (SHAPE, NARROW)


@dataclass(frozen=True, slots=True)
class Ruleset:
    """All chains of ours in one family, by table and name; the keys of builtin chains are names of `Point`."""

    family: Family
    tables: Mapping[TableName, Mapping[ChainName, Chain]]


def build_ruleset(desired: DesiredState) -> Ruleset:
    """The whole as typed rules, hooks of the builtin chains included."""
    tables = {
        table: {c.name: c for c in found}
        for table, found in static_rules.static_chains(desired.options).items()
    }
    for service_rules in desired.service_rules.values():
        tables[TableName.NAT].update({chain.name: chain for chain in service_rules.chains()})
    empty: SharedTrees[Rule] = empty_trees(desired.context.family, desired.shape)
    rules = [one for each in desired.service_rules.values() for one in each.placed(_itself)]
    for shared, trees in edited_trees(dict.fromkeys(SharedChain, empty), (), rules).items():
        last = static_rules.node_port_rules(desired.context) if shared is SharedChain.NAT_SERVICES else ()
        chains = trees.chains(shared, _itself, last)
        tables[shared.table].update({name: Chain(name, found) for name, found in chains.items()})
    guard = static_rules.martian_guard(desired.context)
    if guard is not None:
        tables[TableName.FILTER][guard.name] = guard
    for hook in static_rules.hook_rules(localhost=guard is not None):
        tables[hook.table][hook.hook.name] = Chain(hook.hook.name, hook.rules)
    for table, known in tables.items():
        known.update({name: Chain(name) for name in names.OWN_CHAINS[table] if name not in known})
    return Ruleset(desired.context.family, tables)


def _itself(rule: Rule) -> Rule:
    return rule


def held(tables: RestoredTables) -> dict[str, dict[str, list[str]]]:
    return {
        table: {name: list(rules) for name, rules in chains.items() if name not in BUILTIN[table]}
        for table, chains in tables.tables.items()
    }


Chains = Mapping[str, Sequence[str]]
"""Rules without ``-A CHAIN`` by chain."""


def rules_met(tables: RestoredTables, table: str, chain: str, destination: Destination) -> list[str]:
    """`rules_met_in` a table of the kernel's."""
    return rules_met_in(tables.tables[table], chain, destination)[0]


def rules_met_in(chains: Chains, chain: str, destination: Destination) -> tuple[list[str], int]:
    """The rules of service ports that match a destination, in the order in which a packet meets them, and how many it is compared with.

    Chains of trees are followed, those of service ports are not.
    """
    met: list[str] = []
    compared = 0
    for line in chains[chain]:
        compared += 1
        if not _matches(line, destination):
            continue
        order, target = line.split()[-2:]
        if "/" not in target:
            met.append(line)
            continue
        below, more = rules_met_in(chains, target, destination)
        met, compared = met + below, compared + more
        if order == "-g":
            break
    return met, compared


def _matches(line: str, destination: Destination) -> bool:
    network, protocol, ports = (re.search(pattern, line) for pattern in _PATTERNS)
    if network and (destination.address is None or destination.address not in ip_network(network[1])):
        return False
    if protocol and protocol[1] != destination.protocol.value.lower():
        return False
    return not ports or int(ports[1]) <= destination.port <= int(ports[2] or ports[1])


_PATTERNS = tuple(map(re.compile, (r"(?<!! )-d (\S+)", r"-p (\S+)", r"--dport (\d+)(?::(\d+))?")))


def existing(tables: RestoredTables) -> dict[TableName, frozenset[str]]:
    return {TableName(name): chains for name, chains in tables.names().items()}


def rewritten(
    desired: DesiredState, tables: RestoredTables | None = None, limit: int = SMALL_BLOCKS
) -> RestoredTables:
    tables = tables or RestoredTables()
    tables.apply(str(diff(existing(tables), desired, limit)))
    return tables
