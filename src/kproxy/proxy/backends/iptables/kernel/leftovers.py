"""Removal of the chains that iptables and ipvs mode leave on a node, ours or kube-proxy's, in both variants of the tools.

Used by `kproxy.proxy.backends.iptables.backend`.  Touches nothing on a clean node (``life.cleanup.stateless``) and leaves
KUBE-FIREWALL, which is the kubelet's too (``life.cleanup``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from kproxy.linux.host import HostError, Reason
from kproxy.model.network import Family
from kproxy.proxy.backends import failures_of
from kproxy.proxy.backends.iptables import names
from kproxy.proxy.backends.iptables.kernel import Tools, Variant, find_tools, nfacct
from kproxy.proxy.backends.iptables.kernel.removal import remove_chains
from kproxy.proxy.backends.xtables.kernel.tools import command_of, list_chains_by_netlink
from kproxy.proxy.backends.xtables.names import IPVS_CHAINS, SHARED_CHAINS
from kproxy.proxy.backends.xtables.rules import TableName

Problems = tuple[HostError, ...]
"""Failed removals; each has the reason, and what to do."""

log = logging.getLogger(__name__)


def remove_iptables(family: Family) -> Problems:
    """Remove chains and jumps of iptables and ipvs mode, by both variants of the tools, and the counters of packets."""
    problems = [problem for variant in Variant for problem in _remove_variant(family, variant)]
    nfacct.delete_counters()
    return tuple(problems)


def remove_other_variant(family: Family) -> Problems:
    """Remove the chains of either mode in the variant that the system's ``iptables`` is not.

    No proxy would keep them up to date there, and they would handle packets beside the rules of this proxy.
    """
    own = find_tools(family).variant
    return tuple(p for variant in Variant if variant is not own for p in _remove_variant(family, variant))


def remove_iptables_beside_ipvs(family: Family) -> Problems:
    """Remove iptables mode's chains on a node where ipvs mode runs now, and all chains in the other variant.

    Chains that both modes have stay: ipvs mode has written them.
    """
    own = _remove_chains(
        find_tools(family), lambda table, name: _is_ours(table, name) and not _is_of_ipvs(table, name)
    )
    return (*own, *remove_other_variant(family))


def _is_ours(table: TableName, name: str) -> bool:
    return name in names.OWN_CHAINS[table] or name in IPVS_CHAINS or names.is_derived(name)


def _is_of_ipvs(table: TableName, name: str) -> bool:
    return name in IPVS_CHAINS or name in SHARED_CHAINS.get(table, ())


def _remove_variant(family: Family, variant: Variant) -> Problems:
    """All of one variant, by its tools; without them its chains stay, and that is reported."""
    try:
        tools = _find_tools(family, variant)
    except HostError as error:
        return _report_remaining(family, variant, error)
    return _remove_chains(tools, _is_ours)


def _find_tools(family: Family, variant: Variant) -> Tools:
    """The variant's tools by their own name, or by the plain one where it stands for them."""
    try:
        return find_tools(family, variant)
    except HostError:
        plain = find_tools(family)
        if plain.variant is not variant:
            raise
        return plain


def _report_remaining(family: Family, variant: Variant, absence: HostError) -> Problems:
    """Failures for chains of a variant whose tools are not installed, as far as the kernel lists them."""
    try:
        found = list_chains_by_netlink(family, variant)
    except HostError:
        found = {}
    found_chains = sorted(
        {f"{t.value} {n}" for t, there in (found or {}).items() for n in there if _is_ours(t, n)}
    )
    save = f"{command_of(family, variant)}-save"
    look = f"look with `{save} | grep KUBE-` where {save} is installed (mostly on the node itself)"
    cure = "remove them with these tools and `kproxy run --cleanup`, or restart the node"
    if found_chains:
        detail = f"{len(found_chains)} chains of a proxy stay, the first: {found_chains[0]}: {absence.detail}; {look}; {cure}"
        return (HostError(absence.operation, detail, Reason.OTHER),)
    if found is None:
        log.warning(
            "%s: rules of a proxy may be in the tables of iptables-%s, and they would still catch packets, deleted "
            "Services' too: %s; %s; %s",
            family.value,
            variant.value,
            absence,
            look,
            cure,
        )
    return ()


def _remove_chains(tools: Tools, is_ours: Callable[[TableName, str], bool]) -> Problems:
    problems = [
        error for table in TableName for error in failures_of(partial(_remove_of, tools, table, is_ours))
    ]
    return tuple(problems)


def _remove_of(tools: Tools, table: TableName, is_ours: Callable[[TableName, str], bool]) -> None:
    count = remove_chains(tools, table, is_ours)
    if count:
        log.info("%s: removed %d chains of table %s", tools.command, count, table.value)
