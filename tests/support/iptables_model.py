"""Tables of iptables in memory, after transactions of iptables mode."""

from kproxy.linux.netfilter.restore import BUILTIN, RestoredTables
from kproxy.proxy.backends.iptables.desired_state import DesiredState
from kproxy.proxy.backends.iptables.diff import diff
from kproxy.proxy.backends.iptables.static_rules import Options
from kproxy.proxy.backends.xtables.rules import TableName

SMALL_BLOCKS = 3


OPTIONS = Options()


def held(tables: RestoredTables) -> dict[str, dict[str, list[str]]]:
    return {
        table: {name: list(rules) for name, rules in chains.items() if name not in BUILTIN[table]}
        for table, chains in tables.tables.items()
    }


def unordered(tables: dict[str, dict[str, list[str]]]) -> dict[str, dict[str, list[str]]]:
    """Chains that services share have no order among services."""
    shared = {"KUBE-SERVICES", "KUBE-NODEPORTS", "KUBE-EXTERNAL-SERVICES", "KUBE-PROXY-FIREWALL"}
    return {
        t: {n: sorted(rules) if n in shared else rules for n, rules in chains.items()}
        for t, chains in tables.items()
    }


def existing(tables: RestoredTables) -> dict[TableName, frozenset[str]]:
    return {TableName(name): chains for name, chains in tables.names().items()}


def rewritten(
    desired: DesiredState, tables: RestoredTables | None = None, limit: int = SMALL_BLOCKS
) -> RestoredTables:
    tables = tables or RestoredTables()
    tables.apply(str(diff(existing(tables), desired, limit)))
    return tables
