"""Removal of the chains that iptables and ipvs mode leave on a node, ours or kube-proxy's, in both variants of the tools.

Used by `kproxy.proxy.backends.iptables.backend`.  Touches nothing on a clean node (``life.cleanup.stateless``) and leaves
KUBE-FIREWALL, which is the kubelet's too (``cleanup.nothing-left``).
"""

from __future__ import annotations

from kproxy.linux.host import HostError
from kproxy.model.network import Family
from kproxy.proxy.backends.iptables import names
from kproxy.proxy.backends.iptables.kernel import Variant, find_tools, nfacct
from kproxy.proxy.backends.xtables.kernel.leftovers import remove_all_chains, remove_chains_of, remove_variant
from kproxy.proxy.backends.xtables.names import IPVS_CHAINS, SHARED_CHAINS
from kproxy.proxy.backends.xtables.rules import TableName

Problems = tuple[HostError, ...]
"""Failed removals; each has the reason, and what to do."""


def remove_iptables(family: Family) -> Problems:
    """Remove chains and jumps of iptables and ipvs mode, by both variants of the tools, and the counters of packets."""
    problems = remove_all_chains(family, _is_ours)
    nfacct.delete_counters()
    return problems


def remove_other_variant(family: Family) -> Problems:
    """Remove the chains of either mode in the variant that the system's ``iptables`` is not.

    No proxy would keep them up to date there, and they would handle packets beside the rules of this proxy.
    """
    own = find_tools(family).variant
    return tuple(
        p for variant in Variant if variant is not own for p in remove_variant(family, variant, _is_ours)
    )


def remove_iptables_beside_ipvs(family: Family) -> Problems:
    """Remove iptables mode's chains on a node where ipvs mode runs now, and all chains in the other variant.

    Chains that both modes have stay: ipvs mode has written them.
    """
    own = remove_chains_of(
        find_tools(family), lambda table, name: _is_ours(table, name) and not _is_of_ipvs(table, name)
    )
    return (*own, *remove_other_variant(family))


def _is_ours(table: TableName, name: str) -> bool:
    return names.is_own(table, name) or name in IPVS_CHAINS


def _is_of_ipvs(table: TableName, name: str) -> bool:
    return name in IPVS_CHAINS or name in SHARED_CHAINS.get(table, ())
