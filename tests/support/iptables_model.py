"""Tables of iptables in memory, after transactions of iptables mode."""

import re
from collections.abc import Mapping, Sequence
from ipaddress import ip_network

from kproxy.linux.netfilter.restore import BUILTIN, RestoredTables
from kproxy.proxy.backends.iptables.desired_state import DesiredState
from kproxy.proxy.backends.iptables.diff import diff
from kproxy.proxy.backends.iptables.dispatch_tree import SHAPE, Destination, Shape
from kproxy.proxy.backends.iptables.static_rules import Options
from kproxy.proxy.backends.xtables.rules import TableName

SMALL_BLOCKS = 3


OPTIONS = Options()

NARROW = Shape(flat=0, leaf=1, bits=1, depth=6)
"""The smallest trees: every Service has a chain of its own, at the end of many."""

SHAPES = (SHAPE, NARROW)


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
