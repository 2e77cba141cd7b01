"""The table of nftables mode in memory, after its transactions."""

from collections import Counter
from collections.abc import Iterable

from kproxy.linux.netfilter.rules import Goto
from kproxy.proxy.backends.nftables.desired_state import desired_state
from kproxy.proxy.backends.nftables.diff import Rewrite
from kproxy.proxy.backends.nftables.names import FrontendMaps, PoolRole
from kproxy.proxy.backends.nftables.static_rules import Options
from kproxy.proxy.plan import Plan
from tests.support.nftables_table import SimulatedTable

OPTIONS = Options()


NUMBERED = {choice.endpoints(way) for way in FrontendMaps for choice in PoolRole}


def contents(table: SimulatedTable, without: Iterable[str] = ()) -> object:
    """What the table does, whichever number each endpoint has."""
    chains = {
        name: Counter(step for rule in chain.rules for step in rule.steps if isinstance(step, Goto))
        if name.startswith("affinity-")
        else chain
        for name, chain in table.chains.items()
        if name not in without
    }
    elements = {name: found for name, found in table.elements.items() if name not in NUMBERED}
    numbered = {
        name: Counter((*key[:-1], value) for key, value in table.elements[name].items()) for name in NUMBERED
    }
    return chains, table.collections, elements, numbered


def fresh(plan: Plan) -> SimulatedTable:
    table = SimulatedTable(plan.family)
    table.apply(Rewrite(desired_state(plan, OPTIONS)))
    return table
